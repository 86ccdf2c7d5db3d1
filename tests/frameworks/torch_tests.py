"""PyTorch's own tests of torch.distributed (torch.testing._internal, part of its package) over the backend "gannet", on WORLD_SIZE (3) ranks:

    pip install expecttest; python tests/frameworks/torch_tests.py [TEST...]

It prints a table: how many passed, what failed, and why others do not apply. Exit code: 0 when none failed.

PyTorch's tests choose by the backend's name what applies, when they are imported. They are imported as for Gloo, and once more as for MPI for
those that Gloo leaves out; then the name is gannet.
"""
import collections
import importlib
import os
import re
import sys
import tempfile
import unittest

os.environ.setdefault("WORLD_SIZE", "3")
os.environ.setdefault("TEMP_DIR", tempfile.mkdtemp())
for d in ("barrier", "test_dir", "init_dir"):
    os.makedirs(os.path.join(os.environ["TEMP_DIR"], d), exist_ok=True)
os.environ.setdefault("INIT_METHOD", "file://" + os.path.join(os.environ["TEMP_DIR"], "init_dir", "shared"))

import torch  # noqa: E402
import gannet_torch  # noqa: E402, F401
from torch.testing._internal.common_distributed import DistTestCases  # noqa: E402

# What tests meant for Gloo, or MPI, expect of it.
NOT_APPLICABLE = (
    ("test_monitored_barrier_.*", "PyTorch's monitored_barrier() refuses every backend but Gloo"),
    ("test_sparse_all_reduce_.*", "sparse tensors, which the backend refuses"),
    ("test_barrier_timeout_.*", "a timeout of the group, which is not used: heartbeats find lost ranks"),
    ("test_ddp_logging_data_cpu", "the backend's name, which the test wants to be 'custom'"),
)


class Gannet(str):
    """The name, which is Gloo's to tests that look again while they run: they would make no model."""

    def __eq__(self, other):
        return other == "gloo" or str.__eq__(self, other)

    __hash__ = str.__hash__


def imported_as(backend):
    name = "torch.testing._internal.distributed.distributed_test"
    sys.modules.pop(name, None)
    os.environ["BACKEND"] = backend
    module = importlib.import_module(name)
    os.environ["BACKEND"] = module.BACKEND = Gannet("gannet")
    return module


DistTestCases.backend_feature["plugin"].add("gannet")
of_mpi, of_gloo = imported_as("mpi"), imported_as("gloo")


class TestGannet(of_gloo.TestDistBackend, of_gloo.DistributedTest._DistTestBase):
    def setUp(self):
        super().setUp()
        # forked, which needs no import of PyTorch for each rank of each test
        self._start_processes(torch.multiprocessing.get_context("fork").Process)


def choose():
    for name in dir(TestGannet):
        function = getattr(TestGannet, name)
        if not name.startswith("test_"):
            continue
        other = getattr(of_mpi.DistributedTest._DistTestBase, name)
        if hasattr(function, "__unittest_skip__") and not hasattr(other, "__unittest_skip__"):
            setattr(TestGannet, name, other)
        for pattern, reason in NOT_APPLICABLE:
            if re.fullmatch(pattern, name) and not hasattr(function, "__unittest_skip__"):
                setattr(TestGannet, name, unittest.skip(reason)(function))


choose()


class Result(unittest.TextTestResult):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.passed = []

    def addSuccess(self, test):
        super().addSuccess(test)
        self.passed.append(test)


def table(result):
    reasons = collections.defaultdict(list)
    for test, why in result.skipped:
        reasons[why].append(test._testMethodName)
    failed = [test._testMethodName for test, _ in result.failures + result.errors]
    print(f"| tests | outcome | which, or why |\n|---|---|---|\n| {len(result.passed)} | passed | |")
    print(f"| {len(failed)} | failed | {', '.join(failed)} |")
    for why, names in sorted(reasons.items(), key=lambda r: -len(r[1])):
        print(f"| {len(names)} | not applicable | {why}{': ' + ', '.join(names) if len(names) < 4 else ''} |")


def main():
    names = [f"{__name__}.TestGannet.{t}" for t in sys.argv[1:]] or [f"{__name__}.TestGannet"]
    suite = unittest.defaultTestLoader.loadTestsFromNames(names)
    result = unittest.TextTestRunner(verbosity=2, resultclass=Result).run(suite)
    table(result)
    sys.exit(not result.wasSuccessful())


if __name__ == "__main__":
    main()
