"""Builds the Observation of a decision from the state and the inputs."""

from __future__ import annotations

import math

from carbontui.job.supervisor.core.planning import finish
from carbontui.job.supervisor.core.rules import allowance_rules, capabilities, site_claim, trying, unload_rules
from carbontui.job.supervisor.core.rules.control import Observation
from carbontui.job.supervisor.core.state import attendance, boards, forbidden, unloading
from carbontui.job.supervisor.core.state.inputs import Inputs
from carbontui.job.supervisor.core.state.job import JobState
from carbontui.job.supervisor.core.state.levels import FULL, Chosen
from carbontui.protocol import Why, statement

USED_UP_HOLD_S = 86400.0
"""A used-up allowance stays so until a user raises it: the start is held a day at a time."""


def observe(state: JobState, inputs: Inputs) -> Observation:
    """Pure: called twice, it returns the same."""
    says = finish.planned(state, inputs)
    used_up = allowance_rules.holds(state)
    if (moved := unload_rules.moves(state, inputs)) is not None:
        used_up, says = moved, says._replace(next_at_s=None)
    elif (ending := unload_rules.machine_ends(state, inputs)) is not None:
        used_up, says = ending, says._replace(next_at_s=ending.until_s)
    elif used_up is not None:
        says = says._replace(next_at_s=inputs.now_s + USED_UP_HOLD_S)
    elif (used_up := unload_rules.holds(state, inputs)) is not None:
        says = says._replace(next_at_s=None)  # its successor continues at once
    leader, epoch_s = inputs.leader, unloading.epoch_s(inputs.leader, state.clock.speed)
    refused = boards.refused_cap(state.asked.limit_w, inputs)
    return Observation(
        now_s=inputs.now_s,
        mono_s=inputs.mono_s,
        child=inputs.child,
        ranks=inputs.ranks,
        override=state.override.current,
        override_until_s=state.override.until_s,
        forbidden_until_s=forbidden.until_s(state.forbidden, inputs.now_s),
        no_shifting=finish.why_no_shifting(state, inputs),
        planned=says.level,
        next_at_s=says.next_at_s,
        must_run=finish.must_run(state, inputs),
        ends_s=None if state.clock.replay else state.ends_s,
        cut_short=state.cut_short,
        late=finish.late(state),
        max_pause_s=state.spec.max_pause_s,
        idle_limit_s=math.inf if state.spec.idle_limit_s is None else state.spec.idle_limit_s,
        given_back=frozenset({"off", "unload"} if state.spec.gives_back else ()),
        can_cap=state.spec.cap and bool(inputs.devices),
        refused_w=refused.watts,
        refused_code=refused.code,
        refused_why=refused.why,
        can_freeze=state.spec.sigstop,
        freeze_why=capabilities.freeze_why(state, inputs),
        room=site_claim.room(state, inputs),
        silent=attendance.silent(state.attendance, inputs),
        lost=attendance.lost(state.attendance, inputs),
        stepped=state.progress.step > 0,
        unseen=inputs.unseen,
        deaf=finish.why_deaf(inputs),
        trial=state.calibrating.level,
        rehearsing=_rehearsing(state, inputs),
        used_up=used_up,
        allowance_cap_w=state.allowances.cap_w,
        fleet_cap_w=state.spec.fleet_cap_w,
        epoch_left_s=None if epoch_s is None else epoch_s[0],
        keeps_order=leader is None or leader.data_order != "other",
    )


def _rehearsing(state: JobState, inputs: Inputs) -> Chosen | None:
    level = unloading.level(state.unloading)
    if inputs.child.trying:
        return Chosen(level or FULL, Why("calibrating", trying.said(state)), "try")
    if level is None:
        return None
    return Chosen(
        level, Why("calibrating", statement("rehearsing", phase=unloading.said(state.unloading))), "calibration"
    )
