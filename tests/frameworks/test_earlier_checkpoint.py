"""The checkpoint of an unload that turns out to be none: the next start goes on from the Trainer's own."""

from __future__ import annotations

import importlib.util

import pytest
from cases import EXAMPLES
from harness import Training

from carbontui.job.keeper import resume


@pytest.mark.timeout(900)
def test_the_trainer_goes_on_from_its_own_newest_checkpoint(tmp_path, hook, supervisor):
    if importlib.util.find_spec("transformers") is None:
        pytest.skip("transformers is not installed (the extra `frameworks`)")
    script, nobody = EXAMPLES / "train_transformers.py", tmp_path / "nobody.sock"
    alone = Training(tmp_path / "alone", hook, supervisor, script).alone()
    left = Training(tmp_path / "left", hook, supervisor, script)
    first = left.start(40, socket=nobody)
    assert first.communicate(timeout=400)[0] and first.returncode == 0
    (tmp_path / "left/out/carbontui/checkpoint-40/trainer_state.json").write_text("{")
    left.marker.rename(tmp_path / "resumed.json")
    again = resume.earlier(str(left.marker), str(tmp_path / "resumed.json"))
    assert again.endswith("out/checkpoint-30")
    last = left.finish(left.start(resume=True, step=30))
    assert last.steps == alone.steps == [120] and last.weights == alone.weights != []
    assert f"going on from {again}" in last.out
