"""A worker function with many options: epochs from a start, validation, the best accuracy, meters."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("-a", "--arch", default="mlp")
parser.add_argument("--epochs", default=9, type=int)
parser.add_argument("--start-epoch", default=0, type=int)
parser.add_argument("-b", "--batch-size", default=20, type=int)
parser.add_argument("--lr", default=0.1, type=float)
parser.add_argument("--momentum", default=0.9, type=float)
parser.add_argument("-p", "--print-freq", default=10, type=int)
parser.add_argument("-e", "--evaluate", action="store_true")
parser.add_argument("--gpu", default=None, type=int)
best_acc1 = 0.0


class AverageMeter:
    def __init__(self, name):
        self.name, self.sum, self.count = name, 0.0, 0

    def update(self, value, n=1):
        self.sum += value * n
        self.count += n

    def __str__(self):
        return f"{self.name} {self.sum / max(1, self.count):.3f}"


def main():
    args = parser.parse_args()
    torch.manual_seed(0)
    main_worker(args.gpu, 1, args)


def main_worker(gpu, ngpus_per_node, args):
    global best_acc1
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 5))
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), args.lr, momentum=args.momentum)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=30, gamma=0.1)
    made = TensorDataset(torch.randn(900, 32), torch.randint(5, (900,)))
    kept = TensorDataset(torch.randn(400, 32), torch.randint(5, (400,)))
    train_loader = DataLoader(made, batch_size=args.batch_size // ngpus_per_node, shuffle=True)
    val_loader = DataLoader(kept, batch_size=args.batch_size)
    if args.evaluate:
        validate(val_loader, model)
        return
    for epoch in range(args.start_epoch, args.epochs):
        train(train_loader, model, criterion, optimizer, epoch, args)
        best_acc1 = max(best_acc1, validate(val_loader, model))
        scheduler.step()


def train(train_loader, model, criterion, optimizer, epoch, args):
    losses = AverageMeter("loss")
    model.train()
    for i, (images, target) in enumerate(train_loader):
        loss = criterion(model(images), target)
        losses.update(loss.item(), images.size(0))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if i % args.print_freq == 0:
            print(f"[{epoch}][{i + 1}/{len(train_loader)}] {losses}")


def validate(val_loader, model):
    model.eval()
    top1 = AverageMeter("acc@1")
    with torch.no_grad():
        for images, target in val_loader:
            top1.update((model(images).argmax(1) == target).float().mean().item(), images.size(0))
    print(top1)
    return top1.sum / top1.count


if __name__ == "__main__":
    main()
