"""Curriculum learning: easy samples first, the loader is made again for each epoch with more of them."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Subset, TensorDataset

EPOCHS = 8
BATCH_SIZE = 20
START_FRACTION = 0.2


def pacing(epoch):
    """The share of the data in an epoch: grows until half of the epochs are done."""
    return min(1.0, START_FRACTION + (1.0 - START_FRACTION) * epoch / (EPOCHS // 2))


def main():
    torch.manual_seed(0)
    x = torch.randn(1200, 10)
    y = (x.sum(1) > 0).long()
    data = TensorDataset(x, y)
    by_difficulty = torch.argsort(x.sum(1).abs(), descending=True).tolist()
    model = nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for epoch in range(EPOCHS):
        chosen = Subset(data, by_difficulty[: int(pacing(epoch) * len(data))])
        loader = DataLoader(chosen, batch_size=BATCH_SIZE, shuffle=True)
        for inputs, labels in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(inputs), labels)
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: {len(chosen)} samples, loss {loss.item():.3f}")


main()
