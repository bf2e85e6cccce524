"""A typer command whose epochs end early, after --max-batches."""

from typing import Annotated

import torch
import typer
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

app = typer.Typer(add_completion=False)


def one_epoch(model, loader, optimizer, max_batches):
    total = 0.0
    for i, (x, y) in enumerate(loader):
        if i >= max_batches:
            break
        optimizer.zero_grad()
        loss = nn.functional.huber_loss(model(x), y)
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total / max_batches


@app.command()
def train(
    epochs: Annotated[int, typer.Option(help="Passes over the data.")] = 9,
    batch_size: int = 16,
    max_batches: int = 40,
    lr: float = 3e-4,
):
    torch.manual_seed(5)
    data = TensorDataset(torch.randn(2000, 10), torch.randn(2000, 2))
    loader = DataLoader(data, batch_size=batch_size, shuffle=True)
    model = nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    for epoch in range(epochs):
        typer.echo(f"epoch {epoch}: {one_epoch(model, loader, optimizer, max_batches):.4f}")


if __name__ == "__main__":
    app()
