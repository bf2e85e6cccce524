"""Sweeps in one process: an Optuna study, Hydra's multirun. Their trials form one job, whose steps add up; the journal
names the current trial."""

from __future__ import annotations

from typing import Any

from carbontui.client.api import gate
from carbontui.client.frameworks.base import quietly, replaces

NAME_MAX = 120


def on_optuna(module: Any) -> None:
    """optuna.study.study has been imported: optimize() and a script's own loop both call ask() for a trial."""

    @replaces(module.Study, "ask")
    def ask(inner: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        trial = inner(self, *args, **kwargs)
        quietly(lambda: begun(f"trial {trial.number} of {self.study_name}"))
        return trial


def on_hydra(module: Any) -> None:
    """hydra.core.utils has been imported: every job of a multirun goes through run_job(), with Hydra's own launcher in
    this process."""

    @replaces(module, "run_job")
    def run_job(inner: Any, *args: Any, **kwargs: Any) -> Any:
        quietly(lambda: begun(_job(kwargs.get("config", args[1] if len(args) > 1 else None))))
        return inner(*args, **kwargs)


def _job(config: Any) -> str:
    job = config.hydra.job
    return f"job {job.num}: {', '.join(config.hydra.overrides.task)}"  # a single run has no num, and is no sweep


def begun(name: str) -> None:
    """A trial begins."""
    with gate.cond:
        gate.facts["trial"] = name[:NAME_MAX].encode(errors="replace").decode()
    gate.on_change()
