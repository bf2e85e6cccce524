"""Translation: ends at --max-update or --max-epoch, whichever comes first; gradients of --update-freq batches."""

import argparse
import math

import torch
from torch import nn
from torch.utils.data import DataLoader


def get_parser():
    parser = argparse.ArgumentParser()
    group = parser.add_argument_group("optimization")
    group.add_argument("--max-epoch", "--me", default=30, type=int)
    group.add_argument("--max-update", "--mu", default=260, type=int)
    group.add_argument("--update-freq", default="2", type=lambda uf: [int(i) for i in uf.split(",")])
    group.add_argument("--warmup-updates", default=40, type=int)
    group.add_argument("--lr", default=5e-3, type=float)
    group.add_argument("--max-sentences", "--batch-size", default=10, type=int)
    return parser


class Trainer:
    def __init__(self, args, model):
        self.args, self.model, self.num_updates = args, model, 0
        self.optimizer = torch.optim.Adam(model.parameters(), lr=args.lr, betas=(0.9, 0.98))

    def lr_step_update(self):
        scale = min((self.num_updates + 1) / self.args.warmup_updates, math.sqrt(40 / (self.num_updates + 1)))
        for group in self.optimizer.param_groups:
            group["lr"] = self.args.lr * scale

    def train_step(self, samples):
        self.optimizer.zero_grad()
        for sample in samples:
            (self.model(sample) - sample).abs().mean().backward()
        self.lr_step_update()
        self.optimizer.step()
        self.num_updates += 1


def grouped(loader, size):
    chunk = []
    for sample in loader:
        chunk.append(sample)
        if len(chunk) == size:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def train(args, trainer, loader, epoch, max_update):
    for samples in grouped(loader, args.update_freq[min(epoch, len(args.update_freq)) - 1]):
        trainer.train_step(samples)
        if trainer.num_updates >= max_update:
            return


def main(args):
    torch.manual_seed(1)
    trainer = Trainer(args, nn.Sequential(nn.Linear(18, 36), nn.ReLU(), nn.Linear(36, 18)))
    loader = DataLoader(torch.randn(770, 18), args.max_sentences, shuffle=True)
    max_epoch, max_update = args.max_epoch or math.inf, args.max_update or math.inf
    epoch = 1
    while epoch <= max_epoch and trainer.num_updates < max_update:
        train(args, trainer, loader, epoch, max_update)
        print(f"epoch {epoch:03d} | num_updates {trainer.num_updates}")
        epoch += 1


if __name__ == "__main__":
    main(get_parser().parse_args())
