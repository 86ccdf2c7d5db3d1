"""libgannet's datasets and loaders (gannet.h) by ctypes."""
import ctypes
import ctypes.util
import operator
import os
import re
import shutil
from ctypes import POINTER, byref, c_char_p, c_double, c_float, c_int, c_int32, c_size_t, c_uint32, c_uint64, c_void_p, sizeof

TYPES = {"float32": 0, "uint8": 4, "bfloat16": 6}  # gannet_type


class LoaderOptions(ctypes.Structure):
    _fields_ = [("size_bytes", c_size_t), ("words", POINTER(c_char_p)), ("rank", c_int), ("size", c_int), ("batch", c_int), ("evaluates", c_int),
                ("in_order", c_int), ("keeps_last", c_int), ("threads", c_int), ("prefetch_bytes", c_size_t), ("type", c_int),
                ("channels_last", c_int)]


class LoaderFacts(ctypes.Structure):
    _fields_ = [("size_bytes", c_size_t), ("batches", c_uint64), ("batch_bytes", c_size_t), ("slots", c_int), ("channels", c_int),
                ("height", c_int), ("width", c_int), ("mixes", c_int)]


class Batch(ctypes.Structure):
    _fields_ = [("size_bytes", c_size_t), ("images", c_void_p), ("labels", POINTER(c_int32)), ("pair_labels", POINTER(c_int32)),
                ("lambdas", POINTER(c_float)), ("indices", POINTER(c_uint64)), ("count", c_int), ("wait_s", c_double)]


_SIGNATURES = {
    "gannet_error": (c_char_p, []),
    "gannet_version": (c_char_p, []),
    "gannet_dataset_open": (c_int, [c_char_p, c_char_p, POINTER(c_void_p)]),
    "gannet_dataset_close": (None, [c_void_p]),
    "gannet_dataset_stage": (c_int, [c_void_p, c_char_p, c_int]),
    "gannet_dataset_count": (c_uint64, [c_void_p]),
    "gannet_dataset_digest": (c_char_p, [c_void_p]),
    "gannet_dataset_class": (c_char_p, [c_void_p, c_int]),
    "gannet_dataset_label": (c_int, [c_void_p, c_uint64]),
    "gannet_dataset_max_bytes": (c_size_t, [c_void_p]),
    "gannet_dataset_read": (c_int, [c_void_p, c_uint64, c_void_p, POINTER(c_size_t)]),
    "gannet_loader_open": (c_int, [c_void_p, POINTER(LoaderOptions), POINTER(c_void_p)]),
    "gannet_loader_close": (None, [c_void_p]),
    "gannet_loader_shape": (c_int, [c_void_p, POINTER(LoaderFacts)]),
    "gannet_loader_lend": (None, [c_void_p, c_int, c_void_p]),
    "gannet_loader_start": (c_int, [c_void_p, c_uint32, c_uint64]),
    "gannet_loader_next": (c_int, [c_void_p, c_void_p, POINTER(Batch)]),
}
_loaded = None


def _candidates():
    """GANNET_LIBRARY alone, else: carried in this package, of the gannet in PATH, where the wheel was built, where the linker looks."""
    if os.environ.get("GANNET_LIBRARY"):
        yield os.environ["GANNET_LIBRARY"]
        return
    here = os.path.dirname(os.path.abspath(__file__))
    yield os.path.join(here, "libgannet.so.0")
    program = shutil.which("gannet")
    if program:
        prefix = os.path.dirname(os.path.dirname(os.path.realpath(program)))
        yield os.path.join(prefix, "lib", "libgannet.so.0")
        yield os.path.join(prefix, "build", "libgannet.so.0")
        yield os.path.join(os.path.dirname(os.path.realpath(program)), "libgannet.so.0")
    try:
        from ._built import library_folder

        yield os.path.join(library_folder, "libgannet.so.0")
    except ImportError:
        pass
    yield "libgannet.so.0"


def library():
    """The library, once a process; ImportError says where it was looked for."""
    global _loaded
    if _loaded:
        return _loaded
    tried = []
    for path in _candidates():
        if os.path.isabs(path) and not os.path.exists(path):
            tried.append(f"{path}: not there")
            continue
        try:
            found = ctypes.CDLL(path)
            for name, (result, arguments) in _SIGNATURES.items():
                function = getattr(found, name)
                function.restype, function.argtypes = result, arguments
        except (OSError, AttributeError) as e:
            tried.append(f"{path}: {e}")
            continue
        _loaded = found
        return found
    raise ImportError("libgannet with loaders was not found: install gannet (make install), and set GANNET_LIBRARY=FOLDER/libgannet.so.0 where it is "
                      "not found by itself. Tried " + "; ".join(tried))


class Error(RuntimeError):
    """What libgannet could not do: its text names file, image and remedy."""


def _keyword(word):
    return word.removeprefix("--no-").replace("-", "_") + "=False" if word.startswith("--no-") else word[2:].replace("-", "_") + "="


def check(status, words=()):
    """words: options of which the text is told as keywords."""
    if status:
        given = {word.partition("=")[0] for word in words} | {"--key-file"}
        text = library().gannet_error().decode(errors="replace")
        text = re.sub(r"(did you mean )?(--[a-z][a-z-]+)", lambda m: (m[1] or "") + _keyword(m[2]) if m[1] or m[2] in given else m[0], text)
        raise (ValueError if status == -2 else Error)(text)


def whole(name, value, least, most=(1 << 31) - 1):
    """A whole number, also one of numpy's."""
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool):
        raise TypeError(f"{name}={value!r} is not a whole number")
    if not least <= number <= most:
        raise ValueError(f"{name}={number} is not from {least} to {most}")
    return number


class Handle:
    """A dataset that is open in this process: after a fork it is opened again."""

    def __init__(self, folder, key_file=None, stage=None, tells=False):
        for path in folder, key_file, stage:
            if path is not None and b"\0" in os.fsencode(path):
                raise ValueError(f"{path!r} is not a path")
        self.folder, self.key_file, self.stage, self.tells = folder, key_file, stage, tells
        self._pid = self._dataset = None
        self.dataset  # what is wrong is told now

    @property
    def dataset(self):
        if self._pid != os.getpid():
            made = c_void_p()
            lib = library()
            check(lib.gannet_dataset_open(os.fsencode(self.folder), os.fsencode(self.key_file) if self.key_file else None, byref(made)))
            self._dataset, self._pid = made, os.getpid()
            if self.stage:
                check(lib.gannet_dataset_stage(made, os.fsencode(self.stage), int(self.tells)))
        return self._dataset

    def close(self):
        """What another process opened stays its own."""
        if self._dataset and self._pid == os.getpid():
            library().gannet_dataset_close(self._dataset)
        self._pid = self._dataset = None

    def __getstate__(self):
        return (self.folder, self.key_file, self.stage, self.tells)

    def __setstate__(self, state):
        self.folder, self.key_file, self.stage, self.tells = state
        self._pid = self._dataset = None

    def classes(self):
        names = []
        while True:
            name = library().gannet_dataset_class(self.dataset, len(names))
            if name is None:
                return names
            names.append(name.decode(errors="surrogateescape"))


def structure(kind):
    made = kind()
    made.size_bytes = sizeof(kind)
    return made
