"""A small GPT trainer: settings are globals that the command line may overwrite; `while True` until max_iters."""

import math
import sys

import torch
from torch import nn

eval_interval = 50
log_interval = 10
eval_iters = 5
always_save_checkpoint = False
gradient_accumulation_steps = 4
batch_size = 4
block_size = 16
vocab_size = 30
learning_rate = 6e-4
max_iters = 250
warmup_iters = 20
lr_decay_iters = 600
min_lr = 6e-5
grad_clip = 1.0
config_keys = [k for k, v in globals().items() if not k.startswith("_") and isinstance(v, (int, float, bool, str))]
for arg in sys.argv[1:]:
    key, _, value = arg.removeprefix("--").partition("=")
    globals()[key] = type(globals()[key])(float(value))
config = {k: globals()[k] for k in config_keys}

torch.manual_seed(1337)
data = {"train": torch.randint(vocab_size, (4000,)), "val": torch.randint(vocab_size, (500,))}


def get_batch(split):
    ix = torch.randint(len(data[split]) - block_size, (batch_size,))
    x = torch.stack([data[split][i : i + block_size] for i in ix])
    y = torch.stack([data[split][i + 1 : i + 1 + block_size] for i in ix])
    return x, y


model = nn.Sequential(nn.Embedding(vocab_size, 32), nn.Linear(32, 32), nn.GELU(), nn.Linear(32, vocab_size))
optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, betas=(0.9, 0.95))


def loss_of(X, Y):
    return nn.functional.cross_entropy(model(X).flatten(0, 1), Y.flatten())


@torch.no_grad()
def estimate_loss():
    return {s: sum(loss_of(*get_batch(s)).item() for _ in range(eval_iters)) / eval_iters for s in data}


def get_lr(it):
    if it < warmup_iters:
        return learning_rate * (it + 1) / (warmup_iters + 1)
    if it > lr_decay_iters:
        return min_lr
    ratio = (it - warmup_iters) / (lr_decay_iters - warmup_iters)
    return min_lr + 0.5 * (1.0 + math.cos(math.pi * ratio)) * (learning_rate - min_lr)


X, Y = get_batch("train")
iter_num = 0
while True:
    for param_group in optimizer.param_groups:
        param_group["lr"] = get_lr(iter_num)
    if iter_num % eval_interval == 0:
        print(f"step {iter_num}: {estimate_loss()}")
    for _micro_step in range(gradient_accumulation_steps):
        loss = loss_of(X, Y) / gradient_accumulation_steps
        X, Y = get_batch("train")
        loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), grad_clip)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    if iter_num % log_interval == 0:
        print(f"iter {iter_num}: loss {loss.item() * gradient_accumulation_steps:.4f}")
    iter_num += 1
    if iter_num > max_iters:
        break
