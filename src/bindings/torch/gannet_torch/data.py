"""Gannet's images for PyTorch, and for numpy without it.

    from gannet_torch.data import Loader, Train, Eval
    train = Loader("shards/train", 64, transform=Train(224), device="cuda")
    for epoch in range(epochs):
        train.set_epoch(epoch)
        for images, labels in train:
            ...

The batches are those of `gannet train` with the same options: the same images in the same order with the same pixels, for any number of ranks
and threads. Needs libgannet (make install).
"""
import ctypes
import io
import operator
import os
import sys
import threading
import weakref
from ctypes import byref, c_char_p, c_size_t, c_void_p, create_string_buffer

import numpy

from . import _library
from ._library import Error, whole

try:
    import torch
except ImportError:  # NumpyLoader and Shards with PIL do without
    torch = None

__all__ = ["Error", "Eval", "Loader", "NumpyLoader", "Shards", "Train"]


def Train(side=224, **options):
    """Options of gannet train for images, as keywords with _ for -: Train(160, mixup=0.2, randaugment="2,9", sampling="balanced")."""
    return {"side": whole("side", side, 1, 4096), **options}


def Eval(side=224, **options):
    """As gannet eval: the centre of the image, all of them once, in order. Options: resize, interpolation, mean, deviation, channels."""
    for name in options:
        if name not in _EVALUATES:
            raise TypeError(f"Eval has no {name}: {', '.join(_EVALUATES)}")
    return {"side": whole("side", side, 1, 4096), **options, "evaluates": True}


_EVALUATES = "resize", "interpolation", "mean", "deviation", "channels"


def _words(transform, seed):
    """The options of gannet train, flags last: one that wants a value says so."""
    words = []
    if isinstance(transform, dict):
        for name, value in transform.items():
            word = name.replace("_", "-")
            if value is True or value is False:
                words.append(f"--{word}" if value else f"--no-{word}")
            elif value is not None:
                words.append(f"--{word}=" + (",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)))
        words.sort(key=lambda word: "=" not in word)
    elif isinstance(transform, (list, tuple)) and all(isinstance(word, str) for word in transform):
        words.extend(transform)
    else:
        raise TypeError(f"transform={transform!r}: give Train(...), Eval(...) or a list of words of gannet train; transforms that are functions are for Shards")
    if any(word.startswith("--seed") for word in words):
        raise TypeError("seed= is the loader's, not the transform's")
    return [f"--seed={seed}", *words]


def _from_environment(name, default):
    value = os.environ.get(name, "")
    if value and not value.isdigit():
        raise ValueError(f"{name}={value} in the environment is not a number")
    return int(value) if value else default


def _place(rank, world_size):
    """What was given, else torch.distributed's, else RANK and WORLD_SIZE (torchrun, gannet exec, accelerate)."""
    if (rank is None) != (world_size is None):
        raise ValueError("give both of rank and world_size, or none")
    if rank is not None:
        return rank, world_size
    if torch is not None and torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    return _from_environment("RANK", 0), _from_environment("WORLD_SIZE", 1)


def _share():
    """Processors of this process: of the affinity mask, divided among the processes of the node that share it."""
    mine = len(os.sched_getaffinity(0))
    if mine >= (os.cpu_count() or 1):
        mine //= max(1, _from_environment("LOCAL_WORLD_SIZE", 1))
    return max(1, mine)


def _close(state):
    """Of a loader that is no longer used; in a process that was forked the threads are not there."""
    if state["loader"] and state["pid"] == os.getpid():
        _library.library().gannet_loader_close(state["loader"])
    state["loader"] = None
    state["buffers"].clear()
    if state["own"]:
        state["handle"].close()


def _references(arrays):
    return [sys.getrefcount(array) for array in arrays]


_ALONE = _references([numpy.empty(1)])[0]  # of one that only such a list has


class NumpyLoader:
    """An iterable of (images, labels) as numpy arrays; uint8 and float32.

    data: a folder that gannet pack wrote. batch_size: of each rank. rank, world_size: of this process; by default those of the environment.
    shuffle, drop_last: by default True to train and False to evaluate. transform: Train(...), Eval(...), or a list of words,
    ["--side=160", "--mixup=0.2"]. memory_format "channels_last": arrays of shape [batch, height, width, channels].
    threads: that read and decode; None: half of this process's processors. prefetch: bytes for batches; None: 32 MiB for each thread; at
    least three batches are there. key_file: of an encrypted dataset.
    stage: a folder of the node's own disk to which the dataset is copied meanwhile. With mixup or cutmix labels are soft: [batch, classes].

    Iterating again, also after a break, goes on with the next epoch; set_epoch() names one. indices: of the last batch's images in the
    dataset. state_dict() is exact in the middle of an epoch, and may be loaded with another number of ranks. One iterator at a time: a new
    one ends the one before. Not for DataLoader: it is one.
    """

    _outputs = ("uint8", "float32")

    def __init__(self, data, batch_size, *, rank=None, world_size=None, seed=1, shuffle=None, drop_last=None, transform=None, output="float32",
                 memory_format="contiguous", threads=None, prefetch=None, key_file=None, stage=None):
        if output not in self._outputs:
            raise ValueError(f"output {output!r} is none of {', '.join(self._outputs)}")
        if str(memory_format).removeprefix("torch.") not in ("channels_last", "contiguous", "contiguous_format"):
            raise ValueError(f"memory_format {memory_format!r} is neither channels_last nor contiguous")
        transform = transform if transform is not None else Train()
        self._evaluates = isinstance(transform, dict) and "evaluates" in transform
        self.batch_size, self.seed, self.output = whole("batch_size", batch_size, 1), whole("seed", seed, 0, 9 * 10**15), output
        words = _words({k: v for k, v in transform.items() if k != "evaluates"} if self._evaluates else transform, self.seed)
        rank, world_size = _place(rank, world_size)
        self.rank, self.world_size = whole("rank", rank, 0), whole("world_size", world_size, 1)
        self._last = str(memory_format).endswith("channels_last")
        shuffle = not self._evaluates if shuffle is None else shuffle
        drop_last = not self._evaluates if drop_last is None else drop_last
        if self._evaluates and (shuffle or drop_last):
            raise ValueError("an evaluation has every image once, in order: neither shuffle nor drop_last")
        self._order = "evaluation" if self._evaluates else ("" if shuffle else "in order ") + next((w for w in words if w.startswith("--sampling=")), "")
        self.threads = max(1, _share() // 2) if threads is None else whole("threads", threads, 1)
        handle = data if isinstance(data, _library.Handle) else _library.Handle(data, key_file, stage, _from_environment("LOCAL_RANK", 0) == 0)
        self._handle = handle
        lib = _library.library()
        o = _library.structure(_library.LoaderOptions)
        o.words = (c_char_p * (len(words) + 1))(*map(os.fsencode, words), None)
        o.rank, o.size, o.batch, o.evaluates = self.rank, self.world_size, self.batch_size, self._evaluates
        o.in_order, o.keeps_last, o.threads = not shuffle, not drop_last, self.threads
        o.prefetch_bytes = 0 if prefetch is None else whole("prefetch", prefetch, 1, 1 << 62)
        o.type, o.channels_last = _library.TYPES[output], self._last
        made = c_void_p()
        _library.check(lib.gannet_loader_open(handle.dataset, byref(o), byref(made)), words if isinstance(transform, dict) else ())
        self._state = {"loader": made, "pid": os.getpid(), "buffers": {}, "handle": handle, "own": handle is not data}
        self._finalizer = weakref.finalize(self, _close, self._state)
        facts = _library.structure(_library.LoaderFacts)
        _library.check(lib.gannet_loader_shape(made, byref(facts)))
        self._facts = facts
        self.classes = handle.classes()
        self.samples = lib.gannet_dataset_count(handle.dataset)
        self.digest = lib.gannet_dataset_digest(handle.dataset).decode()
        # without drop_last the ranks share what is left of the epoch
        left = self.samples % (batch_size * self.world_size)
        if not self._evaluates and not drop_last and left and left < self.world_size:
            self.close()
            raise ValueError(f"the last batch of an epoch has {left} images for {self.world_size} ranks: give drop_last=True or another batch_size")
        self._pool = []
        for slot in range(facts.slots):
            lib.gannet_loader_lend(made, slot, self._fresh())
        self._at = self._next = 0, 0  # epoch and images done: of the batch that the loop has got, and where the next iteration begins
        self._turn, self._lock = None, threading.Lock()  # of the iterator that may go on; of threads that use one loader
        self.indices = None  # of the last batch, in the dataset
        self.dataset, self.batch_sampler = Shards(handle), None

    # --- memory of batches: each is the user's own ---

    def _shape(self):
        f = self._facts
        return (self.batch_size, f.height, f.width, f.channels) if self._last else (self.batch_size, f.channels, f.height, f.width)

    def _memory(self):
        """Bytes for a batch, aligned to 64, and their address: those of a batch that nobody has any more, whose pages are there."""
        pool = self._pool
        whole = next((one for one, count in zip(pool, _references(pool)) if count == _ALONE), None)
        if whole is None:
            whole = numpy.empty(self._facts.batch_bytes + 64, numpy.uint8)
            if len(pool) < self._facts.slots + 3:
                pool.append(whole)
        begin = -whole.ctypes.data % 64
        array = whole[begin:begin + self._facts.batch_bytes]
        return array, array.ctypes.data

    def _new(self):
        """An array for a batch, and its address."""
        array, address = self._memory()
        return array.view(self.output).reshape(self._shape()), address

    def _fresh(self):
        array, address = self._new()
        self._state["buffers"][address] = array
        return address

    # --- epochs ---

    def __len__(self):
        """Batches of an epoch, of this rank. In an evaluation of few images a rank may get one less."""
        return self._facts.batches

    def set_epoch(self, epoch):
        """Of the next iteration. The epoch of a state that was loaded goes on where it was."""
        epoch = whole("epoch", epoch, 0)
        if epoch != self._next[0]:
            self._next = epoch, 0
        if self._turn is None or self._at[0] != epoch:
            self._at = self._next

    @property
    def sampler(self):
        """Scripts say loader.sampler.set_epoch(epoch)."""
        return self

    def state_dict(self):
        return {"epoch": self._at[0], "samples": self._at[1], "seed": self.seed, "dataset": self.digest, "order": self._order}

    def load_state_dict(self, state):
        """With any number of ranks; Gannet's order depends on dataset, seed, shuffle and sampling."""
        mine = self.state_dict()
        if not isinstance(state, dict) or set(mine) - set(state):
            raise ValueError(f"a state of a loader has {', '.join(mine)}")
        for name in "dataset", "seed", "order":
            if state[name] != mine[name]:
                raise ValueError(f"the state is of another {name} ({state[name]!r}; here {mine[name]!r}): its place in the epoch means nothing here")
        at = whole("epoch", state["epoch"], 0), whole("samples", state["samples"], 0, self.samples)
        self._turn, self._at, self._next = None, at, at

    def __iter__(self):
        if not self._state["loader"]:
            raise ValueError("this loader is closed")
        self._check_process()
        with self._lock:
            epoch, done = self._next
            _library.check(_library.library().gannet_loader_start(self._state["loader"], epoch, done))
            self._at, self._next = (epoch, done), (epoch + 1, 0)
            self._turn = turn = object()
        return self._told(turn, epoch, done)

    def _check_process(self):
        if self._state["pid"] != os.getpid():
            raise RuntimeError("this loader was made before a fork: its threads are in the other process; make it here")

    def _told(self, turn, epoch, done):
        """state_dict() counts what the loop has got, not what is on its way."""
        for batch, done, indices in self._arriving(self._batches(turn, done)):
            self._at, self.indices = (epoch, done), indices
            yield batch
            if self._turn is not turn:
                raise RuntimeError("this iterator has ended: another one of its loader was begun, or a state was loaded")
        self._at, self._turn = self._next, None

    def _arriving(self, batches):
        return batches

    def _batches(self, turn, done):
        lib, batch = _library.library(), _library.structure(_library.Batch)
        while True:
            self._check_process()
            with self._lock:
                if self._turn is not turn or not self._state["loader"]:
                    raise RuntimeError("this iterator has ended: another one of its loader was begun, or the loader was closed")
                made = self._take(lib, batch)
            if made is None:
                return
            done = min(done + self.batch_size * self.world_size, self.samples)
            if batch.count:
                yield self._finish(*made[:2], batch.count), done, made[2]

    def _take(self, lib, batch):
        """The next batch's images, labels and indices; None after the last."""
        fresh, made = self._fresh(), None
        try:
            _library.check(lib.gannet_loader_next(self._state["loader"], fresh, byref(batch)))
            if batch.images:
                indices = numpy.ctypeslib.as_array(batch.indices, (self.batch_size,))[:batch.count].copy()
                made = self._state["buffers"].pop(batch.images), self._labels(batch), indices
        finally:
            if made is None:
                self._state["buffers"].pop(fresh, None)
        return made

    def _labels(self, batch):
        count = batch.count
        labels = numpy.ctypeslib.as_array(batch.labels, (self.batch_size,))[:count].astype(numpy.int64)
        if not self._facts.mixes:
            return labels
        pairs = numpy.ctypeslib.as_array(batch.pair_labels, (self.batch_size,))[:count]
        weights = numpy.ctypeslib.as_array(batch.lambdas, (self.batch_size,))[:count]
        soft = numpy.zeros((count, len(self.classes)), numpy.float32)
        soft[numpy.arange(count), labels] = weights
        numpy.add.at(soft, (numpy.arange(count), pairs), 1 - weights)
        return soft

    def _finish(self, array, labels, count):
        return array[:count], labels

    # --- the dataset ---

    def class_counts(self):
        return numpy.bincount(self.labels(), minlength=len(self.classes))

    def labels(self):
        """Of all images, in the order of the dataset."""
        lib, dataset = _library.library(), self._handle.dataset
        return numpy.fromiter((lib.gannet_dataset_label(dataset, i) for i in range(self.samples)), numpy.int64, self.samples)

    def class_weights(self):
        """For a loss, as gannet train --class-weights balanced: images / (classes * images of the class); 0 for a class without any."""
        counts = self.class_counts()
        return numpy.where(counts > 0, self.samples / (len(counts) * numpy.maximum(counts, 1)), 0).astype(numpy.float32)

    def __getitem__(self, index):
        raise TypeError("a loader makes batches in threads of its own: iterate over it; Shards is what torch.utils.data.DataLoader takes")

    def __getstate__(self):
        raise TypeError("a loader has threads of this process and cannot be copied: make one in each process, or give Shards to DataLoader")

    def close(self):
        """Ends the threads. An iterator that is left raises."""
        self._finalizer()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Loader(NumpyLoader):
    """The same with tensors of PyTorch. images: [batch, channels, height, width], also with memory_format "channels_last" (torch.channels_last),
    of torch.uint8, float32 or bfloat16. pin_memory: in page-locked memory. device: batches are there, uploaded on a stream of their own while
    the one before is used (pin_memory is meant, too).

    Unless threads are given, the loader's and PyTorch's own threads together are at most this process's processors:
    torch.set_num_threads() is called when they were more.
    """

    _outputs = ("uint8", "float32", "bfloat16")

    def __init__(self, data, batch_size, *, pin_memory=False, device=None, threads=None, **options):
        if torch is None:
            raise ImportError("gannet_torch.data.Loader needs PyTorch; NumpyLoader does without")
        if "num_workers" in options:
            raise TypeError("Loader has threads=N, and no num_workers: it starts no processes")
        self._device = torch.device(device) if device is not None else None
        self._on_gpu = self._device is not None and self._device.type == "cuda"
        self._pinned = pin_memory or self._on_gpu
        if self._pinned and not torch.cuda.is_available():
            raise ValueError("pin_memory and device='cuda' need a GPU, and PyTorch sees none")
        share = _share()
        if threads is None:
            threads = max(1, share - 1 if self._on_gpu else share // 2)
            if torch.get_num_threads() + threads > share:
                torch.set_num_threads(max(1, share - threads))
        super().__init__(data, batch_size, threads=threads, **options)
        self._stream = torch.cuda.Stream(self._device) if self._on_gpu else None

    def class_weights(self):
        return torch.from_numpy(super().class_weights())

    def _new(self):
        if self._pinned:  # PyTorch has a pool of these
            tensor = torch.empty(self._facts.batch_bytes, dtype=torch.uint8, pin_memory=True)
        else:
            tensor = torch.from_numpy(self._memory()[0])
        return tensor.view(getattr(torch, self.output)).view(self._shape()), tensor.data_ptr()

    def _finish(self, array, labels, count):
        images, labels = array[:count], torch.from_numpy(labels)
        if self._last:
            images = images.permute(0, 3, 1, 2)
        if self._device is None or self._device.type == "cpu":
            return images, labels
        if not self._on_gpu:
            return images.to(self._device), labels.to(self._device)
        with torch.cuda.stream(self._stream):
            return images.to(self._device, non_blocking=True), labels.pin_memory().to(self._device, non_blocking=True)

    def _arriving(self, batches):
        if not self._on_gpu:
            yield from batches
            return
        # the next batch is on its way while this one is used
        ahead = None
        for batch, *more in batches:
            event = self._stream.record_event()
            if ahead is not None:
                yield self._arrived(*ahead[:2]), *ahead[2]
            ahead = batch, event, more
        if ahead is not None:
            yield self._arrived(*ahead[:2]), *ahead[2]

    def _arrived(self, batch, event):
        current = torch.cuda.current_stream(self._device)
        current.wait_event(event)
        for tensor in batch:
            tensor.record_stream(current)
        return batch


class Shards:
    """A map-style dataset for torch.utils.data.DataLoader: (transform(PIL image), label). decode "tensor": uint8 [channels, height, width] in
    place of the PIL image; "bytes": the JPEG file. Picklable, for fork and spawn: each process opens the files itself.
    """

    def __init__(self, data, transform=None, *, decode="pil", key_file=None):
        if decode not in ("pil", "tensor", "bytes"):
            raise ValueError(f"decode {decode!r} is none of pil, tensor, bytes")
        if decode == "tensor" and torch is None:
            raise ImportError("tensors need PyTorch; decode='pil' and 'bytes' do without")
        self._handle = data if isinstance(data, _library.Handle) else _library.Handle(data, key_file)
        self.transform, self.decode = transform, decode
        self.classes = self._handle.classes()
        self.class_to_idx = {name: label for label, name in enumerate(self.classes)}

    @property
    def targets(self):
        """The labels of all images, as torchvision's ImageFolder has them."""
        return [self.label(index) for index in range(len(self))]

    def __len__(self):
        return _library.library().gannet_dataset_count(self._handle.dataset)

    def label(self, index):
        return _library.library().gannet_dataset_label(self._handle.dataset, index)

    def read(self, index):
        """The JPEG file."""
        lib, dataset, length = _library.library(), self._handle.dataset, c_size_t()
        buffer = create_string_buffer(lib.gannet_dataset_max_bytes(dataset))
        _library.check(lib.gannet_dataset_read(dataset, index, ctypes.cast(buffer, c_void_p), byref(length)))
        return ctypes.string_at(buffer, length.value)

    def __getitem__(self, index):
        index = operator.index(index)
        if not -len(self) <= index < len(self):
            raise IndexError(f"{index} of {len(self)} images")
        index %= len(self)
        image = self.read(index)
        if self.decode != "bytes":
            from PIL import Image

            image = Image.open(io.BytesIO(image)).convert("RGB")
        if self.decode == "tensor":
            image = torch.from_numpy(numpy.array(image)).permute(2, 0, 1).contiguous()
        return (self.transform(image) if self.transform else image), self.label(index)
