"""What a training makes, noted as it is made: loaders and the passes over them, schedules, progress displays."""

from __future__ import annotations

import contextlib
import functools
import weakref
from typing import Any, Callable, List

from carbontui.client import readonly
from carbontui.client.detection.places import watch

schedules: List[Callable[[], Any]] = []
displays: List[Callable[[], Any]] = []


def on_schedules(module: Any) -> None:
    """torch.optim.lr_scheduler has been imported: its objects are remembered, weakly."""
    _remember(getattr(module, "LRScheduler", None) or module._LRScheduler, schedules)


def on_rich(module: Any) -> None:
    """rich.progress has been imported."""
    _remember(module.Progress, displays)


def on_loaders(module: Any) -> None:
    """torch.utils.data.dataloader has been imported: its loaders are noted, and the passes over them as they begin."""
    readonly.listen(module)
    inner, made = module.DataLoader.__iter__, module.DataLoader.__init__

    @functools.wraps(made)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        made(self, *args, **kwargs)
        with contextlib.suppress(Exception):  # training goes on without it
            watch.loader_made(self)

    @functools.wraps(inner)
    def __iter__(self: Any) -> Any:
        iterator = inner(self)
        try:
            watch.passed(self, iterator)
        except Exception:  # training goes on without it
            return iterator
        return iterator

    module.DataLoader.__init__, module.DataLoader.__iter__ = __init__, __iter__


def _remember(kind: Any, into: List[Callable[[], Any]]) -> None:
    inner = kind.__init__

    @functools.wraps(inner)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        inner(self, *args, **kwargs)
        into[:] = [ref for ref in into if ref() is not None] + [weakref.ref(self)]

    kind.__init__ = __init__
