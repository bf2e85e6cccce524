"""Fixtures of the screen's tests: one local time everywhere, and a stage for pilots."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from textual.css.stylesheet import Stylesheet

sys.path.insert(0, str(Path(__file__).parent))

from acting import Stage, Watcher, app_on
from fake import FakeSupervisor, past_levels, scene

from carbontui import protocol
from carbontui.tui.screens.dashboard import Dashboard

PARSED: dict[object, object] = {}


@pytest.fixture(autouse=True)
def style_sheets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Textual parses its style sheets for every app anew, twice; they are the same for all apps of these tests."""
    parse = Stylesheet._parse_rules

    def parsed(self: Stylesheet, *args: object, **kwargs: object) -> object:
        key = (args, frozenset(kwargs.items()), frozenset(self._variables.items()))
        if key not in PARSED:
            PARSED[key] = parse(self, *args, **kwargs)  # type: ignore[arg-type]
        return PARSED[key]

    monkeypatch.setattr(Stylesheet, "_parse_rules", parsed)


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Clock times on the screen are local: make local mean the same everywhere."""
    monkeypatch.setenv("TZ", "UTC")
    for name in ("NO_COLOR", "TEXTUAL_THEME", "COLORTERM", "CARBONTUI_JOB"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TEXTUAL_ANIMATIONS", "none")
    time.tzset()
    yield
    os.environ.pop("TZ", None)
    time.tzset()


@pytest.fixture
def stage(tmp_path: Path) -> Callable[..., object]:
    """`async with stage("running", gpus=1, size=(120, 40)) as s`."""

    @asynccontextmanager
    async def make(
        name: str = "running",
        gpus: int = 1,
        size: tuple[int, int] = (120, 40),
        snap: protocol.Snap | None = None,
        **options: object,
    ) -> AsyncIterator[Stage]:
        watcher = Watcher()
        async with FakeSupervisor(tmp_path / "s", snap or scene(name, gpus)) as fake:
            fake.levels = past_levels(gpus)
            app = app_on(tmp_path / "s", **options)  # type: ignore[arg-type]
            async with app.run_test(size=size, message_hook=watcher.hook) as pilot:
                found = Stage(fake, app, pilot, watcher)
                await found.until(lambda: isinstance(app.screen, Dashboard) and app.screen.view_state)
                await found.until(lambda: "epoch 2" in found.text() or size[1] < 21 or found.dashboard.view_state.over)
                yield found

    return make
