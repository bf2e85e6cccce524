"""A machine that would emit less is named at the foot of the page, and M moves the job there after a question."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from acting import app_on, served
from fake import scene
from textual.pilot import Pilot

from carbontui.tui.model.feed import BetterHost
from carbontui.tui.widgets.bottom import StatusLine

SE = BetterHost("n2", "n2 in SE: −61 %, done 2 h later")
OFFER = "n2 in SE: −61 %, done 2 h later; M moves it"


async def test_m_asks_and_enter_or_y_moves_it_and_escape_does_not(stage: Any) -> None:
    for key in ("enter", "y"):
        moved: list[str] = []

        def move(host: str, moved: list[str] = moved) -> tuple[bool, str]:
            moved.append(host)
            return True, f"job k7q2mz is running on {host}"

        async with stage(elsewhere=lambda: SE, move=move) as s:
            await s.until(lambda: OFFER in s.text())
            for other in ("escape", "n"):
                await s.pilot.press("M")
                await s.until(lambda: "Move it now to n2 in SE" in s.text())
                await s.pilot.press(other)
                await s.until(lambda: "Move it now" not in s.text())
            assert not moved and not s.fake.commands
            await s.pilot.press("M")
            await s.until(lambda: "Move it now" in s.text())
            await s.pilot.press(key)
            await s.until(lambda: "is running on n2" in s.text())
            assert moved == ["n2"]


async def test_a_move_that_fails_says_why_and_the_job_goes_on_here(stage: Any) -> None:
    async with stage(elsewhere=lambda: SE, move=lambda host: (False, f"job k7q2mz stays: {host}: no rsync")) as s:
        await s.until(lambda: OFFER in s.text())
        await s.pilot.press("M", "enter")
        await s.until(lambda: "stays: n2: no rsync" in s.text())


async def test_the_screen_of_a_job_that_has_moved_says_where_it_is(stage: Any) -> None:
    where, there = "job k7q2mz is on me@n2: carbontui attach me@n2:k7q2mz", ""
    async with stage(away=lambda: there) as s:
        await s.until(lambda: "charlm" in s.text())
        there = where
        await s.fake.__aexit__()
        await s.until(lambda: where in s.text())
        assert "reconnecting" not in s.text() and s.dashboard.farewell() == where
        s.dashboard.query_one(StatusLine).clear()
        await s.until(lambda: where in s.text())


async def test_where_nothing_is_better_or_nothing_may_be_done_the_key_does_nothing(stage: Any) -> None:
    async with stage(elsewhere=lambda: None, move=lambda host: (True, "")) as s:
        await s.pilot.press("M")
        assert "Move it" not in s.text() and "moves it" not in s.text()
    asked: list[int] = []
    async with stage(readonly=True, elsewhere=lambda: asked.append(1) or SE, move=lambda host: (True, "")) as s:
        await s.pilot.press("M")
        assert not asked and "Move it" not in s.text()


@pytest.mark.parametrize(("name", "size"), [("running", (120, 40)), ("demo", (80, 24)), ("override", (80, 24))])
def test_offer(name: str, size: tuple[int, int], snap_compare: Any, tmp_path: Path) -> None:
    async def before(pilot: Pilot[Any]) -> None:
        for _ in range(500):
            await pilot.pause(0.02)
            if getattr(pilot.app.screen, "better", None) and pilot.app.screen.past:
                break
        await pilot.pause()

    with served(tmp_path / "s", scene(name, 1), 1):
        app = app_on(tmp_path / "s", elsewhere=lambda: SE, move=lambda host: (True, ""))
        assert snap_compare(app, terminal_size=size, run_before=before)
