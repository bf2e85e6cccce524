"""The table of all jobs: what the machine does, what is live and what is over, and a way into each."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from acting import text_of
from fake import NOW, FakeSupervisor, past_levels, scene
from house import until
from msgspec import structs
from msgspec.structs import replace

from carbontui import protocol
from carbontui.job.keeper.resume import TRY_OVER
from carbontui.tui.app import CarbonApp
from carbontui.tui.model import jobs_feed
from carbontui.tui.model.feed import Target
from carbontui.tui.model.jobs_feed import JobsSnapshot
from carbontui.tui.model.lists import JobList, ListedJob
from carbontui.tui.model.loglines import last_error
from carbontui.tui.model.view_state import fold
from carbontui.tui.screens.dashboard import Dashboard
from carbontui.tui.screens.jobs import Jobs
from carbontui.tui.widgets import boards
from carbontui.tui.widgets.tables import JobTable

FACTS = (("grid", "DE 324 gCO2/kWh (default: typical days of DE 2020) " + "and what it says on and on " * 3, True),)
TRACE = 'step 4\nTraceback (most recent call last):\n  File "t.py", line 3\nRuntimeError: CUDA out of memory\nbye\n'


def listed(job: str, scenario: str, **fields: Any) -> ListedJob:
    status = structs.replace(scene(scenario).status, job=job, name=f"name of {job}", **fields)
    return ListedJob(Target(job, status.name, Path("/gone"), status), status)


A, B, C = listed("a", "running", power_w=100.0), listed("b", "paused", power_w=300.0), listed("c", "done")


def test_the_cursor_keeps_its_job_however_the_rows_move() -> None:
    jobs = JobList().now((A, B, C)).moved(1)
    assert jobs.cursor == "b"
    assert jobs.now((listed("new", "running"), A, B, C)).pointed().id == "b"  # type: ignore[union-attr]
    by_watts = jobs.resorted().resorted()
    assert by_watts.sort == "watts" and [job.id for job in by_watts.shown][:2] == ["b", "a"]
    assert by_watts.cursor == "b" and by_watts.place == 0
    gone = jobs.now((A, C))
    assert gone.cursor == "c" and JobList().now((A,)).now(()).cursor is None


def test_a_replayed_job_ends_at_a_time_of_its_own_clock() -> None:
    job = JobTable()
    job.listed, job.now_s = JobList().now((listed("a", "demo"),)), NOW + 6 * 365 * 86400.0
    row = "".join(text for text, _ in job.draw(80, 2)[1])
    assert " 50 %  Thu 16:00 " in row


@pytest.mark.parametrize("value", [1.195, 0.07554, 0.1796])
def test_a_loss_of_any_length_has_its_curve_beside_it(value: float) -> None:
    snap, job = scene(), listed("a", "running", loss=value)
    series = structs.replace(snap.series, loss=tuple(float(n) for n in range(60, 0, -1)))
    table = JobTable()
    table.listed = JobList().now((replace(job, view_state=fold(None, structs.replace(snap, series=series))),))
    table.now_s = NOW
    row = "".join(text for text, _ in table.draw(120, 2)[1]).rstrip()
    assert f" {value:.4g} █" in row and row.endswith("▁")


def test_the_machines_watts_are_the_same_in_a_shell_without_a_driver() -> None:
    own = tuple(protocol.Gpu(f"GPU-{n}", "NVIDIA H100", 90.0 + n) for n in range(2))
    job = structs.replace(A.status, gpus=(structs.replace(own[0], power_w=400.0), structs.replace(own[1], node="n2")))
    with_driver, without = boards.merged([job], own[:1]), boards.merged([job], ())
    assert with_driver == without and boards.drawn_w(without, 13.0) == 413.0
    assert boards.drawn_w(boards.merged([job], own), 13.0) == 504.0  # a board that no job has
    assert boards.drawn_w((), None) is None


def test_the_line_of_boards_marks_the_hottest_and_the_slowest() -> None:
    gpus = tuple(
        protocol.Gpu(
            f"G{n}", "NVIDIA H100", 389.0 + 8 * n, 465.0, util=1.0, temp_c=48.0 + n, sm_mhz=1575.0 - 50 * (n == 3)
        )
        for n in range(8)
    )
    told = "".join(text for text, _ in boards.line(gpus, 80, "host 13 W"))
    assert "0-7 H100  389 397 405 413▼ 421 429 437 445▲ / 465 W" in told and len(told) <= 80
    assert "".join(text for text, _ in boards.line(gpus, 40)).startswith(" 0-7 H100  389–445 W each / 465 W")
    alike = tuple(structs.replace(gpu, temp_c=50.0, sm_mhz=1575.0) for gpu in gpus)
    assert not {"▲", "▼"} & set("".join(text for text, _ in boards.line(alike, 120)))


def test_jobs_of_one_name_are_told_apart_by_their_ids() -> None:
    twin = listed("d", "done")
    twin = ListedJob(twin.target, structs.replace(twin.status, name=C.name))
    label = JobList().now((A, C, twin)).labels()
    assert [label(job) for job in (A, C, twin)] == ["name of a", "name of c c", "name of c d"]


def test_marks_stay_with_their_jobs_and_what_is_hidden_is_not_meant() -> None:
    jobs = JobList().now((A, B, C)).toggled().toggled()
    assert [job.id for job in jobs.meant()] == ["a", "b"] and jobs.cursor == "c"
    assert [job.id for job in jobs.filtered("name of b").meant()] == ["b"]
    assert [job.id for job in jobs.now((B, C)).meant()] == ["b"]
    assert [job.id for job in JobList().now((A, B)).moved(1).meant()] == ["b"]
    assert JobList().now((A,)).filtered("no such").meant() == ()


@pytest.mark.parametrize(
    ("log", "said"),
    [
        (TRACE, "RuntimeError: CUDA out of memory"),
        (TRACE.replace("\n", "\r\n"), "RuntimeError: CUDA out of memory"),
        ("[rank0]: " + TRACE.strip().replace("\n", "\n[rank0]: ") + "\n", "RuntimeError: CUDA out of memory"),
        (TRACE + "\nDuring handling:\n" + TRACE.replace("CUDA out of memory", "again"), "RuntimeError: again"),
        ("Traceback (most recent call last):\n  x\nKeyError\n", "KeyError"),
        ("slurmstepd: error: Detected 1 oom_kill event\nbye\n", "slurmstepd: error: Detected 1 oom_kill event"),
        ("step 1\nstep 2\n", ""),
        (TRACE + f"carbontui: {TRY_OVER}\nslurmstepd: error: killed\n", "slurmstepd: error: killed"),
        ("Traceback (most recent call last):\n", ""),
        (
            "Traceback (most recent call last):\n \x1b[31mValueError: \x1b]0;x\x07no\x1b[0m\nValueError: b\n",
            "ValueError: b",
        ),
    ],
)
def test_a_failed_training_says_what_it_said_last(log: str, said: str) -> None:
    assert last_error(log) == said


@asynccontextmanager
async def table(
    tmp_path: Path, size: tuple[int, int] = (120, 40), ascii: bool = False, readonly: bool = False
) -> AsyncIterator[tuple[CarbonApp, Any, list[FakeSupervisor]]]:
    """Two live jobs behind real sockets, one that failed."""
    async with AsyncExitStack() as stack:
        fakes = []
        targets = []
        for name in ("aaaaaa", "bbbbbb"):
            status = structs.replace(scene("running").status, job=name, name=f"模型 {name}", power_w=246.0)
            snap = structs.replace(scene("running"), status=status)
            fakes.append(await stack.enter_async_context(FakeSupervisor(tmp_path / name, snap)))
            fakes[-1].levels = past_levels()
            targets.append(Target(name, status.name, tmp_path / name, status))
        failed = structs.replace(scene("failed").status, job="cccccc", name="crash")
        answer = protocol.LogAnswer(0, 0, len(TRACE), len(TRACE), TRACE)
        targets.append(Target("cccccc", "crash", tmp_path / "c", failed, lambda ask: answer))
        idle = protocol.Gpu("GPU-9", "NVIDIA H100 80GB HBM3", 71.0, 700.0, index=9)
        seen = JobsSnapshot(FACTS, tuple(targets), 13.0, "DE 324 g/kWh typical", (idle,), 0.5)

        def page(target: Target) -> Dashboard:
            return Dashboard(target, from_table=True)

        app = CarbonApp(lambda: Jobs(lambda: seen, page, readonly=readonly, now=lambda: NOW), ascii=ascii)
        async with app.run_test(size=size) as pilot:
            await shows(app, pilot, "crash")
            while not all(fake.viewing.is_set() for fake in fakes):
                await pilot.pause(0.02)
            yield app, pilot, fakes


async def shows(app: CarbonApp, pilot: Any, *words: str) -> str:
    due = time.monotonic() + 20
    while not all(word in text_of(app) for word in words) and time.monotonic() < due:
        await pilot.pause(0.02)
    text = text_of(app)
    assert all(word in text for word in words), (words, text)
    return text


@pytest.mark.parametrize(
    ("size", "ascii"), [((200, 60), False), ((120, 40), False), ((60, 20), False), ((60, 20), True)]
)
async def test_it_says_what_the_machine_does_and_opens_what_is_chosen(
    tmp_path: Path, size: tuple[int, int], ascii: bool
) -> None:
    async with table(tmp_path, size, ascii) as (app, pilot, fakes):
        text = await shows(app, pilot, "2 live", " 71 246 / 250", "246 W", "enter open")
        assert "CUDA out of memory" in text and (" OWNER " in text) == (size[0] > 100)
        if size[0] > 100:  # what each job did and will do, and its loss
            await shows(app, pilot, "▓▓│▓▓▓▓", " 1.195 █▄▃▂▁▁")
        # live, not a snapshot
        fakes[0].push(status=fakes[0].status(power_w=333.0))
        await shows(app, pilot, "333 W")
        await pilot.press("down", "enter")
        while not isinstance(app.screen, Dashboard):
            await pilot.pause(0.02)
        assert app.screen.target.job == "bbbbbb"
        await pilot.press("q")
        await shows(app, pilot, "2 live")
        await pilot.press("end")  # where there is no room for reasons, that of the row under the cursor is told
        await shows(app, pilot, "CUDA out of memory")
        await pilot.press("enter", "escape")  # what is over returns here, too
        await shows(app, pilot, "2 live")
        await pilot.press("q")
    assert app.return_value is None and not app.is_running


async def test_a_job_whose_socket_comes_later_is_followed_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that was just claimed has none yet, one that was taken up again another, and one that moved none any more."""
    monkeypatch.setattr(jobs_feed, "POLL_EVERY_S", 0.02)
    places, statuses = [Path()], [scene().status]

    def seen() -> JobsSnapshot:
        return JobsSnapshot((), (Target("k7q2mz", "t", places[-1], statuses[-1]),))

    async with FakeSupervisor(tmp_path / "s", scene()) as fake:
        feed, news = jobs_feed.JobsFeed(seen, lambda: news.set()), asyncio.Event()
        following = asyncio.create_task(feed.run())
        while not (feed.jobs() and feed.jobs()[0].lost_touch):
            await asyncio.wait_for(news.wait(), 20)
            news.clear()
        places.append(tmp_path / "s")
        await asyncio.wait_for(fake.viewing.wait(), 20)
        while feed.jobs()[0].view_state is None or feed.jobs()[0].lost_touch:
            await asyncio.wait_for(news.wait(), 20)
            news.clear()
        statuses.append(structs.replace(scene().status, state="unloaded", moved_to=protocol.MovedTo("n2")))
        await fake.__aexit__()
        while feed.jobs()[0].state != "unloaded":
            await asyncio.wait_for(news.wait(), 20)
            news.clear()
        assert not feed.jobs()[0].lost_touch, "where it went is said, not that nobody answers"
        assert "b: " not in feed.jobs()[0].headline, "a key here would do nothing"
        following.cancel()


async def test_a_key_is_for_all_that_are_marked(tmp_path: Path) -> None:
    async with table(tmp_path) as (app, pilot, fakes):
        await pilot.press("space", "space", "p")
        await shows(app, pilot, "pause 模型 aaaaaa, 模型 bbbbbb?")
        await pilot.press("escape", "p", "x", "b")
        await shows(app, pilot, "boost")
        assert not any(fake.commands for fake in fakes)
        await pilot.press("escape", "p", "y")
        await shows(app, pilot, "pause: 2 jobs")
        assert [[c.verb for c in fake.commands] for fake in fakes] == [["pause"], ["pause"]]
        await pilot.press("escape", "home", "S", "down", "enter")
        await shows(app, pilot, "模型 aaaaaa: ")
        while len(fakes[0].commands) < 2:
            await pilot.pause(0.02)
        assert [c.verb for c in fakes[0].commands] == ["pause", "stop"] and len(fakes[1].commands) == 1
        await pilot.press("end", "p")
        await shows(app, pilot, "the job is over")
        await pilot.press("slash", *"crash", "enter")
        text = await shows(app, pilot, "with 'crash'")
        assert "bbbbbb" not in text and "2 live" in text


async def test_a_table_to_look_at_has_no_key_that_can_hurt(tmp_path: Path) -> None:
    async with table(tmp_path, readonly=True) as (_, pilot, fakes):
        await pilot.press("p", "S", "b")
        await pilot.pause(0.1)
        assert not any(fake.commands for fake in fakes)


def test_the_watch_reads_this_machine_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CARBONTUI_HOME", str(tmp_path))
    monkeypatch.setenv("CARBONTUI_LEASE_DIR", str(tmp_path / "leases"))
    monkeypatch.setenv("CARBONTUI_OFFLINE", "1")
    monkeypatch.setenv("CARBONTUI_ZONE", "DE")
    from carbontui.commands.attach import target_of
    from carbontui.commands.support.station import StationWatch

    before = set(threading.enumerate())
    with StationWatch(target_of) as watch:
        seen = until(lambda: (s := watch.listing()) and not any("..." in fact[1] for fact in s.facts) and s, 60)
        assert any(thread.name == "station watch" for thread in threading.enumerate())
    assert not any(thread.name == "station watch" for thread in set(threading.enumerate()) - before)
    told = {what: text for what, text, _ in seen.facts}
    assert "gCO2/kWh" in told["grid"] and "typical days of DE" in told["grid"]
    assert "DE" in seen.headline
    assert seen.jobs == () and set(told) & {"GPUs", "gpu 0"}


async def test_of_more_jobs_than_have_a_place_it_is_said_where_the_cursor_is(tmp_path: Path) -> None:
    status = scene("done").status
    many = tuple(structs.replace(status, job=f"job{n:02}", name=f"n{n}") for n in range(30))
    seen = JobsSnapshot(jobs=tuple(Target(one.job, one.name, tmp_path / "gone", one) for one in many))
    app = CarbonApp(lambda: Jobs(lambda: seen, lambda target: Dashboard(target), now=lambda: NOW))
    async with app.run_test(size=(80, 20)) as pilot:
        await shows(app, pilot, "1 of 30 · sorted by state")
        await pilot.press("end")
        await shows(app, pilot, "30 of 30", "n29")
        await pilot.press("slash", *"n2", "enter")
        text = await shows(app, pilot, "with 'n2'")
        assert " of " not in text.splitlines()[0]
