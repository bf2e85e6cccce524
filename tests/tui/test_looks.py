"""Pictures of the screen, compared with the ones committed. Make them anew with: pytest tests/tui --snapshot-update"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from acting import app_on, served
from fake import NOW, scene
from msgspec import structs
from textual.pilot import Pilot

from carbontui import protocol
from carbontui.tui.app import CarbonApp
from carbontui.tui.model.feed import Target
from carbontui.tui.model.jobs_feed import JobsSnapshot
from carbontui.tui.screens.dashboard import Dashboard
from carbontui.tui.screens.jobs import Jobs

LOOKS = {
    "wide": ("running", 1, (120, 40), {}, []),
    "eight-boards": ("override", 8, (120, 40), {}, []),
    "preview": ("running", 1, (120, 40), {}, ["end"]),
    "small": ("demo", 1, (80, 24), {}, []),
    "tiny": ("paused", 1, (40, 15), {}, []),
    "huge": ("running", 8, (200, 50), {}, []),
    "ascii": ("demo", 1, (80, 24), {"ascii": True}, []),
    "light": ("running", 1, (120, 40), {"theme": "carbon-light"}, []),
    "own-palette": ("running", 1, (80, 24), {"theme": "ansi-dark"}, []),
    "over": ("done", 1, (80, 24), {}, []),
}


async def settle(pilot: Pilot[Any]) -> None:
    for _ in range(500):
        await pilot.pause(0.02)
        screen = pilot.app.screen
        tail = screen.query("LogTail")
        ready = getattr(screen, "view_state", None) is not None
        if ready and (screen.view_state.over or (screen.past and tail and tail.first().lines.rows(1))):
            break
    await pilot.pause()


@pytest.mark.parametrize("look", LOOKS)
def test_look(look: str, snap_compare: Any, tmp_path: Path) -> None:
    name, gpus, size, options, keys = LOOKS[look]

    async def before(pilot: Pilot[Any]) -> None:
        await settle(pilot)
        await pilot.press(*keys)
        frontier = pilot.app.screen.query("#frontier")
        while keys and frontier and frontier.first().choice is None:  # the charts follow once the knob rests
            await pilot.pause(0.02)

    with served(tmp_path / "s", scene(name, gpus), gpus):
        assert snap_compare(app_on(tmp_path / "s", **options), terminal_size=size, run_before=before)


def test_no_colour(snap_compare: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    with served(tmp_path / "s", scene("paused")):
        assert snap_compare(app_on(tmp_path / "s"), terminal_size=(80, 24), run_before=settle)


FACTS = (
    ("gpu 0", "NVIDIA H100 80GB HBM3  71 W of 700 W, 0.5 GiB in use", True),
    ("grid", "DE 324 gCO2/kWh (default: typical days of DE 2020)", True),
    ("waiting", "a job of 2 h emits 31 % less if started 12:00; of 8 h 12 %", True),
)
TRACE = 'Traceback (most recent call last):\n  File "t.py", line 3\nRuntimeError: CUDA out of memory\n'


@pytest.mark.parametrize("size", [(120, 40), (80, 24), (40, 15)])
def test_table(size: tuple[int, int], snap_compare: Any, tmp_path: Path) -> None:
    """Three live jobs that do not answer, one that failed, one that is done."""

    def target(number: int, name: str, scenario: str) -> Target:
        status = structs.replace(scene(scenario).status, job=f"job{number}", name=name)
        answer = protocol.LogAnswer(0, 0, len(TRACE), len(TRACE), TRACE)
        return Target(status.job, name, tmp_path / f"gone{number}", status, lambda ask: answer)

    named = (("llama-sft-long-name-of-a-run-with-its-date", "running"), ("charlm", "paused"), ("模型 3", "capped"))
    over = (("crash", "failed"), ("resnet50", "done"))
    targets = tuple(target(n, *pair) for n, pair in enumerate((*named, *over)))
    seen = JobsSnapshot(FACTS, targets, 1843.0, "DE 324 g/kWh typical")

    async def before(pilot: Pilot[Any]) -> None:
        while not pilot.app.screen.query("#table") or not pilot.app.screen.listed.rows:  # type: ignore[attr-defined]
            await pilot.pause(0.02)
        await pilot.press("down", "space")

    def jobs() -> Jobs:
        return Jobs(lambda: seen, lambda target: Dashboard(target), now=lambda: NOW)

    assert snap_compare(CarbonApp(jobs), terminal_size=size, run_before=before)
