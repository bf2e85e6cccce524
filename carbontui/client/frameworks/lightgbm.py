"""LightGBM: a step is a boosting round. Unloading is not offered: train(init_model=) begins from the trees so far, and
restores nothing of what bagging and early stopping know."""

from __future__ import annotations

import functools
import inspect
from typing import Any

from carbontui.client.frameworks.base import Loop, quietly


def callback() -> Any:
    """A callback for lightgbm.train that says where a round ends, and how many there are."""
    loop = Loop()

    def round_ended(env: Any) -> None:
        if not loop.under_way:
            quietly(lambda: loop.begin(0, env.end_iteration - env.begin_iteration))
        loop.ended(1)

    round_ended.order = 100  # type: ignore[attr-defined]
    round_ended.loop = loop  # type: ignore[attr-defined]
    return round_ended


def install(module: Any) -> None:
    """lightgbm.engine has been imported, before lightgbm hands its train() on."""
    inner = module.train

    @functools.wraps(inner)
    def train(*args: Any, **kwargs: Any) -> Any:
        bound = quietly(lambda: inspect.signature(inner).bind(*args, **kwargs))
        if bound is None or any(hasattr(one, "loop") for one in bound.arguments.get("callbacks") or ()):
            return inner(*args, **kwargs)
        mine = callback()
        bound.arguments["callbacks"] = [*(bound.arguments.get("callbacks") or ()), mine]
        try:
            return inner(*bound.args, **bound.kwargs)
        finally:
            mine.loop.end()

    module.train = train
