"""Guesses how many steps a training will make from the script's objects; the user confirms it before a plan uses it.

Runs in the link's thread, never in the training's, and never reads the variables of a running function: that would
keep its tensors alive.
"""

from __future__ import annotations

import functools
import sys
import weakref
from typing import Any, Callable, Iterable, List, Optional, Tuple

NAMES = (
    *("max_iters", "max_steps", "total_steps", "num_steps", "n_steps", "num_iters", "n_iters", "num_iterations"),
    *("total_iters", "train_iters", "num_training_steps", "num_train_steps", "max_train_steps", "iterations"),
)
"""Names that scripts use for the total steps of a run."""
EPOCHS = ("epochs", "num_epochs", "n_epochs", "max_epochs", "num_train_epochs")
SETTINGS = ("args", "config", "cfg", "conf", "opt", "options", "hparams", "params", "FLAGS")
FROM_STEPS = 3
"""Steps needed to see whether a schedule or a progress bar advances with the steps."""
schedules: List[Callable[[], Any]] = []

Guess = Tuple[int, str]


def on_schedules(module: Any) -> None:
    """torch.optim.lr_scheduler has been imported: its objects are remembered, weakly."""
    kind = getattr(module, "LRScheduler", None) or module._LRScheduler
    inner = kind.__init__

    @functools.wraps(inner)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        inner(self, *args, **kwargs)
        schedules[:] = [ref for ref in schedules if ref() is not None] + [weakref.ref(self)]

    kind.__init__ = __init__


def total(steps: int) -> Optional[Guess]:
    """The total steps and the source of the number; None without a clue. `steps` are done so far."""
    if steps < FROM_STEPS:
        return None
    for source in (_by_schedule, _by_bar, _by_name, _by_epochs):
        try:
            found = source(steps)
        except Exception:  # a script's objects may raise anything
            continue
        if found is not None and _count(found[0]) and found[0] >= steps:
            return found
    return None


def _by_schedule(steps: int) -> Optional[Guess]:
    """From a learning rate schedule that advances with the steps; one that advances with epochs says nothing."""
    for ref in schedules:
        schedule = ref()
        if schedule is None or abs(int(schedule.last_epoch) - steps) > 1:
            continue
        kind = type(schedule).__name__
        for name in ("total_steps", "T_max"):
            told: Any = getattr(schedule, name, None)
            if _count(told):
                return int(told), f"{kind}({name}=)"
        for chosen in getattr(schedule, "lr_lambdas", ()):
            told = getattr(chosen, "keywords", {}).get("num_training_steps")
            if _count(told):
                return int(told), f"{kind}(num_training_steps=)"
    return None


def _by_bar(steps: int) -> Optional[Guess]:
    """From a tqdm progress bar that advances with the steps; not one of a single epoch, which restarts."""
    tqdm = getattr(sys.modules.get("tqdm"), "tqdm", None)
    for bar in list(getattr(tqdm, "_instances", ())):
        if _count(bar.total) and bar.pos in (0, None) and bar.n > 0 and abs(bar.n - steps) <= max(2, steps // 10):
            return int(bar.total), "tqdm(total=)"
    return None


def _by_name(steps: int) -> Optional[Guess]:
    return _setting(NAMES)


def _by_epochs(steps: int) -> Optional[Guess]:
    """Epochs times the length of the only DataLoader at the script's top level."""
    torch_data = sys.modules.get("torch.utils.data")
    kind = getattr(torch_data, "DataLoader", None)
    main = vars(sys.modules["__main__"])
    loaders = [(name, value) for name, value in list(main.items()) if kind is not None and isinstance(value, kind)]
    loaders = [(name, value) for name, value in loaders if not any(word in name for word in ("val", "test", "eval"))]
    if len(loaders) != 1:
        return None
    name, loader = loaders[0]
    epochs = _setting(EPOCHS)
    return epochs and (epochs[0] * len(loader), f"{epochs[1]} x len({name})")


def _setting(names: Iterable[str]) -> Optional[Guess]:
    """The first of these that is a count among the script's top-level variables, or inside its settings objects."""
    main = vars(sys.modules["__main__"])
    for where in ("", *SETTINGS):
        held = main.get(where) if where else main
        space = held if isinstance(held, dict) else getattr(held, "__dict__", None)
        if not isinstance(space, dict):
            continue
        for name in names:
            if _count(space.get(name)):
                return int(space[name]), f"{where}.{name}" if where else name
    return None


def _count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 < value < 2**53
