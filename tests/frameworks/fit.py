"""Lightning's Trainer with DDP on processors. usage: fit.py RANKS NODES"""
import sys
import tempfile

import torch
import lightning as L

torch.set_num_threads(1)
ranks, nodes = int(sys.argv[1]), int(sys.argv[2])


class Model(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 4)

    def training_step(self, batch, _):
        return self.layer(batch[0]).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(64, 8)), batch_size=2)
trainer = L.Trainer(accelerator="cpu", strategy="ddp", num_nodes=nodes, devices=ranks // nodes, max_steps=3, logger=False,
                    enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
                    default_root_dir=tempfile.gettempdir())
model = Model()
trainer.fit(model, data)
assert trainer.world_size == ranks == torch.distributed.get_world_size(), f"a world of {trainer.world_size}"
if trainer.global_rank == 0:
    print(f"right: {ranks} ranks, lightning {L.__version__}", flush=True)
