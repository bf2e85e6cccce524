"""Lightning over two loaders at once, whose order is not known within an epoch: prints its hooks, steps and weights."""

from __future__ import annotations

import hashlib

import lightning as pl
import torch
from torch.utils.data import DataLoader, TensorDataset


class Module(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Dropout(0.1), torch.nn.Linear(16, 8))

    def training_step(self, batch, index):
        return (self.net(batch["a"][0]) - batch["b"][0]).square().mean()

    def validation_step(self, batch, index):
        self.log("val", (self.net(batch[0]) - batch[0]).square().mean())

    def on_train_epoch_start(self):
        print("hook begins", self.current_epoch, flush=True)

    def on_train_epoch_end(self):
        print("hook ends", self.current_epoch, self.trainer.optimizers[0].param_groups[0]["lr"], flush=True)

    def on_validation_end(self):
        print("hook validated", self.current_epoch, flush=True)

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.9)]


def loader(size: int) -> DataLoader:
    return DataLoader(TensorDataset(torch.randn(size, 8)), batch_size=4, shuffle=True)


torch.set_num_threads(1)
torch.manual_seed(3)
module = Module()
quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False}
trainer = pl.Trainer(max_epochs=4, accelerator="cpu", **quiet)
trainer.fit(module, {"a": loader(48), "b": loader(48)}, loader(12))
print("steps", trainer.global_step)
weights = b"".join(one.detach().numpy().tobytes() for one in module.parameters())
print("weights", hashlib.sha256(weights).hexdigest())
