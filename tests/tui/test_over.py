"""A job that is over, opened later: its output and its account are what a person came for."""

from __future__ import annotations

import time
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from acting import text_of
from fake import scene
from msgspec import structs
from msgspec.structs import replace

from carbontui import protocol, units
from carbontui.job.files import runlog
from carbontui.text import account as account_words
from carbontui.text import figures, first_run
from carbontui.tui.app import CarbonApp
from carbontui.tui.model.feed import Connection, Target, WholeRun
from carbontui.tui.model.view_state import fold, offline
from carbontui.tui.screens.dashboard import Dashboard
from carbontui.tui.screens.log import LogScreen
from carbontui.tui.terminal import keys
from carbontui.tui.widgets.scale import GUTTER, window
from carbontui.tui.widgets.state_bar import StateBar
from carbontui.tui.widgets.timeline import WattChart

TRACE = "step 60\nTraceback (most recent call last):\nRuntimeError: out of memory\n"


def opened(tmp_path: Path, whole_run: WholeRun | None = None) -> CarbonApp:
    log = tmp_path / "run.log"
    log.write_text(TRACE)
    status = structs.replace(scene("failed").status, loss=2.5)
    target = Target("k7q2mz", "charlm", tmp_path / "gone.sock", status, lambda ask: runlog.read(log, ask))
    target = replace(target, whole_run=whole_run)
    return CarbonApp(lambda: Dashboard(target))


@pytest.mark.parametrize("size", [(120, 40), (80, 24), (60, 20), (40, 15)])
async def test_the_output_of_a_job_that_is_over_is_there(tmp_path: Path, size: tuple[int, int]) -> None:
    app = opened(tmp_path)
    async with app.run_test(size=size) as pilot:
        due = time.monotonic() + 20
        while "out of memory" not in text_of(app) and time.monotonic() < due:
            await pilot.pause(0.02)
        text = text_of(app)
        assert "out of memory" in text and "no grid data" not in text, text
        assert size[1] < 21 or "loss 2.5" in text
        assert "865 g" in text and "21 % less" in text
        await pilot.press("l")
        while not isinstance(app.screen, LogScreen) or "RuntimeError" not in text_of(app):
            assert time.monotonic() < due
            await pilot.pause(0.02)
        assert "RuntimeError: out of memory" in text_of(app) and "not connected" not in text_of(app)


async def test_a_job_that_is_over_is_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing arrives that the first paint could wait for."""
    drawn: list[Any] = []
    monkeypatch.setattr(CarbonApp, "_display", lambda app, screen, renderable: drawn.append(renderable))
    app = opened(tmp_path)
    async with app.run_test(size=(120, 40)) as pilot:
        due = time.monotonic() + 20
        while not drawn and time.monotonic() < due:
            await pilot.pause(0.02)
        assert drawn


async def test_what_needs_a_supervisor_is_no_key_once_the_job_is_over(tmp_path: Path) -> None:
    app = opened(tmp_path)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        await pilot.press("d", "p", "S")
        await pilot.pause()
        assert isinstance(app.screen, Dashboard) and "goes on" not in text_of(app)


async def test_the_output_stays_readable_when_the_supervisor_has_left(stage: Any, tmp_path: Path) -> None:
    (tmp_path / "run.log").write_text(TRACE)
    async with stage() as s:
        s.dashboard.feed.read_log = lambda ask: runlog.read(tmp_path / "run.log", ask)
        s.fake.push(status=s.fake.status(state="failed", reason=protocol.Reason("exited", "it failed")))
        await s.until(lambda: "FAILED" in s.text())
        await s.fake.__aexit__()
        await s.until(lambda: s.dashboard.feed.over)
        await s.pilot.press("l")
        await s.until(lambda: "out of memory" in s.text())


async def test_the_log_turns_to_a_stderr_that_is_apart_and_looks_for_errors_there(tmp_path: Path, stage: Any) -> None:
    log, err = tmp_path / "run.log", tmp_path / "run.err"
    log.write_text("epoch 1\nepoch 2\n")
    err.write_text("a warning\n" + TRACE)
    async with stage() as s:
        s.dashboard.feed.read_log = lambda ask: runlog.read(log, ask, err)
        s.fake.push(status=s.fake.status(state="failed", reason=protocol.Reason("exited", "it failed")))
        await s.until(lambda: "FAILED" in s.text())
        await s.fake.__aexit__()
        await s.until(lambda: s.dashboard.feed.over)
        await s.pilot.press("l")
        await s.until(lambda: "epoch 2" in s.text())
        await s.pilot.press("e")
        await s.until(lambda: "a warning" in s.text() and ": stderr" in s.text() and "epoch" not in s.text())
        await s.pilot.press("e")
        await s.until(lambda: "epoch 2" in s.text())
        await s.pilot.press("exclamation_mark")
        await s.until(lambda: "out of memory" in s.text() and ": stderr" in s.text())


def test_what_is_not_written_yet_is_nothing_and_not_an_error(tmp_path: Path) -> None:
    found = runlog.read(tmp_path / "run.log", protocol.LogRead(7, -100))
    assert (found.id, found.size, found.text) == (7, 0, "")
    (tmp_path / "run.log").write_bytes("é".encode()[:1] + b"ab")
    assert runlog.read(tmp_path / "run.log", protocol.LogRead(7, 1)).text == "ab"


@pytest.mark.parametrize("size", [(120, 40), (80, 24), (60, 20), (40, 15)])
async def test_when_it_fails_before_ones_eyes_its_last_words_are_seen(stage: Any, size: tuple[int, int]) -> None:
    async with stage("override", size=size) as s:
        reason = protocol.Reason("exited", "the command failed")
        s.fake.push(status=s.fake.status(state="failed", reason=reason, gpus=(), power_w=None))
        await s.until(lambda: "FAILED" in s.text() and "epoch 2:" in s.text())
        assert "the job is over" in s.text() and "pause by" not in s.text()


def test_what_was_never_metered_is_not_said_to_have_drawn_nothing() -> None:
    status = structs.replace(
        scene("failed").status, energy_wall_kwh=0.0, energy_gpu_kwh=0.0, gco2_g=0.0, avoided_g=None
    )
    said = dict(account_words.summary(status, lambda field: ""))
    assert said["energy"] == figures.NOT_METERED and said["emitted"].startswith("not known")


async def test_who_comes_back_after_the_end_sees_the_run(tmp_path: Path) -> None:
    status = scene("failed").status
    end_s = units.from_iso(status.measured_at)
    watts = protocol.Watts(units.iso(end_s - 7200.0), 60.0, (480.0,) * 60 + (90.0,) * 60)
    levels = ("cap 300 W",) * 60 + ("pause",) * 60
    run = protocol.HistoryAnswer(0, watts, levels, (350.0,) * 120, ("cap",) * 60 + ("pause",) * 60)
    app = opened(tmp_path, lambda columns: run)
    async with app.run_test(size=(120, 40)) as pilot:
        due = time.monotonic() + 20
        while "peak 480 W" not in text_of(app) and time.monotonic() < due:
            await pilot.pause(0.02)
        text = text_of(app)
        assert "peak 480 W" in text and "carbon intensity" in text and "░" in text, text
        assert "capped" in text and "stands still" in text, "the legend knows levels that no plan names any more"
        assert "out of memory" in text and "865 g" in text
        hours = next(line for line in text.splitlines() if line.strip().startswith("UTC"))
        assert "end" in hours and "now" not in hours


async def test_a_journal_that_cannot_be_read_leaves_what_the_run_came_to(tmp_path: Path) -> None:
    asked = Event()

    def whole_run(columns: int) -> None:
        asked.set()
        raise RuntimeError("the past cannot be shown")

    app = opened(tmp_path, whole_run)
    async with app.run_test(size=(120, 40)) as pilot:
        due = time.monotonic() + 20
        while not (asked.is_set() and "865 g" in text_of(app)) and time.monotonic() < due:
            await pilot.pause(0.02)
        await pilot.pause()
        assert "865 g" in text_of(app) and "peak" not in text_of(app)


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ("failed", "charlm is over (failed, exit 1); what it wrote: carbontui log k7q2mz"),
        ("done", "carbontui report k7q2mz"),
    ],
)
def test_who_leaves_a_job_that_is_over_is_told_where_to_look(state: str, said: str) -> None:
    status = structs.replace(scene("failed").status, state=state, exit=protocol.Exit(1, None))
    assert said in keys.farewell(Target("k7q2mz", "charlm", Path("s")), offline(status))


def test_no_watts_are_drawn_behind_the_end() -> None:
    """Neither the rest of the last bin nor of the plan that was in force."""
    shown = fold(None, scene("running"))
    assert shown is not None
    chart = WattChart()
    for over in (False, True):
        status = structs.replace(shown.status, state="done" if over else "running")
        chart.view_state = replace(shown, status=status)
        rows = chart.draw(76, 9)[1:-1]
        now = window(chart.view_state, 76 - GUTTER).column(chart.view_state.now_s) + GUTTER
        behind = "".join("".join(text for text, _ in row)[now + 1 :] for row in rows)
        assert any(char in "▁▂▃▄▅▆▇█" for char in behind) is not over


async def test_a_failed_job_shows_its_exception_before_anything_else(tmp_path: Path) -> None:
    app = opened(tmp_path)
    async with app.run_test(size=(80, 24)) as pilot:
        while "RuntimeError: out of memory" not in "\n".join(text_of(app).splitlines()[:4]):
            await pilot.pause(0.02)
        assert "FAILED" in text_of(app).splitlines()[0]


@pytest.mark.parametrize("size", [(120, 40), (80, 24), (60, 20)])
async def test_what_would_have_saved_more_stands_on_the_screen_as_headless(size: tuple[int, int]) -> None:
    status = scene("done").status
    assert status.budget is not None and not first_run.more(status), "it has saved something"
    budget = structs.replace(status.budget, work_known=False, factor=None)
    status = structs.replace(status, avoided_g=0.0, account=None, budget=budget)
    told = f"with --steps {status.step} it can be planned"
    assert told in account_words.ending(status)
    async with CarbonApp(lambda: Dashboard(Target("k7q2mz", "charlm", Path("gone.sock"), status))).run_test(
        size=size
    ) as pilot:
        while told not in text_of(pilot.app):
            await pilot.pause(0.02)


async def test_the_ending_says_what_was_first_said(tmp_path: Path) -> None:
    ending = (("saved by", "shifting +524 g"), ("first said", "1.10 kg at 16:01; was 1.05 kg"))
    target = Target("k7q2mz", "charlm", tmp_path / "gone.sock", scene("done").status)
    target = replace(target, ending=lambda: ending)
    app = CarbonApp(lambda: Dashboard(target))
    async with app.run_test(size=(80, 24)) as pilot:
        while "1.10 kg at 16:01" not in text_of(app):
            await pilot.pause(0.02)
        text = text_of(app)
        assert "865 g, −21 % (run now 1.10 kg)" in text and "27 h 51 early" in text


@pytest.mark.parametrize(
    ("kind", "age", "said"), [("reconnecting", "10 s", "data 10 s old"), ("refused", "", "not con")]
)
def test_on_a_small_screen_a_lost_connection_takes_the_place_of_the_level(kind: Any, age: str, said: str) -> None:
    bar = StateBar()
    bar.view_state, bar.connection, bar.age = fold(None, scene()), Connection(kind), age
    first, level = ("".join(text for text, _ in bar.draw(width, 4)[0]) for width in (40, 120))
    assert "RUNNING" in first and said in first and "cap 250 W" not in first
    assert said in level and "cap 250 W" in level
