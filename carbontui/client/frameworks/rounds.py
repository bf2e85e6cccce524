"""fastai, CatBoost, spaCy, Ultralytics, Stable-Baselines3: where a step of their loops ends, and the total.
They are paused, not unloaded."""

from typing import Any, Iterator, List

from carbontui.client.api import gate
from carbontui.client.detection.places import chain
from carbontui.client.frameworks.base import Loop, quietly, replaces, stopper

CATBOOST_STOPS = ("early_stopping_rounds", "od_wait", "od_type", "od_pval", "callbacks")


def on_fastai(module: Any) -> None:
    """fastai.learner has been imported: a batch of fit() that trains is a step; those of lr_find() are none."""

    @replaces(module.Learner, "_do_fit")
    def fit(inner: Any, self: Any) -> Any:
        stops = quietly(lambda: stopper(self.cbs, "CancelFitException", "fastai.", "EarlyStoppingCallback"))
        loop = Loop(stops, chain())
        searches = any(type(one).__name__ == "LRFinder" for one in self.cbs)
        self.carbontui_loop = None if searches else loop
        if searches:
            loop.begin()
        try:
            return inner(self)
        finally:
            loop.end()
            del self.carbontui_loop  # a learner is pickled whole

    @replaces(module.Learner, "one_batch")
    def batch(inner: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        loop = vars(self).get("carbontui_loop")
        if loop is not None and self.training:
            if not loop.under_way:
                quietly(lambda: loop.begin(0, self.n_epoch * self.n_iter))  # fastai has asked its loader by now
            result = inner(self, *args, **kwargs)
            loop.ended()
            return result
        return inner(self, *args, **kwargs)


def on_catboost(module: Any) -> None:
    """catboost.core has been imported: a boosting round is a step, except on a GPU, where CatBoost calls nobody."""

    @replaces(module.CatBoost, "_train")
    def train(inner: Any, self: Any, train_pool: Any, test_pool: Any, params: Any, *args: Any, **kwargs: Any) -> Any:
        loop = Loop(next((name for name in CATBOOST_STOPS if params.get(name)), ""))
        if params.get("task_type") != "GPU":
            quietly(lambda: loop.begin(0, params.get("iterations", 1000)))
            params = {**params, "callbacks": _Rounds(loop, params.get("callbacks"))}
        try:
            return inner(self, train_pool, test_pool, params, *args, **kwargs)
        finally:
            loop.end()


class _Rounds:
    def __init__(self, loop: Loop, script: Any) -> None:
        self.loop, self.script = loop, script

    def after_iteration(self, info: Any) -> bool:
        goes_on = self.script is None or bool(self.script.after_iteration(info))
        self.loop.ended()
        return goes_on


def on_spacy(module: Any) -> None:
    """spacy.language has been imported: an update() that applies its gradients is a step."""

    @replaces(module.Language, "update")
    def update(inner: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        result = inner(self, *args, **kwargs)
        if kwargs.get("sgd") is not False and gate.framework == 0 and gate.counter is gate.hooked:
            gate.hooked.step(1)
        return result


def on_spacy_loop(module: Any) -> None:
    """spacy.training.loop has been imported: its own loop, of `spacy train`, ends a step with each of its rounds."""

    @replaces(module, "train_while_improving")
    def train(inner: Any, *args: Any, **kwargs: Any) -> Iterator[Any]:
        loop, most = Loop("patience" if kwargs.get("patience", 1) else None), kwargs.get("max_steps")
        quietly(lambda: loop.begin(0, most + 1 if most else None))
        try:
            for one in inner(*args, **kwargs):
                loop.ended()
                yield one
        finally:
            loop.end()


def on_ultralytics(module: Any) -> None:
    """ultralytics.engine.trainer has been imported: a batch is a step."""

    @replaces(module.BaseTrainer, "run_callbacks")
    def run_callbacks(inner: Any, self: Any, event: str) -> Any:
        result = inner(self, event)
        loop = vars(self).get("carbontui_loop")
        if event == "on_train_start":
            quietly(lambda: _begin_epochs(self))
        elif loop is not None and event == "on_train_batch_end":
            loop.ended()
        elif loop is not None and event in ("on_train_end", "teardown"):
            loop.end()
        return result


def _begin_epochs(trainer: Any) -> None:
    early = "EarlyStopping" if trainer.stopper.patience < trainer.epochs - trainer.start_epoch else ""
    trainer.carbontui_loop = Loop("time" if trainer.args.time else early, chain())
    batches = len(trainer.train_loader)  # torch's, or of Ultralytics, which has just asked it, too
    trainer.carbontui_loop.begin(trainer.start_epoch * batches, trainer.epochs * batches)


def on_sb3(module: Any) -> None:
    """A module of stable_baselines3 with an algorithm has been imported: a timestep of its environments is a step."""
    kind = vars(module).get("OnPolicyAlgorithm") or module.OffPolicyAlgorithm
    learning: List[Loop] = []

    @replaces(kind, "learn")
    def learn(inner: Any, self: Any, total_timesteps: int, callback: Any = None, *args: Any, **kwargs: Any) -> Any:
        learning[:] = [Loop("a callback" if callback else "", chain())]
        learning[0].begin(0, quietly(lambda: _timesteps(self, total_timesteps)))
        try:
            return inner(self, total_timesteps, callback, *args, **kwargs)
        finally:
            learning.pop().end()

    @replaces(kind, "_update_info_buffer")
    def stepped(inner: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        result = inner(self, *args, **kwargs)
        for loop in learning:
            loop.ended(self.n_envs)
        return result


def _timesteps(algorithm: Any, most: int) -> Any:
    """It looks whether it is over after whole rollouts; those of whole episodes have no size."""
    often = getattr(algorithm, "train_freq", None)
    each = algorithm.n_envs * (often.frequency if often else algorithm.n_steps)
    return -(-most // each) * each if not often or often.unit.value == "step" else None
