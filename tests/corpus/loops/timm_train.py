"""Image models: a config file sets defaults before the options, warm-up and cool-down epochs, step_update()."""

import argparse
import math

import torch
import yaml
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

CONFIG = "epochs: 6\nwarmup_epochs: 1\ncooldown_epochs: 2\nbatch_size: 20\ngrad_accum_steps: 1\n"
parser = argparse.ArgumentParser(description="Training")
parser.add_argument("-b", "--batch-size", type=int, default=128)
parser.add_argument("--epochs", type=int, default=300)
parser.add_argument("--warmup-epochs", type=int, default=5)
parser.add_argument("--cooldown-epochs", type=int, default=0)
parser.add_argument("--grad-accum-steps", type=int, default=1)
parser.add_argument("--lr", type=float, default=0.05)
parser.add_argument("--log-interval", type=int, default=20)


class CosineLRScheduler:
    def __init__(self, optimizer, t_initial, lr_min, warmup_t):
        self.optimizer, self.t, self.lr_min, self.warmup_t = optimizer, t_initial, lr_min, warmup_t
        self.base = optimizer.param_groups[0]["lr"]

    def step_update(self, num_updates):
        x = min(1.0, num_updates / self.t)
        lr = self.base * num_updates / self.warmup_t if num_updates < self.warmup_t else self.base * math.cos(x)
        for group in self.optimizer.param_groups:
            group["lr"] = max(self.lr_min, lr)


def _parse_args():
    parser.set_defaults(**yaml.safe_load(CONFIG))
    return parser.parse_args()


def main():
    args = _parse_args()
    torch.manual_seed(42)
    model = nn.Sequential(nn.Linear(22, 44), nn.GELU(), nn.Linear(44, 7))
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=2e-5)
    data = TensorDataset(torch.randn(1010, 22), torch.randint(7, (1010,)))
    loader_train = DataLoader(data, args.batch_size, shuffle=True, drop_last=True)
    loader_eval = DataLoader(data, args.batch_size)
    updates_per_epoch = (len(loader_train) + args.grad_accum_steps - 1) // args.grad_accum_steps
    num_epochs = args.epochs + args.cooldown_epochs
    warmup = args.warmup_epochs * updates_per_epoch
    lr_scheduler = CosineLRScheduler(optimizer, args.epochs * updates_per_epoch, 1e-5, warmup)
    for epoch in range(num_epochs):
        num_updates = epoch * updates_per_epoch
        for batch_idx, (x, y) in enumerate(loader_train):
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
            optimizer.zero_grad()
            num_updates += 1
            lr_scheduler.step_update(num_updates=num_updates)
            if batch_idx % args.log_interval == 0:
                print(f"Train: {epoch} [{batch_idx}/{len(loader_train)}]")
        with torch.no_grad():
            print("top1", sum((model(x).argmax(1) == y).sum().item() for x, y in loader_eval))


if __name__ == "__main__":
    main()
