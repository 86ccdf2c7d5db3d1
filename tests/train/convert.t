#!/bin/sh
# python -m gannet_torch.convert: files of torch.save become safetensors that gannet reads; what is refused. Without PyTorch only that it compiles.
set -u
. "$GN_SOURCE/tests/train/common.sh"
convert=$GN_SOURCE/src/bindings/torch/gannet_torch/convert.py
export PYTHONDONTWRITEBYTECODE=1

check 'it compiles' python3 -c 'import sys; compile(open(sys.argv[1]).read(), sys.argv[1], "exec")' "$convert"
python=
for p in python3 "$HOME/.cache/gannet/frameworks/bin/python"; do
	[ -z "$python" ] && "$p" -c 'import torch' 2>/dev/null && python=$p
done
if [ -z "$python" ]; then
	skip 'files of torch.save' 'no torch for python3, nor in ~/.cache/gannet/frameworks: pip install torch'
	finish
	exit
fi

check 'images' "$gannet" pack --out "$dir/train" --synthetic 12 --classes 3 --size 28x28
check 'a network' "$gannet" train --data "$dir/train" --model lenet --batch 4 --steps 1 --threads 1 --loader-threads 1 --checkpoint "$dir/run"
check 'its file' "$gannet" export --checkpoint "$dir/run" --out "$dir/lenet.safetensors"
evaluates() { "$gannet" eval --data "$dir/train" --threads 1 --model lenet --weights "$1" --logits "$2"; }
check 'its logits' evaluates "$dir/lenet.safetensors" "$dir/lenet.npy"
# Writes the files, then converts in one process, since it takes seconds to import torch: out/NAME has what was printed, and the exit code.
mkdir "$dir/out"
check 'files as training scripts write them are converted' "$python" - "$dir" "$convert" <<'PY'
import argparse, contextlib, importlib.util, io, json, os, pathlib, struct, sys
import torch

d = pathlib.Path(sys.argv[1])
spec = importlib.util.spec_from_file_location("convert", sys.argv[2])
convert = importlib.util.module_from_spec(spec)
spec.loader.exec_module(convert)

def run(name, file, *options):
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = convert.main([*([str(d / file)] if file else []), *options])
    (d / "out" / name).write_text(f"{said.getvalue()}exit code {code}\n")

data = (d / "lenet.safetensors").read_bytes()
size = struct.unpack("<Q", data[:8])[0]
state = {}
for name, t in json.loads(data[8:8 + size]).items():
    if name != "__metadata__":
        begin, end = t["data_offsets"]
        state[name] = torch.frombuffer(bytearray(data[8 + size + begin:8 + size + end]), dtype=torch.float32).reshape(t["shape"])
odd = {f"module.{k}": v.t().contiguous().t() if v.dim() == 2 else v.double() for k, v in state.items()}
odd["module.shared"] = odd["module.conv1.bias"]
torch.save(state, d / "plain.pth")
torch.save(state, d / "old.bin", _use_new_zipfile_serialization=False)
torch.save({"model": odd, "model_ema": state, "args": argparse.Namespace(lr=1.0, out=pathlib.Path("x")), "epoch": 3}, d / "script.pth")
torch.save({"nets": {"state_dict": state}, "loss": torch.tensor(1.0)}, d / "nets.pth")
torch.save({"a": state, "b": state}, d / "two.pth")
torch.save({"weight": torch.eye(2), "steps": 4, "z": torch.zeros(2, dtype=torch.complex64)}, d / "mixed.pt")
torch.save({"epoch": 3}, d / "none.pth")
torch.save({"model": torch.nn.Sequential(torch.nn.Linear(2, 2))}, d / "whole.pth")
torch.jit.script(torch.nn.Linear(2, 2)).save(d / "jit.pt")
torch.save({"model": state, "epoch": 3}, d / "nested.pth")
torch.save(torch.nn.Sequential(torch.nn.Linear(2, 2)), d / "module.pth")
(d / "cut.pth").write_bytes((d / "plain.pth").read_bytes()[:500])
run("plain", "plain.pth")
run("exists", "plain.pth")
run("force", "plain.pth", "--force")
os.mkfifo(d / "pipe")
run("pipe", "plain.pth", "--force", "-o", str(d / "pipe"))
run("old", "old.bin")
run("script", "script.pth")
run("ema", "script.pth", "--key", "model_ema", "-o", str(d / "ema.safetensors"))
run("nets", "nets.pth")
run("two", "two.pth")
run("no-key", "two.pth", "--key", "c")
run("mixed", "mixed.pt")
run("none", "none.pth")
run("jit", "jit.pt")
run("whole", "whole.pth")
run("cut", "cut.pth")
run("no-file", "none-such.pth")
run("safetensors", "lenet.safetensors", "-o", str(d / "y.safetensors"))
run("itself", "lenet.safetensors")
torch.save({"net": torch.nn.Sequential(torch.nn.Linear(2, 2)), "epoch": 1}, d / "net.pth")
run("net", "net.pth")
(d / "page.pth").write_text("<!DOCTYPE html><html>404</html>")
run("page", "page.pth")
run("no-argument", "")
PY
said() { # CODE PATTERN NAME
	expect 0 "$2" "$3: what it says" cat "$dir/out/$3"
	expect 0 "^exit code $1\$" "$3: its exit code" tail -n 1 "$dir/out/$3"
}
same() { evaluates "$1" "$dir/x.npy" && cmp "$dir/lenet.npy" "$dir/x.npy"; }
said 0 'plain.safetensors: [0-9]+ tensors, ' plain
check 'a plain state dict gives the same logits' same "$dir/plain.safetensors"
said 2 'plain.safetensors exists already: .*--force' exists
said 0 'plain.safetensors: ' force
said 2 'pipe exists and is not a regular file: give another -o' pipe
check 'it is left as it is' test -p "$dir/pipe"
check 'the old format gives the same logits' same "$dir/old.safetensors"
said 0 "tensors of 'model' are taken; --key takes model_ema" script
expect 0 'F64 becomes F32.*bias' 'doubles' cat "$dir/out/script"
expect 0 'lenet lacks, which are ignored: shared' 'it is read without the prefix, and what is no part of the network is ignored' same "$dir/script.safetensors"
said 0 "of 'model_ema'" ema
check 'another key gives the same logits' same "$dir/ema.safetensors"
check 'and the only entry with tensors' same "$dir/nets.safetensors"
said 2 'has tensors in a, b: choose with --key' two
said 2 "has no 'c', but a, b" no-key
said 0 'left out, .*: steps, z$' mixed
said 3 'none.pth has no tensors, only epoch' none
said 3 'jit.pt is a TorchScript archive' jit
said 3 'whole.pth has a pickled torch.nn.modules.container.Sequential, .*run code of the file.*convert plain.pth' whole
said 3 'cut.pth is not a file of torch.save, or damaged' cut
said 3 'none-such.pth: No such file' no-file
said 3 'is a safetensors file already' safetensors
said 3 'is a safetensors file already' itself
said 3 'net.pth has a pickled .*convert plain.pth' net
check 'nothing of PyTorch that is cut off, nor its advice to run code' eval '! grep -E "weights_only|checkpoint file is" "$dir/out/page" "$dir/out/cut"'
said 2 'arguments are required: FILE' no-argument
check 'refusals are one line' test "$(cat "$dir/out/whole" "$dir/out/cut" "$dir/out/jit" "$dir/out/exists" | wc -l)" = 8
told=$(sed -n "s/.*imported, python \(-c '.*'\) .*whole.pth plain.pth writes.*/\1/p" "$dir/out/whole")
check 'the command that is named for a whole module' eval '"$python" '"$told"' "$dir/whole.pth" "$dir/w.pth"'
told=$(sed -n "s/.*imported, python \(-c '.*'\) .*net.pth plain.pth writes.*/\1/p" "$dir/out/net")
check 'and for one beside other things' eval '"$python" '"$told"' "$dir/net.pth" "$dir/n.pth" && "$python" "$GN_SOURCE/src/bindings/torch/gannet_torch/convert.py" "$dir/n.pth"'
check 'writes what is converted, by the package without its compiled part' env PYTHONPATH="$GN_SOURCE/src/bindings/torch" \
	"$python" -m gannet_torch.convert "$dir/w.pth"
# the lines of the page
line() { sed -n "s/^    python3 \(-c 'import sys, torch, safetensors.torch.*'\) in.pth out.safetensors\$/\1/p" "$GN_SOURCE/src/man/training.md" | sed -n "$1p"; }
if "$python" -c 'import safetensors.torch' 2>/dev/null; then
	check 'the line of the page for a plain state dict' eval '"$python" '"$(line 1)"' "$dir/plain.pth" "$dir/1.safetensors" && same "$dir/1.safetensors"'
	check 'that for a nested one' eval '"$python" '"$(line 2)"' "$dir/nested.pth" "$dir/2.safetensors" && same "$dir/2.safetensors"'
	check 'that for a whole module' eval '"$python" '"$(line 3)"' "$dir/module.pth" "$dir/3.safetensors" && test -s "$dir/3.safetensors"'
else
	skip 'the lines of the page' 'no safetensors for the Python that has torch: pip install safetensors'
fi
check 'nothing is left over' eval '! ls "$dir" | grep tmp-'
finish
