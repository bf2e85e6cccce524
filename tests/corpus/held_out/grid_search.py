"""A search over hyperparameters: several trainings in one process, then the best is refitted."""

import itertools

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split


class NeuralNetClassifier:
    def __init__(self, hidden=10, lr=0.01, max_epochs=10, batch_size=32, verbose=0):
        self.params = {"hidden": hidden, "lr": lr, "max_epochs": max_epochs, "batch_size": batch_size}
        self.verbose = verbose
        for name, value in self.params.items():
            setattr(self, name, value)

    def initialize(self):
        self.module_ = nn.Sequential(nn.Linear(15, self.hidden), nn.ReLU(), nn.Linear(self.hidden, 2))
        self.optimizer_ = torch.optim.SGD(self.module_.parameters(), lr=self.lr, momentum=0.9)

    def fit(self, dataset):
        self.initialize()
        iterator = DataLoader(dataset, self.batch_size, shuffle=True)
        for epoch in range(self.max_epochs):
            for Xi, yi in iterator:
                self.optimizer_.zero_grad()
                loss = nn.functional.cross_entropy(self.module_(Xi), yi)
                loss.backward()
                self.optimizer_.step()
            if self.verbose:
                print(epoch, loss.item())
        return self

    @torch.no_grad()
    def score(self, dataset):
        X, y = dataset[:]
        return (self.module_(X).argmax(1) == y).float().mean().item()


def grid(params):
    for values in itertools.product(*params.values()):
        yield dict(zip(params, values, strict=True))


if __name__ == "__main__":
    torch.manual_seed(1)
    whole = TensorDataset(torch.randn(480, 15), torch.randint(2, (480,)))
    train, valid = random_split(whole, [400, 80])
    params = {"lr": [0.01, 0.1], "hidden": [10, 20], "max_epochs": [3, 5]}
    results = []
    for chosen in grid(params):
        net = NeuralNetClassifier(**chosen, batch_size=40).fit(train)
        results.append((net.score(valid), sorted(chosen.items())))
        print(results[-1])
    best = max(results)
    NeuralNetClassifier(**dict(best[1]), batch_size=40, verbose=1).fit(whole)
