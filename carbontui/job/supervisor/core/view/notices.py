"""Notices for the user, one line each."""

import math
from collections.abc import Collection, Iterable, Sequence

from carbontui.job.supervisor.core.planning import finish
from carbontui.job.supervisor.core.rules import allowance_rules, site_claim, unload_rules
from carbontui.job.supervisor.core.state import boards, membership
from carbontui.job.supervisor.core.state.inputs import FRESH_S, Inputs
from carbontui.job.supervisor.core.state.job import JobState
from carbontui.job.supervisor.core.state.measured import BUSY_S
from carbontui.power.messages import Capability, Reading
from carbontui.protocol import Statement, statement, written

TRIED_S = 60.0
"""The result of a try is shown until the real start is this old."""
UNREAD_S = 10.0
"""Agents of other machines may take this long to come up before their watts are reported missing."""


def notices(state: JobState, inputs: Inputs, ours: Iterable[Statement]) -> list[Statement]:
    """Caveats on the numbers first, then `ours` (faults of carbontui itself), then the rest."""
    found: list[Statement] = []
    if state.spec.simulated:
        found.append(statement("simulated"))
    if state.clock.replay:
        found.append(statement("replay", times=state.clock.speed))
    # the consequence of the user's own command comes before standing conditions
    if late := finish.unreachable_by_pause(state, inputs.now_s):
        found.append(late)
    if (gone := state.progress.withdrawn) is not None:
        found.append(statement("guess_withdrawn", steps=gone[0], source=gone[1]))
    if state.progress.passed:
        found.append(statement("total_passed", steps=state.progress.steps_total))
    found += allowance_rules.notices(state, inputs)
    if not inputs.guarded:
        found.append(statement("unguarded"))
    if state.spec.nodes is not None and state.spec.nodes.fault:
        found.append(written(state.spec.nodes.fault))
    if silent := membership.silent(state.membership, inputs):
        found.append(statement("silent", names=silent))
    unread = membership.unread_nodes(inputs)
    if unread and inputs.uptime_s >= UNREAD_S:
        found.append(statement("nodes_unread", names=unread))
    if beyond := site_claim.notice(state.site):
        found.append(beyond)
    # the screen has room for the first only: wrong watts come before the source of the grid data
    found += board_notices(inputs.devices, inputs.readings_age_s, unread)
    if inputs.readings.mono_s and (missing := boards.unseen(state.boards, inputs)):
        found.append(statement("boards_unseen", count=len(missing)))
    found += pace_notices(state, inputs)
    if state.tried.result is not None and (inputs.child.state != "running" or inputs.child.age_s < TRIED_S):
        found.append(state.tried.result)
    if unload_rules.offered(state, inputs):
        found.append(statement("rehearsal_offered", job=state.spec.job))
    found += [*ours, *(written(line) for line in inputs.readings.notices if line)]
    if state.plan_fault is not None:
        found.append(state.plan_fault)
    found += condition_notices(inputs.devices)
    return found + limit_notices(inputs)


QUIET_S, QUIET_STEPS, IDLE_S = 120.0, 30, 60.0
"""No step for this long and for as long as so many take, no board that computes for this long: worth a word."""
SLOW, SLACK = 0.8, 0.6
"""Of its own rate, and of the boards' time: below it something holds the training up."""
CORE_WAIT = 0.1


def pace_notices(state: JobState, inputs: Inputs) -> list[Statement]:
    """One or none: what holds the training up where nothing of ours does, as far as its steps and its boards show."""
    work, seen, decided = state.progress, state.activity, state.decision.state
    if decided not in ("running", "throttled") or state.asked.duty or state.clock.replay:
        return []
    rate = work.ref_rate
    idle = statement("boards_idle", idle_s=seen.idle_s) if seen.idle_s >= IDLE_S else None
    captured = inputs.leader is not None and inputs.leader.captured
    if rate and not captured and work.quiet_wall_s >= max(QUIET_S, QUIET_STEPS / rate):
        known = inputs.leader is not None and inputs.leader.doing
        boards = None if known else statement("boards_compute") if seen.seen_s and not seen.idle_s else idle
        return [statement("steps_stopped", quiet_s=work.quiet_wall_s, step_s=1 / rate, boards=boards)]
    core = statement("core_wait", share=work.core_wait) if work.core_wait >= CORE_WAIT else None
    if seen.seen_s >= BUSY_S and seen.busy < SLACK:
        return [idle or statement("boards_wait", busy=seen.busy, seen_s=seen.seen_s, core=core)]
    steps, whole_s = work.blocks.size * len(work.blocks.times), math.fsum(work.blocks.times)
    long = work.ref_wall_s >= BUSY_S and whole_s >= 2 * work.ref_time_s
    if rate and long and decided == "running" and rate < SLOW * steps / whole_s:
        return [statement("slower", rate=rate, whole=steps / whole_s, last_s=work.ref_wall_s, core=core)]
    return []


def limit_notices(inputs: Inputs) -> list[Statement]:
    """What came of limits: refusals and what a board holds instead."""
    found: list[Statement] = []
    several = len(inputs.readings.devices) > 1
    label = {reading.uuid: reading.label for reading in inputs.readings.devices if several}
    shared = {reading.uuid for reading in inputs.devices if reading.foreign_pids}
    for outcome in inputs.limits.outcomes.values():
        if outcome.ok or not outcome.text or (outcome.code == "foreign" and outcome.uuid in shared):
            continue
        board = label.get(outcome.uuid)
        found.append(statement("of_board", board=board, text=outcome.text) if board else written(outcome.text))
    return found


TROUBLE = 0x8 | 0x20 | 0x40 | 0x80
"""Clock-event reasons that are no setting: hardware slowdown, heat, power brake."""


def condition_notices(devices: Sequence[Reading]) -> list[Statement]:
    """What boards, driver and platform do on their own: other limits, heat, errors."""
    found = []
    for reading in devices:
        board = reading.label
        if reading.enforced_w is not None and reading.limit_w is not None:
            found.append(statement("board_held", board=board, held=reading.enforced_w, limit=reading.limit_w))
        if (reading.reasons or 0) & TROUBLE:
            found.append(statement("board_slowed", board=board, reasons=(reading.reasons or 0) & TROUBLE))
    return found


def _whose(reading: Reading) -> Statement:
    """How the watts of a board shared with others are counted."""
    if reading.share is None:
        return statement("counted_here")
    if reading.own_w is None or reading.power_w is None:
        return statement("split")
    return statement("split_as", own=reading.own_w, all=reading.power_w)


BY_CODE = frozenset({"steps_stopped", "boards_idle", "boards_wait", "slower"})
"""Their figures change all the time: one is enough."""
BY_LEVEL = frozenset({"allowance_not_enough", "allowance_question", "allowance_used_up", "capped_for_allowances"})
"""Warnings whose figures change all the time: one is enough per allowance and level."""


def key(said: Statement, text: str) -> str:
    """What a notice is about, for whoever tells each one once."""
    if said.code not in BY_LEVEL:
        return said.code if said.code in BY_CODE else text
    then = said.parts.get("then")
    level = then.code if isinstance(then, Statement) else "capped" if said.parts.get("cap_w") else ""
    return f"{said.code} {said.parts.get('kind', '')} {level}".rstrip()


def board_notices(devices: Sequence[Reading], age_s: float, unread: Collection[str] = ()) -> list[Statement]:
    """Why the watts of these boards are not simply this job's: no answer, no reading, other users.

    `age_s` is the age of the readings. Boards of the nodes `unread` are told of with their node.
    """
    if devices and age_s >= FRESH_S:
        return [statement("driver_silent", age_s=age_s)]
    found = []
    for reading in devices:
        board = reading.label
        if reading.lost:
            found.append(statement("board_lost", board=board))
            continue
        counts = reading.caps.get("energy", Capability("unknown")).support == "yes"
        if reading.power_w is None and not counts and reading.node not in unread:
            found.append(statement("board_unread", board=board, why=reading.why.get("power_w")))
        if reading.mig:
            found.append(
                statement("board_in_slices", board=board, share=1.0 if reading.share is None else reading.share)
            )
        if reading.foreign_pids:
            whose = _whose(reading)
            if reading.foreign_user:
                found.append(statement("board_of_user_too", board=board, user=reading.foreign_user, whose=whose))
            else:
                found.append(statement("board_of_others_too", board=board, pid=reading.foreign_pids[0], whose=whose))
    return found
