"""`carbontui.callbacks` in a Trainer's list, of a script that runs alone: each training is a job of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest
from later import needs

from carbontui.job.files import store

TRAINER = """
import torch
from transformers import Trainer, TrainingArguments
class Rows(torch.utils.data.Dataset):
    def __len__(self): return 64
    def __getitem__(self, i): return {"x": torch.ones(4), "labels": torch.tensor(1.0)}
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
    def forward(self, x, labels): return {"loss": ((self.layer(x).squeeze(-1) - labels) ** 2).mean()}
def train(callbacks):
    torch.manual_seed(0)
    args = TrainingArguments("out", num_train_epochs=5, per_device_train_batch_size=8, report_to=[], use_cpu=True)
    trainer = Trainer(Model(), args, train_dataset=Rows(), callbacks=callbacks)
    trainer.train()
    return list(trainer.model.parameters())
alone = train([])
from carbontui.callbacks import TransformersCallback as Callback
"""
LIGHTNING = """
import torch, lightning
class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
    def training_step(self, batch, number): return (self.layer(batch[0]) ** 2).mean()
    def configure_optimizers(self): return torch.optim.SGD(self.parameters(), 0.1)
def train(callbacks):
    lightning.seed_everything(0)
    model, rows = Model(), torch.utils.data.TensorDataset(torch.randn(64, 4))
    quiet = dict(logger=False, enable_checkpointing=False, enable_progress_bar=False, accelerator="cpu")
    lightning.Trainer(max_epochs=5, callbacks=callbacks, **quiet).fit(model, torch.utils.data.DataLoader(rows, 8))
    return list(model.parameters())
alone = train([])
from carbontui.callbacks import LightningCallback as Callback
"""
TWICE = """
for _ in range(2):
    for one, other in zip(alone, train([Callback(intensity="300", name="mine")])): assert torch.equal(one, other)
"""


@pytest.mark.parametrize(
    "script", [pytest.param(TRAINER, marks=needs("transformers")), pytest.param(LIGHTNING, marks=needs("lightning"))]
)
def test_each_training_is_a_job_and_its_weights_are_as_alone(script, house, monkeypatch):
    subprocess.run([sys.executable, "-c", script + TWICE], env=house.env, cwd=house.root, check=True, timeout=300)
    monkeypatch.setenv("CARBONTUI_HOME", str(house.home))
    assert [(job.status().state, job.status().step) for job in store.jobs()] == [("done", 40)] * 2
