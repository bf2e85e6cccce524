"""Resizes and keys at random, from 1x1 to 400x120: the screen lives, and nothing is committed that was not meant.

STORM_STEPS=500 pytest tests/tui/test_any_size.py is the long form.
"""

from __future__ import annotations

import os
import random
from functools import partialmethod
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any

import pytest
from acting import app_on
from fake import NOW, FakeSupervisor, scene
from textual.app import App

from carbontui import tui
from carbontui.tui.app import CarbonApp
from carbontui.tui.model.feed import Target
from carbontui.tui.model.jobs_feed import JobsSnapshot
from carbontui.tui.screens.dashboard import Dashboard
from carbontui.tui.screens.jobs import Jobs
from carbontui.tui.terminal import tty

STEPS = int(os.environ.get("STORM_STEPS", "30"))
KEYS = (
    *("left", "right", "shift+left", "home", "end", "up", "down", "pageup", "pagedown", "escape", "backspace", "tab"),
    *"widGltzhnNfvecPBSa18k/?s",
)
"""Keys that look, and that ask: without an enter after them, no answer is given."""
NAMED = {"/": "slash", "?": "question_mark"}


def some_size(chance: random.Random) -> tuple[int, int]:
    wide, tall = chance.choice(((1, 1), (12, 120), (400, 6), (40, 15), (400, 120)))
    return chance.randint(1, wide), chance.randint(1, tall)


@pytest.mark.parametrize("seed", [0, 1, 2])
async def test_the_screen_lives_at_any_size_and_commits_nothing(tmp_path: Path, seed: int) -> None:
    chance, (name, gpus) = random.Random(seed), (("running", 1), ("paused", 8), ("override", 0))[seed]
    path = tmp_path / "s"
    snap = scene(name, gpus)
    listing = JobsSnapshot((), (Target("k7q2mz", "charlm", path, snap.status),), 90.0, load=60.0, cores=2)

    def table() -> Jobs:
        return Jobs(lambda: listing, lambda target: Dashboard(target, from_table=True), now=lambda: NOW)

    async with FakeSupervisor(path, snap) as fake:
        app = app_on(path, table=table)
        async with app.run_test(size=(120, 40)) as pilot:
            for step in range(STEPS):
                done: object = None
                if chance.random() < 0.4:
                    done = some_size(chance)
                    await pilot.resize_terminal(*done)
                else:
                    done = chance.choice(KEYS)
                    await pilot.press(NAMED.get(done, done))
                assert app.is_running and app._exception is None, (seed, step, done)
            # esc leaves every page
            while len(app.screen_stack) > 2:
                depth = len(app.screen_stack)
                for _ in range(3):
                    await pilot.press("escape")
                assert len(app.screen_stack) < depth, app.screen
        assert fake.commands == []


def test_a_screen_that_ends_by_a_fault_says_so_and_leaves_its_traceback(tmp_path: Path, monkeypatch: Any) -> None:
    def broken(page: Dashboard) -> None:
        raise RuntimeError("a fault of ours")

    folder = tmp_path / "jobs" / "k7q2mz"
    folder.mkdir(parents=True)
    monkeypatch.setenv("CARBONTUI_HOME", str(tmp_path))
    monkeypatch.setattr(tty, "why_plain", str)
    monkeypatch.setattr(CarbonApp, "run", partialmethod(App.run, headless=True))
    monkeypatch.setattr(Dashboard, "on_mount", broken)
    assert tui.run(Target("k7q2mz", "charlm", tmp_path / "s")) == 1
    kept = (folder / "carbontui.log").read_text()
    assert "screen: Traceback" in kept and "RuntimeError: a fault of ours" in kept


@pytest.mark.parametrize(
    ("environ", "plain"),
    [
        ({"TERM": "xterm-256color", "LANG": "de_DE.UTF-8"}, False),
        ({"TERM": "xterm-256color"}, False),
        ({"TERM": "linux", "LANG": "de_DE.UTF-8"}, True),
        ({"TERM": "xterm", "LC_ALL": "C", "LANG": "de_DE.UTF-8"}, True),
        ({"TERM": "xterm", "LANG": "C", "LC_CTYPE": "C.UTF-8"}, True),
        ({"TERM": "xterm", "LANG": "POSIX"}, True),
        ({"TERM": "xterm", "LC_ALL": "C.UTF-8"}, False),
        ({"TERM": "xterm", "LANG": "C.UTF-8"}, False),
    ],
)
def test_braille_and_blocks_fall_back_by_the_terminal(environ: dict[str, str], plain: bool, monkeypatch: Any) -> None:
    monkeypatch.setattr("sys.__stderr__", TextIOWrapper(BytesIO(), encoding="utf-8"))
    assert tty.ascii_alone(environ) is plain
