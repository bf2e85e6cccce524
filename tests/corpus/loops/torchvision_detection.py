"""Detection references: a linear warm-up by iterations in the first epoch only, then milestones by epochs."""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset


class MetricLogger:
    def __init__(self, delimiter="  "):
        self.delimiter, self.meters = delimiter, {}

    def update(self, **values):
        self.meters.update(values)

    def log_every(self, iterable, print_freq, header):
        start = time.time()
        for i, obj in enumerate(iterable):
            yield obj
            if i % print_freq == 0 or i == len(iterable) - 1:
                shown = self.delimiter.join(f"{k}: {v:.4f}" for k, v in self.meters.items())
                print(f"{header} [{i}/{len(iterable)}] {shown} {time.time() - start:.1f} s")


def train_one_epoch(model, optimizer, data_loader, epoch, print_freq):
    model.train()
    metric_logger = MetricLogger()
    lr_scheduler = None
    if epoch == 0:
        warmup_iters = min(1000, len(data_loader) - 1)
        lr_scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.001, total_iters=warmup_iters)
    for images, targets in metric_logger.log_every(data_loader, print_freq, f"Epoch: [{epoch}]"):
        loss = nn.functional.mse_loss(model(images), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if lr_scheduler is not None:
            lr_scheduler.step()
        metric_logger.update(loss=loss.item(), lr=optimizer.param_groups[0]["lr"])


@torch.inference_mode()
def evaluate(model, data_loader):
    for _ in MetricLogger().log_every(data_loader, 100, "Test:"):
        pass


def main(args):
    torch.manual_seed(0)
    dataset = TensorDataset(torch.randn(600, 16), torch.randn(600, 4))
    sampler = BatchSampler(RandomSampler(dataset), args.batch_size, drop_last=True)
    data_loader = DataLoader(dataset, batch_sampler=sampler)
    data_loader_test = DataLoader(dataset, batch_size=1)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    lr_scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones=args.lr_steps, gamma=0.1)
    for epoch in range(args.start_epoch, args.epochs):
        train_one_epoch(model, optimizer, data_loader, epoch, args.print_freq)
        lr_scheduler.step()
        evaluate(model, data_loader_test)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("-b", "--batch-size", default=8, type=int)
    parser.add_argument("--epochs", default=5, type=int)
    parser.add_argument("--start_epoch", default=0, type=int)
    parser.add_argument("--lr", default=0.02, type=float)
    parser.add_argument("--lr-steps", default=[3, 4], nargs="+", type=int)
    parser.add_argument("--print-freq", default=20, type=int)
    main(parser.parse_args())
