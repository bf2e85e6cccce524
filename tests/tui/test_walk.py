"""All pages at one frozen state: a number that stands in two places is the same in both, and nothing moves about."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from fake import NOW, scene
from msgspec import structs

from carbontui import protocol, units
from carbontui.tui.app import CarbonApp
from carbontui.tui.model.feed import Target
from carbontui.tui.model.jobs_feed import JobsSnapshot
from carbontui.tui.screens.dashboard import Dashboard
from carbontui.tui.screens.jobs import Jobs
from carbontui.tui.widgets.cells import Cells

PAGES = {"plan": "w", "sources": "i", "boards": "d"}
SAME: dict[str, list[tuple[str, str]]] = {
    "intensity now": [
        ("dashboard", r"carbon intensity +(\d+) g/kWh F"),
        ("plan", r"cap 250 W +(\d+) g/kWh ·"),
    ],
    "watts of the job": [("dashboard", r"power +(\d+) ?W"), ("table", r"charlm .* (\d+) W")],
    "watts of the board": [("dashboard", r"0 H100 80GB +(\d+) /"), ("boards", r"0 H100 +(\d+) /")],
    "limit": [("dashboard", r"0 H100 80GB +\d+ / +(\d+) W"), ("boards", r"0 H100 +\d+ / +(\d+) ")],
    "parked": [("dashboard", r"paused (\d+ W)"), ("boards", r"paused (\d+ W)")],
    "CO2 at the end": [
        ("dashboard", r"at end +([\d.]+ kg) F"),
        ("table", r"charlm .* ([\d.]+ kg) F +−"),
    ],
    "saved": [("dashboard", r"plan −\d+ g, −(\d+) %"), ("table", r"charlm .*−(\d+) %")],
    "finish": [
        ("dashboard", r"ends (Thu \d\d:\d\d)"),
        ("dashboard", r"finish (Thu \d\d:\d\d)"),
        ("table", r"charlm .*(Thu \d\d:\d\d)"),
    ],
    "progress": [("dashboard", r"(\d+) % of 14,400"), ("table", r"charlm .*? (\d+) % ")],
    "CO2 of the rest": [("plan", r"the rest +([\d.]+ kg)"), ("sources", r"the rest +([\d.]+ kg)")],
    "run now of the rest": [("plan", r"run now +([\d.]+ kg)"), ("sources", r"run now +([\d.]+ kg)")],
    "certificate": [("plan", r"at most ([\d.]+ %) above"), ("sources", r"at most ([\d.]+ %) above")],
    "next change": [("dashboard", r"next: pause at (Thu \d\d:\d\d)"), ("plan", r"to (Thu \d\d:\d\d) +cap 250 W")],
    "who said what": [("dashboard", r"\d\d:\d\d (the pause of \S+ is over)"), ("plan", r"(the pause of \S+ is over)")],
}


async def test_a_number_in_two_places_is_the_same_in_both(stage: Any, tmp_path: Path) -> None:
    found: dict[str, str] = {}
    snap = scene("priced")
    snap = structs.replace(snap, status=structs.replace(snap.status, events=scene().status.events))
    async with stage(snap=snap) as s:
        found["dashboard"] = s.text()
        for name, key in PAGES.items():
            await s.pilot.press(key)
            await s.until(lambda: not isinstance(s.app.screen, Dashboard) and "asking" not in s.text())
            found[name] = s.text()
            await s.pilot.press("q")
            await s.until(lambda: isinstance(s.app.screen, Dashboard))
    seen = JobsSnapshot(jobs=(Target("k7q2mz", "charlm", tmp_path / "gone", snap.status),))
    app = CarbonApp(lambda: Jobs(lambda: seen, lambda target: Dashboard(target), now=lambda: NOW))
    async with app.run_test(size=(120, 40)) as pilot:
        while not isinstance(app.screen, Jobs) or not app.screen.listed.rows:
            await pilot.pause(0.02)
        await pilot.pause()
        strips = app.screen._compositor.render_strips()
        found["table"] = "\n".join("".join(segment.text for segment in strip) for strip in strips)
    for what, places in SAME.items():
        values = {}
        for page, pattern in places:
            match = re.search(pattern, found[page])
            assert match, (what, page, found[page])
            values[page, pattern] = match[1].strip()
        assert len(set(values.values())) == 1, (what, values)


def changes(snap: protocol.Snap) -> list[dict[str, Any]]:
    """What may arrive while the state stays: other values, a plan that is made anew, a curve that is not there."""
    status, plan = snap.status, snap.plan
    assert plan is not None and snap.frontier is not None
    board = structs.replace(status.gpus[0], power_w=7.0, util=None, memory_used_b=None)
    long = "a notice that is much longer than any line of any terminal " * 5
    return [
        {"status": structs.replace(status, power_w=12345.6, gpus=(board, *status.gpus[1:]))},
        {"status": structs.replace(status, notices=(long, long, long))},
        {"status": structs.replace(status, gco2_g=1e6, avoided_g=-5e5, at_end=None, cost=None, loss=None)},
        {"status": structs.replace(status, reason=protocol.Reason("plan", long), next=None)},
        {"frontier": None},
        {"frontier": structs.replace(snap.frontier, points=snap.frontier.points[:1], chosen=0)},
        {"plan": structs.replace(plan, explanation=long)},
        {"plan": None},
        {"plan": snap.plan, "frontier": snap.frontier, "status": status},
    ]


@pytest.mark.parametrize("size", [(200, 60), (120, 40), (80, 24), (60, 20), (40, 15)])
async def test_no_panel_changes_place_while_state_and_size_stay(stage: Any, size: tuple[int, int]) -> None:
    async with stage("running", gpus=2, size=size) as s:
        for key in ("", "w", "d", "i"):
            if key:
                await s.pilot.press(key)
                await s.pilot.pause()
            before = {widget: widget.region for widget in s.app.screen.query(Cells)}
            assert len(before) > (5 if not key else 0)
            for n, change in enumerate(changes(s.fake.snap)):
                s.fake.push(**change)
                seq = s.fake._seq
                await s.until(lambda seq=seq: s.dashboard.view_state.seq == seq)
                places = {widget: widget.region for widget in s.app.screen.query(Cells)}
                assert places == before, (key, n)
            if key:
                await s.pilot.press("escape")
                await s.until(lambda: isinstance(s.app.screen, Dashboard))


async def test_the_page_of_the_boards_moves_on_with_the_job(stage: Any) -> None:
    async with stage() as s:
        await s.pilot.press("d")
        await s.until(lambda: " 246 / 250 " in s.text() and "energy counter" in s.text())
        board = structs.replace(s.fake.snap.status.gpus[0], power_w=199.0)
        s.fake.push(status=s.fake.status(gpus=(board,), measured_at=units.iso(NOW + 1)))
        await s.until(lambda: " 199 / 250 " in s.text())


async def test_the_page_of_sources_says_what_answers_and_what_a_key_would_add(stage: Any) -> None:
    errors = (protocol.ForecastError(1, 300, 0.03, 0.09, 0.79),)
    snap = scene("priced")
    late = structs.replace(snap.status.intensity, known_until=units.iso(NOW - 10800), age_s=10800.0)
    snap = structs.replace(snap, status=structs.replace(snap.status, forecast_errors=errors, intensity=late))
    async with stage(snap=snap) as s:
        await s.pilot.press("i", "end")
        await s.until(lambda: "Energy-Charts" in s.text())
        text = s.text()
        for said in (
            "answers 4 min ago",
            "ELECTRICITYMAPS_API_KEY adds",
            "moved by",
            "off by 3 %",
            "held 79 % of 300",
            "3 h ago; forecast",
        ):
            assert said in text, said
