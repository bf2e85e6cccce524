"""Pictures of the screen, compared with the ones committed. Make them anew with: pytest tests/tui --snapshot-update"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from acting import app_on, served
from fake import scene
from textual.pilot import Pilot

from carbontui.tui.app import CarbonApp
from carbontui.tui.glyphs import ASCII, BLOCKS
from carbontui.tui.screens.choose import Choose

LOOKS = {
    "wide": ("running", 1, (120, 40), {}, []),
    "eight-boards": ("override", 8, (120, 40), {}, []),
    "preview": ("running", 1, (120, 40), {}, ["end"]),
    "small": ("demo", 1, (80, 24), {}, []),
    "tiny": ("paused", 1, (40, 15), {}, []),
    "huge": ("running", 8, (200, 50), {}, []),
    "ascii": ("demo", 1, (80, 24), {"glyphs": ASCII}, []),
    "light": ("running", 1, (120, 40), {"theme": "carbon-light"}, []),
    "own-palette": ("running", 1, (80, 24), {"theme": "ansi-dark"}, []),
    "over": ("done", 1, (80, 24), {}, []),
}


async def settle(pilot: Pilot[Any]) -> None:
    for _ in range(500):
        await pilot.pause(0.02)
        screen = pilot.app.screen
        tail = screen.query("LogTail")
        ready = getattr(screen, "picture", None) is not None
        if ready and (screen.picture.over or (screen.past and tail and tail.first().lines.rows(1))):
            break
    await pilot.pause()


@pytest.mark.parametrize("look", LOOKS)
def test_look(look: str, snap_compare: Any, tmp_path: Path) -> None:
    name, gpus, size, options, keys = LOOKS[look]

    async def before(pilot: Pilot[Any]) -> None:
        await settle(pilot)
        await pilot.press(*keys)

    with served(tmp_path / "s", scene(name, gpus), gpus):
        assert snap_compare(app_on(tmp_path / "s", **options), terminal_size=size, run_before=before)


def test_no_colour(snap_compare: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    with served(tmp_path / "s", scene("paused")):
        assert snap_compare(app_on(tmp_path / "s"), terminal_size=(80, 24), run_before=settle)


def test_chooser(snap_compare: Any) -> None:
    jobs = tuple(scene(name).status for name in ("running", "paused", "unguarded"))
    app = CarbonApp(lambda: Choose(jobs[:1], BLOCKS))
    assert snap_compare(app, terminal_size=(80, 24))
