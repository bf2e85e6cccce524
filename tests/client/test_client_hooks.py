"""Unchanged scripts: real torch, the injected hook, boundaries where they belong."""

from __future__ import annotations

import sys
from pathlib import Path

from later import needs

pytestmark = needs("torch")
CHARLM = Path(__file__).parents[2] / "examples" / "train_charlm.py"


def test_an_unchanged_script_is_counted_and_paused(supervisor, launch, finish):
    gen = supervisor.want("pause")  # before it begins: its steps are over in half a second
    process = launch([sys.executable, str(CHARLM)], "--steps", "120", "--d-model", "32", "--batch", "4")
    supervisor.wait(lambda: supervisor.acked(gen) and supervisor.last().state == "paused")
    assert supervisor.last().step == supervisor.acked(gen).step < 120
    supervisor.want("run")
    assert "held-out loss" in finish(process)
    assert supervisor.last().step == 120
    assert len(supervisor.ranks) == 1
