"""A cosine whose T_max is less than the run: the rate rises again; a step per batch."""

import torch
from torch import nn, optim
from torch.utils.data import DataLoader, TensorDataset


class Config:
    batch_size = 20
    learning_rate = 1e-3
    n_epochs = 11
    T_max = 120
    min_lr = 1e-6


def train_fn(train_loader, model, criterion, optimizer, epoch, scheduler):
    model.train()
    running = 0.0
    for step, (signals, labels) in enumerate(train_loader):
        optimizer.zero_grad()
        loss = criterion(model(signals).squeeze(1), labels)
        loss.backward()
        optimizer.step()
        scheduler.step()
        running += loss.item()
        if step % 10 == 0:
            print(f"Epoch: [{epoch + 1}][{step}/{len(train_loader)}] LR: {scheduler.get_last_lr()[0]:.7f}")
    return running / len(train_loader)


def train_loop():
    torch.manual_seed(42)
    dataset = TensorDataset(torch.randn(620, 15), torch.randint(2, (620,)).float())
    train_loader = DataLoader(dataset, batch_size=Config.batch_size, shuffle=True, drop_last=True)
    model = nn.Sequential(nn.Linear(15, 30), nn.ReLU(), nn.Linear(30, 1))
    optimizer = optim.Adam(model.parameters(), lr=Config.learning_rate)
    scheduler = optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=Config.T_max, eta_min=Config.min_lr)
    for epoch in range(Config.n_epochs):
        avg_loss = train_fn(train_loader, model, nn.BCEWithLogitsLoss(), optimizer, epoch, scheduler)
        print(f"Epoch {epoch + 1} - avg_train_loss: {avg_loss:.4f}")


train_loop()
