"""A Trainer class with callbacks: a sampler with more samples than anyone draws, iterations from its config."""

import time
from collections import defaultdict

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, RandomSampler


class CfgNode:
    def __init__(self, **kwargs):
        self.__dict__.update(kwargs)

    def merge_from_dict(self, d):
        self.__dict__.update(d)


class SortDataset(Dataset):
    def __len__(self):
        return 10000

    def __getitem__(self, idx):
        x = torch.randint(3, (6,))
        return x, torch.sort(x)[0]


class Trainer:
    @staticmethod
    def get_default_config():
        return CfgNode(num_workers=0, max_iters=None, batch_size=64, learning_rate=3e-4, grad_norm_clip=1.0)

    def __init__(self, config, model, train_dataset):
        self.config, self.model, self.train_dataset = config, model, train_dataset
        self.callbacks = defaultdict(list)
        self.iter_num, self.iter_time = 0, time.time()

    def set_callback(self, onevent, callback):
        self.callbacks[onevent] = [callback]

    def run(self):
        model, config = self.model, self.config
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=config.learning_rate)
        sampler = RandomSampler(self.train_dataset, replacement=True, num_samples=int(1e10))
        train_loader = DataLoader(self.train_dataset, config.batch_size, sampler=sampler, shuffle=False)
        data_iter = iter(train_loader)
        while True:
            try:
                x, y = next(data_iter)
            except StopIteration:
                data_iter = iter(train_loader)
                x, y = next(data_iter)
            self.loss = nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())
            model.zero_grad(set_to_none=True)
            self.loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), config.grad_norm_clip)
            self.optimizer.step()
            for callback in self.callbacks["on_batch_end"]:
                callback(self)
            self.iter_num += 1
            if config.max_iters is not None and self.iter_num >= config.max_iters:
                break


def batch_end_callback(trainer):
    if trainer.iter_num % 50 == 0:
        print(f"iter {trainer.iter_num}: train loss {trainer.loss.item():.5f}")


if __name__ == "__main__":
    torch.manual_seed(3407)
    train_config = Trainer.get_default_config()
    train_config.merge_from_dict({"max_iters": 300, "batch_size": 8, "learning_rate": 5e-4})
    trainer = Trainer(train_config, nn.Sequential(nn.Embedding(3, 16), nn.Linear(16, 3)), SortDataset())
    trainer.set_callback("on_batch_end", batch_end_callback)
    trainer.run()
