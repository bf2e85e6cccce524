"""fastai, CatBoost, spaCy, Stable-Baselines3: every step is counted, the total known, the result the plain run's."""

from __future__ import annotations

import importlib.util
import textwrap

import pytest
from harness import Training

SCRIPTS = {
    "catboost": (
        """
        import catboost, numpy as np
        inputs = np.random.default_rng(1).normal(size=(300, 5))
        model = catboost.CatBoostRegressor(iterations=40, verbose=0, thread_count=1, allow_writing_files=False)
        model.fit(inputs, inputs[:, 0] * inputs[:, 1])
        result = model.predict(inputs).tobytes()
        """,
        40,
        40,
    ),
    "fastai": (
        """
        import torch
        from fastai.data.core import DataLoaders
        from fastai.data.load import DataLoader
        import fastai.callback.progress
        from fastai.learner import Learner
        torch.manual_seed(1)
        x = torch.randn(64, 4)
        loader = DataLoader(list(zip(x, x.sum(1, keepdim=True))), bs=8)
        model = torch.nn.Linear(4, 1)
        learner = Learner(DataLoaders(loader, loader), model, loss_func=torch.nn.functional.mse_loss)
        with learner.no_bar(), learner.no_logging():
            learner.fit(3, 1e-2)
        result = model.weight.detach().numpy().tobytes()
        """,
        24,
        24,
    ),
    "stable_baselines3": (
        """
        import gymnasium, torch
        from stable_baselines3 import PPO
        torch.set_num_threads(1)
        model = PPO("MlpPolicy", gymnasium.make("CartPole-v1"), n_steps=32, batch_size=16, seed=1)
        model.learn(100)
        result = b"".join(one.detach().numpy().tobytes() for one in model.policy.parameters())
        """,
        128,
        128,
    ),
    "spacy": (
        """
        import spacy
        from spacy.training import Example
        spacy.util.fix_random_seed(1)
        nlp = spacy.blank("en")
        for label in "ab":
            (nlp.get_pipe("textcat") if nlp.has_pipe("textcat") else nlp.add_pipe("textcat")).add_label(label)
        every = [Example.from_dict(nlp.make_doc(w), {"cats": {"a": 1.0, "b": 0.0}}) for w in "a few words".split()]
        optimizer = nlp.initialize(lambda: every)
        for _ in range(25):
            nlp.update(every, sgd=optimizer)
        result = nlp("some words").cats["a"].hex().encode()
        """,
        25,
        None,
    ),
}


@pytest.mark.parametrize("package", SCRIPTS)
@pytest.mark.timeout(600)
def test_steps_and_total_come_by_themselves(package, tmp_path, hook, supervisor):
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed (the extra `frameworks`)")
    text, steps, total = SCRIPTS[package]
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(text) + "print('weights', result.hex()[:400])\n")
    alone = Training(tmp_path / "alone", hook, supervisor, script).alone()
    outcome, _ = Training(tmp_path / "paused", hook, supervisor, script).paused()
    assert outcome.weights == alone.weights != [], alone.out
    assert supervisor.last().step == steps and supervisor.last().total == total
