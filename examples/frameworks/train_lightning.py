"""Lightning's Trainer without carbontui code. Pausing, the total and unloading work unchanged.

    carbontui run -- python train_lightning.py

Lightning restarts the data of an unfinished epoch from its beginning unless the loader saves its position; this one
does, through the state_dict() and load_state_dict() that Lightning calls.
"""

from __future__ import annotations

import argparse
import hashlib
from typing import Any

import lightning
import torch
from torch import nn


class Batches:
    """Shuffled batches that save their position, so that a resumed run sees the rest of its epoch and nothing twice."""

    def __init__(self, size: int, batch: int) -> None:
        draw = torch.Generator().manual_seed(7)
        self.inputs, self.batch, self.epoch, self.done = torch.randn(size, 8, generator=draw), batch, 0, 0

    def __len__(self) -> int:
        return len(self.inputs) // self.batch

    def __iter__(self) -> Any:
        if self.done == len(self):
            self.epoch, self.done = self.epoch + 1, 0
        order = torch.randperm(len(self.inputs), generator=torch.Generator().manual_seed(self.epoch))
        while self.done < len(self):
            start = self.done * self.batch
            self.done += 1
            yield self.inputs[order[start : start + self.batch]]

    def state_dict(self) -> dict[str, int]:
        return {"epoch": self.epoch, "done": self.done}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.epoch, self.done = state["epoch"], state["done"]


class Auto(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 8))

    def training_step(self, batch: torch.Tensor, index: int) -> torch.Tensor:
        return (self.net(batch) - batch).square().mean()

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
        schedule = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 50)
        return [optimizer], [{"scheduler": schedule, "interval": "step"}]


class Manual(lightning.LightningModule):
    """Two networks with an optimizer each, stepped manually in every batch."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)

    def training_step(self, batch: torch.Tensor, index: int) -> None:
        for net, optimizer in zip((self.first, self.second), self.optimizers(), strict=True):
            loss = (net(batch) - batch).square().mean()
            optimizer.zero_grad()
            self.manual_backward(loss)
            optimizer.step()

    def configure_optimizers(self) -> Any:
        return [torch.optim.AdamW(net.parameters(), lr=1e-2) for net in (self.first, self.second)]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--manual", action="store_true")
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument("--strategy", default="auto")
    parser.add_argument("--save-every", type=int, default=0, help="steps; 0: no checkpoint of the script's own")
    args = parser.parse_args()

    lightning.seed_everything(1)
    torch.set_num_threads(1)
    module = Manual() if args.manual else Auto()
    every = [lightning.pytorch.callbacks.ModelCheckpoint("saved", every_n_train_steps=args.save_every)]
    trainer = lightning.Trainer(
        max_epochs=args.epochs,
        accelerator="auto" if torch.cuda.is_available() else "cpu",
        devices=args.devices,
        strategy=args.strategy,
        accumulate_grad_batches=args.accumulate,
        logger=False,
        enable_checkpointing=args.save_every > 0,
        callbacks=every if args.save_every else None,
        enable_progress_bar=False,
        use_distributed_sampler=False,
    )
    trainer.fit(module, Batches(256, 4))
    if trainer.is_global_zero:
        weights = b"".join(p.detach().cpu().numpy().tobytes() for p in module.parameters())
        print("weights", hashlib.sha256(weights).hexdigest(), flush=True)
        print("steps", trainer.global_step, flush=True)


if __name__ == "__main__":
    main()
