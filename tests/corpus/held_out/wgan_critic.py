"""A Wasserstein GAN: the critic steps with each batch, the generator with every n_critic-th."""

import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--n_epochs", type=int, default=6, help="number of epochs of training")
parser.add_argument("--batch_size", type=int, default=16)
parser.add_argument("--latent_dim", type=int, default=10)
parser.add_argument("--n_critic", type=int, default=5, help="number of training steps for discriminator per iter")
parser.add_argument("--clip_value", type=float, default=0.01)
parser.add_argument("--sample_interval", type=int, default=100)
opt = parser.parse_args()

torch.manual_seed(0)
generator = nn.Sequential(nn.Linear(opt.latent_dim, 32), nn.ReLU(), nn.Linear(32, 12))
discriminator = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 1))
dataloader = torch.utils.data.DataLoader(torch.randn(900, 12), batch_size=opt.batch_size, shuffle=True)
optimizer_G = torch.optim.RMSprop(generator.parameters(), lr=5e-5)
optimizer_D = torch.optim.RMSprop(discriminator.parameters(), lr=5e-5)

batches_done = 0
for epoch in range(opt.n_epochs):
    for i, real_imgs in enumerate(dataloader):
        optimizer_D.zero_grad()
        z = torch.randn(real_imgs.shape[0], opt.latent_dim)
        fake_imgs = generator(z).detach()
        loss_D = -torch.mean(discriminator(real_imgs)) + torch.mean(discriminator(fake_imgs))
        loss_D.backward()
        optimizer_D.step()
        for p in discriminator.parameters():
            p.data.clamp_(-opt.clip_value, opt.clip_value)

        if i % opt.n_critic == 0:
            optimizer_G.zero_grad()
            loss_G = -torch.mean(discriminator(generator(z)))
            loss_G.backward()
            optimizer_G.step()
            print(f"[{epoch}/{opt.n_epochs}] [{batches_done % len(dataloader)}/{len(dataloader)}] {loss_G.item():.4f}")
        batches_done += 1
