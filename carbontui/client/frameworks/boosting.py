"""LightGBM and XGBoost: a step is a boosting round. Unloading saves the trees, and train() continues from them.

This is offered only if the trees alone determine the next round. For LightGBM: no randomness, no early stopping, no
callback with state.
"""

import inspect
import os
from typing import Any, Callable, Dict, NamedTuple

from carbontui.client.checkpoint.identity import in_job_directory
from carbontui.client.frameworks.base import Loop, left_behind, quietly, replaces, stopper
from carbontui.client.readonly import attributes

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
"""LightGBM's parameters, as reported by a model, with which train(init_model=) gives the trees of an undisturbed run
bit for bit; with others a round needs state that no model file has (a random generator's, which trees were dropped)."""


STOPS = ("early_stopping_round", "early_stopping_rounds", "early_stopping", "n_iter_no_change")
"""Arguments and parameters of early stopping."""


class Library(NamedTuple):
    """What differs between the two."""

    name: str
    model: str
    """train()'s argument for the model to go on from."""
    rounds: Callable[[Any], int]
    """The rounds that train()'s arguments ask for."""
    plain: Callable[[Any, Any], bool]
    """Whether an unload needs to save only the trees, given train()'s arguments and the script's callbacks."""
    callback: Callable[[int, int, bool, str], Any]
    """The callback that reports the end of each round, of so many rounds of which some are done; whether it saves, and
    what may end it early."""
    stop: str
    """What a script's callback has or says that ends it early."""


def on_lightgbm(module: Any) -> None:
    """lightgbm.engine has been imported, before lightgbm re-exports its train()."""
    _wrap_train(module, Library("lightgbm", "init_model", _rounds, _is_plain, lightgbm_callback, "EarlyStopException"))


def on_xgboost(module: Any) -> None:
    """xgboost.training has been imported, before xgboost re-exports its train()."""
    # what callbacks, early stopping and evals_result remember of earlier rounds is in no checkpoint
    library = Library(
        "xgboost",
        "xgb_model",
        lambda given: int(given["num_boost_round"]),
        lambda bound, given: not given and not bound["early_stopping_rounds"] and bound["evals_result"] is None,
        xgboost_callback,
        "after_iteration",
    )
    _wrap_train(module, library)


def _wrap_train(module: Any, library: Library) -> None:
    @replaces(module, "train")
    def train(inner: Any, *args: Any, **kwargs: Any) -> Any:
        found = quietly(lambda: _prepared(library, inner, args, kwargs))
        if found is None:
            return inner(*args, **kwargs)
        mine, args, kwargs = found
        try:
            return inner(*args, **kwargs)
        finally:
            mine.loop.end()


def _prepared(library: Library, inner: Any, args: Any, kwargs: Any) -> Any:
    """Our callback and train()'s arguments, extended by it and by the checkpoint of an earlier unload; None to leave
    the call as it is."""
    known = inspect.signature(inner).parameters  # XGBoost takes by position, too, what it names keyword only
    told = {**{name: one.default for name, one in known.items()}, **dict(zip(known, args)), **kwargs}
    given = list(told["callbacks"] or ())
    if any(type(attributes(one).get("loop")) is Loop for one in given):
        return None
    plain = bool(quietly(lambda: library.plain(told, given)))
    rounds, done = library.rounds(told), 0
    saves = plain and (library.name == "lightgbm" or told[library.model] is None)
    left = left_behind(library.name) if plain else None
    if left is not None:
        done, saves = int(left.rpartition("-")[2].partition(".")[0]), True
        if library.name == "lightgbm":
            told["params"] = {name: value for name, value in told["params"].items() if name not in _names()}
        told[library.model], told["num_boost_round"] = left, rounds - done
    until = next((name for name in STOPS if told["params"].get(name) or told.get(name)), "") or stopper(
        given, library.stop, library.name + ".", "EarlyStopping", "_EarlyStoppingCallback"
    )
    mine = library.callback(rounds, done, saves, until)
    told["callbacks"] = [*given, mine]
    first = list(known)[: len(args)]
    rest = {name: told[name] for name in told if name not in first and told[name] is not known[name].default}
    return mine, [told[name] for name in first], rest


def xgboost_callback(rounds: int, done: int, saves: bool, until: str) -> Any:
    """An xgboost.callback.TrainingCallback."""
    import xgboost  # type: ignore[import-not-found,unused-ignore]

    class Reporter(xgboost.callback.TrainingCallback):  # type: ignore[misc,unused-ignore]
        def __init__(self) -> None:
            self.loop = Loop(until)
            self.model: Any = None

        def before_training(self, model: Any) -> Any:
            quietly(lambda: self.loop.begin(done, rounds))
            if saves:
                self.loop.saves_with(self.save, "xgboost")
            return model

        def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
            self.model = model
            self.loop.ended(1)
            return False

        def after_training(self, model: Any) -> Any:
            self.loop.end()
            return model

        def save(self) -> str:
            path = in_job_directory(f"xgboost-{self.model.num_boosted_rounds()}.ubj")
            self.model.save_model(path)
            return path

    return Reporter()


def lightgbm_callback(rounds: int, done: int, saves: bool, until: str) -> Any:
    """A callback for lightgbm.train."""
    loop = Loop(until)
    state: Dict[str, Any] = {}

    def save() -> str:
        path = in_job_directory(f"lightgbm-{state['done']}.txt")
        state["model"].save_model(path)
        return path

    def round_ended(env: Any) -> None:
        if not loop.under_way:
            quietly(lambda: loop.begin(done, rounds or env.end_iteration - env.begin_iteration))
            if saves and quietly(lambda: is_exact(env.model)):
                loop.saves_with(save, "lightgbm")
        state["model"], state["done"] = env.model, done + env.iteration - env.begin_iteration + 1
        if env.iteration + 1 >= env.end_iteration:
            loop.no_more_unloads()  # train() cannot make a model with no further round
        loop.ended(1)

    round_ended.order = 100  # type: ignore[attr-defined]
    round_ended.loop = loop  # type: ignore[attr-defined]
    return round_ended


def _names() -> Any:
    """LightGBM's parameter names for the number of rounds, which take precedence over the argument."""
    from lightgbm.basic import _ConfigAliases  # type: ignore[import-not-found,unused-ignore]

    return _ConfigAliases.get("num_iterations")


def _rounds(value: Any) -> int:
    return int(next((value["params"][name] for name in _names() if name in value["params"]), value["num_boost_round"]))


def _is_plain(value: Any, callbacks: Any) -> bool:
    """The data can be applied to the trees, and no callback has a state."""
    data = value["train_set"]
    watched = bool(value["valid_sets"])
    idle = ("_LogEvaluationCallback",) if watched else ("_LogEvaluationCallback", "_RecordEvaluationCallback")
    raw = data.data is not None and not isinstance(data.data, (str, os.PathLike))
    return raw and data.init_score is None and all(type(one).__name__ in idle for one in callbacks)


def is_exact(model: Any) -> bool:
    text = model.model_to_string(num_iteration=1).rpartition("\nparameters:")[2]
    lines = [line[1:-1].partition(": ") for line in text.splitlines() if line.startswith("[")]
    told = {name: value for name, _, value in lines}
    drawn = "rank_xendcg" in told.get("objective", "")
    return bool(told) and not drawn and all(told.get(name, value) == value for name, value in EXACT.items())
