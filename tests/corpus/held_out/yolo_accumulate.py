"""Detection: gradients are accumulated towards a nominal batch, by more batches as the warm-up goes on."""

import argparse
import math

import numpy as np
import torch
from torch import nn
from torch.optim import lr_scheduler
from torch.utils.data import DataLoader, TensorDataset


def train(hyp, opt):
    epochs, batch_size = opt.epochs, opt.batch_size
    torch.manual_seed(opt.seed)
    model = nn.Sequential(nn.Linear(30, 60), nn.SiLU(), nn.Linear(60, 6))
    nbs = 64  # nominal batch size
    accumulate = max(round(nbs / batch_size), 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=hyp["lr0"], momentum=hyp["momentum"], nesterov=True)

    def lf(x):
        return ((1 - math.cos(x * math.pi / epochs)) / 2) * (hyp["lrf"] - 1) + 1

    scheduler = lr_scheduler.LambdaLR(optimizer, lr_lambda=lf)
    train_loader = DataLoader(TensorDataset(torch.randn(1280, 30), torch.randn(1280, 6)), batch_size, shuffle=True)
    nb = len(train_loader)
    nw = max(round(hyp["warmup_epochs"] * nb), 100)
    last_opt_step = -1
    for epoch in range(opt.start_epoch, epochs):
        model.train()
        optimizer.zero_grad()
        for i, (imgs, targets) in enumerate(train_loader):
            ni = i + nb * epoch
            if ni <= nw:
                accumulate = max(1, np.interp(ni, [0, nw], [1, nbs / batch_size]).round())
                for x in optimizer.param_groups:
                    x["lr"] = np.interp(ni, [0, nw], [0.0, x["initial_lr"] * lf(epoch)])
            loss = nn.functional.smooth_l1_loss(model(imgs), targets)
            loss.backward()
            if ni - last_opt_step >= accumulate:
                optimizer.step()
                optimizer.zero_grad()
                last_opt_step = ni
        scheduler.step()
        print(f"{epoch}/{epochs - 1} accumulate {accumulate} loss {loss.item():.3f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--start-epoch", type=int, default=0)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--seed", type=int, default=0)
    train({"lr0": 0.01, "lrf": 0.1, "momentum": 0.9, "warmup_epochs": 3.0}, parser.parse_args())
