"""Shards are streamed: the dataset has no length, the number of epochs is given."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset


class Shards(IterableDataset):
    """Samples of several shards of different sizes; some samples are filtered out."""

    def __init__(self, urls, seed):
        self.urls, self.seed = urls, seed

    def __iter__(self):
        for number in self.urls:
            dice = torch.Generator().manual_seed(self.seed + number)
            for _ in range(60 + 7 * number):
                sample = torch.randn(14, generator=dice)
                if sample[0] > -1.0:
                    yield sample, (sample.sum() > 0).long()


def main(argv=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--trainshards", type=int, default=8)
    parser.add_argument("--batchsize", type=int, default=10)
    parser.add_argument("--maxepoch", type=int, default=6)
    parser.add_argument("--lr", type=float, default=0.05)
    args = parser.parse_args(argv)
    torch.manual_seed(0)
    loader = DataLoader(Shards(range(args.trainshards), 5), batch_size=args.batchsize)
    model = nn.Sequential(nn.Linear(14, 30), nn.ReLU(), nn.Linear(30, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
    for epoch in range(args.maxepoch):
        losses = []
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(inputs), targets)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        print(epoch, len(losses), sum(losses) / len(losses))


if __name__ == "__main__":
    main()
