"""What the job claims of the machine's power budget, and the level it can run at within its share."""

from __future__ import annotations

import math
from typing import NamedTuple

from carbontui import units
from carbontui.headroom import TOLERANCE_W, Claim, EventSpan, Headroom
from carbontui.job.supervisor.core.planning import course, finish, machine, site_plan
from carbontui.job.supervisor.core.planning.site_plan import watts_at
from carbontui.job.supervisor.core.state import plan
from carbontui.job.supervisor.core.state.inputs import Inputs
from carbontui.job.supervisor.core.state.job import JobState
from carbontui.job.supervisor.core.state.plan import PAUSE, PlanChoice
from carbontui.protocol import ReasonCode, Statement, Why, statement


def claim(state: JobState, inputs: Inputs) -> Claim | None:
    """The current claim; None for a job without boards, which draws nothing that a limit governs."""
    boards = site_plan.site_boards(state, inputs)
    if boards is None or inputs.child.over:
        return None
    number, full, least, parked = boards
    absent = inputs.child.state in ("waiting", "unloaded")
    floor = 0.0 if absent else parked if can_pause(state, inputs) else least
    wants = min(full, max(0.0, watts_at(state.decision.wanted, number, full, parked, absent=absent)))
    devices, paused = site_plan.here(state, inputs), state.decision.state == "paused"
    drawing = 0.0 if absent else parked if paused else site_plan.bound_w(state, devices)
    given = 0.0 if state.site is None else state.site.now_w
    boost = state.override.current is not None and state.override.current.mode == "boost"
    left, deadline = state.progress.left_s, state.deadline_s
    event = None if state.site is None else state.site.event
    drawn = [device.power_w for device in devices]
    return Claim(
        job=state.spec.job,
        name=state.spec.name,
        boards=number,
        full_w=full,
        least_w=least,
        floor_w=floor,
        wants_w=wants,
        # an increase already granted counts as held, even before it reaches the boards
        held_w=max(drawing, min(given, wants)),
        boost_s=0.0 if boost else None,
        slack_s=None if left is None or deadline is None else deadline - inputs.now_s - left,
        ahead=None if state.site is None else site_plan.ahead(state, inputs, boards),
        promised_w=None if event is None else promised_w(state, inputs, boards, event),
        expected_w=None if event is None else expected_w(state, inputs, boards, event),
        drawn_w=sum(watts for watts in drawn if watts is not None) if None not in drawn else None,
    )


SPARE_S, SPARE = 60.0, 0.02
"""Slack that no event takes: at least these seconds, or this share of the work left."""


def promised_w(state: JobState, inputs: Inputs, boards: site_plan.SiteBoards, event: EventSpan) -> float:
    """The least watts of its boards during a grid event that keep its deadline: what it would lose until the watts are
    back must fit in its slack, forbidden hours left out. Without a deadline it may be held at its floor."""
    floor_w = boards.least_w
    if inputs.child.state in ("waiting", "unloaded"):
        floor_w = 0.0
    elif can_pause(state, inputs):
        # not by what is read now: a board that is still warm from its last step would be resumed at once
        floor_w = min(floor_w, site_plan.known_parked_w(state, inputs, site_plan.here(state, inputs))[0])
    work_s, deadline_s = state.progress.left_s, state.deadline_s
    left_s = event.over_s - max(inputs.now_s, event.start_s)
    if work_s is None or deadline_s is None or left_s <= 0:
        return floor_w
    spare_s = deadline_s - finish.soonest_s(state, inputs.now_s, work_s) - max(SPARE_S, SPARE * work_s)
    if spare_s >= left_s:
        return floor_w
    known = sorted(
        (watts_at(level, boards.number, boards.full_w, boards.parked_w), level.speed)
        for level in course.known_levels(state, inputs).values()
        if level.kind in ("cap", "full")
    )
    needed = 1.0 - spare_s / left_s
    if spare_s <= 0 or not known:
        return boards.full_w
    if known[0][1] >= needed:
        return known[0][0]
    # speed rises ever more slowly with watts: it lies above a straight line between two caps
    return units.between([(speed, watts) for watts, speed in (*known, (boards.full_w, 1.0))], needed)[1]


def expected_w(state: JobState, inputs: Inputs, boards: site_plan.SiteBoards, event: EventSpan) -> float:
    """Mean watts of the boards here during an event, or what is left of it, if override and plan went on without it;
    as measured at full speed where they have been."""
    known, ahead = machine.machine(state, inputs), course.if_planned(state, inputs, state.allowances.cap_w)
    full_w = known.full_w * boards.number / len(inputs.devices) if known.full_measured else boards.full_w
    joules, begin_s = 0.0, max(inputs.now_s, event.start_s)
    at = begin_s
    for one in ahead.segments:
        until = min(one.end_s, event.end_s)
        if until > at:
            joules += watts_at(one.level, boards.number, full_w, min(full_w, boards.parked_w)) * (until - at)
            at = until
    if ahead.finish_s is None and at < event.end_s:
        joules += full_w * (event.end_s - at)
    return full_w if event.end_s <= begin_s else joules / (event.end_s - begin_s)


def can_pause(state: JobState, inputs: Inputs) -> bool:
    """Whether this training may be paused for lack of watts: not while its work is unknown or no step is seen."""
    return state.progress.total_s is not None and bool(inputs.ranks) and finish.why_unpausable(inputs) is None


def room(state: JobState, inputs: Inputs) -> Room | None:
    """For the decision; None if there is no budget, or no part of this job is in it."""
    boards = site_plan.site_boards(state, inputs)
    if state.site is None or boards is None or (state.site.event_w is None and state.site.cap_w == math.inf):
        return None
    absent = inputs.child.state in ("waiting", "unloaded")
    held = absent or can_pause(state, inputs)
    return Room(state.site, boards.number, boards.full_w, boards.least_w, held)


def why_no_boost(state: JobState, inputs: Inputs) -> Statement | None:
    """Why a boost does not fit even with all other jobs at their minimum; None if it fits."""
    given = room(state, inputs)
    if given is None or given.full_w <= given.share.boost_w + TOLERANCE_W:
        return None
    left = max(0.0, given.share.boost_w)
    return statement("no_room_to_boost", needs=given.full_w, cap=given.share.cap_w, left=left)


STEP_W = 5.0
"""Limits follow the budget in steps of this many watts per board: small changes of other jobs cause no writes."""


class Room(NamedTuple):
    """What a decision needs to know: the share, and the range of this job's boards."""

    share: Headroom
    boards: int
    full_w: float
    least_w: float
    can_pause: bool


def within(choice: PlanChoice, given: Room | None, *, can_cap: bool) -> PlanChoice:
    """The choice, or the highest level that fits in the share; unchanged if nothing can be lowered."""
    level = choice.level
    if given is None or level.still:
        return choice
    if watts_at(level, given.boards, given.full_w, 0.0) <= given.share.now_w + TOLERANCE_W:
        return choice
    watts = max(math.floor(given.share.now_w / given.boards / STEP_W) * STEP_W, given.least_w / given.boards)
    event = None if given.share.event_w is None else given.share.event
    code: ReasonCode = "site" if event is None else "event"
    until_s = _room_again_s(given, watts_at(level, given.boards, given.full_w, 0.0)) if event is None else event.over_s
    if can_cap and given.least_w < given.full_w and given.share.now_w >= given.least_w - TOLERANCE_W:
        slower = plan.under(level, watts)
        if slower is level:
            return choice
        said = (
            statement("site_capped", watts=watts, cap_w=given.share.cap_w, until_s=until_s)
            if event is None
            else statement("event_capped", watts=watts, event=event.id, until_s=until_s)
        )
        return PlanChoice(slower, Why(code, said), "site", until_s)
    if given.can_pause:
        said = (
            statement("site_held", cap_w=given.share.cap_w, until_s=until_s)
            if event is None
            else statement("event_held", event=event.id, until_s=until_s)
        )
        return PlanChoice(PAUSE, Why(code, said), "site", until_s)
    return choice


def _room_again_s(given: Room, wanted_w: float) -> float | None:
    """When the budget ends, or the plans of the others leave the watts that are wanted; None where they never do."""
    others, found = [one for one in given.share.others if not one.gone], given.share.until_s
    planned = [one.ahead.planned for one in others if one.ahead is not None and one.ahead.planned]
    for at_s in sorted(until for stretches in planned for until, _ in stretches) if len(planned) == len(others) else ():
        held_w = sum(next((watts for until, watts in stretches if until > at_s), 0.0) for stretches in planned)
        if given.share.cap_w - held_w >= wanted_w - TOLERANCE_W:
            return at_s if found is None else min(at_s, found)
    return found


def notice(given: Headroom | None) -> Statement | None:
    """The notice if even the minimum of all jobs together exceeds the budget."""
    if given is None or given.kept or given.cap_w == math.inf:
        return None
    return statement("site_budget_broken", cap=given.cap_w, least=given.least_sum_w)
