"""XGBoost: a step is a boosting round. Unloading saves the booster, and train() continues from it."""

from __future__ import annotations

import inspect
from typing import Any

from carbontui.client.frameworks.base import Loop, in_job_directory, left_behind, quietly, wrap_train


def callback(rounds: Any = None, done: int = 0) -> Any:
    """An xgboost.callback.TrainingCallback that reports the end of each round; `done` of `rounds` are already done."""
    import xgboost  # type: ignore[import-not-found,unused-ignore]

    class Reporter(xgboost.callback.TrainingCallback):  # type: ignore[misc,unused-ignore]
        is_carbontui = True

        def __init__(self) -> None:
            self.loop = Loop()
            self.model: Any = None

        def before_training(self, model: Any) -> Any:
            quietly(lambda: self.loop.begin(done, rounds))
            return model

        def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
            self.model = model
            self.loop.ended(1)
            return False

        def after_training(self, model: Any) -> Any:
            self.loop.end()
            return model

    return Reporter()


def install(module: Any) -> None:
    """xgboost.training has been imported, before xgboost re-exports its train()."""
    wrap_train(module, _prepared)


def _prepared(inner: Any, args: Any, kwargs: Any) -> Any:
    """The callback and train()'s arguments, extended by it and by the checkpoint of an earlier unload."""
    bound = inspect.signature(inner).bind(*args, **kwargs)
    bound.apply_defaults()
    told = bound.arguments
    given = list(told["callbacks"] or ())
    if any(getattr(one, "is_carbontui", False) for one in given):
        return None
    rounds, done = told["num_boost_round"], 0
    # what these remember of earlier rounds is in no checkpoint
    plain = not given and not told["early_stopping_rounds"] and told["evals_result"] is None
    left = left_behind("xgboost") if plain else None
    if left is not None:
        done = int(left.rpartition("-")[2].partition(".")[0])
        told["xgb_model"], told["num_boost_round"] = left, rounds - done
    mine = callback(rounds, done)
    told["callbacks"] = [*given, mine]
    if plain and (left is not None or told["xgb_model"] is None):
        begun = mine.before_training

        def before_training(model: Any) -> Any:
            model = begun(model)
            mine.loop.saves_with(lambda: _save(mine), "xgboost")
            return model

        mine.before_training = before_training
    return mine, bound


def _save(mine: Any) -> str:
    path = in_job_directory(f"xgboost-{mine.model.num_boosted_rounds()}.ubj")
    mine.model.save_model(path)
    return path
