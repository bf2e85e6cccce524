"""LightGBM: a step is a boosting round. Unloading saves the trees, and train() continues from them.

This is offered only if the trees alone determine the next round: no randomness, no early stopping, no callback with
state.
"""

from __future__ import annotations

import inspect
import os
from typing import Any, Dict

from carbontui.client.frameworks.base import Loop, in_job_directory, left_behind, quietly, wrap_train

EXACT = {
    "boosting": "gbdt",
    "data_sample_strategy": "bagging",
    "bagging_freq": "0",
    "feature_fraction": "1",
    "feature_fraction_bynode": "1",
    "extra_trees": "0",
    "early_stopping_round": "0",
    "linear_tree": "0",
    "use_quantized_grad": "0",
    "cegb_penalty_feature_lazy": "",
    "cegb_penalty_feature_coupled": "",
    "num_machines": "1",
}
"""Parameters, as reported by a model, with which train(init_model=) gives the trees of an undisturbed run bit for bit;
with others a round needs state that no model file has (a random generator's, which trees were dropped)."""


def callback(rounds: Any = None, done: int = 0, *, plain: bool = False) -> Any:
    """A callback for lightgbm.train that reports the end of each round; `done` of `rounds` are already done. `plain`:
    an unload needs to save only the trees."""
    loop = Loop()
    state: Dict[str, Any] = {}

    def save() -> str:
        path = in_job_directory(f"lightgbm-{state['done']}.txt")
        state["model"].save_model(path)
        return path

    def round_ended(env: Any) -> None:
        if not loop.under_way:
            quietly(lambda: loop.begin(done, rounds or env.end_iteration - env.begin_iteration))
            if plain and quietly(lambda: _is_exact(env.model)):
                loop.saves_with(save, "lightgbm")
        state["model"], state["done"] = env.model, done + env.iteration - env.begin_iteration + 1
        if env.iteration + 1 >= env.end_iteration:
            loop.stays()  # train() cannot make a model with no further round
        loop.ended(1)

    round_ended.order = 100  # type: ignore[attr-defined]
    round_ended.loop = loop  # type: ignore[attr-defined]
    return round_ended


def install(module: Any) -> None:
    """lightgbm.engine has been imported, before lightgbm re-exports its train()."""
    wrap_train(module, _prepared)


def _prepared(inner: Any, args: Any, kwargs: Any) -> Any:
    """The callback and train()'s arguments, extended by it and by the checkpoint of an earlier unload."""
    bound = inspect.signature(inner).bind(*args, **kwargs)
    bound.apply_defaults()
    told = bound.arguments
    given = list(told["callbacks"] or ())
    if any(hasattr(one, "loop") for one in given):
        return None
    plain = bool(quietly(lambda: _is_plain(told, given)))
    rounds, done = _rounds(told), 0
    left = left_behind("lightgbm") if plain else None
    if left is not None:
        done = int(left.rpartition("-")[2].partition(".")[0])
        told["params"] = {name: value for name, value in told["params"].items() if name not in _names()}
        told["init_model"], told["num_boost_round"] = left, rounds - done
    mine = callback(rounds, done, plain=plain)
    told["callbacks"] = [*given, mine]
    return mine, bound


def _names() -> Any:
    """Parameter names for the number of rounds, which take precedence over the argument."""
    from lightgbm.basic import _ConfigAliases  # type: ignore[import-not-found,unused-ignore]

    return _ConfigAliases.get("num_iterations")


def _rounds(value: Any) -> int:
    return int(next((value["params"][name] for name in _names() if name in value["params"]), value["num_boost_round"]))


def _is_plain(value: Any, callbacks: Any) -> bool:
    """Only the trees need to be saved, and the data can be applied to them."""
    data = value["train_set"]
    watched = bool(value["valid_sets"])
    idle = ("_LogEvaluationCallback",) if watched else ("_LogEvaluationCallback", "_RecordEvaluationCallback")
    raw = data.data is not None and not isinstance(data.data, (str, os.PathLike))
    return raw and data.init_score is None and all(type(one).__name__ in idle for one in callbacks)


def _is_exact(model: Any) -> bool:
    text = model.model_to_string(num_iteration=1).rpartition("\nparameters:")[2]
    lines = [line[1:-1].partition(": ") for line in text.splitlines() if line.startswith("[")]
    told = {name: value for name, _, value in lines}
    drawn = "rank_xendcg" in told.get("objective", "")
    return bool(told) and not drawn and all(told.get(name, value) == value for name, value in EXACT.items())
