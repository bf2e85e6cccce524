"""A mixture by EM: responsibilities in closed form, then some steps for the means and some for the network."""

import torch
from torch import nn

NUM_EM_ITERATIONS = 30
MEAN_STEPS = 4
NET_STEPS = 8
COMPONENTS = 3


def log_density(x, means, gate):
    return gate(x).log_softmax(1) - 0.5 * (x[:, None] - means).pow(2).sum(2)


def main():
    torch.manual_seed(0)
    x = torch.cat([torch.randn(60, 2) + centre for centre in (-4.0, 0.0, 4.0)])
    means = nn.Parameter(torch.randn(COMPONENTS, 2))
    gate = nn.Sequential(nn.Linear(2, 12), nn.Tanh(), nn.Linear(12, COMPONENTS))
    mean_optimizer = torch.optim.SGD([means], lr=0.05)
    gate_optimizer = torch.optim.Adam(gate.parameters(), lr=0.01)
    for iteration in range(NUM_EM_ITERATIONS):
        with torch.no_grad():
            responsibility = log_density(x, means, gate).softmax(1)
        for _ in range(MEAN_STEPS):
            mean_optimizer.zero_grad()
            (-(responsibility * log_density(x, means, gate)).sum(1).mean()).backward()
            mean_optimizer.step()
        for _ in range(NET_STEPS):
            gate_optimizer.zero_grad()
            (-(responsibility * gate(x).log_softmax(1)).sum(1).mean()).backward()
            gate_optimizer.step()
        if iteration % 5 == 0:
            with torch.no_grad():
                print(iteration, log_density(x, means, gate).logsumexp(1).mean().item())


main()
