"""PyTorch's own tests of torch.distributed (torch.testing._internal, part of its package) over the backend "gannet", on WORLD_SIZE (3) ranks:

    pip install expecttest pytest; python -m pytest -q -rA tests/frameworks/torch_tests.py
"""
import os
import sys
import tempfile

os.environ.setdefault("BACKEND", "gannet")
os.environ.setdefault("WORLD_SIZE", "3")
os.environ.setdefault("TEMP_DIR", tempfile.mkdtemp())
for d in ("barrier", "test_dir", "init_dir"):
    os.makedirs(os.path.join(os.environ["TEMP_DIR"], d), exist_ok=True)
os.environ.setdefault("INIT_METHOD", "file://" + os.path.join(os.environ["TEMP_DIR"], "init_dir", "shared"))

import torch  # noqa: E402
import gannet_torch  # noqa: E402, F401
from torch.testing._internal.common_utils import run_tests  # noqa: E402
from torch.testing._internal.distributed.distributed_test import DistributedTest, TestDistBackend  # noqa: E402


class TestGannet(TestDistBackend, DistributedTest._DistTestBase):
    def setUp(self):
        super().setUp()
        self._spawn_processes()


if __name__ == "__main__":
    run_tests()
