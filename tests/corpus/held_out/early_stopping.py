"""Early stopping: up to a hundred epochs, ended when the validation has not improved for some."""

import argparse
import copy

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class EarlyStopping:
    def __init__(self, patience=7, delta=0.0):
        self.patience, self.delta = patience, delta
        self.counter, self.best_score, self.early_stop, self.best = 0, None, False, None

    def __call__(self, val_loss, model):
        score = -val_loss
        if self.best_score is None or score > self.best_score + self.delta:
            self.best_score, self.counter, self.best = score, 0, copy.deepcopy(model.state_dict())
            return
        self.counter += 1
        print(f"EarlyStopping counter: {self.counter} out of {self.patience}")
        self.early_stop = self.counter >= self.patience


def train_model(model, args, train_loader, valid_loader):
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    early_stopping = EarlyStopping(patience=args.patience)
    for epoch in range(1, args.n_epochs + 1):
        model.train()
        for data, target in train_loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(data), target)
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            losses = [nn.functional.cross_entropy(model(data), target).item() for data, target in valid_loader]
        valid_loss = sum(losses) / len(losses)
        print(f"[{epoch:>3}/{args.n_epochs:>3}] train_loss: {loss.item():.5f} valid_loss: {valid_loss:.5f}")
        early_stopping(valid_loss, model)
        if early_stopping.early_stop:
            print("Early stopping")
            break
    model.load_state_dict(early_stopping.best)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--n-epochs", type=int, default=100)
    parser.add_argument("--patience", type=int, default=4)
    parser.add_argument("--lr", type=float, default=0.01)
    args = parser.parse_args()
    torch.manual_seed(0)
    x = torch.randn(700, 12)
    y = ((x[:, 0] + 0.5 * torch.randn(700)) > 0).long()
    train_loader = DataLoader(TensorDataset(x[:560], y[:560]), batch_size=20, shuffle=True)
    valid_loader = DataLoader(TensorDataset(x[560:], y[560:]), batch_size=20)
    train_model(nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 2)), args, train_loader, valid_loader)
