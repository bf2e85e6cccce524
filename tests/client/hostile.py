"""Trainings over objects that answer every question by doing something: prints weights, random states, calls counted.

Run alone and under the hook, the output is the same: nothing of theirs was asked that the training does not ask."""

import argparse
import collections
import hashlib
import os
import random
import sys
import types

import torch
from torch.utils.data import BatchSampler, DataLoader, Dataset, IterableDataset, RandomSampler, Sampler, TensorDataset

calls = collections.Counter()


def count(one, name):
    calls[f"{type(one).__name__}.{name}"] += 1
    torch.rand(1), random.random()


class Hostile:
    """Draws and counts at every question; raises at those that a script of its kind would not survive."""

    def __len__(self):
        count(self, "len")
        return 8

    def __iter__(self):
        count(self, "iter")
        return iter(range(8))

    def __getattr__(self, name):
        count(self, "getattr")
        raise AttributeError(name)

    def __repr__(self):
        count(self, "repr")
        return "?"

    def __bool__(self):
        count(self, "bool")
        return True

    def __eq__(self, other):
        count(self, "eq")
        return True

    def __hash__(self):
        count(self, "hash")
        return 1

    @property
    def num_samples(self):
        count(self, "num_samples")
        return 8

    batch_size = total = n = epochs = max_steps = dataset = sampler = last_epoch = stop = num_samples


class Data(Hostile, Dataset):
    def __getitem__(self, at):
        return torch.full((4,), float(at))


class Lists(Hostile, list):
    pass


class Stream(Hostile, IterableDataset):
    def __iter__(self):
        count(self, "iter")
        return iter(torch.ones(8, 4))


class Shuffled(Hostile, Sampler):
    def __iter__(self):
        count(self, "iter")
        return iter(torch.randperm(8).tolist())


class Batches(Shuffled):
    def __iter__(self):
        count(self, "iter")
        yield from torch.randperm(8).view(4, 2).tolist()

    def __len__(self):
        count(self, "len")
        return sum(1 for _ in self)


class Own(RandomSampler):
    @property
    def num_samples(self):
        count(self, "num_samples")
        return 8


class Grouped(BatchSampler):
    def __len__(self):
        count(self, "len")
        return 4


class Loader(DataLoader):
    def __len__(self):
        count(self, "len")
        return 4

    @property
    def dataset_size(self):
        count(self, "property")
        return 8


class Wrapped(Hostile):
    """A loader of a script's own, around torch's."""

    def __init__(self, loader):
        self.loader = loader

    def __iter__(self):
        count(self, "iter")
        yield from self.loader


class Watched:
    """Counts every attribute that is read."""

    def __getattribute__(self, name):
        calls[f"{type(self).__name__} {name}"] += 1
        return super().__getattribute__(name)


class WatchedData(Watched, TensorDataset):
    pass


class WatchedSampler(Watched, RandomSampler):
    pass


class WatchedLoader(Watched, DataLoader):
    pass


class WatchedArgs(Watched, argparse.Namespace):
    pass


class Batch(Hostile):
    def __init__(self, rows):
        self.rows = rows


class Args(Hostile, argparse.Namespace):
    pass


class Lazy(types.ModuleType):
    def __getattr__(self, name):
        calls[f"lazy {name}"] += 1
        raise AttributeError(name)

    @property
    def tqdm(self):
        calls["lazy property"] += 1


class Number(int):
    """A number of epochs that counts what is done with it."""

    def __index__(self):
        calls["index"] += 1
        return int.__int__(self)

    def __lt__(self, other):
        calls["lt"] += 1
        return int.__lt__(self, other)

    def __mul__(self, other):
        calls["mul"] += 1
        return int.__mul__(self, other)

    def __hash__(self):
        calls["hash"] += 1
        return int.__hash__(self)


class Rate(torch.optim.lr_scheduler.CosineAnnealingLR):
    def __getattr__(self, name):
        calls[f"rate {name}"] += 1
        raise AttributeError(name)


class Sgd(torch.optim.SGD):
    def __repr__(self):
        calls["repr"] += 1
        return "?"


def together(rows):
    return Batch(torch.stack(rows))


data = TensorDataset(torch.ones(8, 4))
KINDS = {
    "a data set": lambda: DataLoader(Data(), 2),
    "a data set, shuffled": lambda: DataLoader(Data(), 2, shuffle=True),
    "a list": lambda: DataLoader(Lists(torch.ones(8, 4)), 2),
    "a stream": lambda: DataLoader(Stream(), 2),
    "a subset of one": lambda: DataLoader(torch.utils.data.Subset(Data(), range(8)), 2),
    "a join of two": lambda: DataLoader(torch.utils.data.ConcatDataset([Data(), Data()]), 2),
    "a sampler": lambda: DataLoader(data, 2, sampler=Shuffled()),
    "a batch sampler": lambda: DataLoader(data, batch_sampler=Batches()),
    "a random sampler of its own": lambda: DataLoader(data, 2, sampler=Own(data)),
    "a sampler of batches": lambda: DataLoader(data, batch_sampler=BatchSampler(Shuffled(), 2, True)),
    "a group": lambda: DataLoader(data, batch_sampler=Grouped(RandomSampler(data), 2, False)),
    "a loader": lambda: Loader(data, 2),
    "a loader that is wrapped": lambda: Wrapped(DataLoader(data, 2)),
    "a loader wrapped twice": lambda: Wrapped(Wrapped(Loader(Data(), 2))),
    "a batch": lambda: DataLoader(Data(), 2, collate_fn=together),
    "a watched data set": lambda: DataLoader(WatchedData(torch.ones(8, 4)), 2, True),
    "a watched sampler": lambda: DataLoader(data, 2, sampler=WatchedSampler(data)),
    "a watched loader": lambda: WatchedLoader(data, 2),
    "a thing": Hostile,
    "a generator": lambda: (torch.ones(2, 4) for _ in range(4)),
}
args = argparse.ArgumentParser().parse_known_args([], Args())[0]
watched = argparse.ArgumentParser().parse_known_args([], WatchedArgs())[0]
config = {"epochs": Hostile(), "steps": Number(3), Hostile(): 1}
hidden, switch, EPOCHS = Hostile(), Hostile(), Number(3)
args.rounds = EPOCHS


class Trainer(Hostile):
    """Whose loops depend on hostile things."""

    def __init__(self, loader):
        self.loader, self.limit = loader, Hostile()

    def fit(self, model, optimizer, rate):
        done = 0
        for _ in range(args.rounds):
            for batch in self.loader:
                rows = batch.rows if isinstance(batch, Batch) else batch[0] if isinstance(batch, list) else batch
                rows = rows if isinstance(rows, torch.Tensor) else torch.ones(2, 4)
                model(rows).sum().backward()
                optimizer.step()
                optimizer.zero_grad()
                rate.step()
                done += 1
                look()
                if done >= EPOCHS * 30 or (done > 90 and (self.stop or args.stop or len(switch) < done)):
                    return


def look():
    """Under the hook: what its thread does about once a second, here after each step."""
    if "carbontui.client.pausing.link" in sys.modules:
        from carbontui.client.api import gate
        from carbontui.client.detection import guess

        gate.counter.watch()
        guess.detector.total(gate.counter.done())
        guess.detector.sighting()
        guess.detector.unsent()


def main():
    rank = int(os.environ.get("RANK", "-1"))
    if rank >= 0:
        torch.distributed.init_process_group("gloo")
    Sgd(torch.nn.Linear(1, 1).parameters(), 0.01)  # torch imports the rest of itself
    sys.modules.update({name: Lazy(name) for name in ("tqdm", "rich.progress", "omegaconf")})
    for name, made in KINDS.items():
        torch.manual_seed(7), random.seed(7)
        calls.clear()
        model = torch.nn.Linear(4, 1)
        if rank >= 0:
            model = torch.nn.parallel.DistributedDataParallel(model)
        optimizer = Sgd(model.parameters(), 0.01)
        Trainer(made()).fit(model, optimizer, Rate(optimizer, 9))
        state = hashlib.sha1(repr((torch.get_rng_state().tolist(), random.getstate())).encode()).hexdigest()[:8]
        weights = sum(p.sum() for p in model.parameters()).item().hex()
        os.write(
            1, f"{max(rank, 0)} {name}: {weights} {state} {sorted(calls.items())}\n".encode()
        )  # whole, of each rank


if __name__ == "__main__":
    main()
