"""LightningCLI without carbontui code.

carbontui run -- python train_lightning_cli.py fit --trainer.max_epochs=3
"""

from __future__ import annotations

import hashlib

import lightning
import torch
from lightning.pytorch.cli import LightningCLI
from train_lightning import Auto, Batches


class Data(lightning.LightningDataModule):
    def train_dataloader(self) -> Batches:
        return Batches(256, 4)


def main() -> None:
    torch.set_num_threads(1)
    plain = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "accelerator": "cpu"}
    cli = LightningCLI(Auto, Data, trainer_defaults=plain, seed_everything_default=1, save_config_callback=None)
    weights = b"".join(p.detach().cpu().numpy().tobytes() for p in cli.model.parameters())
    print("weights", hashlib.sha256(weights).hexdigest(), flush=True)
    print("steps", cli.trainer.global_step, flush=True)


if __name__ == "__main__":
    main()
