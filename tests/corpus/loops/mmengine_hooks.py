"""A runner built from dicts: an epoch-based loop calls hooks, a cosine goes with the epochs."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

cfg = dict(
    train_cfg=dict(by_epoch=True, max_epochs=12, val_interval=3),
    train_dataloader=dict(batch_size=16, shuffle=True),
    val_dataloader=dict(batch_size=8),
    optim_wrapper=dict(optimizer=dict(type="SGD", lr=0.05, momentum=0.9)),
    param_scheduler=dict(type="CosineAnnealingLR", T_max=12, eta_min=1e-4),
    default_hooks=dict(logger=dict(interval=10), checkpoint=dict(interval=4)),
)


class LoggerHook:
    def __init__(self, interval):
        self.interval = interval

    def after_train_iter(self, runner, loss):
        if runner.iter % self.interval == 0:
            print(f"epoch {runner.epoch} iter {runner.iter} loss {loss:.3f}")

    def after_train_epoch(self, runner):
        pass


class ParamSchedulerHook:
    def after_train_iter(self, runner, loss):
        pass

    def after_train_epoch(self, runner):
        runner.scheduler.step()


class Runner:
    def __init__(self, cfg):
        torch.manual_seed(0)
        self.cfg, self.epoch, self.iter = cfg, 0, 0
        self.model = nn.Sequential(nn.Linear(10, 40), nn.ReLU(), nn.Linear(40, 3))
        kind = dict(cfg["optim_wrapper"]["optimizer"])
        self.optimizer = getattr(torch.optim, kind.pop("type"))(self.model.parameters(), **kind)
        kind = dict(cfg["param_scheduler"])
        self.scheduler = getattr(torch.optim.lr_scheduler, kind.pop("type"))(self.optimizer, **kind)
        self.train_loader = DataLoader(self.data(500), **cfg["train_dataloader"])
        self.val_loader = DataLoader(self.data(200), **cfg["val_dataloader"])
        self.hooks = [LoggerHook(**cfg["default_hooks"]["logger"]), ParamSchedulerHook()]

    def data(self, n):
        return TensorDataset(torch.randn(n, 10), torch.randint(3, (n,)))

    def call(self, name, *args):
        for hook in self.hooks:
            getattr(hook, name)(self, *args)

    def train(self):
        for self.epoch in range(self.cfg["train_cfg"]["max_epochs"]):
            for x, y in self.train_loader:
                loss = nn.functional.cross_entropy(self.model(x), y)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                self.iter += 1
                self.call("after_train_iter", loss.item())
            self.call("after_train_epoch")
            if (self.epoch + 1) % self.cfg["train_cfg"]["val_interval"] == 0:
                with torch.no_grad():
                    print(sum((self.model(x).argmax(1) == y).sum().item() for x, y in self.val_loader))


if __name__ == "__main__":
    Runner(cfg).train()
