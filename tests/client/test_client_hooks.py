"""Unchanged scripts: real torch, the injected hook, boundaries where they belong."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
CHARLM = Path(__file__).parents[2] / "examples" / "train_charlm.py"


def test_an_unchanged_script_is_counted_and_paused(supervisor, launch, finish):
    process = launch([sys.executable, str(CHARLM)], "--steps", "400", "--d-model", "32", "--batch", "4")
    supervisor.wait(lambda: supervisor.last() and supervisor.last().step > 5)
    (at,) = supervisor.pause()
    supervisor.wait(lambda: supervisor.last().state == "paused")
    assert supervisor.last().step == at < 400
    supervisor.want("run")
    assert "held-out loss" in finish(process)
    assert supervisor.last().step == 400
    assert len(supervisor.ranks) == 1
