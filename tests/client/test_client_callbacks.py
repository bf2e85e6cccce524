"""What frameworks tell, against stand-ins of the interfaces of transformers and Lightning."""

from __future__ import annotations

import json
import os
import pickle
import sys
import types

import pytest
from later import needs
from read_here import Both

from carbontui.client import api
from carbontui.client.detection import places, report, stated
from carbontui.client.frameworks import base, transformers
from carbontui.client.frameworks import lightning as lightning_hook
from carbontui.client.pausing.gate import Gate


class TrainerCallback:
    """What transformers gives as a base."""


class Callback:
    """What Lightning gives as a base."""


class Trainer:
    """Lightning's, as far as it is used."""

    global_step, estimated_stepping_batches, current_epoch = 30, 100, 2
    optimizers, max_steps, default_root_dir = [object()], -1, "."

    def __init__(self):
        self.callbacks = []

    def fit(self, model, *, ckpt_path=None):
        """Train."""
        return model, ckpt_path


@pytest.fixture
def facts(monkeypatch):
    fresh = Gate()
    monkeypatch.setattr(api, "gate", fresh)
    monkeypatch.setattr(base, "gate", fresh)
    monkeypatch.setattr(base.Loop, "loops", 0)
    fresh_watch = places.Watch()
    fresh_watch.count = fresh.counter.done
    monkeypatch.setattr(stated, "watch", fresh_watch)
    monkeypatch.setattr(report, "watch", fresh_watch)
    monkeypatch.setattr(base, "chain", lambda: tuple(one for one in places.chain() if one.code.co_filename == __file__))
    return fresh.facts


def work():
    """As the link says it: the total, its low and high, and whether it is known."""
    found = Both().answered(api.gate.counter.done(), framework=True)
    before = api.gate.step_total() - api.gate.counter.done()
    if found.total is not None:
        return before + found.total, before + found.total, before + found.total, True
    low, high, _, _ = found.guess_range or (None,) * 4
    return found.guess and (before + found.guess[0], before + low, high and before + high, False)


@pytest.fixture
def hugging(monkeypatch):
    package, module = types.ModuleType("transformers"), types.ModuleType("transformers.trainer")
    package.TrainerCallback, module.DEFAULT_CALLBACKS = TrainerCallback, []
    monkeypatch.setitem(sys.modules, "transformers", package)
    transformers.install(module)
    return module.DEFAULT_CALLBACKS


@pytest.fixture
def lightning(monkeypatch):
    package, module = types.ModuleType("lightning.pytorch"), types.ModuleType("lightning.pytorch.trainer.trainer")
    package.Callback = Callback
    module.Trainer = type("Trainer", (Trainer,), {"fit": Trainer.fit})
    monkeypatch.setitem(sys.modules, "lightning", types.ModuleType("lightning"))
    monkeypatch.setitem(sys.modules, "lightning.pytorch", package)
    lightning_hook.install(module)
    return module.Trainer


def test_a_transformers_trainer_tells_total_epoch_and_loss(facts, hugging):
    (made,) = hugging  # transformers makes an object of the class for every Trainer
    state = types.SimpleNamespace(global_step=30, max_steps=100, epoch=1.5)
    one = pickle.loads(pickle.dumps(made()))
    one.on_train_begin(None, state, None, model=None)
    one.on_log(None, state, None, logs={"loss": 0.5})
    one.on_log(None, state, None)
    assert facts == {"start_step": 30, "start_known": True, "epoch": 1.5, "loss": 0.5, "loss_word": None}
    assert work() == (100, 100, 100, True)


def test_a_fresh_trainer_is_not_taken_for_a_resumed_one(facts, hugging):
    facts["start_step"] = 40  # the keeper's word for the command's last life
    hugging[0]().on_train_begin(None, types.SimpleNamespace(global_step=0, max_steps=10), None)
    assert facts["start_step"] == 0


def test_a_lightning_trainer_gets_one_reporter_that_survives_spawned_ranks(facts, lightning):
    trainer = lightning()
    assert trainer.fit("m", ckpt_path="c") == trainer.fit("m", ckpt_path="c") == ("m", "c")
    assert lightning.fit.__doc__ == "Train."
    (reporter,) = trainer.callbacks
    one = pickle.loads(pickle.dumps(reporter))  # strategy="ddp_spawn" pickles the trainer
    assert isinstance(one, Callback)
    one.on_train_start(trainer, None)
    one.on_train_epoch_start(trainer, None)
    one.on_train_batch_end(trainer, None, {"loss": 0.25}, None, 0)
    one.on_train_batch_end(trainer, None, {"loss": object()}, None, 50)
    assert facts == {"start_step": 30, "start_known": True, "epoch": 2.0, "loss": 0.25, "loss_word": None}
    assert work() == (100, 100, 100, True)


def test_an_endless_lightning_run_has_no_total(facts, lightning):
    trainer = lightning()
    trainer.fit("m")
    trainer.estimated_stepping_batches = float("inf")
    trainer.callbacks[0].on_train_start(trainer, None)
    assert work() is None


def test_a_step_of_a_framework_is_counted_once_and_by_the_framework(facts, hugging):
    """The hook sees the same step from within; a second callback, given by hand, as well."""
    first, second = hugging[0](), hugging[0]()
    state = types.SimpleNamespace(global_step=0, max_steps=10, epoch=0.5)
    for one in (first, second):
        one.on_train_begin(None, state, None)
    assert api.gate.framework > 0
    for _ in range(3):
        for one in (first, second):
            one.on_step_end(None, state, None)
    for one in (first, second):
        one.on_train_end(None, state, None)
    assert (api.gate.counter.done(), api.gate.framework) == (3, 0)


def trained(made, steps, whole=None):
    one, state = made(), types.SimpleNamespace(global_step=0, max_steps=whole or steps, epoch=0.5)
    one.on_train_begin(None, state, None)
    for _ in range(steps):
        one.on_step_end(None, state, None)
    return one


def test_trainings_in_turn_add_up(facts, hugging):
    trained(hugging[0], 10).on_train_end(None, None, None)
    trained(hugging[0], 20).on_train_end(None, None, None)
    assert (work(), facts["start_step"], api.gate.counter.done()) == ((30, 30, 30, True), 0, 30)


def test_a_fit_that_raised_and_begins_anew_has_ended_its_stage(facts, hugging):
    """As auto_find_batch_size does, without a word of the end."""
    one = trained(hugging[0], 48, 100)
    args = types.SimpleNamespace(auto_find_batch_size=True)
    one.on_train_begin(args, types.SimpleNamespace(global_step=0, max_steps=100), None)
    assert work() == (148, 148, None, False), "it may be tried once more"
    one.on_train_end(None, None, None)
    assert (api.gate.framework, base.Loop.loops) == (0, 1), "it may still be resumed"


def test_five_folds_of_a_framework_are_stages_of_a_known_number(facts, hugging):
    for fold in range(5):
        one, done = trained(hugging[0], 10, 20), 10 * fold + 10
        total, low, high, known = work()
        assert low <= total <= (high or total) and known is (fold == 4)
        assert (high is None) is (fold == 0), "sure once a second fit is there"
        assert total == round(done + 10 + (4 - fold) * (10 * fold + 20) / (fold + 1))
        one.on_train_end(None, None, None)
    assert work() == (50, 50, 50, True)


class Stopping(TrainerCallback):
    """Of a script."""

    def on_step_end(self, args, state, control, **kwargs):
        control.should_training_stop = state.global_step > 5


def test_a_training_that_a_callback_may_stop_is_at_most_its_steps(facts, hugging):
    one = hugging[0]()
    one.trainer = types.SimpleNamespace(callback_handler=types.SimpleNamespace(callbacks=[one, Stopping()]))
    one.on_train_begin(None, types.SimpleNamespace(global_step=0, max_steps=20), None)
    assert work() == (20, 0, 20, False) and one.loop.until == "Stopping"
    one.on_step_end(None, types.SimpleNamespace(epoch=0.5), None)
    one.on_train_end(None, None, None)
    one.loop.end()


def test_a_lightning_step_of_two_optimizers_by_hand_is_one(facts, lightning):
    trainer = lightning()
    trainer.fit("m")
    trainer.global_step, trainer.optimizers, trainer.max_steps = 0, [object(), object()], 60
    module = types.SimpleNamespace(automatic_optimization=False)
    (one,) = trainer.callbacks
    one.on_train_start(trainer, module)
    assert work() == (30, 30, 30, True)
    for batch in range(4):
        trainer.global_step += 2
        one.on_train_batch_end(trainer, module, {}, None, batch)
    assert api.gate.counter.done() == 4


def test_an_unloads_checkpoint_goes_before_an_older_path_and_behind_a_newer_one(
    facts, lightning, tmp_path, monkeypatch
):
    monkeypatch.setenv("CARBONTUI_RESUME", "1")
    monkeypatch.setenv("CARBONTUI_MARKER", str(tmp_path / "resume.json"))
    left, given = tmp_path / "step-30.ckpt", tmp_path / "given.ckpt"
    for path in (left, given):
        path.touch()
    pointer = {"framework": "lightning", "path": str(left), "step": 30}
    (tmp_path / "resume.json.checkpoint").write_text(json.dumps(pointer))
    os.utime(given, (1.0, 1.0))
    for older in (None, "last", given, tmp_path / "gone.ckpt"):
        assert lightning().fit("m", ckpt_path=older) == ("m", str(left))
    os.utime(left, (2.0, 2.0))
    os.utime(given, (3.0, 3.0))
    assert lightning().fit("m", ckpt_path=given) == ("m", given)
    os.utime(given, (1.0, 1.0))
    searching = lightning()
    searching.callbacks.append(types.SimpleNamespace(_early_exit=True))
    assert searching.fit("m") == ("m", None), "lr_find() is no part of the training"
    left.unlink()
    with pytest.raises(SystemExit, match="the checkpoint of the unload is missing"):
        lightning().fit("m", ckpt_path=given)
    monkeypatch.delenv("CARBONTUI_RESUME")
    assert lightning().fit("m", ckpt_path="c") == ("m", "c")


@needs("xgboost")
def test_arguments_that_xgboost_takes_by_position_stay_there(supervisor, launch, finish):
    script = """
        import numpy, warnings, xgboost
        warnings.simplefilter("ignore")
        data = xgboost.DMatrix(numpy.ones((20, 2)), numpy.ones(20))
        print(xgboost.train({"nthread": 1}, data, 12, [(data, "train")], verbose_eval=False).num_boosted_rounds())
        xgboost.train({}, data, 12, rounds=3)
    """
    out = finish(launch(script), code=1)
    assert out.startswith("12\n") and "unexpected keyword argument 'rounds'" in out
    assert (supervisor.last().step, supervisor.last().total) == (12, None)
