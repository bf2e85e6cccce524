"""A total that nobody told is guessed, with its source, and never from something that does not move with the steps."""

from __future__ import annotations

import sys

import pytest

torch = pytest.importorskip("torch")

from carbontui.client import guess  # noqa: E402

HEAD = """
import time, torch
layer = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
def step():
    layer(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    time.sleep(0.01)
"""

LOOPS = {
    "CosineAnnealingLR(T_max=)": """
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=120)
def main():
    for _ in range(120):
        step()
        schedule.step()
main()
""",
    "LambdaLR(num_training_steps=)": """
import functools
rate = functools.partial(lambda step, num_training_steps: 1 - step / num_training_steps, num_training_steps=120)
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
for _ in range(120):
    step()
    schedule.step()
""",
    "max_iters": """
max_iters = 120
for _ in range(max_iters):
    step()
""",
    "args.max_steps": """
import argparse
args = argparse.Namespace(max_steps=120)
for _ in range(args.max_steps):
    step()
""",
    "epochs x len(loader)": """
epochs = 6
loader = torch.utils.data.DataLoader(torch.zeros(40, 2), batch_size=2)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=epochs)  # moves with the epochs
for _ in range(epochs):
    for _ in loader:
        step()
    schedule.step()
""",
}


@pytest.mark.parametrize("source", LOOPS)
def test_a_total_is_guessed_with_its_source(source, supervisor, launch, finish):
    finish(launch(HEAD + LOOPS[source]))
    assert supervisor.last().guess == (120, source)
    assert supervisor.last().total is None and supervisor.ranks[0].bad == []


def test_what_the_script_says_is_no_guess(supervisor, launch, finish):
    finish(launch(HEAD + "import carbontui; carbontui.report(total=77)\nmax_iters = 120\nfor _ in range(77): step()\n"))
    assert (supervisor.last().guess, supervisor.last().total) == (None, 77)


def test_nothing_is_guessed_from_nothing(supervisor, launch, finish):
    finish(launch(HEAD + "for _ in range(20): step()\n"))
    assert supervisor.last().guess is None


def test_an_endless_number_of_epochs_is_no_guess(monkeypatch):
    """More steps than the protocol takes: the supervisor would refuse every word of this rank."""
    main = sys.modules["__main__"]
    monkeypatch.setattr(main, "num_epochs", 2**52, raising=False)
    monkeypatch.setattr(main, "loader", torch.utils.data.DataLoader([0.0] * 100), raising=False)
    assert guess.total(10) is None
    monkeypatch.setattr(main, "num_epochs", 5)
    assert guess.total(10) == (500, "num_epochs x len(loader)")
