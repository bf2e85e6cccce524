"""Sweeps in one process: an Optuna study, Hydra's multirun. Their trials form one job, whose steps add up; the journal
names the current trial. Their number is stated, where it is known."""

from __future__ import annotations

import sys
from typing import Any, List

from carbontui.client.api import gate
from carbontui.client.detection.places import watch
from carbontui.client.detection.work import Trials
from carbontui.client.frameworks.base import quietly, replaces
from carbontui.client.readonly import attributes

NAME_MAX = 120
_sweeper: List[Any] = []
"""The one of Hydra's that is at work."""


def on_optuna(module: Any) -> None:
    """optuna.study.study has been imported: optimize() and a script's own loop both call ask() for a trial."""

    @replaces(module.Study, "ask")
    def ask(inner: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        trial = inner(self, *args, **kwargs)
        quietly(lambda: begun(f"trial {trial.number} of {self.study_name}"))
        return trial

    @replaces(module.Study, "optimize")
    def optimize(inner: Any, self: Any, func: Any, *args: Any, **kwargs: Any) -> Any:
        given = {**dict(zip(("n_trials", "timeout", "n_jobs", "catch", "callbacks"), args)), **kwargs}

        def state() -> None:
            grid = attributes(self.sampler).get("_n_min_trials")  # it ends a study itself
            times = min((one for one in (given.get("n_trials"), grid) if type(one) is int), default=None)
            until = next((name for name in ("timeout", "callbacks") if given.get(name)), "")
            watch.sweeps_from("optuna", Trials(times, until))

        if given.get("n_jobs", 1) == 1:  # threads show no place of the script
            quietly(state)
        try:
            return inner(self, func, *args, **kwargs)
        finally:
            watch.trials = []

    @replaces(sys.modules["optuna.trial"].Trial, "should_prune")
    def should_prune(inner: Any, self: Any) -> Any:
        watch.sweeps.update({at: one._replace(until=one.until or "pruning") for at, one in watch.sweeps.items()})
        return inner(self)


def on_hydra_plugins(module: Any) -> None:
    """hydra.core.plugins has been imported: its own sweeper lists its jobs."""

    @replaces(module.Plugins, "instantiate_sweeper")
    def instantiate_sweeper(inner: Any, *args: Any, **kwargs: Any) -> Any:
        _sweeper[:] = [inner(*args, **kwargs)]
        return _sweeper[0]


def on_hydra(module: Any) -> None:
    """hydra.core.utils has been imported: every job of a multirun goes through run_job(), with Hydra's own launcher in
    this process."""

    @replaces(module, "run_job")
    def run_job(inner: Any, *args: Any, **kwargs: Any) -> Any:
        quietly(lambda: begun(_job(kwargs.get("config", args[1] if len(args) > 1 else None))))
        quietly(lambda: watch.sweeps_from("hydra", Trials(sum(map(len, attributes(_sweeper[0])["overrides"])))))
        return inner(*args, **kwargs)


def _job(config: Any) -> str:
    job = config.hydra.job
    return f"job {job.num}: {', '.join(config.hydra.overrides.task)}"  # a single run has no num, and is no sweep


def begun(name: str) -> None:
    """A trial begins."""
    watch.trials.append(watch.count())
    watch.lead_anew()
    with gate.cond:
        gate.facts["trial"] = name[:NAME_MAX].encode(errors="replace").decode()
    gate.on_change()
