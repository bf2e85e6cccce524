"""A competition's notebook: class CFG, five folds, each with a new model, optimizer and schedule."""

import numpy as np
import torch
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR
from torch.utils.data import DataLoader, Dataset


class CFG:
    seed = 42
    epochs = 4
    batch_size = 16
    lr = 1e-3
    T_max = 4
    n_fold = 5
    trn_fold = [0, 1, 2, 3, 4]
    train = True


class TrainDataset(Dataset):
    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, idx):
        return FEATURES[self.rows[idx]], LABELS[self.rows[idx]]


torch.manual_seed(CFG.seed)
np.random.seed(CFG.seed)
FEATURES, LABELS = torch.randn(520, 12), torch.rand(520)
folds = np.random.permutation(520) % CFG.n_fold


def valid_fn(valid_loader, model):
    model.eval()
    with torch.no_grad():
        return np.concatenate([model(x).squeeze(1).numpy() for x, _ in valid_loader])


def train_loop(fold):
    train_rows, valid_rows = np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)
    train_loader = DataLoader(TrainDataset(train_rows), CFG.batch_size, shuffle=True, drop_last=True)
    valid_loader = DataLoader(TrainDataset(valid_rows), CFG.batch_size * 2)
    model = nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=CFG.lr)
    scheduler = CosineAnnealingLR(optimizer, T_max=CFG.T_max, eta_min=1e-6)
    best_score = np.inf
    for epoch in range(CFG.epochs):
        model.train()
        for x, y in train_loader:
            loss = nn.functional.mse_loss(model(x).squeeze(1), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        scheduler.step()
        score = float(np.mean((valid_fn(valid_loader, model) - LABELS[valid_rows].numpy()) ** 2))
        best_score = min(best_score, score)
        print(f"fold {fold} epoch {epoch + 1} score {score:.4f}")
    return best_score


if __name__ == "__main__":
    scores = [train_loop(fold) for fold in range(CFG.n_fold) if fold in CFG.trn_fold]
    print(f"CV: {np.mean(scores):.4f}")
