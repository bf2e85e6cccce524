"""What a job's boards draw and how fast it pauses: measured values where available, else documented defaults."""

from __future__ import annotations

from carbontui.job.supervisor.core.planning import problem
from carbontui.job.supervisor.core.state import measured
from carbontui.job.supervisor.core.state.inputs import Inputs
from carbontui.job.supervisor.core.state.job import JobState
from carbontui.power.curves import curve as curves

PAUSE_PLAN_MAX_S, RESUME_PLAN_MAX_S = 120.0, 600.0
"""Upper bounds on the pause and resume latency that a plan assumes (seconds of the job's clock)."""


def machine(state: JobState, seen: Inputs) -> problem.Machine:
    """The machine model a plan uses; watts are sums over the job's boards."""
    known, spec, speed = state.measured, state.spec, state.clock.speed
    uuids = tuple(reading.uuid for reading in seen.devices)
    guess = _guessed_full_w(seen)
    full, full_measured = _full_w(state, uuids, guess)
    parked, parked_measured = measured.total_w(known, "parked", uuids, min(problem.DEFAULT_PARKED_W, guess / 3))
    idle, _ = measured.total_w(known, "idle", uuids, min(problem.DEFAULT_IDLE_W, guess / 6))
    host_w = spec.host_w / max(1, seen.readings.host.jobs)
    rest = (known.rest_w.value or 0.0) + host_w
    if not uuids:
        # no board: use the CPU's watts when busy and idle instead
        rest = host_w
        full = known.rest_w.value or problem.DEFAULT_CPU_W
        parked = idle = known.rest_parked_w.value or problem.DEFAULT_CPU_IDLE_SHARE * full
    # levels must be ordered by watts, even if two means taken at different times are not
    parked = min(parked, full) if full else parked
    return problem.Machine(
        full_w=full,
        full_measured=full_measured,
        parked_w=parked,
        parked_measured=parked_measured,
        idle_w=min(idle, parked),
        rest_w=rest,
        pue=spec.pue,
        caps=caps(state) + _asked_cap(state),
        # in a replay one period of a duty cycle would be an hour
        can_duty=state.progress.step > 0 and not state.caps_hold and not state.clock.replay,
        pause_s=min(PAUSE_PLAN_MAX_S, (known.pause_s.value or problem.DEFAULT_PAUSE_S / speed) * speed),
        resume_s=resume_s(state),
        can_unload=(state.may_unload and any(rank.can_unload for rank in seen.ranks))
        or state.decision.state == "unloaded",
        reload_s=max(problem.DEFAULT_RELOAD_MIN_S, known.reload_s.value or problem.DEFAULT_RELOAD_S) * speed,
        unload_s=_unload_s(state),
        unload_w=_mean_w(known.unload_j, known.unload_s),
        reload_w=_mean_w(known.reload_j, known.reload_s),
    )


def _full_w(state: JobState, uuids: tuple[str, ...], otherwise: float) -> tuple[float, bool]:
    """Full-speed watts of the boards, and whether they are known: measured in this run, else by its calibration (a job
    capped from its first step may never run at full speed)."""
    watts, known = measured.total_w(state.measured, "full", uuids, otherwise)
    curve = state.curve
    if known or not uuids or curve is None or not (curve.basis == "measured" or curve.simulated):
        return watts, known
    flat = next((point.power_w for point in curve.points if point.kind == "full"), None)
    return (watts, False) if flat is None or curve.gpus != len(uuids) else (flat, True)


def _unload_s(state: JobState) -> float:
    speed, measured_s = state.clock.speed, state.measured.unload_s.value
    if measured_s is not None:
        return measured_s * speed
    return problem.DEFAULT_UNLOAD_S if speed == 1 else speed * problem.DEFAULT_PAUSE_S


def _mean_w(joules: measured.Mean, seconds: measured.Mean) -> float | None:
    return joules.value / seconds.value if joules.value is not None and seconds.value else None


def _guessed_full_w(seen: Inputs) -> float:
    """Full-speed watts of one board before any was measured: its limit, if it reports one."""
    limits = [reading.limit_found_w or reading.limit_w for reading in seen.devices]
    if not limits:
        return problem.DEFAULT_FULL_W
    return sum(limit or problem.DEFAULT_FULL_W for limit in limits) / len(limits)


def caps(state: JobState) -> tuple[problem.PowerCap, ...]:
    """The calibrated caps; empty while the boards take no limit."""
    if state.curve is None or not state.caps_hold:
        return ()
    return tuple(
        problem.PowerCap(point.cap_w, point.power_w, point.speed)
        for point in state.curve.levels
        if point.kind == "cap" and point.cap_w is not None
    )


def _asked_cap(state: JobState) -> tuple[problem.PowerCap, ...]:
    """The cap that a user has set, as a level of its own where no calibrated one is equal."""
    held = state.override.current
    if held is None or held.mode != "cap" or held.value_w is None or state.curve is None or not state.caps_hold:
        return ()
    if any(known.cap_w == held.value_w for known in caps(state)):
        return ()
    found = curves.at_cap(state.curve, held.value_w)
    return () if found is None else (problem.PowerCap(held.value_w, *found, assumed=True),)


def resume_s(state: JobState) -> float:
    """From the resume request to the first step, in seconds of the job's clock."""
    speed = state.clock.speed
    return min(RESUME_PLAN_MAX_S, (state.measured.resume_s.value or problem.DEFAULT_RESUME_S / speed) * speed)


def likely_wall_w(state: JobState, seen: Inputs) -> float:
    """As `full_wall_w`, with the watts that a plan assumes until they were measured."""
    known_w = full_wall_w(state, seen)
    if known_w is not None:
        return known_w
    assumed = machine(state, seen)
    return (assumed.full_w + assumed.rest_w) * assumed.pue


def full_wall_w(state: JobState, seen: Inputs) -> float | None:
    """Full-speed watts at the wall, PUE included; None until the boards have been measured at full speed."""
    uuids = tuple(reading.uuid for reading in seen.devices)
    watts, known = _full_w(state, uuids, 0.0)
    rest = state.measured.rest_w.value
    if not known if uuids else rest is None:
        return None
    return (watts + (rest or 0.0) + state.spec.host_w / max(1, seen.readings.host.jobs)) * state.spec.pue
