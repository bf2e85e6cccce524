"""Two bars of rich: one counts epochs, one counts the batches of an epoch and is reset."""

import torch
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

NUM_EPOCHS = 6
BATCH = 40


def accuracy(net, loader):
    with torch.no_grad():
        return sum((net(x).argmax(1) == y).sum().item() for x, y in loader) / len(loader.dataset)


def fit(net, train_dl, valid_dl, progress):
    optim = torch.optim.NAdam(net.parameters(), lr=2e-3)
    whole = progress.add_task("epochs", total=NUM_EPOCHS)
    inner = progress.add_task("batches", total=len(train_dl))
    for epoch in range(NUM_EPOCHS):
        progress.reset(inner)
        for x, y in train_dl:
            optim.zero_grad()
            nn.functional.cross_entropy(net(x), y).backward()
            optim.step()
            progress.advance(inner)
        progress.console.print(f"epoch {epoch}: {accuracy(net, valid_dl):.2f}")
        progress.advance(whole)


def main():
    torch.manual_seed(7)
    data = TensorDataset(torch.randn(2000, 9), torch.randint(3, (2000,)))
    train, valid = torch.utils.data.random_split(data, [0.9, 0.1])
    net = nn.Sequential(nn.Linear(9, 27), nn.SiLU(), nn.Linear(27, 3))
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns) as progress:
        fit(net, DataLoader(train, BATCH, shuffle=True), DataLoader(valid, BATCH), progress)


if __name__ == "__main__":
    main()
