"""A variational autoencoder: options and loaders are globals, train(epoch) and test(epoch) use them."""

import argparse

import torch
from torch import nn, optim
from torch.nn import functional as F

parser = argparse.ArgumentParser(description="VAE")
parser.add_argument("--batch-size", type=int, default=32)
parser.add_argument("--epochs", type=int, default=10)
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--log-interval", type=int, default=10)
args = parser.parse_args()
torch.manual_seed(args.seed)

train_loader = torch.utils.data.DataLoader(torch.rand(1000, 64), batch_size=args.batch_size, shuffle=True)
test_loader = torch.utils.data.DataLoader(torch.rand(500, 64), batch_size=args.batch_size, shuffle=False)


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc, self.mu, self.logvar = nn.Linear(64, 32), nn.Linear(32, 4), nn.Linear(32, 4)
        self.dec = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 64), nn.Sigmoid())

    def forward(self, x):
        hidden = F.relu(self.enc(x))
        mu, logvar = self.mu(hidden), self.logvar(hidden)
        return self.dec(mu + torch.randn_like(mu) * torch.exp(0.5 * logvar)), mu, logvar


model = VAE()
optimizer = optim.Adam(model.parameters(), lr=1e-3)


def loss_function(recon_x, x, mu, logvar):
    kld = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
    return F.binary_cross_entropy(recon_x, x, reduction="sum") + kld


def train(epoch):
    model.train()
    train_loss = 0.0
    for batch_idx, data in enumerate(train_loader):
        optimizer.zero_grad()
        loss = loss_function(*model(data)[:1], data, *model(data)[1:])
        loss.backward()
        train_loss += loss.item()
        optimizer.step()
        if batch_idx % args.log_interval == 0:
            print(f"epoch {epoch} [{batch_idx * len(data)}/{len(train_loader.dataset)}]")
    print(f"epoch {epoch}: {train_loss / len(train_loader.dataset):.3f}")


def test(epoch):
    model.eval()
    with torch.no_grad():
        total = sum(loss_function(model(data)[0], data, *model(data)[1:]).item() for data in test_loader)
    print(f"test after {epoch}: {total / len(test_loader.dataset):.3f}")


if __name__ == "__main__":
    for epoch in range(1, args.epochs + 1):
        train(epoch)
        test(epoch)
