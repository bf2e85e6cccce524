"""The job's figures in the script's own experiment tracker, if it uses one: W&B, MLflow, TensorBoard.

We open and send nothing ourselves: when the script logs, the supervisor's latest figures are logged with it, at most
every ten seconds, at the script's own step and in its own row. CARBONTUI_TRACKERS=0 disables this. A fault of ours
never reaches the script.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from typing import Any, Callable, Dict, Optional

from carbontui.client import api
from carbontui.client.frameworks.base import replaces

EVERY_S = 10.0
PREFIX = "carbontui/"
LOGGED = ("power_w", "energy_wall_kwh", "gco2_g", "avoided_g", "cost", "intensity_g_per_kwh")
_within = threading.local()


class Due:
    """Whether to log the figures to this tracker now; each tracker has its own interval."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._next = 0.0

    def take(self) -> Dict[str, float]:
        """The figures by name, {} if there are none or it is too soon."""
        now = self._clock()
        figures = api.metrics() if now >= self._next else {}
        found = {PREFIX + name: figures[name] for name in LOGGED if isinstance(figures.get(name), (int, float))}
        if found:
            self._next = now + EVERY_S
        return found


def _beside(owner: Any, name: str, add: Callable[..., None]) -> None:
    """From now on `add` is called before this function with the same arguments, except in nested calls."""
    if not hasattr(owner, name) or os.environ.get("CARBONTUI_TRACKERS", "1") == "0":
        return

    @replaces(owner, name)
    def logged(inner: Any, *args: Any, **kwargs: Any) -> Any:
        if not getattr(_within, "busy", False):
            _within.busy = True
            try:
                with contextlib.suppress(Exception):
                    add(*args, **kwargs)
            finally:
                _within.busy = False
        return inner(*args, **kwargs)


def on_wandb(module: Any) -> None:
    """wandb.sdk.wandb_run: before Run.log, our figures into the same row (commit=False)."""
    due, plain = Due(), module.Run.log

    def add(run: Any, data: Any = None, step: Optional[int] = None, *rest: Any, **kwargs: Any) -> None:
        figures: Dict[str, Any] = dict(due.take())
        if figures:
            level = api.metrics().get("level")
            if level:
                figures[PREFIX + "level"] = level
            plain(run, figures, step=step, commit=False)

    _beside(module.Run, "log", add)


def on_mlflow(module: Any) -> None:
    """mlflow.tracking.fluent: with log_metric and log_metrics, our figures at the same step of the same run."""
    due, plain = Due(), module.log_metrics

    def add_many(metrics: Any = None, step: Optional[int] = None, *rest: Any, **kwargs: Any) -> None:
        figures = due.take()
        if figures:
            plain(figures, step=step, **({"run_id": kwargs["run_id"]} if kwargs.get("run_id") else {}))

    def add_one(key: Any = None, value: Any = None, step: Optional[int] = None, *rest: Any, **kwargs: Any) -> None:
        add_many(None, step, **kwargs)

    _beside(module, "log_metrics", add_many)
    _beside(module, "log_metric", add_one)


def on_tensorboard(module: Any) -> None:
    """torch.utils.tensorboard.writer (or tensorboardX's): with add_scalar, ours at the same global step."""
    due, plain = Due(), module.SummaryWriter.add_scalar

    def add(
        writer: Any, tag: Any = None, value: Any = None, global_step: Any = None, *rest: Any, **kwargs: Any
    ) -> None:
        for name, number in due.take().items():
            plain(writer, name, number, global_step)

    _beside(module.SummaryWriter, "add_scalar", add)
