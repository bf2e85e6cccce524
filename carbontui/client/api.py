"""The public functions of a training script; each a no-op without a supervisor."""

from __future__ import annotations

from typing import Any, Callable, Mapping, Optional


def step(n: int = 1) -> None:
    """Say that `n` optimizer steps are done."""


def report(
    *,
    loss: Optional[float] = None,
    epoch: Optional[float] = None,
    total: Optional[int] = None,
    metrics: Optional[Mapping[str, float]] = None,
) -> None:
    """Tell what only the script knows; `total` is the number of steps this run is going to make in all."""


def on_checkpoint(fn: Callable[[], Any]) -> Callable[[], Any]:
    """Register the function that writes a checkpoint; it is called in the training thread at a boundary."""
    return fn


def paused() -> bool:
    """True while the supervisor holds this process at a boundary."""
    return False


def level() -> Optional[str]:
    """The level in force: "run", "duty", "pause" or "unload"; None without a supervisor."""
    return None
