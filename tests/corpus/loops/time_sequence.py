"""Waves predicted by an LSTM cell with LBFGS: a closure, few large steps, all data at once."""

import argparse

import torch
from torch import nn, optim


class Sequence(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTMCell(1, 8)
        self.linear = nn.Linear(8, 1)

    def forward(self, input, future=0):
        outputs = []
        h_t = c_t = torch.zeros(input.size(0), 8)
        for part in input.split(1, dim=1):
            h_t, c_t = self.lstm(part, (h_t, c_t))
            outputs.append(self.linear(h_t))
        for _ in range(future):
            h_t, c_t = self.lstm(outputs[-1], (h_t, c_t))
            outputs.append(self.linear(h_t))
        return torch.cat(outputs, dim=1)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100, help="steps to run")
    opt = parser.parse_args()
    torch.manual_seed(0)
    data = torch.sin(torch.arange(10.0) / 2 + torch.rand(12, 1) * 6)
    input, target = data[3:, :-1], data[3:, 1:]
    test_input, test_target = data[:3, :-1], data[:3, 1:]
    seq = Sequence()
    criterion = nn.MSELoss()
    optimizer = optim.LBFGS(seq.parameters(), lr=0.1, max_iter=3)
    for i in range(opt.steps):

        def closure():
            optimizer.zero_grad()
            loss = criterion(seq(input), target)
            loss.backward()
            return loss

        loss = optimizer.step(closure)
        with torch.no_grad():
            pred = seq(test_input, future=4)
            print(f"STEP: {i} loss: {loss.item():.4f} test: {criterion(pred[:, :-4], test_target).item():.4f}")
