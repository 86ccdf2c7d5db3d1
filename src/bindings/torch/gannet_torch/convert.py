"""python -m gannet_torch.convert FILE [-o OUT.safetensors] [--key NAME] [--force]

Writes the tensors of a file of torch.save (.pth, .pt, .bin) as safetensors, for gannet train --init and gannet eval --weights. Those know
timm's and Transformers' names, and prefixes such as "module.", by themselves. The file is read with weights_only=True, so that no code in
it runs. This program needs PyTorch alone, and can be started by its path, too.

Exit code 2: wrong usage; 3: the file cannot be converted.
"""
import argparse
import contextlib
import ctypes
import json
import os
import pathlib
import re
import struct
import sys
import warnings

import torch

KEYS = ("state_dict", "model_state_dict", "model", "model_ema", "ema", "module")
TYPES = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.int64: "I64", torch.int32: "I32", torch.int16: "I16",
         torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL"}
TRUSTED = ("""python -c 'import sys, torch; m = torch.load(sys.argv[1], "cpu", weights_only=False); """
           """d = m if isinstance(m, dict) else {}; """
           """m = next((v for v in d.values() if isinstance(v, torch.nn.Module)), d.get("state_dict", d.get("model", m))); """
           """torch.save(m.state_dict() if isinstance(m, torch.nn.Module) else m, sys.argv[2])'""")


class Refusal(Exception):
    """One line for the user, and the exit code."""

    def __init__(self, text, code=3):
        super().__init__(" ".join(text.split()))
        self.code = code


class Parser(argparse.ArgumentParser):
    def error(self, message):
        raise Refusal(f"{message} (--help)", 2)


def listed(names):
    names = [str(n) for n in names]
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def say(text):
    print(f"gannet_torch.convert: {text}", file=sys.stderr)


def harmless():
    """What training scripts keep beside the tensors: options, paths, and numbers of numpy."""
    allowed = [argparse.Namespace, pathlib.PosixPath]
    with contextlib.suppress(ImportError):
        import numpy

        allowed += [numpy.dtype, numpy.float64(0).__reduce__()[0], *{type(numpy.dtype(c)) for c in "?bBhHiIlLqQefd"}]
    return allowed


def load(path):
    with open(path, "rb") as f:
        start = f.read(9)
    if start[8:] == b"{" and struct.unpack("<Q", start[:8])[0] < 1 << 32:
        raise Refusal(f"{path} is a safetensors file already: gannet reads it as it is")
    try:
        with getattr(torch.serialization, "safe_globals", lambda _: contextlib.nullcontext())(harmless()):
            return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as e:  # a damaged file can make anything of the reader
        text = str(e)
        other = re.search(r"GLOBAL (\S+) was not an allowed", text)
        if other:
            raise Refusal(f"{path} has a pickled {other[1]}, and to read that is to run code of the file. Where you trust it and its classes can be "
                          f"imported, {TRUSTED} {path} plain.pth writes its tensors alone: convert plain.pth") from e
        if "TorchScript" in text:
            raise Refusal(f"{path} is a TorchScript archive. Where you trust it, python -c 'import sys, torch; "
                          f"torch.save(torch.jit.load(sys.argv[1], \"cpu\").state_dict(), sys.argv[2])' {path} plain.pth writes its tensors: convert "
                          "plain.pth") from e
        first = re.split(r"[.:;]?[ ]*\n|[.;] ", text)[0][:150]
        raise Refusal(f"{path} is not a file of torch.save, or damaged: {type(e).__name__}: {first}") from e


def has_tensors(value):
    return isinstance(value, dict) and any(isinstance(v, torch.Tensor) or k in KEYS and has_tensors(v) for k, v in value.items())


def pick(content, key, path):
    """The state dict in the file, and its key there ("" at the top)."""
    trail = []
    if key:
        if not isinstance(content, dict) or key not in content:
            raise Refusal(f"{path} has no '{key}', but {listed(content) if isinstance(content, dict) else f'a {type(content).__name__}'}", 2)
        content = content[key]
        trail.append(key)
    while isinstance(content, dict) and (within := [k for k, v in content.items() if has_tensors(v)]):
        known = [k for k in KEYS if k in within]
        if not known and len(within) > 1:
            raise Refusal(f"{path} has tensors in {listed(within)}: choose with --key", 2)
        trail.append((known or within)[0])
        content = content[trail[-1]]
        if others := [k for k in within if k != trail[-1]]:
            say(f"tensors of '{trail[-1]}' are taken; --key takes {listed(others)}")
    if not has_tensors(content):
        raise Refusal(f"{path} has no tensors, only {listed(content) if isinstance(content, dict) and content else f'a {type(content).__name__}'}")
    return content, ".".join(map(str, trail))


def convert(state):
    """Name to tensor: contiguous, not in shared memory that is written twice, and F32 for F64."""
    tensors, left_out, halved = {}, [], []
    for name, value in state.items():
        if not isinstance(value, torch.Tensor) or value.layout != torch.strided or value.dtype not in {*TYPES, torch.float64}:
            left_out.append(name)
            continue
        if value.dtype == torch.float64:
            halved.append(name)
            value = value.float()
        tensors[str(name)] = value.detach().contiguous()
    if halved:
        say(f"F64 becomes F32: {listed(halved)}")
    if left_out:
        say(f"left out, because they are not dense tensors of a known type: {listed(left_out)}")
    return tensors


def write(out, tensors):
    """Larger types first, so that each tensor is aligned; under a temporary name until it is whole."""
    order = sorted(tensors, key=lambda n: (-tensors[n].element_size(), n))
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name in order:
        size = tensors[name].numel() * tensors[name].element_size()
        header[name] = {"dtype": TYPES[tensors[name].dtype], "shape": list(tensors[name].shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    temporary = f"{out}.tmp-{os.getpid()}"
    try:
        with open(temporary, "xb") as f:
            f.write(struct.pack("<Q", len(text)) + text)
            for name in order:
                begin, end = header[name]["data_offsets"]
                if end > begin:
                    f.write((ctypes.c_char * (end - begin)).from_address(tensors[name].data_ptr()))
            f.flush()
            os.fsync(f.fileno())
        os.replace(temporary, out)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    return at


def run(arguments):
    parser = Parser(prog="python -m gannet_torch.convert", description=__doc__.partition("\n\n")[2],
                    formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", metavar="FILE")
    parser.add_argument("-o", "--out", metavar="OUT.safetensors", help="(default: FILE with another suffix)")
    parser.add_argument("--key", metavar="NAME", help=f"entry that holds the tensors (default: the first that is there of {', '.join(KEYS)})")
    parser.add_argument("--force", action="store_true", help="replace OUT")
    options = parser.parse_args(arguments)
    out = options.out or os.path.splitext(options.file)[0] + ".safetensors"
    content = load(options.file)
    if os.path.exists(out) and not os.path.isfile(out):
        raise Refusal(f"{out} exists and is not a regular file: give another -o", 2)
    if os.path.exists(out) and not options.force:
        raise Refusal(f"{out} exists already: give another -o, or --force", 2)
    state, key = pick(content, options.key, options.file)
    tensors = convert(state)
    if not tensors:
        raise Refusal(f"{options.file} has no tensor that can be converted")
    size = write(out, tensors)
    print(f"{out}: {len(tensors)} tensors{f' of {key!r}' if key else ''}, {size / 1e6:.1f} MB")


def main(arguments=None):
    warnings.simplefilter("ignore")
    try:
        run(arguments)
    except Refusal as e:
        say(e)
        return e.code
    except OSError as e:
        say(f"{e.filename or 'output'}: {e.strerror or e}")
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
