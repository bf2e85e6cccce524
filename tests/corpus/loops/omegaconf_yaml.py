"""YAML read by OmegaConf, merged with dotted options of the command line; objects are made from it."""

import torch
from omegaconf import OmegaConf
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

BASE = """
model: {width: 48, depth: 2}
data: {samples: 1200, batch_size: 24, num_workers: 0}
trainer: {max_epochs: 6, accumulate_grad_batches: 2, log_every_n_steps: 10}
optim: {base_learning_rate: 1.0e-4}
"""


class Trainer:
    def __init__(self, max_epochs, accumulate_grad_batches=1, log_every_n_steps=50):
        self.max_epochs, self.accumulate, self.every = max_epochs, accumulate_grad_batches, log_every_n_steps
        self.current_epoch = self.global_step = 0

    def fit(self, model, optimizer, loader):
        for self.current_epoch in range(self.max_epochs):
            for batch_idx, (x,) in enumerate(loader):
                loss = nn.functional.mse_loss(model(x), x) / self.accumulate
                loss.backward()
                if (batch_idx + 1) % self.accumulate == 0:
                    optimizer.step()
                    optimizer.zero_grad()
                    self.global_step += 1
                    if self.global_step % self.every == 0:
                        print(self.current_epoch, self.global_step, round(loss.item(), 4))


def main():
    config = OmegaConf.merge(OmegaConf.create(BASE), OmegaConf.from_cli())
    torch.manual_seed(23)
    width = config.model.width
    layers = [nn.Sequential(nn.Linear(width, width), nn.GELU()) for _ in range(config.model.depth)]
    model = nn.Sequential(*layers)
    loader = DataLoader(TensorDataset(torch.randn(config.data.samples, width)), config.data.batch_size, shuffle=True)
    lr = config.optim.base_learning_rate * config.data.batch_size
    Trainer(**config.trainer).fit(model, torch.optim.AdamW(model.parameters(), lr=lr), loader)


if __name__ == "__main__":
    main()
