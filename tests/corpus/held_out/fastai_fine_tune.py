"""A Learner with callbacks: fine_tune() trains the head for an epoch, then everything, one cycle each."""

import math

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class CancelBatchException(Exception):
    pass


class Callback:
    def __call__(self, event):
        getattr(self, event, lambda: None)()


class ParamScheduler(Callback):
    def __init__(self, lr_max):
        self.lr_max = lr_max

    def before_batch(self):
        if self.learn.training:
            pct = self.learn.train_iter / (self.learn.n_epoch * len(self.learn.dls[0]))
            for group in self.learn.opt.param_groups:
                group["lr"] = self.lr_max * (0.02 + 0.98 * math.sin(math.pi * min(1.0, pct)))


class Recorder(Callback):
    def before_fit(self):
        self.losses = []

    def after_batch(self):
        self.losses.append(self.learn.loss.item())

    def after_epoch(self):
        print(f"epoch {self.learn.epoch} {sum(self.losses[-10:]) / 10:.4f}")


class Learner:
    def __init__(self, dls, body, head, loss_func, opt_func=torch.optim.Adam, cbs=()):
        self.dls, self.body, self.head, self.loss_func = dls, body, head, loss_func
        self.opt_func, self.cbs = opt_func, list(cbs)

    def __call__(self, event):
        for cb in self.cbs:
            cb.learn = self
            cb(event)

    def one_batch(self, xb, yb):
        self("before_batch")
        self.loss = self.loss_func(self.head(self.body(xb)), yb)
        if self.training:
            self.loss.backward()
            self.opt.step()
            self.opt.zero_grad()
            self.train_iter += 1
        self("after_batch")

    def fit_one_cycle(self, n_epoch, lr_max):
        parts = [p for part in (self.body, self.head) for p in part.parameters() if p.requires_grad]
        self.n_epoch, self.train_iter, self.opt = n_epoch, 0, self.opt_func(parts)
        self.cbs = [cb for cb in self.cbs if not isinstance(cb, ParamScheduler)] + [ParamScheduler(lr_max)]
        self("before_fit")
        for self.epoch in range(n_epoch):
            for dl, self.training in zip(self.dls, (True, False), strict=True):
                with torch.set_grad_enabled(self.training):
                    for xb, yb in dl:
                        self.one_batch(xb, yb)
            self("after_epoch")

    def fine_tune(self, epochs, base_lr=2e-3, freeze_epochs=1):
        self.body.requires_grad_(False)
        self.fit_one_cycle(freeze_epochs, base_lr)
        self.body.requires_grad_(True)
        self.fit_one_cycle(epochs, base_lr / 2)


torch.manual_seed(0)
sets = [TensorDataset(torch.randn(n, 18), torch.randint(5, (n,))) for n in (800, 160)]
dls = [DataLoader(part, 16, shuffle=i == 0) for i, part in enumerate(sets)]
body, head = nn.Sequential(nn.Linear(18, 36), nn.ReLU()), nn.Linear(36, 5)
Learner(dls, body, head, nn.CrossEntropyLoss(), cbs=[Recorder()]).fine_tune(4, freeze_epochs=2)
