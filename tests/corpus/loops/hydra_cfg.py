"""Hydra with structured configs: cfg.trainer.max_epochs, a data module, a loop in a function."""

from dataclasses import dataclass, field

import hydra
import torch
from hydra.core.config_store import ConfigStore
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


@dataclass
class Data:
    batch_size: int = 25
    train_val_split: tuple[int, int] = (1000, 250)


@dataclass
class Trainer:
    min_epochs: int = 1
    max_epochs: int = 7
    check_val_every_n_epoch: int = 1


@dataclass
class Cfg:
    data: Data = field(default_factory=Data)
    trainer: Trainer = field(default_factory=Trainer)
    lr: float = 0.01
    seed: int = 12


ConfigStore.instance().store(name="train", node=Cfg)


class DataModule:
    def __init__(self, cfg):
        n_train, n_val = cfg.train_val_split
        self.batch_size = cfg.batch_size
        self.train = TensorDataset(torch.randn(n_train, 16), torch.randint(4, (n_train,)))
        self.val = TensorDataset(torch.randn(n_val, 16), torch.randint(4, (n_val,)))

    def train_dataloader(self):
        return DataLoader(self.train, self.batch_size, shuffle=True)

    def val_dataloader(self):
        return DataLoader(self.val, self.batch_size)


@hydra.main(version_base="1.3", config_name="train")
def main(cfg):
    torch.manual_seed(cfg.seed)
    data = DataModule(cfg.data)
    net = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 4))
    optimizer = torch.optim.Adam(net.parameters(), lr=cfg.lr)
    for epoch in range(cfg.trainer.max_epochs):
        net.train()
        for x, y in data.train_dataloader():
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(net(x), y)
            loss.backward()
            optimizer.step()
        if epoch % cfg.trainer.check_val_every_n_epoch == 0:
            net.eval()
            with torch.no_grad():
                print(epoch, sum(nn.functional.cross_entropy(net(x), y).item() for x, y in data.val_dataloader()))


if __name__ == "__main__":
    main()
