"""A diffusion Trainer: an endless cycle over a loader, a bar over all steps, an average of the weights."""

import copy

import torch
from torch import nn
from torch.optim import Adam
from torch.utils.data import DataLoader
from tqdm.auto import tqdm


def cycle(dl):
    while True:
        yield from dl


class EMA:
    def __init__(self, model, beta, update_every):
        self.online, self.ema, self.beta, self.every = model, copy.deepcopy(model), beta, update_every
        self.step = 0

    @torch.no_grad()
    def update(self):
        self.step += 1
        if self.step % self.every == 0:
            for kept, new in zip(self.ema.parameters(), self.online.parameters(), strict=True):
                kept.lerp_(new, 1 - self.beta)


class Trainer:
    def __init__(
        self,
        diffusion_model,
        dataset,
        *,
        train_batch_size=16,
        gradient_accumulate_every=1,
        train_lr=1e-4,
        train_num_steps=100000,
        save_and_sample_every=1000,
        ema_update_every=10,
    ):
        self.model = diffusion_model
        self.gradient_accumulate_every = gradient_accumulate_every
        self.train_num_steps, self.save_and_sample_every = train_num_steps, save_and_sample_every
        self.dl = cycle(DataLoader(dataset, batch_size=train_batch_size, shuffle=True))
        self.opt = Adam(diffusion_model.parameters(), lr=train_lr, betas=(0.9, 0.99))
        self.ema = EMA(diffusion_model, 0.995, ema_update_every)
        self.step = 0

    def train(self):
        with tqdm(initial=self.step, total=self.train_num_steps) as pbar:
            while self.step < self.train_num_steps:
                total_loss = 0.0
                for _ in range(self.gradient_accumulate_every):
                    data = next(self.dl)
                    noise = torch.randn_like(data)
                    loss = nn.functional.mse_loss(self.model(data + noise), noise) / self.gradient_accumulate_every
                    total_loss += loss.item()
                    loss.backward()
                pbar.set_description(f"loss: {total_loss:.4f}")
                self.opt.step()
                self.opt.zero_grad()
                self.step += 1
                self.ema.update()
                if self.step % self.save_and_sample_every == 0:
                    self.ema.ema(torch.randn(4, 32))
                pbar.update(1)


if __name__ == "__main__":
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 64), nn.SiLU(), nn.Linear(64, 32))
    trainer = Trainer(
        model,
        torch.randn(320, 32),
        train_batch_size=8,
        gradient_accumulate_every=2,
        train_num_steps=240,
        save_and_sample_every=80,
    )
    trainer.train()
