"""A GAN: the discriminator and then the generator step with each batch; options are global."""

import argparse

import torch
from torch import nn, optim
from torch.utils.data import DataLoader

parser = argparse.ArgumentParser()
parser.add_argument("--batchSize", type=int, default=32)
parser.add_argument("--nz", type=int, default=8)
parser.add_argument("--niter", type=int, default=7, help="number of epochs to train for")
parser.add_argument("--lr", type=float, default=0.0002)
parser.add_argument("--beta1", type=float, default=0.5)
parser.add_argument("--manualSeed", type=int, default=4)
opt = parser.parse_args()
print(opt)
torch.manual_seed(opt.manualSeed)

dataset = torch.randn(1000, 16)
dataloader = DataLoader(dataset, batch_size=opt.batchSize, shuffle=True)
netG = nn.Sequential(nn.Linear(opt.nz, 32), nn.ReLU(), nn.Linear(32, 16), nn.Tanh())
netD = nn.Sequential(nn.Linear(16, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1), nn.Sigmoid())
criterion = nn.BCELoss()
fixed_noise = torch.randn(opt.batchSize, opt.nz)
optimizerD = optim.Adam(netD.parameters(), lr=opt.lr, betas=(opt.beta1, 0.999))
optimizerG = optim.Adam(netG.parameters(), lr=opt.lr, betas=(opt.beta1, 0.999))

for epoch in range(opt.niter):
    for i, real in enumerate(dataloader, 0):
        netD.zero_grad()
        n = real.size(0)
        errD_real = criterion(netD(real), torch.ones(n, 1))
        errD_real.backward()
        fake = netG(torch.randn(n, opt.nz))
        errD_fake = criterion(netD(fake.detach()), torch.zeros(n, 1))
        errD_fake.backward()
        optimizerD.step()

        netG.zero_grad()
        errG = criterion(netD(fake), torch.ones(n, 1))
        errG.backward()
        optimizerG.step()
        if i % 10 == 0:
            print(f"[{epoch}/{opt.niter}][{i}/{len(dataloader)}] {errD_real.item():.3f} {errG.item():.3f}")
    with torch.no_grad():
        netG(fixed_noise)
