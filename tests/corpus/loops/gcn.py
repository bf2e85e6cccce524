"""A graph network on the whole graph: an epoch is a step, there is no loader."""

import argparse

import torch
from torch import nn
from torch.nn import functional as F


class GraphConv(nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.kernel = nn.Parameter(torch.empty(inner, outer))
        nn.init.xavier_normal_(self.kernel)

    def forward(self, x, adj):
        return torch.mm(adj, torch.mm(x, self.kernel))


class GCN(nn.Module):
    def __init__(self, inner, hidden, outer):
        super().__init__()
        self.gc1, self.gc2 = GraphConv(inner, hidden), GraphConv(hidden, outer)

    def forward(self, x, adj):
        return F.log_softmax(self.gc2(F.relu(self.gc1(x, adj)), adj), dim=1)


def train_iter(epoch, model, optimizer, inputs, target, mask_train, mask_val, print_every):
    model.train()
    optimizer.zero_grad()
    output = model(*inputs)
    loss = F.nll_loss(output[mask_train], target[mask_train])
    loss.backward()
    optimizer.step()
    if epoch % print_every == 0:
        model.eval()
        with torch.no_grad():
            acc = (model(*inputs)[mask_val].argmax(1) == target[mask_val]).float().mean()
        print(f"Epoch: {epoch:04d} loss_train: {loss.item():.4f} acc_val: {acc.item():.4f}")


def main():
    parser = argparse.ArgumentParser(description="Graph Convolutional Network")
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--l2", type=float, default=5e-4)
    parser.add_argument("--hidden-dim", type=int, default=16)
    parser.add_argument("--val-every", type=int, default=20)
    args = parser.parse_args()
    torch.manual_seed(42)
    nodes = 120
    adj = (torch.rand(nodes, nodes) < 0.05).float() + torch.eye(nodes)
    adj = adj / adj.sum(1, keepdim=True)
    features, target = torch.randn(nodes, 30), torch.randint(7, (nodes,))
    order = torch.randperm(nodes)
    gcn = GCN(30, args.hidden_dim, 7)
    optimizer = torch.optim.Adam(gcn.parameters(), lr=args.lr, weight_decay=args.l2)
    for epoch in range(args.epochs):
        train_iter(epoch + 1, gcn, optimizer, (features, adj), target, order[:60], order[60:], args.val_every)


if __name__ == "__main__":
    main()
