"""Image classification at a high rate: one cycle over all epochs, stepped after each batch."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def get_lr(optimizer):
    return optimizer.param_groups[0]["lr"]


@torch.no_grad()
def evaluate(model, val_loader):
    model.eval()
    return torch.tensor([nn.functional.cross_entropy(model(x), y).item() for x, y in val_loader]).mean().item()


def fit_one_cycle(epochs, max_lr, model, train_loader, val_loader, weight_decay=0.0, grad_clip=None):
    history = []
    optimizer = torch.optim.Adam(model.parameters(), max_lr, weight_decay=weight_decay)
    steps = len(train_loader)
    sched = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr, epochs=epochs, steps_per_epoch=steps)
    for epoch in range(epochs):
        model.train()
        lrs = []
        for images, labels in train_loader:
            loss = nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            if grad_clip:
                nn.utils.clip_grad_value_(model.parameters(), grad_clip)
            optimizer.step()
            optimizer.zero_grad()
            lrs.append(get_lr(optimizer))
            sched.step()
        history.append(evaluate(model, val_loader))
        print(f"Epoch [{epoch}], last_lr: {lrs[-1]:.5f}, val_loss: {history[-1]:.4f}")
    return history


torch.manual_seed(0)
train_dl = DataLoader(TensorDataset(torch.randn(1500, 27), torch.randint(10, (1500,))), 50, shuffle=True)
valid_dl = DataLoader(TensorDataset(torch.randn(300, 27), torch.randint(10, (300,))), 100)
net = nn.Sequential(nn.Linear(27, 54), nn.BatchNorm1d(54), nn.ReLU(), nn.Linear(54, 10))
history = [evaluate(net, valid_dl)]
history += fit_one_cycle(9, 0.01, net, train_dl, valid_dl, grad_clip=0.1, weight_decay=1e-4)
