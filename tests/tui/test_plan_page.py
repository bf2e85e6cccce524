"""The plan page: why each hour is as it is, what another would cost, and hours that must not run."""

from __future__ import annotations

from typing import Any

import pytest
from fake import NOW, scene
from msgspec import structs

from carbontui import protocol, units
from carbontui.text.plan import difference
from carbontui.tui.model.view_state import fold
from carbontui.tui.screens.dashboard import Dashboard
from carbontui.tui.screens.plan import PlanPage
from carbontui.tui.widgets import plan_text

HOURS = protocol.ForbiddenStatus(
    "2020-04-16T02:00:00Z", "2020-04-16T04:15:00Z", False, "ada@pts/3", "Thu 02:00 to Thu 04:15"
)


@pytest.mark.parametrize("size", [(200, 60), (120, 40), (80, 24), (60, 20)])
async def test_it_tells_each_stretch_and_what_happened(stage: Any, size: tuple[int, int]) -> None:
    async with stage(size=size) as s:
        await s.pilot.press("w")
        await s.until(lambda: isinstance(s.app.screen, PlanPage) and "standing still here: " in s.text())
        text = s.text()
        assert "21:24 to Thu 02:00" in text and "cap 250 W" in text and "CO₂ +38 g" in text
        if size[0] >= 120:
            assert "dirtier than the" in text and "ada@pts/3 paused it" in text
        await s.pilot.press("end", "pagedown", "q")
        await s.until(lambda: isinstance(s.app.screen, Dashboard))


async def test_the_cursor_asks_what_its_slot_would_cost_otherwise(stage: Any) -> None:
    async with stage() as s:
        await s.pilot.press("w")
        await s.until(lambda: s.fake.previews)
        asked = units.from_iso(s.fake.previews[-1].slot)
        assert NOW < asked < NOW + 900
        await s.pilot.press(*["shift+right"] * 5)
        await s.until(lambda: "02:15 to Thu 02:30" in s.text() and "running at full speed here" in s.text())
        assert "pause" in s.text() and "dirtier than the" in s.text()


async def test_hours_are_typed_priced_and_forbidden_with_enter(stage: Any) -> None:
    async with stage() as s:
        # the slot under the cursor is offered
        await s.pilot.press("w", "shift+right", "right", "right", "f")
        await s.until(lambda: "not running Thu 02:00 to 04:15: CO₂ +38 g" in s.text())
        slot = "2020-04-15T22:45:00.000Z/2020-04-15T23:00:00.000Z"
        assert s.fake.previews[-1].forbid == slot and not s.fake.commands
        await s.pilot.press("enter")
        await s.until(lambda: s.fake.commands)
        assert s.fake.commands[0].verb == "forbid" and s.fake.commands[0].args == {"hours": slot}
        await s.pilot.press("f", *"22:00-06:00")
        typed = "2020-04-15T22:00:00.000Z/2020-04-16T06:00:00.000Z"  # of the reader's zone
        await s.until(lambda: s.fake.previews[-1].forbid == typed)
        await s.pilot.press("enter")
        await s.until(lambda: len(s.fake.commands) == 2)
        assert s.fake.commands[1].args == {"hours": typed}
        s.fake.push(status=s.fake.status(forbidden=(HOURS,)))
        await s.until(lambda: "hours that must not run" in s.text())
        assert "by ada@pts/3" in s.text()
        await s.pilot.press("x")
        await s.until(lambda: len(s.fake.commands) == 3)
        assert s.fake.commands[2].verb == "allow"


async def test_the_cursor_keeps_its_slot_while_slots_go_by(stage: Any) -> None:
    async with stage() as s:
        await s.pilot.press("w", "shift+right", "right", "right")
        plan = s.app.screen
        assert plan.slot == 6
        for later_s, slot in ((1900.0, 4), (9000.0, 0)):
            s.fake.push(status=s.fake.status(measured_at=units.iso(NOW + later_s)))
            await s.until(lambda later_s=later_s: s.dashboard.view_state.now_s == NOW + later_s)
            assert plan.slot == slot


async def test_a_screen_to_look_at_forbids_nothing(stage: Any) -> None:
    async with stage(readonly=True) as s:
        await s.pilot.press("w")
        await s.until(lambda: isinstance(s.app.screen, PlanPage))
        await s.pilot.press("space", "right", "enter", "f", "x")
        await s.pilot.pause(0.2)
        assert not s.fake.commands and not s.app.screen.query("#prompt")


def test_forbidden_hours_and_a_persons_word_are_the_reason_where_they_hold() -> None:
    shown = fold(None, scene("running"))
    assert shown is not None and shown.plan is not None
    pause = next(one for one in shown.plan.windows if one.level == "pause")
    assert "dirtier than the" in plan_text.why(pause, shown)
    status = structs.replace(shown.status, forbidden=(HOURS,))
    forbidden = fold(None, structs.replace(scene("running"), status=status))
    assert forbidden is not None and plan_text.why(pause, forbidden) == "hours that must not run"
    held = fold(None, scene("override"))
    assert held is not None and held.plan is not None
    assert "pause by ada@pts/3" in plan_text.why(held.plan.windows[0], held)


def test_a_plan_that_runs_flat_out_to_its_end_does_not_call_its_hours_clean() -> None:
    shown = fold(None, scene("running"))
    assert shown is not None and shown.plan is not None
    flat = tuple(structs.replace(one, level="full") for one in shown.plan.windows)
    shown = fold(None, structs.replace(scene("running"), plan=structs.replace(shown.plan, windows=flat)))
    assert shown is not None and shown.plan is not None
    assert {plan_text.why(one, shown) for one in shown.plan.windows} == {"no cleaner hours worth a wait"}


def test_a_plan_that_gains_money_names_prices_and_its_cost() -> None:
    shown = fold(None, scene("running"))
    assert shown is not None and shown.plan is not None
    said = (protocol.statement("plan_explained", unit="EUR"),)
    shown = fold(None, structs.replace(scene("running"), plan=structs.replace(shown.plan, said=said, cost=-0.52)))
    assert shown is not None and shown.plan is not None
    reasons = [plan_text.why(one, shown) for one in shown.plan.windows]
    assert "cheaper hours come" in reasons and not any("clean" in one or "dirt" in one for one in reasons)


def test_a_change_that_leaves_the_plan_as_it_is_costs_nothing() -> None:
    """Planned a minute later from other watts the same course has other grams; that is not what the hours cost."""
    snap = scene("running")
    shown = fold(None, snap)
    assert shown is not None and shown.plan is not None
    bare = structs.replace(shown.plan, windows=())  # as a supervisor answers
    now = protocol.PlanTotals(shown.plan, shown.plan.finish, 1.0, 0.0, 1.0)
    same = protocol.Previewed(1, bare, shown.plan.finish, 9e9, None, 1.0, text="22:00 to 06:00", instead=now)
    assert difference(same, None) == "it changes nothing: the plan stays as it is"
    other = (("full", 3), *shown.plan.levels)
    changed = structs.replace(same, plan=structs.replace(bare, levels=other))
    assert difference(changed, None).startswith("CO₂ +")
    unknown = structs.replace(changed, instead=None)
    assert difference(unknown, None) == "what it costs is not known: no plan is in force"
