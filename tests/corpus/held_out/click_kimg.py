"""A GAN from the command line of click: the length is given in thousands of images, ticks in between."""

import click
import numpy as np
import torch
from torch import nn


class InfiniteSampler(torch.utils.data.Sampler):
    def __init__(self, dataset, seed=0):
        self.dataset, self.seed = dataset, seed

    def __iter__(self):
        order = np.arange(len(self.dataset))
        rnd = np.random.RandomState(self.seed)
        rnd.shuffle(order)
        idx = 0
        while True:
            i = idx % order.size
            yield int(order[i])
            j = (i - rnd.randint(3)) % order.size
            order[i], order[j] = order[j], order[i]
            idx += 1


def training_loop(batch_size, total_kimg, kimg_per_tick, random_seed, D_reg_interval=16):
    torch.manual_seed(random_seed)
    training_set = torch.randn(500, 14)
    loader = torch.utils.data.DataLoader(training_set, batch_size=batch_size, sampler=InfiniteSampler(training_set))
    iterator = iter(loader)
    G, D = nn.Sequential(nn.Linear(6, 14), nn.Tanh()), nn.Sequential(nn.Linear(14, 20), nn.ReLU(), nn.Linear(20, 1))
    G_opt = torch.optim.Adam(G.parameters(), lr=0.002, betas=(0.0, 0.99))
    D_opt = torch.optim.Adam(D.parameters(), lr=0.002, betas=(0.0, 0.99))
    cur_nimg, cur_tick, tick_start, batch_idx = 0, 0, 0, 0
    while True:
        real, z = next(iterator), torch.randn(batch_size, 6)
        G_opt.zero_grad(set_to_none=True)
        nn.functional.softplus(-D(G(z))).mean().backward()
        G_opt.step()
        D_opt.zero_grad(set_to_none=True)
        (nn.functional.softplus(D(G(z).detach())) + nn.functional.softplus(-D(real))).mean().backward()
        if batch_idx % D_reg_interval == 0:
            (sum(p.pow(2).sum() for p in D.parameters()) * 1e-3).backward()
        D_opt.step()
        cur_nimg += batch_size
        batch_idx += 1
        done = cur_nimg >= total_kimg * 1000
        if not done and cur_nimg < tick_start + kimg_per_tick * 1000:
            continue
        print(f"tick {cur_tick:<5d} kimg {cur_nimg / 1e3:<8.1f}")
        cur_tick, tick_start = cur_tick + 1, cur_nimg
        if done:
            break


@click.command()
@click.option("--kimg", help="Training duration", type=int, metavar="INT", default=5)
@click.option("--batch", help="Batch size", type=int, default=16)
@click.option("--seed", type=int, default=0)
@click.option("--snap", help="Snapshot interval", type=int, default=50)
def main(kimg, batch, seed, snap):
    training_loop(batch_size=batch, total_kimg=kimg, kimg_per_tick=0.5, random_seed=seed)


if __name__ == "__main__":
    main()
