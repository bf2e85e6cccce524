"""Every look at every size: what stands in each cell and how it is painted, compared with what is committed.

Make them anew with: pytest tests/tui/test_matrix.py --snapshot-update
"""

from __future__ import annotations

import asyncio
import string
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from acting import app_on, served
from fake import scene
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode
from test_looks import settle
from textual.pilot import Pilot

from carbontui.tui.app import CarbonApp

SIZES = ((200, 60), (120, 40), (80, 24), (60, 20), (40, 15))
LOOKS = {"dark": "carbon-dark", "light": "carbon-light", "sixteen colours": "ansi-dark", "solarized": "ansi-light"}
Settled = Callable[[Pilot[Any]], Awaitable[None]]
MARKS = string.ascii_letters + string.digits


class Cells(SingleFileSnapshotExtension):
    _write_mode = WriteMode.TEXT
    _file_extension = "txt"


def drawing(app: CarbonApp) -> str:
    """The screen as text; under every row how its cells are painted, a letter for each style, named at the end."""
    styles: dict[str, str] = {}
    rows = []
    for strip in app.screen._compositor.render_strips():
        text = painted = ""
        for segment in strip:
            mark = styles.setdefault(str(segment.style), MARKS[len(styles) % len(MARKS)])
            text += segment.text
            painted += mark * len(segment.text)
        rows += [text.rstrip() + "|", painted]
    return "\n".join([*rows, *(f"{mark} = {style}" for style, mark in styles.items()), ""])


async def walk(app: CarbonApp, looks: dict[str, str], settled: Settled = settle, *keys: str) -> dict[str, str]:
    """The drawing of each look at each size, by name."""
    found = {}
    async with app.run_test(size=SIZES[0]) as pilot:
        await settled(pilot)
        await pilot.press(*keys)
        for width, height in SIZES:
            await pilot.resize_terminal(width, height)
            for look, theme in looks.items():
                app.theme = theme
                await pilot.pause()
                found[f"{look} {width}x{height}"] = drawing(app)
    return found


@pytest.mark.parametrize("what", ["colours", "ascii", "no colour"])
def test_every_look_at_every_size(what: str, tmp_path: Path, snapshot: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    if what == "no colour":
        monkeypatch.setenv("NO_COLOR", "1")
    looks = LOOKS if what == "colours" else {what: "carbon-dark"}
    cells = snapshot.use_extension(Cells)
    with served(tmp_path / "s", scene("running", 1)):
        found = asyncio.run(walk(app_on(tmp_path / "s", ascii=what == "ascii"), looks))
    assert [name for name, drawn in found.items() if drawn != cells(name=name)] == []


PLAIN = {name: LOOKS[name] for name in ("dark", "sixteen colours")}


def test_the_help_at_every_size(tmp_path: Path, snapshot: Any) -> None:
    cells = snapshot.use_extension(Cells)
    with served(tmp_path / "s", scene("running", 1)):
        found = asyncio.run(walk(app_on(tmp_path / "s"), PLAIN, settle, "question_mark"))
    assert [name for name, drawn in found.items() if drawn != cells(name=name)] == []
