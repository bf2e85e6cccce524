"""Imbalanced classes: a weighted sampler draws more samples than the set has, the last batch is dropped."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler


def make_loaders(opt):
    y = (torch.rand(700) < 0.1).long()
    weights = torch.where(y == 1, 9.0, 1.0)
    sampler = WeightedRandomSampler(weights, num_samples=1000, replacement=True)
    train = DataLoader(TensorDataset(torch.randn(700, 20), y), opt.bs, sampler=sampler, drop_last=True)
    valid = DataLoader(TensorDataset(torch.randn(100, 20), torch.randint(2, (100,))), opt.bs)
    return train, valid


def run(opt):
    torch.manual_seed(opt.seed)
    train, valid = make_loaders(opt)
    net = nn.Sequential(nn.Linear(20, 32), nn.Tanh(), nn.Linear(32, 2))
    sgd = torch.optim.SGD(net.parameters(), lr=opt.lr, nesterov=True, momentum=0.9)
    for ep in range(opt.ep):
        for x, y in train:
            sgd.zero_grad(set_to_none=True)
            nn.functional.cross_entropy(net(x), y).backward()
            sgd.step()
        with torch.no_grad():
            hits = sum((net(x).argmax(1) == y).sum().item() for x, y in valid)
        print(ep, hits)


if __name__ == "__main__":
    cli = argparse.ArgumentParser()
    cli.add_argument("--bs", type=int, default=48)
    cli.add_argument("--ep", type=int, default=15)
    cli.add_argument("--lr", type=float, default=0.05)
    cli.add_argument("--seed", type=int, default=3)
    run(cli.parse_args())
