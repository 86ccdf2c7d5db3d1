"""A start of PyTorch over Gloo, timed: a sum over all ranks is right. usage: T0=SECONDS gloo.py RANKS; T0: when its launcher started."""
import os
import sys
import time

print(f"main after {time.time() - float(os.environ['T0']):.3f} s", flush=True)

import torch
import torch.distributed as dist

torch.set_num_threads(1)
dist.init_process_group("gloo")
ranks = int(sys.argv[1])
mine = torch.tensor([float(dist.get_rank()), 1.0])
dist.all_reduce(mine)
assert mine.tolist() == [ranks * (ranks - 1) / 2, ranks], f"the sum is {mine.tolist()}"
dist.barrier()
if dist.get_rank() == 0:
    print(f"right: {ranks} ranks, torch {torch.__version__}", flush=True)
dist.destroy_process_group()
