"""Where the order of the data cannot be kept within an epoch, an unload at its end is as if there had been none."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from harness import Training
from later import needs


@needs("lightning")
@pytest.mark.timeout(1500)
def test_lightning_leaves_at_an_epochs_end_with_its_hooks_done_once(tmp_path, hook, supervisor, monkeypatch):
    script = Path(__file__).with_name("two_loaders.py")
    alone = Training(tmp_path / "alone", hook, supervisor, script).alone()
    monkeypatch.setenv("EPOCH_END", "1")
    lives = list(Training(tmp_path / "left", hook, supervisor, script).lives(7, 13))
    assert [life.code for life in lives] == [0, 0, 0], lives[-1].out
    assert lives[-1].weights == alone.weights != [] and lives[-1].steps == alone.steps
    assert [told for life in lives for told in re.findall("hook .*", life.out)] == re.findall("hook .*", alone.out)
