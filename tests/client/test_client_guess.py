"""A total that nobody told is guessed, with its source, and never from something that does not move with the steps."""

from __future__ import annotations

import argparse
import functools
import sys
import types

import pytest
from later import IN_PROCESS, Later, needs

from carbontui.client.detection import guess

torch = Later("torch")
pytestmark = [needs("torch"), IN_PROCESS]


@pytest.fixture
def script(monkeypatch):
    """The top level of a script, and a torch whose schedules are remembered."""
    main = types.ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", main)
    kind = torch.optim.lr_scheduler.LRScheduler
    monkeypatch.setattr(kind, "__init__", kind.__init__)
    monkeypatch.setattr(guess, "schedules", [])
    guess.on_schedules(torch.optim.lr_scheduler)
    return main


def scheduled(kind, *args, **kwargs):
    optimizer = torch.optim.SGD(torch.nn.Linear(2, 2).parameters(), lr=0.1)
    return optimizer, getattr(torch.optim.lr_scheduler, kind)(optimizer, *args, **kwargs)


def stepped(optimizer, schedule, times):
    for _ in range(times):
        optimizer.step()
        schedule.step()


def test_a_schedule_that_moves_with_the_steps_tells(script):
    rate = functools.partial(lambda step, num_training_steps: 1 - step / num_training_steps, num_training_steps=120)
    one = scheduled("LambdaLR", rate)
    stepped(*one, 5)
    assert guess.total(5) == (120, "LambdaLR(num_training_steps=)")
    assert guess.total(9) is None, "it moves with something else"
    del one
    assert guess.total(5) is None


def test_what_a_script_calls_its_steps_tells(script):
    assert guess.total(20) is None, "nothing is guessed from nothing"
    script.args = argparse.Namespace(max_steps=120)
    assert guess.total(5) == (120, "args.max_steps")
    script.max_iters = 130
    assert guess.total(5) == (130, "max_iters")
    assert guess.total(guess.FROM_STEPS - 1) is None


def test_epochs_of_the_only_loader_tell_beside_a_schedule_that_moves_with_the_epochs(script):
    script.epochs = 6
    script.loader = torch.utils.data.DataLoader(torch.zeros(40, 2), batch_size=2)
    one = scheduled("CosineAnnealingLR", T_max=script.epochs)
    assert guess.total(15) == (120, "epochs x len(loader)")
    stepped(*one, 2)
    assert guess.total(45) == (120, "epochs x len(loader)")


def test_an_endless_number_of_epochs_is_no_guess(script):
    """More steps than the protocol takes: the supervisor would refuse every word of this rank."""
    script.num_epochs = 2**52
    script.loader = torch.utils.data.DataLoader([0.0] * 100)
    assert guess.total(10) is None
    script.num_epochs = 5
    assert guess.total(10) == (500, "num_epochs x len(loader)")


SCHEDULED = """
import time, torch
layer = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=60)
def main():
    for _ in range(60):
        layer(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        time.sleep(0.01)
        schedule.step()
main()
"""


def test_an_unchanged_script_has_its_total_guessed(supervisor, launch, finish):
    finish(launch(SCHEDULED))
    assert supervisor.last().guess == (60, "CosineAnnealingLR(T_max=)")
    assert supervisor.last().total is None and supervisor.ranks[0].bad == []


@pytest.mark.parametrize(
    ("told", "found"), [("", ((60, "max_iters"), None)), ("carbontui.report(total=77)", (None, 77))]
)
def test_what_the_script_says_is_no_guess(told, found, supervisor, launch, finish):
    loop = "for _ in range(60):\n    time.sleep(0.01)\n    carbontui.step()\n"
    finish(launch(f"import time, carbontui\n{told}\nmax_iters = 60\n{loop}"))
    assert (supervisor.last().guess, supervisor.last().total) == found
