"""PyTorch DDP over Gloo: every rank's parameters are the same after some steps on different data. usage: ddp.py RANKS"""
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
dist.init_process_group("gloo")
assert dist.get_world_size() == int(sys.argv[1]), f"a world of {dist.get_world_size()}"
torch.manual_seed(dist.get_rank())
model = DistributedDataParallel(torch.nn.Linear(8, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(5):
    optimizer.zero_grad()
    model(torch.randn(16, 8)).square().mean().backward()
    optimizer.step()
mine = torch.cat([p.detach().flatten() for p in model.parameters()])
all_ = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
dist.all_gather(all_, mine)
assert all(torch.equal(a, mine) for a in all_), "ranks have different parameters"
if dist.get_rank() == 0:
    print(f"right: {dist.get_world_size()} ranks, torch {torch.__version__}", flush=True)
dist.barrier()
dist.destroy_process_group()
