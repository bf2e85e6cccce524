"""Image translation: epochs at the first rate plus epochs of decay; one call steps generators and discriminators."""

import argparse
import itertools

import torch
from torch import nn
from torch.utils.data import DataLoader


class Pair(torch.utils.data.Dataset):
    def __len__(self):
        return 210

    def __getitem__(self, index):
        dice = torch.Generator().manual_seed(index)
        return {"A": torch.rand(12, generator=dice), "B": torch.rand(12, generator=dice)}


class Model:
    def __init__(self, opt):
        self.netG_A, self.netG_B = nn.Linear(12, 12), nn.Linear(12, 12)
        self.netD_A, self.netD_B = nn.Linear(12, 1), nn.Linear(12, 1)
        both = itertools.chain(self.netG_A.parameters(), self.netG_B.parameters())
        self.optimizer_G = torch.optim.Adam(both, lr=opt.lr)
        both = itertools.chain(self.netD_A.parameters(), self.netD_B.parameters())
        self.optimizer_D = torch.optim.Adam(both, lr=opt.lr)

        def rule(epoch):
            return 1.0 - max(0, epoch + opt.epoch_count - opt.n_epochs) / float(opt.n_epochs_decay + 1)

        optimizers = [self.optimizer_G, self.optimizer_D]
        self.schedulers = [torch.optim.lr_scheduler.LambdaLR(each, lr_lambda=rule) for each in optimizers]

    def optimize_parameters(self, data):
        fake_B, fake_A = self.netG_A(data["A"]), self.netG_B(data["B"])
        self.optimizer_G.zero_grad()
        cycle = (self.netG_B(fake_B) - data["A"]).abs().mean() + (self.netG_A(fake_A) - data["B"]).abs().mean()
        (cycle - self.netD_A(fake_B).mean() - self.netD_B(fake_A).mean()).backward()
        self.optimizer_G.step()
        self.optimizer_D.zero_grad()
        (self.netD_A(fake_B.detach()).sigmoid().mean() + self.netD_B(fake_A.detach()).sigmoid().mean()).backward()
        self.optimizer_D.step()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--n_epochs", type=int, default=5)
    parser.add_argument("--n_epochs_decay", type=int, default=4)
    parser.add_argument("--epoch_count", type=int, default=1)
    parser.add_argument("--batch_size", type=int, default=5)
    parser.add_argument("--lr", type=float, default=0.0002)
    opt = parser.parse_args()
    torch.manual_seed(0)
    dataset = DataLoader(Pair(), batch_size=opt.batch_size, shuffle=True)
    model = Model(opt)
    for epoch in range(opt.epoch_count, opt.n_epochs + opt.n_epochs_decay + 1):
        for data in dataset:
            model.optimize_parameters(data)
        for scheduler in model.schedulers:
            scheduler.step()
        print(f"end of epoch {epoch} / {opt.n_epochs + opt.n_epochs_decay}")
