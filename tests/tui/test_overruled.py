"""Whose word holds, and what the screen says when it no longer does."""

from __future__ import annotations

from typing import Any

import pytest
from fake import NOW
from msgspec import structs

from carbontui import link, protocol, units


def boosted(by: str, gen: int, mode: Any = "boost", until: str | None = None) -> dict[str, Any]:
    return {"override": protocol.Override(mode, None, until, by), "override_gen": gen}


async def test_who_is_overruled_is_told_and_the_old_answer_goes(stage: Any) -> None:
    async with stage() as s:
        s.fake.result = protocol.Result(0, True, text="boosted: at full speed")
        await s.pilot.press("b")
        await s.until(lambda: "boosted: at full speed" in s.text())
        s.fake.push(status=s.fake.status(**boosted(link.whoami(), 1)))
        s.fake.push(status=s.fake.status(**boosted("bob@pts/9", 2, "pause"), state="paused"))
        await s.until(lambda: "bob@pts/9 paused it now" in s.text())
        assert "your boost no longer holds" in s.text()
        assert "boosted: at full speed" not in s.text()


async def test_an_answer_goes_with_the_override_it_spoke_of(stage: Any) -> None:
    async with stage() as s:
        s.fake.result = protocol.Result(0, True, text="paused until 04:09")
        await s.pilot.press("p")
        await s.until(lambda: "paused until 04:09" in s.text())
        s.fake.push(status=s.fake.status(**boosted(link.whoami(), 1, "pause"), state="paused"))
        s.fake.push(status=s.fake.status(override=None, override_gen=2, state="running"))
        await s.until(lambda: "paused until 04:09" not in s.text())
        assert "your pause is over" in s.text()


async def test_a_refusal_makes_room_for_the_notices_after_a_while(stage: Any) -> None:
    clock = [0.0]
    async with stage("override", monotonic=lambda: clock[0]) as s:
        s.fake.result = protocol.Result(0, False, error="caps are off for this job (--no-cap)")
        await s.pilot.press("c", *"350", "enter")
        await s.until(lambda: "caps are off" in s.text())
        clock[0] = 11.0
        await s.until(lambda: "caps are off" not in s.text() and "no new plan" in s.text())


async def test_a_preview_is_one_answer_in_words_on_the_chart_and_in_what_enter_commits(stage: Any) -> None:
    """A new plan that falls between the preview and enter must not mix what was answered before and after it."""
    async with stage() as s:
        plan, frontier = s.fake.snap.plan, s.fake.snap.frontier
        at = NOW + 10 * 3600
        s.fake.preview_plan = structs.replace(plan, finish=units.iso(at), deadline=units.iso(at), gco2_g=2500.0)
        await s.pilot.press("right", "right")
        await s.until(lambda: "ends Thu 07:24" in s.text())
        wanted = s.fake.previews[-1].budget
        at += 2 * 3600
        s.fake.preview_plan = structs.replace(plan, finish=units.iso(at), deadline=units.iso(at), gco2_g=2400.0)
        points = tuple(structs.replace(point, finish_s=point.finish_s * 1.07) for point in frontier.points)
        asked = len(s.fake.previews)
        s.fake.push(plan=structs.replace(plan), frontier=structs.replace(frontier, points=points))
        await s.until(lambda: len(s.fake.previews) > asked and "ends Thu 09:24" in s.text())
        assert s.fake.previews[-1].budget == wanted, "what enter commits did not change under the person's hand"
        assert s.dashboard.choice.plan(s.dashboard.view_state).finish == units.iso(at)
        await s.pilot.press("enter")
        await s.until(lambda: s.fake.commands)
        assert s.fake.commands[0].args == {"budget": wanted}


async def test_the_same_plan_ends_when_the_headline_says(stage: Any) -> None:
    async with stage() as s:
        end = units.iso(NOW + 9 * 3600)
        s.fake.preview_plan = structs.replace(s.fake.snap.plan, gco2_g=2500.0)
        s.fake.push(status=s.fake.status(finish_expected=end))
        await s.until(lambda: "done Thu 06:24" in s.text())
        await s.pilot.press("right")
        await s.until(lambda: "allowed, not used" in s.text() or "the same plan" in s.text())
        assert "ends Thu 06:24" in s.text()


async def test_a_budget_can_be_typed_and_is_previewed_before_it_is_given(stage: Any) -> None:
    async with stage() as s:
        at = NOW + 10 * 3600
        s.fake.preview_plan = structs.replace(s.fake.snap.plan, finish=units.iso(at), deadline=units.iso(at))
        await s.pilot.press("e", *"36h")
        await s.until(lambda: "ends Thu 07:24" in s.text())
        assert s.fake.previews[-1].budget == "36h" and not s.fake.commands
        await s.pilot.press("enter")
        await s.until(lambda: s.fake.commands)
        assert (s.fake.commands[0].verb, s.fake.commands[0].args) == ("budget", {"budget": "36h"})


async def test_the_budget_keys_are_not_dead_where_no_other_budget_would_emit_less(stage: Any) -> None:
    async with stage() as s:
        frontier = s.fake.snap.frontier
        s.fake.push(frontier=structs.replace(frontier, points=frontier.points[:1], chosen=0))
        await s.until(lambda: "would not emit less" in s.text())
        await s.pilot.press("right", *"20h", "enter")
        await s.until(lambda: s.fake.commands)
        assert s.fake.commands[0].args == {"budget": "20h"}


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        (protocol.statement("steps_stopped", quiet_s=300.0, step_s=0.2, boards=protocol.statement("boards_compute")),
         "no step for 5 min; its GPUs compute, as in an evaluation"),
        (protocol.statement("boards_idle", idle_s=180.0), "GPUs idle for 3 min"),
        (protocol.statement("boards_wait", busy=0.3, seen_s=600.0, core=None), "GPUs 30 % busy, they wait"),
    ],
)  # fmt: skip
async def test_what_holds_a_training_up_is_in_its_first_line(stage: Any, said: protocol.Statement, shown: str) -> None:
    async with stage() as s:
        s.fake.push(status=s.fake.status(notices=("a notice",), notices_said=(said,)))
        await s.until(lambda: shown in s.text().splitlines()[0])
