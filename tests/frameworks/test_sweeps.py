"""Sweeps in one process: their trials are one job whose steps add up, and each is named."""

from __future__ import annotations

import importlib.util

import pytest
from harness import Training

TRAIN = """
import time, torch

def train(rate, steps=20):
    layer = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(layer.parameters(), lr=rate)
    for _ in range(steps):
        layer(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        time.sleep(0.05)
    return float(layer(torch.ones(1, 2)).sum().detach())
"""
OPTUNA = """
import optuna
made = optuna.create_study(study_name="rates")
made.optimize(lambda trial: train(trial.suggest_float("rate", 1e-3, 1e-1)), n_trials=4)
"""
HYDRA = """
import hydra

@hydra.main(version_base=None, config_path=None)
def main(config):
    train(config.rate)

main()
"""
SWEEPS = {
    "optuna": (OPTUNA, (), [f"trial {n} of rates" for n in range(4)], 80),
    "hydra": (HYDRA, ("--multirun", "+rate=0.1,0.2,0.3"), [f"job {n}: +rate=0.{n + 1}" for n in range(3)], 60),
}


@pytest.mark.parametrize("package", SWEEPS)
@pytest.mark.timeout(600)
def test_the_trials_of_a_sweep_add_up_and_are_named(package, tmp_path, hook, supervisor):
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed (the extra `frameworks`)")
    code, args, names, steps = SWEEPS[package]
    script = tmp_path / "sweep.py"
    script.write_text(TRAIN + code)
    sweep = Training(tmp_path / "run", hook, supervisor, script, *args)
    done = sweep.finish(sweep.start())
    assert done.code == 0, done.out
    assert supervisor.last().step == steps
    guessed = [obs for rank in supervisor.ranks for obs in rank.obs if obs.guess]
    assert {obs.guess[0] for obs in guessed} == {steps}
    assert {obs.guess_range[1] is None for obs in guessed if obs.step < 40} == {True}, "the next may be longer"
    low, high, at_most, sure = next(obs.guess_range for obs in guessed if obs.step > 45)
    assert low <= steps <= high and sure and not at_most
    said = list(dict.fromkeys(obs.trial for rank in supervisor.ranks for obs in rank.obs))
    assert said[-1] == names[-1] and set(said) <= {*names, None}
