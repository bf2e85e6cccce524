"""A training that ends after a number of seconds, whatever it has done; its schedule follows the time."""

import math
import os
import time

import torch
from torch import nn

TIME_BUDGET = float(os.environ.get("TIME_BUDGET", "2.5"))
WARMUP_RATIO = 0.1
LOG_EVERY = 50

torch.manual_seed(1)
vocab = 40
model = nn.Sequential(nn.Embedding(vocab, 32), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, vocab))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
text = torch.randint(vocab, (5000,))


def get_batch(batch=8, length=24):
    at = torch.randint(len(text) - length - 1, (batch,))
    rows = torch.stack([text[i : i + length + 1] for i in at])
    return rows[:, :-1], rows[:, 1:]


start = time.monotonic()
step = 0
while True:
    progress = min(1.0, (time.monotonic() - start) / TIME_BUDGET)
    scale = progress / WARMUP_RATIO if progress < WARMUP_RATIO else 0.5 * (1 + math.cos(math.pi * progress))
    optimizer.param_groups[0]["lr"] = 1e-3 * scale
    x, y = get_batch()
    loss = nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    step += 1
    if step % LOG_EVERY == 0:
        print(f"step {step} progress {progress:.2f} loss {loss.item():.3f}")
    if time.monotonic() - start >= TIME_BUDGET:
        break
print(f"{step} steps in {time.monotonic() - start:.1f} s")
