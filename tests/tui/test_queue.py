"""The page of a cluster's queue: its rows, what it says of the site, and the way to a job's dashboard."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from acting import text_of
from fake import NOW, FakeSupervisor, scene
from rich.cells import cell_len

from carbontui.tui.app import CarbonApp
from carbontui.tui.model.lists import QueueList, QueueRow, QueueSeen
from carbontui.tui.model.target import Target
from carbontui.tui.screens.dashboard import Dashboard
from carbontui.tui.screens.queue import Queue
from carbontui.tui.widgets.site_chart import SiteChart
from carbontui.tui.widgets.tables import QueueTable


def row(job: str, state: Any = "waiting", **more: Any) -> QueueRow:
    fields = {"name": f"train-{job}", "user": "ann", "where": "n1", "message": "waits for free nodes"}
    return QueueRow(job, state=state, **(fields | more))


ROWS = (
    row("12_3", ours=True, watts=2800.0, mark="~", ends_s=NOW + 9000, deadline_s=NOW + 4000, message="begins 14:30"),
    row("13", "running", message="running"),
    row("14", "paused", ours=True, watts=246.0, grams=1234.0, message="paused until 17:00", user="bob", where="n[2-5]"),
)
SEEN = QueueSeen(
    jobs=ROWS,
    nodes=(row("n1", "running", message="in use"), row("n2", "failed", message="down")),
    start_s=NOW,
    now_w=30_000.0,
    watts=(30_000.0,) * 24 + (45_000.0,) * 24,
    cap_w=(40_000.0,) * 48,
    intensity=tuple(100.0 + 10 * i for i in range(48)),
    source="recorded",
)


def test_the_cursor_keeps_its_job_and_the_filter_finds_users_nodes_and_states() -> None:
    listed = QueueList().looked(SEEN)
    assert [r.id for r in listed.shown] == ["13", "14", "12_3"]
    down = listed.moved(1)
    assert down.pointed() == ROWS[2] and down.looked(QueueSeen(jobs=(row("1"), *ROWS))).pointed() == ROWS[2]
    assert [r.id for r in listed.filtered("bob").shown] == ["14"] == [r.id for r in listed.filtered("n[2").shown]
    assert listed.filtered("nothing such").pointed() is None
    assert [r.id for r in listed.turned().shown] == ["n1", "n2"]
    assert [r.id for r in listed.resorted().shown][:2] == ["12_3", "14"]  # by watts
    assert QueueList().moved(5).pointed() is None


@pytest.mark.parametrize("width", [200, 120, 80, 60, 40])
def test_rows_fit_and_say_whose_watts_they_are(width: int) -> None:
    table = QueueTable()
    table.listed, table.now_s = QueueList().looked(SEEN), NOW
    drawn = ["".join(text for text, _ in cells) for cells in table.draw(width, 20)]
    assert all(cell_len(line.rstrip()) <= width for line in drawn)
    text = "\n".join(drawn)
    assert "not ours" in text and "246 W" in text and "2800 W ~" in text
    if width >= 120:
        assert "paused until 17:00" in text and "n[2-5]" in text and "DEADLINE" in text


def test_hours_above_the_budget_and_late_jobs_are_coloured() -> None:
    chart = SiteChart()
    chart.listing, chart.now_s = SEEN, NOW
    rows = chart.draw(106, 10)
    inks = {ink for cells in rows for text, ink in cells if text.strip()}
    assert "warning" in inks and "running" in inks
    title = "".join(text for text, _ in rows[0])
    assert "site 30.00 kW ~ of 40.00 kW" in title and "100 g/kWh" in title
    table = QueueTable()
    table.listed, table.now_s = QueueList().looked(SEEN), NOW
    assert any(ink == "warning" for cells in table.draw(120, 10) for _, ink in cells)


def test_only_what_is_seen_is_drawn_of_ten_thousand_rows() -> None:
    table = QueueTable()
    many = QueueSeen(jobs=tuple(row(str(i)) for i in range(10_000)))
    table.listed = QueueList().looked(many).moved(9_999)
    drawn = table.draw(120, 40)
    assert len(drawn) == 40 and "9999" in "".join(text for text, _ in drawn[-1])


@asynccontextmanager
async def page(look: Any, size: tuple[int, int] = (120, 40)) -> AsyncIterator[tuple[CarbonApp, Any]]:
    def opened(target: Target) -> Dashboard:
        return Dashboard(target, from_table=True, monotonic=lambda: 0.0)

    app = CarbonApp(lambda: Queue(look, opened, now=lambda: NOW))
    async with app.run_test(size=size) as pilot:
        yield app, pilot


async def shows(app: CarbonApp, pilot: Any, *words: str) -> None:
    due = time.monotonic() + 20
    while not all(word in text_of(app) for word in words) and time.monotonic() < due:
        await pilot.pause(0.02)
    assert all(word in text_of(app) for word in words), (words, text_of(app))


async def test_enter_opens_the_dashboard_and_comes_back(tmp_path: Path) -> None:
    async with FakeSupervisor(tmp_path / "job", scene("running")) as _:
        target = Target("k7q2mz", "charlm", tmp_path / "job", scene("running").status)
        seen = QueueSeen(jobs=(row("13"), row("14", "running", ours=True, open=lambda: target)))
        async with page(lambda: seen) as (app, pilot):
            await shows(app, pilot, "train-13", "waits for free nodes")
            await pilot.press("down", "enter")
            await shows(app, pilot, "carbontui does not run there")
            await pilot.press("up", "enter")
            await shows(app, pilot, "charlm", "carbon intensity")
            await pilot.press("q")
            await shows(app, pilot, "train-13")
            await pilot.press("n")
            await shows(app, pilot, "the queue is empty")


async def test_a_controller_that_is_away_leaves_the_queue_as_last_seen() -> None:
    looks = [SEEN]

    def look() -> QueueSeen:
        return looks.pop() if looks else QueueSeen(faults=("squeue: Unable to contact slurm controller",))

    async with page(look) as (app, pilot):
        await shows(app, pilot, "train-13")
        queue = app.screen
        assert isinstance(queue, Queue)
        queue.on_screen_suspend(None)  # type: ignore[arg-type]  # as a page over it would
        queue.on_screen_resume(None)  # type: ignore[arg-type]
        await shows(app, pilot, "Unable to contact slurm controller; shown as last seen", "train-13")


async def test_no_slurm_is_one_line_on_an_empty_page() -> None:
    async with page(lambda: QueueSeen(faults=("sinfo: not found; this needs a machine with Slurm's commands",))) as (
        app,
        pilot,
    ):
        await shows(app, pilot, "sinfo: not found", "the queue cannot be read")
