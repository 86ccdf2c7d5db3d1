"""Gannet's collectives for torch.distributed: init_process_group("gannet").

Once this package is installed PyTorch loads it by itself (entry point torch.backends); `import gannet_torch` does the same.
"""
import atexit
import os
import socket

import torch.distributed as dist

from . import _C

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
    if not _C.started():
        rendezvous = _rendezvous(options.store, options.group_rank, options.group_size)
        _C.start(rendezvous, options.group_rank, options.group_size)
        atexit.register(_C.stop)
    elif not dist.is_initialized():
        _C.start("", options.group_rank, options.group_size)  # a world again: compares
    ranks = list(options.global_ranks_in_group) or list(range(options.group_size))
    return _C.Backend(options.group_rank, options.group_size, ranks, options.group_id, not dist.is_initialized())


def _register():
    if "gannet" not in dist.Backend.backend_list:
        dist.Backend.register_backend("gannet", _create, extended_api=True, devices=["cpu"])


def autoload():
    """Called by PyTorch when it is imported; registration happens below already."""


_register()
