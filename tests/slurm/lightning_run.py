"""Lightning with its own auto-requeue: USR1 saves a checkpoint and has Slurm start the job again."""

from __future__ import annotations

import re
import subprocess
import sys

from outcomes import STEPS, Run

SCRIPT = """\
import hashlib, json, os, sys, time
import torch
import lightning.pytorch as pl
from lightning.pytorch.trainer.connectors import signal_connector
folder, steps, most = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
may_end = os.path.join(folder, "may_end")
got = open(os.path.join(folder, "got"), "a", buffering=1)
plain = signal_connector._SignalConnector._slurm_sigusr_handler_fn
def counted(self, *args):
    got.write("handler SIGUSR1\\n")
    return plain(self, *args)
signal_connector._SignalConnector._slurm_sigusr_handler_fn = counted
class Model(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
    def training_step(self, batch, index):
        time.sleep(0.03)
        return self.layer(batch[0]).square().mean()
    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=0.01)
    def on_train_start(self):
        got.write(f"life {self.trainer.global_step}\\n")
    def on_train_batch_end(self, *args):
        got.write(f"{self.trainer.global_step}\\n")
        if self.trainer.global_step >= steps and os.path.exists(may_end):
            self.trainer.should_stop = True
    def on_save_checkpoint(self, checkpoint):
        json.dump([self.trainer.global_step], open(os.path.join(folder, "state.json"), "w"))
        got.write(f"saved {self.trainer.global_step}\\n")
pl.seed_everything(1)
data = torch.utils.data.TensorDataset(torch.ones(4 * most, 4))
trainer = pl.Trainer(max_steps=most, accelerator="cpu", devices=1, logger=False, enable_progress_bar=False,
                     enable_checkpointing=False, default_root_dir=folder)
model = Model()
trainer.fit(model, torch.utils.data.DataLoader(data, batch_size=4))
digest = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest()
got.write(f"weights {digest}\\n")
print(f"weights {digest}")
"""


class LightningRun(Run):
    def command(self) -> list[str]:
        script = self.folder / "train.py"
        script.write_text(SCRIPT)
        return [sys.executable, str(script), str(self.folder), str(STEPS), "5000"]

    def right(self) -> bool:
        steps = str(self.stepped()[-1])
        folder = self.folder / "alone"
        folder.mkdir()
        command = [sys.executable, str(self.folder / "train.py"), str(folder), steps, steps]
        done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=True)
        return self.received("weights")[0] == re.search(r"weights \w+", done.stdout).group()
