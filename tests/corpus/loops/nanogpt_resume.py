"""The same kind of trainer, resumed: the checkpoint says at which iteration it goes on."""

import os

import torch
from torch import nn

out_dir = "out"
init_from = "resume"
eval_interval = 100
max_iters = 400
learning_rate = 1e-3
decay_lr = False


def fresh():
    model = nn.Sequential(nn.Linear(24, 48), nn.GELU(), nn.Linear(48, 24))
    return model, torch.optim.AdamW(model.parameters(), lr=learning_rate)


def earlier_run():
    """What an earlier run has left."""
    os.makedirs(out_dir, exist_ok=True)
    model, optimizer = fresh()
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "iter_num": 150, "best_val_loss": 9.0}
    torch.save(state, os.path.join(out_dir, "ckpt.pt"))


torch.manual_seed(1337)
earlier_run()
iter_num, best_val_loss = 0, 1e9
model, optimizer = fresh()
if init_from == "resume":
    print(f"Resuming training from {out_dir}")
    checkpoint = torch.load(os.path.join(out_dir, "ckpt.pt"))
    model.load_state_dict(checkpoint["model"])
    optimizer.load_state_dict(checkpoint["optimizer"])
    iter_num, best_val_loss = checkpoint["iter_num"], checkpoint["best_val_loss"]

local_iter_num = 0
while True:
    if iter_num % eval_interval == 0:
        with torch.no_grad():
            x = torch.randn(64, 24)
            best_val_loss = min(best_val_loss, (model(x) - x).pow(2).mean().item())
        print(f"step {iter_num}: val loss {best_val_loss:.4f}")
    x = torch.randn(12, 24)
    loss = (model(x) - x).pow(2).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    iter_num += 1
    local_iter_num += 1
    if iter_num > max_iters:
        break
