"""Meta-learning: inner updates by autograd on a copy of the weights, one outer step for a batch of tasks."""

import argparse

import torch
from torch import nn
from torch.func import functional_call


class Sinusoids:
    def __init__(self, k_shot, k_query):
        self.k_shot, self.k_query = k_shot, k_query

    def sample(self):
        amplitude, phase = torch.rand(1) * 4.9 + 0.1, torch.rand(1) * 3.14
        x = torch.rand(self.k_shot + self.k_query, 1) * 10 - 5
        y = amplitude * torch.sin(x + phase)
        return x[: self.k_shot], y[: self.k_shot], x[self.k_shot :], y[self.k_shot :]


class Meta(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.update_lr, self.update_step, self.task_num = args.update_lr, args.update_step, args.task_num
        self.net = nn.Sequential(nn.Linear(1, 20), nn.ReLU(), nn.Linear(20, 1))
        self.meta_optim = torch.optim.Adam(self.net.parameters(), lr=args.meta_lr)

    def adapt(self, x, y, steps):
        fast = dict(self.net.named_parameters())
        for _ in range(steps):
            loss = nn.functional.mse_loss(functional_call(self.net, fast, (x,)), y)
            grads = torch.autograd.grad(loss, list(fast.values()), create_graph=True)
            fast = {k: p - self.update_lr * g for (k, p), g in zip(fast.items(), grads, strict=True)}
        return fast

    def forward(self, tasks):
        loss = 0.0
        for x_spt, y_spt, x_qry, y_qry in tasks:
            fast = self.adapt(x_spt, y_spt, self.update_step)
            loss = loss + nn.functional.mse_loss(functional_call(self.net, fast, (x_qry,)), y_qry) / self.task_num
        self.meta_optim.zero_grad()
        loss.backward()
        self.meta_optim.step()
        return loss.item()


def main():
    argparser = argparse.ArgumentParser()
    argparser.add_argument("--epoch", type=int, help="epoch number", default=220)
    argparser.add_argument("--k_spt", type=int, default=5)
    argparser.add_argument("--k_qry", type=int, default=10)
    argparser.add_argument("--task_num", type=int, default=4)
    argparser.add_argument("--meta_lr", type=float, default=1e-3)
    argparser.add_argument("--update_lr", type=float, default=0.01)
    argparser.add_argument("--update_step", type=int, default=3)
    args = argparser.parse_args()
    torch.manual_seed(222)
    db, maml = Sinusoids(args.k_spt, args.k_qry), Meta(args)
    for step in range(args.epoch):
        loss = maml([db.sample() for _ in range(args.task_num)])
        if step % 50 == 0:
            print("step:", step, "\ttraining loss:", loss)


if __name__ == "__main__":
    main()
