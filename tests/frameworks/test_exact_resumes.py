"""What is unloaded by itself is what comes back bit for bit; the rest is left alone."""

from __future__ import annotations

import importlib.util
import os
import pickle

import pytest

pytestmark = pytest.mark.timeout(300)


def needs(package):
    return pytest.mark.skipif(
        importlib.util.find_spec(package) is None, reason=f"{package} is not installed (the extra `frameworks`)"
    )


DRAWN = (
    {"bagging_freq": 1, "bagging_fraction": 0.5},
    {"subsample_freq": 2, "subsample": 0.9},
    {"feature_fraction": 0.5},
    {"colsample_bynode": 0.5},
    {"extra_trees": True},
    {"boosting": "dart"},
    {"boosting": "goss"},
    {"linear_tree": True},
    {"use_quantized_grad": True},
    {"early_stopping_round": 5},
)
PLAIN = (
    {},
    {"objective": "regression_l1"},
    {"objective": "multiclass", "num_class": 2},
    {"lambda_l1": 0.1, "max_bin": 16},
)


@needs("lightgbm")
def test_lightgbm_is_left_where_its_trees_are_all_that_decides_the_next_round():
    import lightgbm
    import numpy as np

    from carbontui.client.frameworks.boosting import is_exact

    draw = np.random.default_rng(1)
    inputs = draw.normal(size=(500, 6))
    told = {"objective": "binary", "num_threads": 1, "seed": 1, "deterministic": True, "verbose": -1}

    def trained(more, rounds, **kwargs):
        data = lightgbm.Dataset(inputs, inputs[:, 0] * inputs[:, 1] > 0)
        return lightgbm.train({**told, **more}, data, rounds, **kwargs)

    for more in PLAIN:
        part = trained(more, 12)
        assert is_exact(part), more
        rest = trained(more, 18, init_model=part)
        assert (rest.predict(inputs, raw_score=True) == trained(more, 30).predict(inputs, raw_score=True)).all(), more
    for more in DRAWN:
        assert not is_exact(trained(more, 2, valid_sets=[lightgbm.Dataset(inputs, inputs[:, 0] > 0)])), more


@needs("keras")
def test_keras_is_left_where_its_data_comes_in_the_same_order_again():
    os.environ["KERAS_BACKEND"] = "torch"
    import keras
    import numpy as np
    import torch
    from keras.src.backend.torch.trainer import TorchEpochIterator

    from carbontui.client.frameworks import keras as keras_hook

    inputs = np.zeros((12, 2), "float32")
    pairs = torch.utils.data.TensorDataset(torch.zeros(12, 2), torch.zeros(12, 2))

    def loader(**more):
        return torch.utils.data.DataLoader(pairs, batch_size=4, **more)

    def stream():
        while True:
            yield inputs, inputs

    exact = {
        "arrays": {"x": inputs, "y": inputs, "shuffle": True},
        "a loader": {"x": loader()},
        "a shuffling loader": {"x": loader(shuffle=True)},
    }
    not_exact = {
        "a generator": {"x": stream(), "steps_per_epoch": 3},
        "arrays over several epochs": {"x": inputs, "y": inputs, "steps_per_epoch": 2},
        "a loader that draws for itself": {"x": loader(shuffle=True, generator=torch.Generator())},
        "a sampler of the script's": {"x": loader(sampler=torch.utils.data.WeightedRandomSampler([1.0] * 12, 12))},
    }
    for what, told in {**exact, **not_exact}.items():
        assert keras_hook.is_exact(TorchEpochIterator(**told)) is (what in exact), what
    own, known = type("Own", (keras.callbacks.Callback,), {}), keras.callbacks.EarlyStopping(monitor="loss")
    assert keras_hook.can_be_kept([known]) and not keras_hook.can_be_kept([known, own()])


@needs("keras")
@pytest.mark.parametrize("kind", ["ReduceLROnPlateau", "EarlyStopping"])
def test_what_keras_calls_an_improvement_is_the_same_after_coming_back(kind):
    os.environ["KERAS_BACKEND"] = "torch"
    import keras

    from carbontui.client.frameworks import keras as keras_hook

    model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1)])
    model.compile(optimizer="adam", loss="mse")

    def begun():
        one = getattr(keras.callbacks, kind)(monitor="val_loss", min_delta=1e-2, patience=9)
        one.set_model(model)
        one.on_train_begin()
        return one

    first, later = begun(), begun()
    first.on_epoch_end(0, {"val_loss": 1.0})
    vars(later).update(pickle.loads(pickle.dumps(keras_hook.plain_values(vars(first)))))
    for one in (first, later):
        one.on_epoch_end(1, {"val_loss": 0.999})
    assert first.wait == later.wait == 1


@needs("keras")
def test_a_fit_of_another_model_is_refused_before_it_trains():
    os.environ["KERAS_BACKEND"] = "torch"
    import keras
    import numpy as np

    from carbontui.client.frameworks import keras as keras_hook

    def begun(width):
        model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(width)])
        model.compile(optimizer="adam", loss="mse")
        fit = keras_hook.Fit([])
        fit.begin(model, 3)
        return fit

    small, large = begun(2), begun(3)
    values = [np.asarray(value.numpy()) for value in keras_hook.all_variables(small.model)]
    large.left = {"variables": values, "callbacks": [], "epoch": 3}
    with pytest.raises(ValueError, match="of another model"):
        large.begin(large.model, 3)
