"""What nobody sees is not drawn: an empty page before the first picture, a page anew for news of the one beneath."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from acting import app_on, text_of
from fake import FakeSupervisor, past_levels, scene

from carbontui import protocol
from carbontui.tui.app import CarbonApp
from carbontui.tui.model.feed import Target
from carbontui.tui.screens import pages
from carbontui.tui.screens.dashboard import Dashboard

EMPTY = protocol.LogAnswer(0, 0, 0, 0, "")


def terminal(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What dashboards send to the terminal from now on."""
    shown: list[str] = []
    display = CarbonApp._display

    def noted(self: CarbonApp, screen: Any, update: Any) -> None:
        if isinstance(screen, Dashboard) and update is not None:
            shown.append(update.render_segments(self.console))
        display(self, screen, update)

    monkeypatch.setattr(CarbonApp, "_display", noted)
    return shown


@pytest.mark.parametrize("first_look_s", [0.01, 60.0])
async def test_a_job_that_is_over_is_painted_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first_look_s: float
) -> None:
    monkeypatch.setattr(pages, "FIRST_VIEW_S", first_look_s)
    shown = terminal(monkeypatch)
    over = Target("k7q2mz", "charlm", tmp_path / "gone", scene("done").status, lambda ask: EMPTY)
    app = CarbonApp(lambda: Dashboard(over))
    async with app.run_test(size=(120, 40)) as pilot:
        for _ in range(500):
            if "the job is over" in "".join(shown):
                break
            await pilot.pause(0.02)
        assert "the job is over" in "".join(shown)


async def test_the_first_paint_is_that_of_the_first_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "FIRST_VIEW_S", 60.0)
    shown = terminal(monkeypatch)
    async with FakeSupervisor(tmp_path / "s", scene()) as fake:
        fake.levels = past_levels()
        app = app_on(tmp_path / "s")
        async with app.run_test(size=(120, 40)) as pilot:
            while "RUNNING" not in "".join(shown):
                await pilot.pause(0.01)
        assert "RUNNING" in shown[0] and "connecting" not in "".join(shown)


async def test_without_an_answer_the_page_says_so_soon(tmp_path: Path) -> None:
    app = app_on(tmp_path / "nobody")
    async with app.run_test(size=(120, 40)) as pilot:
        while "no supervisor answers" not in text_of(app):
            await pilot.pause(0.02)


async def test_news_of_the_page_beneath_draws_nothing_of_the_page_above(
    stage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[Any] = []
    display = CarbonApp._display

    def noted(self: CarbonApp, screen: Any, update: Any) -> None:
        drawn.extend([update] if update is not None else [])
        display(self, screen, update)

    async with stage() as s:
        await s.pilot.press("question_mark")
        await s.until(lambda: not isinstance(s.app.screen, Dashboard))
        await s.pilot.pause(0.1)
        monkeypatch.setattr(CarbonApp, "_display", noted)
        s.dashboard.answer("paused at step 1204")  # an answer that comes only now
        s.fake.push(status=s.fake.status(power_w=777.0))
        await s.until(lambda: s.dashboard.view_state.status.power_w == 777.0)
        await s.pilot.pause(0.1)
        assert drawn == []
        await s.pilot.press("escape")
        await s.until(lambda: "777 W" in s.text())
