"""Keys that arrive in one burst, as a slow line delivers them, do what the same keys do one by one."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from acting import app_on
from fake import FakeSupervisor, past_levels, scene
from msgspec import structs
from textual.events import Key
from textual.widgets import Input, OptionList

from carbontui import protocol
from carbontui.tui.app import CarbonApp
from carbontui.tui.model.feed import Target
from carbontui.tui.model.jobs_feed import JobsSnapshot
from carbontui.tui.screens.dashboard import Dashboard
from carbontui.tui.screens.jobs import Jobs
from carbontui.tui.screens.log import LogPage
from carbontui.tui.screens.plan import Course, PlanPage
from carbontui.tui.screens.read import Page

BURSTS = int(os.environ.get("CARBONTUI_TEST_BURSTS", "15"))
"""In all; 1000 by hand, as many as time allows in every run."""
IN_A_PART = 250
"""Bursts of one seed: parts run side by side."""
KEYS = (
    *("up", "down", "left", "right", "home", "end", "pageup", "pagedown", "enter", "escape", "backspace"),
    *"pbrclidtSPBegGjknsy/2hx1wwf",
    *("question_mark", "shift+right", "space", "enter", "escape"),
)
ASKS = frozenset({"command", "log", "ask", "events"})
"""Groups of workers that end once they are answered."""
JOBS = tuple(structs.replace(scene("done").status, job=f"job{n}", name=f"n{n}") for n in range(6))


def burst(app: CarbonApp, keys: list[str]) -> None:
    """All keys at once, as one read of the terminal gives them."""
    for key in keys:
        named = {"/": "slash"}.get(key, key)
        app.post_message(Key(named, key if len(key) == 1 else None))


async def settled(app: CarbonApp, pilot: Any) -> None:
    await pilot.pause()
    await handled(app)
    await pilot.pause()


async def handled(app: CarbonApp) -> None:
    """Until every key has acted, and what it sent or asked to read has been answered."""
    while True:
        await asyncio.wait_for(app.key_order.done(), 60)  # an app that a key has ended handles no more
        busy = [
            w for w in app.workers if w.group in ("command", "log", "ask", "events") and not w.is_finished and w._task
        ]
        if not busy:
            return
        await asyncio.wait([w._task for w in busy if w._task], timeout=60)


@pytest.mark.parametrize("keys, chosen", [(["down", "down", "enter"], "job2"), (["end", "up", "enter"], "job4")])
async def test_a_burst_opens_the_job_it_points_at(keys: list[str], chosen: str) -> None:
    seen = JobsSnapshot(jobs=tuple(Target(status.job, status.name, Path("/gone"), status) for status in JOBS))
    app = CarbonApp(lambda: Jobs(lambda: seen, lambda target: Dashboard(target, from_table=True)))
    async with app.run_test(size=(120, 40)) as pilot:
        while not isinstance(app.screen, Jobs) or not app.screen.listed.rows:
            await pilot.pause(0.02)
        burst(app, keys)
        await settled(app, pilot)
        assert isinstance(app.screen, Dashboard) and app.screen.target.job == chosen


async def test_a_burst_goes_through_the_table_that_its_first_key_opens(tmp_path: Path) -> None:
    async with frozen(tmp_path / "s", look_s=0.3) as (_, app, pilot):
        burst(app, ["t", "down", "down", "enter"])
        await settled(app, pilot)
        assert isinstance(app.screen, Dashboard) and app.screen.target.job == "job2"


async def test_what_is_typed_after_the_key_of_a_question_reaches_the_question(stage: Any) -> None:
    async with stage() as s:
        burst(s.app, ["P", "backspace", "backspace", "2", "h", "enter"])
        await s.until(lambda: s.fake.commands)
        assert [(c.verb, c.args) for c in s.fake.commands] == [("pause", {"for_s": 7200.0})]


async def test_a_burst_of_overrides_names_a_generation_each(stage: Any) -> None:
    async with stage() as s:
        burst(s.app, ["p", "b", "r"])
        await s.until(lambda: len(s.fake.commands) == 3)
        assert [(c.verb, c.override_gen) for c in s.fake.commands] == [("pause", 0), ("boost", 1), ("resume", 2)]


def state(app: CarbonApp, fake: FakeSupervisor) -> tuple[Any, ...]:
    """All a person would notice of where the keys have led."""
    pages = [type(screen).__name__ for screen in app.screen_stack]
    board = next(screen for screen in app.screen_stack if isinstance(screen, Dashboard))
    choice = (board.choice.budget, board.choice.index) if board.choice else None
    inner: list[Any] = []
    for page in app.screen.query(Page):
        inner.append((page.title, page.top, len(page.rows)))
    for plan in (screen for screen in app.screen_stack if isinstance(screen, PlanPage)):
        inner.append((plan.slot, plan.query_one(Course).top))
    for log in app.screen.query(LogPage):
        inner.append((log.top, len(log.rows), log.place))
    for field in app.screen.query(Input):
        inner.append((field.value, field.cursor_position))
    for jobs in (screen for screen in app.screen_stack if isinstance(screen, Jobs)):
        listed_ = jobs.listed
        inner.append((listed_.cursor, sorted(listed_.marked), listed_.sort, listed_.wanted))
    for listed in app.screen.query(OptionList):
        inner.append(listed.highlighted)
    sent = [(command.verb, command.args, command.override_gen) for command in fake.commands]
    return pages, choice, inner, sent


@asynccontextmanager
async def frozen(path: Path, look_s: float = 0.0) -> AsyncIterator[tuple[FakeSupervisor, CarbonApp, Any]]:
    async with FakeSupervisor(path, scene()) as fake:
        fake.levels = past_levels()
        fake.log = "".join(f"line {n}\n" for n in range(9000)).encode()

        def said(ask: protocol.LogRead) -> protocol.LogAnswer:
            at = max(0, 5 + ask.offset) if ask.offset < 0 else min(5, ask.offset)
            return protocol.LogAnswer(0, at, 5, 5, "done\n"[at:])

        seen = JobsSnapshot(jobs=tuple(Target(one.job, one.name, Path("/gone"), one, said) for one in JOBS))

        def observe() -> JobsSnapshot:
            time.sleep(look_s)
            return seen

        app = app_on(path, table=lambda: Jobs(observe, lambda t: Dashboard(t, from_table=True)))
        async with app.run_test(size=(120, 40)) as pilot:
            while not any(isinstance(screen, Dashboard) and screen.view_state for screen in app.screen_stack):
                await pilot.pause(0.02)
            yield fake, app, pilot


@pytest.mark.timeout(300 if BURSTS <= IN_A_PART else 3000)
@pytest.mark.parametrize("part", range(max(1, BURSTS // IN_A_PART)))
async def test_random_bursts_end_where_the_same_keys_one_by_one_end(part: int, tmp_path: Path) -> None:
    chance = random.Random(20261122 + part)
    async with frozen(tmp_path / "a") as (one, slow, _), frozen(tmp_path / "b") as (other, fast, _):
        for number in range(min(BURSTS, IN_A_PART)):
            keys = chance.choices(KEYS, k=chance.randint(2, 9))
            for key in keys:
                burst(slow, [key])
                await handled(slow)
            burst(fast, keys)
            await handled(fast)
            assert state(fast, other) == state(slow, one), (number, keys)
            one.commands.clear()
            other.commands.clear()
