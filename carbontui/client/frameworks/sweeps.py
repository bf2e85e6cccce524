"""Sweeps in one process: an Optuna study, Hydra's multirun. Their trials form one job, whose steps add up; the journal
names the current trial, and their number is stated where it is known."""

from typing import Any, List, Optional

from carbontui.client.api import gate
from carbontui.client.detection import stated
from carbontui.client.detection.places import Chain, chain
from carbontui.client.frameworks.base import quietly, replaces, stopper
from carbontui.client.readonly import attributes

NAME_MAX = 120
_study: List[Any] = []
"""Of the optimize() under way: how many trials it makes, what may end one earlier, and the frames that call it."""
_sweeper: List[Any] = []
"""The one of Hydra's that is at work."""


def on_optuna(module: Any) -> None:
    """optuna.study.study has been imported: optimize() and a script's own loop both call ask() for a trial."""

    @replaces(module.Study, "ask")
    def ask(inner: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        trial = inner(self, *args, **kwargs)
        quietly(lambda: begun(f"trial {trial.number} of {self.study_name}", *_study))
        return trial

    @replaces(module.Study, "optimize")
    def optimize(inner: Any, self: Any, func: Any, *args: Any, **kwargs: Any) -> Any:
        def state() -> None:
            given = {**dict(zip(("n_trials", "timeout", "n_jobs", "catch", "callbacks"), args)), **kwargs}
            grid = attributes(self.sampler).get("_n_min_trials")  # it ends a study itself
            times = min((one for one in (given.get("n_trials"), grid) if type(one) is int), default=None)
            prunes = "pruning" if stopper((func,), "should_prune", "optuna.") else ""
            until = next((name for name in ("timeout", "callbacks") if given.get(name)), prunes)
            _study[:] = [times if given.get("n_jobs", 1) == 1 else None, until, chain()]

        quietly(state)
        try:
            return inner(self, func, *args, **kwargs)
        finally:
            _study.clear()
            stated.trial_ends()


def on_hydra_plugins(module: Any) -> None:
    """hydra.core.plugins has been imported: its own sweeper lists its jobs, that of Optuna has a number of them."""

    @replaces(module.Plugins, "instantiate_sweeper")
    def instantiate_sweeper(inner: Any, *args: Any, **kwargs: Any) -> Any:
        _sweeper[:] = [inner(*args, **kwargs)]
        return _sweeper[0]


def on_hydra(module: Any) -> None:
    """hydra.core.utils has been imported: every job of a multirun goes through run_job(), with Hydra's own launcher in
    this process."""

    @replaces(module, "run_job")
    def run_job(inner: Any, *args: Any, **kwargs: Any) -> Any:
        config, at = kwargs.get("config", args[1] if len(args) > 1 else None), chain()
        quietly(lambda: begun(_job(config), quietly(_jobs), "", at))
        try:
            return inner(*args, **kwargs)
        finally:
            stated.trial_ends()


def _job(config: Any) -> str:
    job = config.hydra.job
    return f"job {job.num}: {', '.join(config.hydra.overrides.task)}"  # a single run has no num, and is no sweep


def _jobs() -> Optional[int]:
    own = attributes(_sweeper[0])
    return sum(map(len, own["overrides"])) if own.get("overrides") else attributes(own["sweeper"]).get("n_trials")


def begun(name: str, times: Optional[int] = 0, until: str = "", at: Chain = ()) -> None:
    """A trial begins, of so many."""
    if times != 0:
        stated.trial_begins(times, until, at)
    with gate.cond:
        gate.facts["trial"] = name[:NAME_MAX].encode(errors="replace").decode()
    gate.on_change()
