"""Fine-tuning: a cosine over all steps, a linear warm-up before it in the same schedule."""

import argparse

import torch
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, SequentialLR
from torch.utils.data import DataLoader, TensorDataset


def build(args, n_batches):
    model = nn.Sequential(nn.Linear(40, 40), nn.GELU(), nn.Linear(40, 6))
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.05)
    warm = args.warmup_epochs * n_batches
    whole = args.epochs * n_batches
    schedules = [LinearLR(optimizer, 0.01, total_iters=warm), CosineAnnealingLR(optimizer, T_max=whole - warm)]
    return model, optimizer, SequentialLR(optimizer, schedules, milestones=[warm])


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=8)
    p.add_argument("--warmup-epochs", type=int, default=1)
    p.add_argument("--lr", type=float, default=1e-3)
    p.add_argument("--eval-batch", type=int, default=8)
    args = p.parse_args()
    torch.manual_seed(0)
    loaders = {}
    for split, rows, size in [("train", 1000, 25), ("valid", 240, args.eval_batch), ("test", 400, args.eval_batch)]:
        loaders[split] = DataLoader(TensorDataset(torch.randn(rows, 40), torch.randint(6, (rows,))), size)
    model, optimizer, scheduler = build(args, len(loaders["train"]))
    step = 0
    for epoch in range(args.epochs):
        for x, y in loaders["train"]:
            loss = nn.functional.cross_entropy(model(x), y, label_smoothing=0.1)
            loss.backward()
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            step += 1
        for split in ("valid", "test"):
            with torch.no_grad():
                hits = sum((model(x).argmax(1) == y).sum().item() for x, y in loaders[split])
            print(f"epoch {epoch} step {step} lr {scheduler.get_last_lr()[0]:.2e} {split} {hits}")


if __name__ == "__main__":
    main()
