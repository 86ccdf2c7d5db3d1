"""Gannet's collectives for torch.distributed: init_process_group("gannet"). gannet_torch.data: its images, for PyTorch and numpy.

Once this package is installed PyTorch loads it by itself (entry point torch.backends); `import gannet_torch` does the same. The compiled
part is loaded where a process group begins: `python -m gannet_torch.convert` works without it.
"""
import atexit
import os
import socket


def autoload():
    """PyTorch calls this while it is imported, also from the next line, before which it has to be defined. Registration happens below."""


try:
    import torch
    import torch.distributed as dist
except ImportError:  # gannet_torch.data for numpy, and the part that needs none
    torch = None

_KEY = "gannet/rendezvous"


def _rendezvous(store, rank, size):
    """Where the ranks meet: rank 0 finds a free port, all learn it by PyTorch's store. Under PMIx the launcher knows."""
    if size == 1 or "PMIX_NAMESPACE" in os.environ:
        return "" if "PMIX_NAMESPACE" in os.environ else "localhost:1"
    if rank == 0:
        host = os.environ.get("MASTER_ADDR") or socket.gethostname()
        with socket.socket() as s:
            s.bind(("", 0))
            store.set(_KEY, f"{host}:{s.getsockname()[1]}")
    return store.get(_KEY).decode()


def _create(options, _backend_options):
    from . import _C

    if not _C.started():
        rendezvous = _rendezvous(options.store, options.group_rank, options.group_size)
        _C.start(rendezvous, options.group_rank, options.group_size)
        atexit.register(_C.stop)
    elif not dist.is_initialized():
        _C.start("", options.group_rank, options.group_size)  # a world again: compares
    ranks = list(options.global_ranks_in_group) or list(range(options.group_size))
    timeout_ms = min(int(options.timeout.total_seconds() * 1000), 1 << 40)
    return _C.Backend(options.group_rank, options.group_size, ranks, options.group_id, not dist.is_initialized(), timeout_ms)


def empty(*size, dtype=None, group=None):
    """A tensor of the processor, in memory that the ranks of a node reach directly: all_reduce() of it there is about twice as fast. Collective
    over the group, with the same size on all ranks; what they reduce together comes from the same call. It costs more than torch.empty(): make
    it once. It ends with the process group's world.
    """
    shape = torch.Size(size[0] if len(size) == 1 and not isinstance(size[0], int) else size)
    cpu = torch.device("cpu")
    backend = (group or dist.group.WORLD)._get_backend(cpu)
    return backend.allocate_tensor(shape.numel(), dtype=dtype or torch.get_default_dtype(), device=cpu).view(shape)


def _register():
    if "gannet" not in dist.Backend.backend_list:
        devices = ["cpu", "cuda"] if torch.version.cuda else ["cpu"]
        dist.Backend.register_backend("gannet", _create, extended_api=True, devices=devices)


if torch is not None and dist.is_available():
    _register()
