"""A trainer of iterations: `for self.iter in range(start_iter, max_iter)`, hooks, a sampler that never ends."""

import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, Sampler, TensorDataset


class Node(dict):
    __getattr__ = dict.__getitem__


def get_cfg():
    solver = Node(MAX_ITER=360, BASE_LR=0.01, STEPS=(240, 320), IMS_PER_BATCH=6, WARMUP_ITERS=50)
    return Node(SOLVER=solver, TEST=Node(EVAL_PERIOD=120), SEED=2)


class TrainingSampler(Sampler):
    def __init__(self, size, seed):
        self.size, self.dice = size, torch.Generator().manual_seed(seed)

    def __iter__(self):
        while True:
            yield from torch.randperm(self.size, generator=self.dice).tolist()


class PeriodicEval:
    def __init__(self, period, function):
        self.period, self.function = period, function

    def before_step(self):
        pass

    def after_step(self):
        if (self.trainer.iter + 1) % self.period == 0:
            print("eval", self.function())


class LRScheduler(PeriodicEval):
    def __init__(self, scheduler):
        self.scheduler = scheduler

    def after_step(self):
        self.scheduler.step()


class SimpleTrainer:
    def __init__(self, model, data_loader, optimizer, hooks):
        self.model, self.optimizer, self.hooks = model, optimizer, hooks
        self._data_loader_iter = iter(data_loader)
        for hook in hooks:
            hook.trainer = self

    def train(self, start_iter, max_iter):
        self.start_iter, self.max_iter = start_iter, max_iter
        for self.iter in range(start_iter, max_iter):
            for hook in self.hooks:
                hook.before_step()
            self.run_step()
            for hook in self.hooks:
                hook.after_step()

    def run_step(self):
        x, y = next(self._data_loader_iter)
        losses = {"cls": nn.functional.cross_entropy(self.model(x), y), "l2": self.model[0].weight.pow(2).mean()}
        self.optimizer.zero_grad()
        sum(losses.values()).backward()
        self.optimizer.step()


def main():
    cfg = get_cfg()
    torch.manual_seed(cfg.SEED)
    data = TensorDataset(torch.randn(150, 12), torch.randint(4, (150,)))
    batches = BatchSampler(TrainingSampler(len(data), cfg.SEED), cfg.SOLVER.IMS_PER_BATCH, drop_last=True)
    model = nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 4))
    optimizer = torch.optim.SGD(model.parameters(), cfg.SOLVER.BASE_LR, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, cfg.SOLVER.STEPS)
    test = DataLoader(data, batch_size=1)
    hooks = [
        LRScheduler(scheduler),
        PeriodicEval(cfg.TEST.EVAL_PERIOD, lambda: sum((model(x).argmax(1) == y).sum().item() for x, y in test)),
    ]
    SimpleTrainer(model, DataLoader(data, batch_sampler=batches), optimizer, hooks).train(0, cfg.SOLVER.MAX_ITER)


if __name__ == "__main__":
    main()
