"""The batch doubles at milestones instead of a falling rate: later epochs have fewer steps."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def train_epoch(model, optimizer, loader):
    seen, total = 0, 0.0
    for x, y in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        seen += len(x)
        total += loss.item() * len(x)
    return total / seen


def main(args):
    torch.manual_seed(args.seed)
    train_set = TensorDataset(torch.randn(1600, 16), torch.randint(3, (1600,)))
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    batch_size = args.batch_size
    loader = DataLoader(train_set, batch_size=batch_size, shuffle=True)
    for epoch in range(args.num_epochs):
        if epoch in args.milestones:
            batch_size *= 2
            loader = DataLoader(train_set, batch_size=batch_size, shuffle=True)
        print(f"epoch {epoch} batch {batch_size} loss {train_epoch(model, optimizer, loader):.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--num-epochs", type=int, default=9)
    parser.add_argument("--milestones", type=int, nargs="+", default=[4, 7])
    parser.add_argument("--batch-size", type=int, default=20)
    parser.add_argument("--lr", type=float, default=0.02)
    parser.add_argument("--seed", type=int, default=0)
    main(parser.parse_args())
