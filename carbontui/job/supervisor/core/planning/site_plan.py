"""The machine's power budget in a plan: the job's boards as it counts them, what others leave, whose turn it is."""

from __future__ import annotations

import itertools
import math
from typing import NamedTuple

from carbontui.headroom import TOLERANCE_W, Ahead, Headroom, LevelAhead, SharedWatts
from carbontui.job.supervisor.core.planning import machine
from carbontui.job.supervisor.core.planning.problem import DEFAULT_FULL_W, PlanningProblem
from carbontui.job.supervisor.core.state.inputs import Inputs
from carbontui.job.supervisor.core.state.job import JobState
from carbontui.job.supervisor.core.state.plan import Level
from carbontui.power.messages import Reading

TURN_S = 4.0
"""Jobs plan in sequence, this far apart: each has seen the decision of the one before it."""


def ahead(state: JobState, inputs: Inputs, boards: SiteBoards) -> Ahead | None:
    """This job's planned watts and its alternatives; None if there is no plan."""
    plan, left, deadline = state.plan, state.progress.left_s, state.deadline_s
    if plan is None or left is None or deadline is None:
        return None
    known = machine.machine(state, inputs)
    watts = {name: watts_at(level, boards.number, boards.full_w, boards.parked_w) for name, level in plan.table.items()}
    slots = zip(plan.names, plan.edges_s[1:], strict=True)
    runs = itertools.groupby((slot for slot in slots if slot[0] and slot[1] > inputs.now_s), key=lambda slot: slot[0])
    return Ahead(
        levels=tuple(
            LevelAhead(claimed_w=watts[level.name], drawn_w=known.charged_w(level) * known.pue, speed=level.speed)
            for level in plan.table.values()
        ),
        work_s=left,
        deadline_s=deadline,
        planned=tuple((max(end for _, end in run), watts[name]) for name, run in runs),
    )


def shared(state: JobState, inputs: Inputs, setup: PlanningProblem) -> SharedWatts | None:
    """The budget over the slots of a problem; None if there is none, or no part of this job is in it."""
    share = _budgeted(state)
    boards = site_boards(state, inputs)
    if boards is None or share is None:
        return None
    spans = list(itertools.pairwise(setup.edges_s))
    planned, fixed = _plans_of(share)
    ends = math.inf if share.until_s is None else share.until_s
    room = max(0.0, share.cap_w - fixed)
    return SharedWatts(
        start_s=setup.start_s,
        room_w=tuple(room if begin < ends else None for begin, _ in spans),
        planned_w=tuple(sum(_mean_w(one, *span) for one in planned) for span in spans),
        claimed_w=tuple(watts_at(level, boards.number, boards.full_w, boards.parked_w) for level in setup.levels),
        others=planned,
    )


class Others(NamedTuple):
    """What the other jobs leave, as far as it can call for another plan."""

    room: tuple[float, float | None, float]
    """Watts of the budget, when it ends, and the watts drawn regardless of any plan."""
    clash: tuple[tuple[tuple[float, float], ...], ...]
    """Their plans if these exceed the budget together with this job's, else ()."""


def received(state: JobState) -> tuple[object, ...]:
    """The inputs of `others`, for a cheap comparison: scanning all slots of the others is expensive."""
    share = _budgeted(state)
    if share is None:
        return ()
    told = (
        (claim.job, claim.gone, claim.boost_s is None, claim.ahead and claim.ahead.planned) for claim in share.others
    )
    return (share.cap_w, share.until_s, state.plan and state.plan.view.made_at, *told)


def others(state: JobState, inputs: Inputs) -> Others | None:
    """None without a budget."""
    share, boards = _budgeted(state), site_boards(state, inputs)
    if share is None or boards is None:
        return None
    planned, fixed = _plans_of(share)
    room, mine = (share.cap_w, share.until_s, fixed), ahead(state, inputs, boards)
    if mine is None:
        return Others(room, ())
    left = share.cap_w - fixed + TOLERANCE_W
    at_s = sorted({inputs.now_s, *(end for one in (mine, *planned) for end, _ in one.planned)})
    spans = [span for span in itertools.pairwise(at_s) if share.until_s is None or span[0] < share.until_s]
    over = any(
        _mean_w(mine, *span) > 0 and sum(_mean_w(one, *span) for one in (mine, *planned)) > left for span in spans
    )
    return Others(room, tuple(one.planned for one in planned) if over else ())


def matters(before: Others | None, now: Others | None) -> bool:
    """Whether another plan is called for: not if the only change is that a clash is gone."""
    if before is None or now is None:
        return before is not now
    return before.room != now.room or bool(now.clash and now.clash != before.clash)


def turn_s(state: JobState) -> float:
    """How long after the start of a slot this job plans, in its turn."""
    share = _budgeted(state)
    others = () if share is None else share.others
    return TURN_S * sum(claim.job < state.spec.job for claim in others)


def _budgeted(state: JobState) -> Headroom | None:
    """The share where it is one of a budget; a grid event alone is outside all plans, which catch up after it."""
    return None if state.site is None or state.site.cap_w == math.inf else state.site


def _plans_of(share: Headroom) -> tuple[tuple[Ahead, ...], float]:
    """The plans of the others, and the watts of those that follow no plan: not steered, boosted by a user, or without
    a plan."""
    planned: list[Ahead] = []
    fixed = 0.0
    for claim in share.others:
        if claim.gone or claim.boost_s is not None or claim.ahead is None:
            fixed += claim.full_w
        else:
            planned.append(claim.ahead)
    return tuple(planned), fixed


def _mean_w(one: Ahead, begin_s: float, end_s: float) -> float:
    """Mean watts planned over a span."""
    at, joules = begin_s, 0.0
    for until, watts in one.planned:
        end = max(at, min(until, end_s))
        joules, at = joules + watts * (end - at), end
    return joules / (end_s - begin_s)


PARKED_MOST_W = 130.0
"""Upper end of the parked watts measured on data-centre boards with a model in memory, 60 to 130 W."""


class SiteBoards(NamedTuple):
    """A job's boards in this machine: their number, and their total watts at full speed, at the lowest limits and
    parked."""

    number: int
    full_w: float
    least_w: float
    parked_w: float


def site_boards(state: JobState, inputs: Inputs) -> SiteBoards | None:
    """None if the job has no boards in this machine."""
    devices = here(state, inputs)
    if not devices:
        return None
    least = _least_w(state, devices)
    return SiteBoards(len(devices), _full_w(state, devices), least, min(_parked_w(state, inputs, devices), least))


def here(state: JobState, inputs: Inputs) -> tuple[Reading, ...]:
    """The job's boards in this machine. Those that no driver shows (simulated, replayed, declared) draw nothing there:
    they spend no budget, and none holds them."""
    nodes = state.spec.nodes
    if state.spec.simulated is not None or state.clock.replay or inputs.readings.backend == "declared":
        return ()
    return tuple(device for device in inputs.devices if nodes is None or device.node == nodes.own)


def _most_w(state: JobState, device: Reading) -> float:
    """Watts of a board at its own limit; at most what the user declares for one whose power cannot be read."""
    most = device.limit_found_w or device.limit_max_w or device.limit_w
    if state.spec.declared is None or device.power_kind != "model":
        return most or DEFAULT_FULL_W
    return min(most or state.spec.declared.tdp_w, state.spec.declared.tdp_w)


def _full_w(state: JobState, devices: tuple[Reading, ...]) -> float:
    return sum(_most_w(state, device) for device in devices)


def _least_w(state: JobState, devices: tuple[Reading, ...]) -> float:
    """Running at the lowest limit that every board takes; at full speed if none can be set."""
    lowest = [device.limit_min_w for device in devices]
    if not state.caps_hold or None in lowest:
        return _full_w(state, devices)
    return len(lowest) * max(watts for watts in lowest if watts is not None)


def _parked_w(state: JobState, inputs: Inputs, devices: tuple[Reading, ...]) -> float:
    """Paused with the model in memory: as measured, as read now if it is paused, else the most that any board is known
    to draw parked."""
    parked, measured = known_parked_w(state, inputs, devices)
    watts = [device.power_w for device in devices]
    if state.decision.state == "paused" and None not in watts:
        parked = max(parked if measured else 0.0, sum(w for w in watts if w is not None))
    return parked


def known_parked_w(state: JobState, inputs: Inputs, devices: tuple[Reading, ...]) -> tuple[float, bool]:
    """The same but for the reading of this moment; and whether it was measured."""
    known = machine.machine(state, inputs)
    parked = known.parked_w * len(devices) / len(inputs.devices)
    return (parked if known.parked_measured else max(parked, PARKED_MOST_W * len(devices))), known.parked_measured


def bound_w(state: JobState, devices: tuple[Reading, ...]) -> float:
    """The most the boards can draw under the limits in force."""
    limits = [(device.limit_w, _most_w(state, device)) for device in devices]
    return sum(full if limit is None else min(limit, full) for limit, full in limits)


def watts_at(level: Level, boards: int, full_w: float, parked_w: float, *, absent: bool = False) -> float:
    """Watts of all `boards` at a level."""
    if level.still:
        return 0.0 if absent or level.kind in ("off", "unload") else parked_w
    return min(full_w, level.cap_w * boards) if level.kind == "cap" and level.cap_w is not None else full_w
