"""Every example runs: those of frameworks as cases of the table, the others here, for some steps."""

from __future__ import annotations

import pytest
from cases import CASES, EXAMPLES
from harness import Training

PLAIN = EXAMPLES.parent
RUN = {
    "train_charlm.py": ("--steps", "40", "--d-model", "32", "--batch", "4"),
    "train_numpy.py": ("--steps", "40"),
    "train_efficient.py": ("--steps", "10", "--batch", "32", "--micro", "8"),
}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", RUN)
def test_an_example_runs_and_tells_its_total(name, tmp_path, hook, supervisor):
    run = Training(tmp_path, hook, supervisor, PLAIN / name, *RUN[name])
    done = run.finish(run.start())
    assert done.code == 0, done.out
    told = supervisor.last()
    assert (told.step, told.total) == (int(RUN[name][1]),) * 2 and told.loss is not None


@pytest.mark.timeout(600)
def test_the_distributed_example_is_unloaded_and_comes_back(tmp_path, hook, supervisor):
    run = Training(tmp_path, hook, supervisor, PLAIN / "train_ddp.py", "--steps=900", "--checkpoint=ddp.pt", ranks=2)
    code, done = run.unloaded(20)
    assert (code, done.code) == (0, 0), done.out
    told = supervisor.last()
    assert told.start_step >= 20 and told.start_step + told.step == told.total == 900


def test_no_example_is_left_out():
    there = {path.name for path in PLAIN.rglob("train_*.py")}
    assert there == {case.script.name for case in CASES if PLAIN in case.script.parents} | {*RUN, "train_ddp.py"}
