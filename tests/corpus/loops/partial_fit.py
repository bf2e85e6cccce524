"""An estimator with partial_fit(): the caller reads chunks and feeds them, each is a step; passes are the caller's."""

import numpy as np
import torch
from torch import nn


class TorchRegressor:
    def __init__(self, hidden=16, learning_rate=0.01, random_state=0):
        self.hidden, self.learning_rate, self.random_state = hidden, learning_rate, random_state
        self.net_ = None

    def _start(self, n_features):
        torch.manual_seed(self.random_state)
        self.net_ = nn.Sequential(nn.Linear(n_features, self.hidden), nn.ReLU(), nn.Linear(self.hidden, 1))
        self.optim_ = torch.optim.Adam(self.net_.parameters(), lr=self.learning_rate)
        self.n_iter_ = 0

    def partial_fit(self, X, y):
        if self.net_ is None:
            self._start(X.shape[1])
        self.optim_.zero_grad()
        error = self.net_(torch.from_numpy(X)).squeeze(1) - torch.from_numpy(y)
        error.pow(2).mean().backward()
        self.optim_.step()
        self.n_iter_ += 1
        return self

    def score(self, X, y):
        with torch.no_grad():
            error = self.net_(torch.from_numpy(X)).squeeze(1).numpy() - y
        return 1 - (error**2).mean() / y.var()


def chunks(rows, size, dice):
    for start in range(0, rows, size):
        X = dice.normal(size=(min(size, rows - start), 6)).astype("float32")
        yield X, (X @ np.arange(6, dtype="float32")).astype("float32")


if __name__ == "__main__":
    dice = np.random.default_rng(0)
    model = TorchRegressor()
    X_test, y_test = next(chunks(200, 200, dice))
    for pass_number in range(5):
        for X, y in chunks(3000, 64, dice):
            model.partial_fit(X, y)
        print(pass_number, model.n_iter_, round(model.score(X_test, y_test), 3))
