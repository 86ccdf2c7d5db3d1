"""DeepSpeed on processors: ZeRO stage 1 over Gloo; all ranks have the same loss scale and parameters. usage: speed.py RANKS"""
import os
import sys

os.environ.setdefault("DS_ACCELERATOR", "cpu")
import torch
import deepspeed

torch.set_num_threads(1)
deepspeed.init_distributed(dist_backend="gloo", verbose=False)
size, rank = torch.distributed.get_world_size(), torch.distributed.get_rank()
assert size == int(sys.argv[1]), f"a world of {size}"
model = torch.nn.Linear(8, 4)
engine, _, _, _ = deepspeed.initialize(model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), config={
    "train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 1}, "zero_allow_untested_optimizer": True})
torch.manual_seed(rank)
for _ in range(3):
    engine.backward(engine(torch.randn(4, 8)).square().mean())
    engine.step()
mine = torch.cat([p.detach().float().flatten() for p in engine.module.parameters()])
all_ = [torch.empty_like(mine) for _ in range(size)]
torch.distributed.all_gather(all_, mine)
assert all(torch.equal(a, mine) for a in all_), "ranks have different parameters"
if rank == 0:
    print(f"right: {size} ranks, deepspeed {deepspeed.__version__}", flush=True)
torch.distributed.barrier()
torch.distributed.destroy_process_group()
