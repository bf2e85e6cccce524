"""Fine-tuning on a fabric: dataclasses of arguments, micro batches, max_steps counts optimizer steps."""

import contextlib
import time
from dataclasses import dataclass
from itertools import cycle

import torch
from torch import nn
from torch.utils.data import DataLoader


@dataclass
class TrainArgs:
    save_interval: int = 1000
    log_interval: int = 1
    global_batch_size: int = 16
    micro_batch_size: int = 4
    epochs: int = 5
    max_steps: int | None = 130
    lr_warmup_steps: int = 10

    def gradient_accumulation_iters(self, devices):
        return self.global_batch_size // devices // self.micro_batch_size


@dataclass
class EvalArgs:
    interval: int = 50
    max_iters: int = 10


class Fabric:
    def setup(self, *objects):
        return objects

    def backward(self, loss):
        loss.backward()

    def no_backward_sync(self, model, enabled):
        return contextlib.nullcontext()


def fit(fabric, model, optimizer, train_dataloader, val_dataloader, train, eval):
    steps_per_epoch = len(train_dataloader) // train.gradient_accumulation_iters(1)
    max_steps = train.max_steps or train.epochs * steps_per_epoch
    warm = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: step / train.lr_warmup_steps)
    flat = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=max_steps - train.lr_warmup_steps)
    scheduler = torch.optim.lr_scheduler.SequentialLR(optimizer, [warm, flat], milestones=[train.lr_warmup_steps])
    train_iterator = cycle(train_dataloader)
    state = {"iter_num": 0, "step_count": 0}
    while state["step_count"] < max_steps:
        state["iter_num"] += 1
        batch, t0 = next(train_iterator), time.perf_counter()
        is_accumulating = state["iter_num"] % train.gradient_accumulation_iters(1) != 0
        with fabric.no_backward_sync(model, enabled=is_accumulating):
            loss = nn.functional.l1_loss(model(batch), batch)
            fabric.backward(loss / train.gradient_accumulation_iters(1))
        if not is_accumulating:
            optimizer.step()
            optimizer.zero_grad()
            scheduler.step()
            state["step_count"] += 1
            if state["step_count"] % eval.interval == 0:
                print(state, f"{time.perf_counter() - t0:.4f} s", validate(model, val_dataloader, eval))


@torch.no_grad()
def validate(model, loader, eval):
    return sum(nn.functional.l1_loss(model(x), x).item() for _, x in zip(range(eval.max_iters), loader))  # noqa: B905


def setup(train=TrainArgs(), eval=EvalArgs(), seed=1337):
    torch.manual_seed(seed)
    fabric = Fabric()
    model = nn.Sequential(nn.Linear(20, 20), nn.Tanh(), nn.Linear(20, 20))
    model, optimizer = fabric.setup(model, torch.optim.AdamW(model.parameters(), lr=2e-4))
    loaders = DataLoader(torch.randn(400, 20), train.micro_batch_size), DataLoader(torch.randn(60, 20), 4)
    fit(fabric, model, optimizer, *loaders, train, eval)


if __name__ == "__main__":
    setup()
