"""The loss as the script reports it, else as it prints it: also where it is no number any more."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from house import until

from carbontui.job.files import runlog
from carbontui.protocol import Loss

LOSSES = [
    ("step 30 loss 0.0645", 0.0645),
    ("epoch 2 | train loss: 1.25e-3 | val loss 9", 9.0),
    ("{'loss': 2.31, 'learning_rate': 5e-05}", 2.31),
    ("{'loss': '2.31', 'grad_norm': '0.1'}", 2.31),
    ('{"step": 4, "loss": NaN}', "NaN"),
    ("{'loss': nan, 'grad_norm': nan}", "NaN"),
    ("Epoch 0:  50%|##  | 5/10 [00:01<00:01, 4.2it/s, v_num=0, train_loss=nan.0]\r", "NaN"),
    ("71%|## | 3394/4800 [18:10<07:31, 3.11it/s, loss=\x1b[31minf\x1b[0m]\r", "inf"),
    ("loss: -Infinity", "-inf"),
    ("loss tensor(0.5, grad_fn=<MeanBackward0>)", 0.5),
    ("loss 1.0\nloss 2.", 1.0),
    ("Loss is nan, stopping training", "NaN"),
    ("Epoch 0:  50%|##  | 5/10 [00:01<00:01, train_loss_step=inf.0, train_loss_epoch=inf.0]\r", "inf"),
    ("{'loss': inf, 'grad_norm': nan, 'learning_rate': 5e-05}", "inf"),
    ("loss=np.float32(inf)", "inf"),
    ("no gloss 5 here, lossless 7, loss nanometers 3, at-loss 3", None),
    (f"loss{' ' * 20_000}x", None),
]


@pytest.mark.parametrize(("line", "value"), LOSSES)
def test_the_last_loss_of_whole_lines_is_read_as_what_it_is(
    line: str, value: float | str | None, tmp_path: Path
) -> None:
    log = tmp_path / "run.log"
    log.write_text(line if "\nloss 2." in line else line + "\n")
    read = runlog.printed_loss([tmp_path / "run.err", log])
    if isinstance(value, str):
        assert read is not None and (read.value, read.finite, read.word, read.printed) == (None, False, value, True)
    else:
        assert read == (None if value is None else Loss(value, printed=True))


SCRIPT = """
import sys, time, carbontui
for i in range(100000):
    if REPORT: carbontui.report(loss=1 / (i + 1) if i < 40 else float("nan"))
    else: print("step", i, "loss", 1 / (i + 1) if i < 40 else "nan", flush=True)
    carbontui.step(); time.sleep(0.01)
"""


@pytest.mark.parametrize("reports", [True, False])
def test_a_loss_that_became_nan_is_said_with_the_step_in_every_output(house, tmp_path, reports):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.replace("REPORT", str(reports)))
    job = house.cli("run", "--detach", "--", house.python, script, check=True).stdout.strip()

    def loss():
        return json.loads(house.cli("status", job, "--json").stdout)["loss"]

    last = until(lambda: (now := loss()) and not now["finite"] and now, every=0.5)
    assert (last["value"], last["word"], last["printed"]) == (None, "NaN", not reports)
    assert last["not_finite_since_step"] >= 40
    assert "loss NaN since step" in house.cli("status", job).stdout
    assert "loss NaN since step" in house.cli("ls").stdout
    assert loss()["not_finite_since_step"] == last["not_finite_since_step"]
