"""Federated averaging: in each round a share of the clients trains for some local epochs, each with its optimizer."""

import argparse
import copy

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def args_parser():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=10, help="number of rounds of training")
    parser.add_argument("--num_users", type=int, default=12, help="number of users: K")
    parser.add_argument("--frac", type=float, default=0.25, help="the fraction of clients: C")
    parser.add_argument("--local_ep", type=int, default=2, help="the number of local epochs: E")
    parser.add_argument("--local_bs", type=int, default=10, help="local batch size: B")
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


class LocalUpdate:
    def __init__(self, args, dataset):
        self.args = args
        self.trainloader = DataLoader(dataset, batch_size=args.local_bs, shuffle=True)

    def update_weights(self, model):
        model.train()
        optimizer = torch.optim.SGD(model.parameters(), lr=self.args.lr, momentum=0.5)
        for _ in range(self.args.local_ep):
            for images, labels in self.trainloader:
                model.zero_grad()
                loss = nn.functional.cross_entropy(model(images), labels)
                loss.backward()
                optimizer.step()
        return model.state_dict(), loss.item()


def average_weights(w):
    return {key: torch.stack([one[key] for one in w]).mean(0) for key in w[0]}


if __name__ == "__main__":
    args = args_parser()
    torch.manual_seed(args.seed)
    np.random.seed(args.seed)
    sizes = np.random.randint(30, 120, args.num_users)
    users = [TensorDataset(torch.randn(n, 14), torch.randint(4, (n,))) for n in sizes.tolist()]
    global_model = nn.Sequential(nn.Linear(14, 28), nn.ReLU(), nn.Linear(28, 4))
    for epoch in range(args.epochs):
        m = max(int(args.frac * args.num_users), 1)
        local_weights, local_losses = [], []
        for idx in np.random.choice(range(args.num_users), m, replace=False):
            w, loss = LocalUpdate(args, users[idx]).update_weights(copy.deepcopy(global_model))
            local_weights.append(w)
            local_losses.append(loss)
        global_model.load_state_dict(average_weights(local_weights))
        print(f"| Global Training Round : {epoch + 1} | {sum(local_losses) / m:.4f}")
