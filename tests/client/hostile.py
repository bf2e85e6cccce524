"""Trainings over objects that answer every question by doing something: prints weights, random states, calls counted.

Run alone and under the hook, the output is the same: nothing of theirs was asked that the training does not ask."""

import argparse
import asyncio
import collections
import concurrent.futures
import gc
import hashlib
import os
import random
import sys
import types

import numpy
import torch
from torch.utils.data import BatchSampler, DataLoader, Dataset, IterableDataset, RandomSampler, Sampler, TensorDataset

calls, thread = collections.Counter(), concurrent.futures.ThreadPoolExecutor(1)


def count(one, name):
    calls[f"{one if type(one) is str else type.__getattribute__(type(one), '__name__')}.{name}"] += 1
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

    def __getattribute__(self, name):
        calls[f"lazy {name}"] += 1
        return super().__getattribute__(name)


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


class Rate(Watched, torch.optim.lr_scheduler.CosineAnnealingLR):
    def __getattr__(self, name):
        calls[f"rate {name}"] += 1
        raise AttributeError(name)


class Sgd(Watched, torch.optim.SGD):
    def __repr__(self):
        calls["repr"] += 1
        return "?"


class Meta(type):
    """Classes that answer, too."""

    def __getattribute__(cls, name):
        count("class", name)
        return super().__getattribute__(name)

    def __eq__(cls, other):
        count("class", "eq")
        return cls is other

    def __hash__(cls):
        count("class", "hash")
        return 1

    def __instancecheck__(cls, one):
        count("class", "instance")
        return super().__instancecheck__(one)

    __subclasscheck__ = __instancecheck__
    __module__ = __name__ = property(lambda cls: count("class", "name") or "numpy")


class Metal(Dataset, metaclass=Meta):
    def __len__(self):
        count("metal", "len")
        return 8

    def __getitem__(self, at):
        return torch.full((4,), float(at))


class Disguised(Data):
    """Of another class, if that is asked for; and what it holds, too."""

    @property
    def __class__(self):
        count("disguised", "class")
        return Data

    @property
    def __dict__(self):
        count("disguised", "dict")
        return {"num_samples": 8, "limit": 3}


class Answer:
    def __get__(self, one, owner):
        count("descriptor", "get")
        return lambda: 8

    def __getattr__(self, name):
        count("descriptor", name)
        raise AttributeError(name)


class Described(Data):
    __len__ = __module__ = shape = limit = Answer()


class Own_names(dict):
    """Holds the attributes of an object."""

    def __getitem__(self, key):
        count("names", "item")
        return super().__getitem__(key)

    def _asked(self, *args):
        count("names", "asked")
        return ()

    get = items = keys = values = copy = __iter__ = _asked


class Bunch(Own_names):
    def __init__(self):
        self.__dict__ = self
        self.rounds, self.limit = 3, Hostile()


class BunchData(Data):
    def __init__(self):
        self.__dict__ = Bunch()
        dict.__setitem__(object.__getattribute__(self, "__dict__"), Hostile(), 1)


class Rows(numpy.ndarray):
    def __len__(self):
        count("rows", "len")
        return super().__len__()

    def __array_finalize__(self, made):
        count("rows", "finalize")

    shape = property(lambda self: count("rows", "shape") or numpy.ndarray.shape.__get__(self))


class Arrays(Data):
    """Numbers and arrays to whoever wants some."""

    def __array__(self, *args, **kwargs):
        count("array", "array")
        return numpy.ones(8)

    def __index__(self):
        count("array", "index")
        return 8

    __int__ = __float__ = __complex__ = __abs__ = __trunc__ = __length_hint__ = __index__


class Tensors(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, kinds, args=(), kwargs=None):
        count("tensor", func.__name__)
        return super().__torch_function__(func, kinds, args, kwargs or {})


class Mode(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, func, kinds, args=(), kwargs=None):
        count("mode", func.__name__)
        return func(*args, **(kwargs or {}))


class Moded(Wrapped):
    def __iter__(self):
        with Mode():
            yield from DataLoader(TensorDataset(torch.ones(8, 4)), 2)


class Anew(Wrapped):
    """Another loader for each pass, whose end is told."""

    def __iter__(self):
        loader = Loader(TensorDataset(torch.ones(8, 4)), 2)
        self.end = torch.utils.data.dataloader.weakref.ref(loader, lambda ref: count("end", "called"))
        iterator = iter(loader)
        del loader
        yield from iterator
        del iterator
        count("seen", f"after {calls['end.called']}")


class Apart(DataLoader):
    def _get_iterator(self):
        return Batched(super()._get_iterator())


class Batched(Hostile):
    def __init__(self, inner):
        self.inner = inner

    def __iter__(self):
        count(self, "iter")
        return self

    def __next__(self):
        return next(self.inner)


class Later(Wrapped):
    """Batches of a coroutine."""

    async def __aiter__(self):
        for one in torch.ones(4, 2, 4):
            await asyncio.sleep(0)
            yield one

    def __iter__(self):
        async def every():
            return [one async for one in self]

        yield from asyncio.run(every())


class Failing(Data):
    """Without a length at times."""

    def __len__(self):
        count(self, "len")
        print("a length", file=sys.stderr, flush=True)
        if calls["Failing.len"] % 2 == 0:
            raise TypeError
        return 8


class Few(collections.UserList):
    """A list of the library's, around what is not."""

    def __init__(self):
        self.data = Lists(torch.ones(8, 4))


Pair = collections.namedtuple("Pair", "limit total")


class Pairs(Pair):
    def __iter__(self):
        count(self, "iter")
        return super().__iter__()

    def __getattribute__(self, name):
        count("pairs", name)
        return super().__getattribute__(name)


class Handed(Hostile, argparse.ArgumentParser):
    """Whose options are a tuple of its own."""

    def __bool__(self):
        return True


space = {"Data": Data}
exec("class Nameless(Data): pass", space)
Said = type("Tensor", (Data,), {"__module__": "torch"})


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
    "a class that answers": lambda: DataLoader(Metal(), 2, shuffle=True),
    "a class in disguise": lambda: DataLoader(Disguised(), 2),
    "a class of descriptors": lambda: DataLoader(Described(), 2, sampler=range(8)),
    "a class of no module": lambda: DataLoader(space["Nameless"](), 2),
    "a class of torch's, by its name": lambda: DataLoader(Said(), 2),
    "a data set with names of its own": lambda: DataLoader(BunchData(), 2),
    "a data set without a length at times": lambda: DataLoader(Failing(), 2, sampler=range(8)),
    "an array": lambda: DataLoader(numpy.ones((8, 4), "float32").view(Rows), 2),
    "an array if wanted": lambda: DataLoader(Arrays(), 2),
    "a tensor": lambda: DataLoader(TensorDataset(torch.ones(8, 4).as_subclass(Tensors)), 2),
    "a list around another": lambda: DataLoader(Few(), 2),
    "a size": lambda: DataLoader(data, Number(2), drop_last=True),
    "a loader in a mode": lambda: Moded(None),
    "a loader for each pass": lambda: Anew(None),
    "a loader with an iterator of its own": lambda: Apart(data, 2),
    "an asynchronous loader": lambda: Later(None),
    "a thing": Hostile,
    "a generator": lambda: (torch.ones(2, 4) for _ in range(4)),
}
args = argparse.ArgumentParser().parse_known_args([], Args())[0]
watched = argparse.ArgumentParser().parse_known_args([], WatchedArgs())[0]
bunch = argparse.ArgumentParser().parse_known_args([], Bunch())[0]
config = {"epochs": Hostile(), "steps": Number(3), Hostile(): 1}
hidden, switch, EPOCHS = Hostile(), Hostile(), Number(3)
args.rounds = EPOCHS
metal, described, disguised, apart, few = Metal(), Described(), Disguised(), BunchData(), Few()
view, maps, pair = types.MappingProxyType(Own_names(limit=3)), collections.ChainMap(Own_names(limit=3)), Pairs(3, 4)
rows, tensor, arrays = numpy.ones(8).view(Rows), torch.ones(8).as_subclass(Tensors), Arrays()
round_and_round = [1]
round_and_round.append(round_and_round)
kinds = Metal


class Trainer(Hostile):
    """Whose loops depend on hostile things."""

    def __init__(self, loader):
        self.loader, self.limit = loader, Hostile()

    def fit(self, model, optimizer, rate):
        done = 0
        for _ in range(args.rounds):
            # named, so that they are looked at: metal, described, disguised, apart, few, view, maps, pair, rows, kinds
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

        gate.counter.watch()
        gate.quiesce()
        thread.submit(looked, gate.counter.done()).result()


def looked(done):
    from carbontui.client.detection.report import reporter

    reporter.report(done, 0)
    reporter.sighting()
    reporter.anew()


def main():
    rank = int(os.environ.get("RANK", "-1"))
    if rank >= 0:
        torch.distributed.init_process_group("gloo")
    Sgd(torch.nn.Linear(1, 1).parameters(), 0.01)  # torch imports the rest of itself
    sys.modules.update({name: Lazy(name) for name in ("tqdm", "tqdm.std", "rich.progress", "omegaconf", "jax")})
    for name, made in KINDS.items():
        torch.manual_seed(7), random.seed(7)
        calls.clear()
        model = torch.nn.Linear(4, 1)
        if rank >= 0:
            model = torch.nn.parallel.DistributedDataParallel(model)
        optimizer = Sgd(model.parameters(), 0.01)
        loader = made()
        Trainer(loader).fit(model, optimizer, Rate(optimizer, 9))
        for held in (loader, getattr(loader, "sampler", loader), getattr(loader, "dataset", loader)):
            calls[f"attributes of {object.__repr__(held).partition(' object')[0]}"] += len(
                getattr(held, "__dict__", ())
            )
        state = hashlib.sha1(repr((torch.get_rng_state().tolist(), random.getstate())).encode()).hexdigest()[:8]
        weights = sum(p.sum() for p in model.parameters()).item().hex()
        os.write(
            1, f"{max(rank, 0)} {name}: {weights} {state} {sorted(calls.items())}\n".encode()
        )  # whole, of each rank
    if rank >= 0:  # gloo's threads let go of Python's objects, which aborts in an interpreter that ends
        del model, optimizer, loader, held
        gc.collect()
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
