"""The control policy: one pure function, (asked, observation) -> (asked, decision).

Every decision about what the training process is asked to do is made here. Order of authority: the end of the job, a
user's override, a used-up allowance, missing information (then flat out), the deadline, the longest pause, the
plan. An allowance expected to be exceeded caps the result.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import msgspec

from carbontui import protocol, units
from carbontui.job.child import ending
from carbontui.job.supervisor.core import levels, site_room
from carbontui.job.supervisor.core.levels import FULL, OFF, PAUSE, Level
from carbontui.job.supervisor.core.observation import Observation

NO_BOUNDARY_S = 10.0
"""No step for this long after a pause request: the state says so."""
NO_CLIENT_S = 30.0
"""No training step for this long in a running command: the state says so."""
HOLD_S = 3600.0
"""A start held back without a known end is held for this long at a time."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked of the process and its boards, and since when. Survives a respawn through the journal."""

    mode: protocol.Mode = "run"
    gen: int = 0
    duty: float | None = None
    limit_w: float | None = None
    not_before_s: float | None = None
    asked_mono_s: float = 0.0
    still_since_s: float | None = None
    """Job clock since which the process has been asked to pause."""
    freeze: bool = False
    """No process responds at a step: the process group is to be stopped by signal."""
    spent_pause: bool = False
    """The longest pause is over: run until the plan itself runs again."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The state reached, and why. `hold_until_s` sets the start of a child that is not running (None: now)."""

    state: protocol.State
    reason: protocol.Reason
    level: str
    hold_until_s: float | None = None
    wanted: Level = FULL
    """The level that would apply without the machine's power budget."""


STARTING = Decision("starting", protocol.Reason("starting", "processes are coming up"), FULL.name)


def restored(kept: Any, mono_s: float) -> Asked:
    """What a predecessor asked, asked again at `mono_s`; fields of other versions are ignored.

    Raises msgspec.ValidationError on an invalid field.
    """
    return replace(msgspec.convert(kept or {}, Asked), asked_mono_s=mono_s)


def decide(before: Asked, seen: Observation) -> tuple[Asked, Decision]:
    """The complete policy of one job, evaluated about once a second and at every event."""
    level, reason, spent = _choose(before, seen)
    level, reason = _within_allowance(level, reason, seen)
    wanted = level
    level, reason = site_room.within(level, reason, seen.room, can_cap=seen.can_cap)
    if seen.lost and level.still and seen.child.state == "running":
        text = f"still training, not {reason.text}: the lease of the pause has ended at ranks out of reach"
        level, reason = FULL, protocol.Reason("no_client", text)
    asked = _ask(before, seen, level)
    asked = replace(asked, spent_pause=spent)
    state, reason = _observe(asked, seen, level, reason)
    if seen.silent and state in protocol.LIVE_STATES:
        reason = protocol.Reason(reason.code, f"{reason.text}; silent: {', '.join(seen.silent)}")
    return asked, Decision(state, reason, level.name, _hold(seen, level), wanted)


def _choose(before: Asked, seen: Observation) -> tuple[Level, protocol.Reason, bool]:
    """The level in force and who decided it."""
    reason = protocol.Reason
    if seen.child.stopped:
        # a paused script could not obey: to end at its next step, it must reach that step
        return FULL, reason("stop", "stopping: a user asked for it"), False
    if seen.used_up is not None and seen.used_up[0].kind == "unload":
        # the user asked for this end, too: only a larger allowance revokes it
        return *seen.used_up, False
    if seen.override is not None:
        who = seen.override.by
        until = "" if seen.override_until_s is None else f" until {units.fmt_clock(seen.override_until_s, seen.now_s)}"
        if seen.override.mode == "pause":
            return PAUSE, reason("override", f"paused by {who}{until}"), False
        if seen.override.mode == "cap" and seen.override.value_w is not None:
            watts = seen.override.value_w
            text = f"capped at {watts:g} W per GPU by {who}{until}"
            return Level(f"cap {watts:g} W", "cap", cap_w=watts), reason("override", text), False
        return FULL, reason("override", f"boosted by {who}{until}"), False
    planned = seen.planned
    if seen.forbidden_until_s is not None:
        # a user's command outranks the deadline and the longest pause; the plan chooses how to stand still
        still = OFF if seen.child.state == "waiting" else PAUSE
        if planned is not None and planned.still and seen.no_shifting is None:
            still = planned
        until = units.fmt_clock(seen.forbidden_until_s, seen.now_s)
        return still, reason("override", f"forbidden hours until {until}"), False
    if seen.used_up is not None:
        return *seen.used_up, False
    if seen.rehearsing is not None:
        return seen.rehearsing[0], reason("calibrating", seen.rehearsing[1]), False
    if seen.trial is not None:
        return seen.trial, reason("calibrating", f"measuring {seen.trial.name}"), False
    if seen.no_shifting is not None:
        # missing information never causes a pause or delay; caps stay as planned
        return (planned if planned and planned.kind in ("cap", "full") else FULL), seen.no_shifting, False
    if planned is None:
        return FULL, reason("starting", "the first plan is on its way"), False
    if planned.still:
        if seen.must_run:
            return FULL, reason("deadline", "flat out: no slack is left before the deadline"), False
        still_s = 0.0 if before.still_since_s is None else seen.now_s - before.still_since_s
        # a delayed start does not count as a pause: it draws nothing, and the deadline ends it
        if planned.kind != "off" and (before.spent_pause or still_s > seen.max_pause_s):
            text = f"the longest pause ({units.fmt_duration(seen.max_pause_s)}) is over"
            return FULL, reason("max_pause", text), True
    if seen.late and planned.kind == "full":
        return planned, reason("late", "flat out, and still later than the budget"), False
    code: protocol.ReasonCode = "plan_wait" if planned.kind == "off" else "plan"
    return planned, reason(code, _plan_text(planned, seen)), False


def _within_allowance(level: Level, reason: protocol.Reason, seen: Observation) -> tuple[Level, protocol.Reason]:
    """No faster than under the cap that keeps the job within its allowances; a user's override ranks above it."""
    free = seen.allowance_cap_w is None or seen.override is not None or seen.trial is not None or seen.child.stopped
    if free or seen.allowance_cap_w is None:
        return level, reason
    slower = levels.under(level, seen.allowance_cap_w)
    if slower is level:
        return level, reason
    return slower, protocol.Reason("budget_stop", f"capped at {seen.allowance_cap_w:g} W to stay within its budget")


def _plan_text(planned: Level, seen: Observation) -> str:
    verb = {
        "off": "not started yet: the plan begins",
        "unload": "unloaded by the plan",
        "pause": "paused by the plan",
        "duty": f"running {planned.duty or 0:.0%} of the time (saves watts, not energy) by the plan",
        "cap": f"capped at {planned.cap_w or 0:.0f} W by the plan",
        "full": "flat out by the plan",
    }[planned.kind]
    if seen.next_at_s is None:
        return verb if planned.kind != "off" else "not started yet"
    clock = units.fmt_clock(seen.next_at_s, seen.now_s)
    return f"{verb} at {clock}" if planned.kind == "off" else f"{verb} until {clock}"


def _ask(before: Asked, seen: Observation, level: Level) -> Asked:
    """Turn the level into requests to the process and boards; a new generation only when the request changes."""
    mode: protocol.Mode = "run"
    not_before: float | None = None
    if level.still:
        mode = "pause"
        leader = next((rank for rank in seen.ranks if rank.rank == 0), None)
        if level.kind == "unload" and leader is not None and leader.can_unload:
            mode, not_before = "unload", None if seen.rehearsing else seen.next_at_s
    duty = level.duty if level.kind == "duty" else None
    limit = level.cap_w if level.kind == "cap" and seen.can_cap else None
    if seen.child.state not in ("running", "waiting", "unloaded"):
        mode, duty, limit = "run", None, None
    still = level.still
    alone = not seen.ranks and not seen.stepped and seen.child.state == "running"
    freeze = alone and mode == "pause" and _may_freeze(seen)
    since = before.still_since_s if still and before.still_since_s is not None else (seen.now_s if still else None)
    newest = max((rank.want_gen for rank in seen.ranks), default=0)
    if (mode, duty) == (before.mode, before.duty) and newest <= before.gen:
        return replace(before, limit_w=limit, not_before_s=not_before, still_since_s=since, freeze=freeze)
    return Asked(
        mode=mode,
        # a rank may have heard a predecessor: exceed any generation it knows
        gen=max(before.gen, newest) + 1,
        duty=duty,
        limit_w=limit,
        not_before_s=not_before,
        asked_mono_s=seen.mono_s,
        still_since_s=since,
        freeze=freeze,
    )


def _may_freeze(seen: Observation) -> bool:
    """Automatically only once a program has had time to show a step and has not; a user's override does not wait."""
    patient = seen.override is not None or seen.forbidden_until_s is not None or seen.child.age_s >= NO_BOUNDARY_S
    return seen.can_freeze and not seen.freeze_why and patient


def _hold(seen: Observation, level: Level) -> float | None:
    """When a child that is not running should start; None means now."""
    if seen.child.state not in ("waiting", "unloaded") or not level.still:
        return None
    if seen.override is None and seen.forbidden_until_s is not None:
        return min(seen.forbidden_until_s, seen.now_s + HOLD_S)
    candidates = [t for t in (seen.override_until_s if seen.override else seen.next_at_s,) if t is not None]
    return min(candidates) if candidates else seen.now_s + HOLD_S


def _observe(
    asked: Asked, seen: Observation, level: Level, reason: protocol.Reason
) -> tuple[protocol.State, protocol.Reason]:
    """The state as observed, not as asked."""
    child = seen.child
    if child.state in ("vanished", "exited"):
        return ending(child)
    if child.state == "waiting":
        return "waiting", reason
    if child.state == "unloaded":
        return "unloaded", reason
    if not seen.ranks:
        if level.still and seen.stepped:
            return "pausing", reason  # the process is exiting, or its link is being re-established
        if child.frozen and asked.freeze:
            return "paused", protocol.Reason(reason.code, f"{reason.text} (SIGSTOP)")
        if level.still and child.age_s < NO_BOUNDARY_S and not asked.freeze:
            return "pausing", reason
        if level.still:
            return "pausing", protocol.Reason("no_client", _cannot_hold(asked, seen))
        if seen.unseen is not None and reason.code not in ("stop", "calibrating"):
            return "running", protocol.Reason("no_client", f"no step seen yet: {seen.unseen.text}")
        if seen.stepped or child.age_s < NO_CLIENT_S:
            return ("starting" if child.age_s < 3 and not seen.stepped else "running"), reason
        if reason.code in ("plan", "starting"):
            text = "no training step has been seen yet: watts are counted, nothing is steered"
            return "running", protocol.Reason("no_client", text)
        return "running", reason
    if asked.mode in ("pause", "unload"):
        if all(rank.state == "paused" and rank.want_gen == asked.gen for rank in seen.ranks):
            return "paused", reason
        waited = seen.mono_s - asked.asked_mono_s
        if waited >= NO_BOUNDARY_S and not any(rank.state in ("checkpointing", "unloading") for rank in seen.ranks):
            why = seen.deaf or f"no boundary for {max(rank.quiet_s for rank in seen.ranks):.0f} s"
            text = f"asked to pause, but {why}" if seen.deaf else f"asked to pause, {why}"
            return "pausing", protocol.Reason("no_boundary", text)
        return "pausing", reason
    if asked.limit_w is not None and asked.limit_w == seen.refused_w:
        return "running", protocol.Reason(reason.code, f"not {reason.text}: {seen.refused_why}")
    if asked.duty is not None or asked.limit_w is not None:
        return "throttled", reason
    return "running", reason


def _cannot_hold(asked: Asked, seen: Observation) -> str:
    """Why a program without steps cannot be paused, and what helps."""
    why = seen.freeze_why or seen.child.freeze_why
    if why:
        return f"asked to pause, but it has shown no training step and SIGSTOP is refused: {why}"
    if asked.freeze:
        return "asked to pause; stopping its processes (SIGSTOP)"
    if seen.can_freeze:
        return "asked to pause; no training step has been seen yet"
    if seen.unseen is not None:
        return f"asked to pause, but no step seen yet: {seen.unseen.text}"
    return "asked to pause, but no training step has been seen: call carbontui.step(), or run it with --sigstop"
