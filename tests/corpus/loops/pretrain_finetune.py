"""Two stages: an autoencoder on all data, then a classifier on its encoder and the labelled part."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def pretrain(encoder, decoder, loader, epochs):
    optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=1e-3)
    for epoch in range(epochs):
        for (x,) in loader:
            loss = nn.functional.mse_loss(decoder(encoder(x + 0.1 * torch.randn_like(x))), x)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"pretrain {epoch}: {loss.item():.4f}")


def finetune(encoder, classifier, loader, test, epochs):
    groups = [{"params": encoder.parameters(), "lr": 1e-4}, {"params": classifier.parameters()}]
    optimizer = torch.optim.Adam(groups, lr=1e-3)
    for epoch in range(epochs):
        for x, y in loader:
            loss = nn.functional.cross_entropy(classifier(encoder(x)), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            hits = sum((classifier(encoder(x)).argmax(1) == y).sum().item() for x, y in test)
        print(f"finetune {epoch}: {loss.item():.4f} {hits}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--pretrain-epochs", type=int, default=4)
    parser.add_argument("--finetune-epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=32)
    args = parser.parse_args()
    torch.manual_seed(9)
    unlabelled = DataLoader(TensorDataset(torch.randn(1600, 24)), args.batch_size, shuffle=True)
    labelled = DataLoader(TensorDataset(torch.randn(416, 24), torch.randint(4, (416,))), args.batch_size, shuffle=True)
    test = DataLoader(TensorDataset(torch.randn(96, 24), torch.randint(4, (96,))), args.batch_size)
    encoder = nn.Sequential(nn.Linear(24, 12), nn.ReLU())
    pretrain(encoder, nn.Linear(12, 24), unlabelled, args.pretrain_epochs)
    finetune(encoder, nn.Linear(12, 4), labelled, test, args.finetune_epochs)


if __name__ == "__main__":
    main()
