"""When the work will finish, whether that is in time, and which constraints every plan must keep."""

from carbontui import protocol
from carbontui.client.detection import unseen
from carbontui.job.supervisor.core.planning import machine
from carbontui.job.supervisor.core.state import forbidden
from carbontui.job.supervisor.core.state.inputs import Inputs
from carbontui.job.supervisor.core.state.job import JobState
from carbontui.job.supervisor.core.state.plan import FULL, OFF, PlannedLevel
from carbontui.job.supervisor.core.state.progress import Progress
from carbontui.protocol import Why, statement

FIRST_PLAN_S = 20.0
"""A start waits at most this long for a first plan."""
DRIFT_S, DRIFT = 300.0, 0.02
"""Tolerated deviation of the work left from the plan, in seconds or as a share of the whole, without a new plan."""
LATE_TOLERANCE_S, LATE_TOLERANCE = 60.0, 0.01
"""Lateness below this is not reported: the default budget has no slack at all."""


CAPTURED_QUIET_S = 20.0
"""If no step is seen for this long after a CUDA graph was recorded, the graph is being replayed."""


def why_no_shifting(state: JobState, inputs: Inputs) -> Why | None:
    """Why no plan may pause or delay; None if it may."""
    spec, outlook = state.spec, state.outlook
    if (unresponsive := why_unpausable(inputs)) is not None:
        return Why("no_client", statement("cannot_hold", why=unresponsive))
    if state.progress.total_s is None:
        return Why("no_work", _work_unknown(state.progress))
    if inputs.zone is None:
        return Why("no_zone", statement("no_zone", why=spec.zone_why) if spec.zone_why else statement("no_zone_known"))
    if outlook is None or all(value is None for value in outlook.mean[outlook.realised :]):
        # hours without a forecast must not be planned as clean
        note = inputs.grid_note
        return Why("no_grid", statement("no_grid", why=note) if note else statement("no_grid_source"))
    priced = spec.price_per_kwh is not None or any(value is not None for value in outlook.price)
    kinds = {entry.kind for entry in state.allowances.given}
    by_cost = spec.objective == "cost" or (spec.objective == "time" and kinds == {"cost"})
    if by_cost and not priced and not spec.carbon_price:
        # every hour would cost nothing, and any plan would be optimal
        return Why("no_grid", statement("no_price", currency=spec.currency))
    return None


def _work_unknown(work: Progress) -> protocol.Statement:
    if work.guess is not None and work.steps_total is None:
        steps, source = work.guess
        return statement("work_guessed", steps=steps, source=source)
    if work.steps_total is None:
        return statement("work_unknown")
    return statement("work_endless", steps=work.steps_total) if work.ref_rate else statement("work_measured_first")


def why_unpausable(inputs: Inputs) -> protocol.Statement | None:
    """Why a training that has shown steps cannot be held at one, so that no pause is planned: its "ranks" do not reach
    a common step, are "apart" or short of "descriptors", or a "captured" CUDA graph replays them. None if it can."""
    if whys := [rank.cannot_hold for rank in inputs.ranks if rank.cannot_hold]:
        if "descriptors" in whys:
            return statement("descriptors", count=max(rank.world for rank in inputs.ranks))
        return statement("apart") if "apart" in whys else statement("ranks")
    if any(rank.captured and rank.quiet_s >= CAPTURED_QUIET_S for rank in inputs.ranks):
        return statement("captured", step=max(rank.step for rank in inputs.ranks), cause=unseen.CAPTURED)
    return None


def planned(state: JobState, inputs: Inputs) -> PlannedLevel:
    """What the plan says for now; at full speed after its end."""
    if state.plan is None or state.plan.edges_s[0] < state.tried.ended_s:
        # a start that may wait does so until the first plan tells whether now is a good time
        return PlannedLevel(OFF if _first_plan_is_near(state, inputs) else None)
    says = state.plan.at(inputs.now_s)
    # a cap that was expected while the start waited would hide the speed that it is to be judged by
    untried = says.level is not None and says.level.assumed and state.curve is None
    return says if says.level is not None and not untried else says._replace(level=FULL)


def plan_due(state: JobState, inputs: Inputs) -> bool:
    """Whether the first plan is being made."""
    return inputs.uptime_s < FIRST_PLAN_S and state.plan_fault is None and why_no_shifting(state, inputs) is None


def _first_plan_is_near(state: JobState, inputs: Inputs) -> bool:
    if state.tried.result is None:
        return inputs.child.state == "waiting" and plan_due(state, inputs)
    # its measurements have just become known
    near = state.decision.state not in ("waiting", "unloaded") or inputs.mono_s - state.changed_mono_s < FIRST_PLAN_S
    held = inputs.child.state in ("waiting", "unloaded") and state.plan_fault is None
    return near and held and why_no_shifting(state, inputs) is None


def must_run(state: JobState, inputs: Inputs) -> bool:
    """No slack is left before the deadline."""
    left, deadline = state.progress.longest_left_s, state.deadline_s
    if left is None or deadline is None:
        return False
    closed = forbidden.between_s(state.forbidden, inputs.now_s, deadline)
    return deadline - inputs.now_s - closed <= left + machine.resume_s(state)


def soonest_s(state: JobState, now_s: float, left_s: float) -> float:
    """When at full speed would finish, after any pause with an end and around forbidden hours."""
    held = state.override
    pausing = held.current is not None and held.current.mode == "pause" and held.until_s is not None
    begin_s = max(now_s, held.until_s or now_s) if pausing else now_s
    return forbidden.soonest_s(state.forbidden, begin_s, left_s)


def late_left_s(state: JobState, now_s: float, left_s: float, deadline_s: float) -> float:
    """The work left (reference seconds) at the slow end of its measured speed, as far as it fits: a plan on it keeps
    the deadline at that end too. What other programs may take of the cores is left out: no timing tells."""
    work = state.progress
    to_go = None if work.steps_total is None else work.steps_total - work.step
    found = work.blocks.next(to_go) if to_go else None
    if found is None or found.value <= 0:
        return left_s
    closed_s = forbidden.between_s(state.forbidden, now_s, deadline_s)
    room_s = deadline_s - now_s - closed_s - machine.resume_s(state)
    return max(left_s, min(left_s * found.hi / found.value, room_s))


def late(state: JobState) -> bool:
    """Whether the plan in force ends after the deadline."""
    return state.plan is not None and state.plan.view.late_s > late_tolerance_s(state)


def late_tolerance_s(state: JobState) -> float:
    return max(LATE_TOLERANCE_S, LATE_TOLERANCE * (state.progress.total_s or 0.0))


def drift_s(state: JobState) -> float:
    return max(DRIFT_S, DRIFT * (state.progress.total_s or 0.0))


def drifted(state: JobState, now_s: float) -> bool:
    """Whether the work left deviates from the plan by more than the tolerance."""
    left = state.progress.longest_left_s
    if state.plan is None or state.plan.work_left_s is None or left is None:
        return False
    expected = max(0.0, state.plan.work_left_s - state.plan.work_done_s(now_s))
    return abs(expected - left) > drift_s(state)


def unreachable_by_pause(state: JobState, now_s: float) -> protocol.Statement | None:
    """Whether a user's pause makes the budget unreachable, and from when on."""
    left, deadline, held = state.progress.left_s, state.deadline_s, state.override
    if held.current is None or held.current.mode != "pause" or left is None or deadline is None:
        return None
    latest = deadline - left
    if held.until_s is None and latest > now_s:
        return statement("unreachable_after", at_s=latest)
    return statement("unreachable") if held.until_s is None or held.until_s > latest else None
