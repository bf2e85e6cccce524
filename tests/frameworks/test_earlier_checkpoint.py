"""The checkpoint of an unload that turns out to be none: the next start goes on from the one before, exactly."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
from cases import EXAMPLES, LOOPS
from harness import Training

from carbontui.job.keeper import resume

HF, PL, AC = ("transformers",), ("lightning",), ("accelerate",)
CASES = {
    # what is run, where it leaves, what is damaged, and what it goes on from
    "transformers": (
        HF,
        EXAMPLES / "train_transformers.py",
        (),
        (40,),
        "out/.carbontui/test/checkpoint-40/*state.json",
        30,
    ),
    "Lightning": (PL, EXAMPLES / "train_lightning.py", ("--save-every=25",), (78,), ".carbontui/test/step-78.ckpt", 75),
    "accelerate": (AC, EXAMPLES / "train_accelerate.py", (), (40, 30), ".carbontui/test/state/*.safetensors", 40),
    "JAX": (("jax",), EXAMPLES / "train_jax.py", (), (100, 50), ".carbontui/test/run.npz", 100),
    "XGBoost": (("xgboost",), EXAMPLES / "train_xgboost.py", (), (60, 40), "xgboost-100.ubj", 60),
    "LightGBM": (("lightgbm",), EXAMPLES / "train_lightgbm.py", (), (60, 40), "lightgbm-100.txt", 60),
    "Keras": (("keras", "torch"), EXAMPLES / "train_keras.py", (), (60, 40), "keras-100.pickle", 60),
    "plain loop": (("torch",), LOOPS, ("plain", "--checkpoint=run.pt"), (30, 40), ".carbontui/test/run.pt", 30),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.timeout(900)
def test_a_training_goes_on_from_the_newest_checkpoint_that_holds(case, tmp_path, hook, supervisor):
    needs, script, args, leaves, damaged, good = CASES[case]
    if any(importlib.util.find_spec(package) is None for package in needs):
        pytest.skip(f"{needs} not installed (the extra `frameworks`)")

    def training(name):
        return Training(tmp_path / name, hook, supervisor, script, *args)

    alone, left = training("alone").alone(), training("left")
    for number, steps in enumerate(leaves):
        step = sum(leaves[:number])
        first = left.start(steps, resume=number > 0, step=step, socket=tmp_path / "nobody.sock")
        out, _ = first.communicate(timeout=400)
        assert first.returncode == 0, out
        left.marker.replace(tmp_path / "resumed.json")
    for file in left.folder.glob(damaged):
        file.write_bytes(file.read_bytes()[:40])
    nobody = tmp_path / "nobody.sock"
    broken = left.start(0, resume=True, step=sum(leaves), socket=nobody)
    assert broken.communicate(timeout=400)[0] and broken.returncode != 0, "it does not begin again in silence"
    again = resume.earlier(str(left.marker), str(tmp_path / "resumed.json"))
    assert again
    step = json.loads((tmp_path / "resumed.json").read_text())["step"]
    last = left.finish(left.start(resume=True, step=step or 0))
    assert last.steps == alone.steps != [] and last.weights == alone.weights != []
    assert supervisor.last().start_step == good
    assert f"going on from {Path(again)}" in last.out or f"going on from {Path(again).name}" in last.out
