"""What a job's boards draw and how fast it pauses: measured values where available, else documented defaults."""

import math
from typing import Literal, NamedTuple

from carbontui import units
from carbontui.account.compare import Embodied, board
from carbontui.account.compare import embodied as making
from carbontui.job.supervisor.core.planning import problem
from carbontui.job.supervisor.core.state import measured
from carbontui.job.supervisor.core.state.inputs import Inputs
from carbontui.job.supervisor.core.state.job import JobState
from carbontui.job.supervisor.core.state.plan import Level, cap_name
from carbontui.power.curves import curve as curves
from carbontui.power.messages import IDLE_OF_LIMIT

PAUSE_PLAN_MAX_S, RESUME_PLAN_MAX_S = 120.0, 600.0
"""Upper bounds on the pause and resume latency that a plan assumes (seconds of the job's clock)."""


def machine(state: JobState, inputs: Inputs) -> problem.Machine:
    """The machine model a plan uses; watts are sums over the job's boards."""
    known, spec, speed = state.measured, state.spec, state.clock.speed
    uuids = tuple(reading.uuid for reading in inputs.devices)
    guess = _guessed_full_w(state, inputs)
    full, full_measured = _boards_w(state, "full", uuids, guess)
    parked, parked_measured = _boards_w(state, "parked", uuids, min(problem.DEFAULT_PARKED_W, guess / 3))
    idle = math.fsum(idle_w(state, inputs).values())
    parked = parked if parked_measured else max(parked, idle)
    rest = known.rest_w.value or 0.0
    rest_idle = known.rest_idle_w.value or inputs.readings.host.idle_w or 0.0
    rest_parked = rest if known.rest_parked_w.value is None else known.rest_parked_w.value
    if not uuids:
        # no board: use the CPU's watts when busy and idle instead
        full = known.rest_w.value or max(problem.DEFAULT_CPU_W, rest_idle / problem.DEFAULT_CPU_PARKED_SHARE)
        parked = known.rest_parked_w.value or max(problem.DEFAULT_CPU_PARKED_SHARE * full, rest_idle)
        idle = rest_idle or problem.DEFAULT_CPU_IDLE_SHARE * full
        rest = rest_idle = rest_parked = 0.0
    # levels must be ordered by watts, even if two means taken at different times are not
    parked = min(parked, full) if full else parked
    return problem.Machine(
        full_w=full,
        full_measured=full_measured,
        parked_w=parked,
        parked_measured=parked_measured,
        idle_w=min(idle, parked),
        rest_w=rest,
        # means taken at different times: what idles is no more than what is parked, that no more than what works
        rest_parked_w=min(rest, max(rest_parked, rest_idle)),
        rest_idle_w=min(rest, rest_idle),
        host_w=host(state, inputs).watts,
        boundary=spec.boundary,
        gives_back=spec.gives_back,
        pue=spec.pue,
        caps=(caps(state) or _expected_caps(state, inputs, full)) + _asked_cap(state),
        # in a replay one period of a duty cycle would be an hour
        can_duty=state.progress.step > 0 and not state.caps_hold and not state.clock.replay,
        pause_s=min(PAUSE_PLAN_MAX_S, (known.pause_s.value or problem.DEFAULT_PAUSE_S / speed) * speed),
        resume_s=resume_s(state),
        can_unload=(state.may_unload(inputs.leader) and any(rank.can_unload for rank in inputs.ranks))
        or state.decision.state == "unloaded",
        reload_s=max(problem.DEFAULT_RELOAD_MIN_S, known.reload_s.value or problem.DEFAULT_RELOAD_S) * speed,
        unload_s=_unload_s(state),
        unload_w=_mean_w(known.unload_j, known.unload_s),
        reload_w=_mean_w(known.reload_j, known.reload_s),
    )


def _boards_w(
    state: JobState, kind: measured.PowerState, uuids: tuple[str, ...], otherwise: float
) -> tuple[float, bool]:
    """Watts of the boards at full speed or paused, and whether they are known: measured in this run, else by its
    calibration (a job may never run at full speed, and is planned before its first pause)."""
    watts, known = measured.total_w(state.measured, kind, uuids, otherwise)
    curve = state.curve
    if known or not uuids or curve is None or not (curve.basis == "measured" or curve.simulated):
        return watts, known
    found = curve.parked_w if kind == "parked" else next((p.power_w for p in curve.points if p.kind == "full"), None)
    return (watts, False) if found is None or curve.gpus != len(uuids) else (found, True)


def _unload_s(state: JobState) -> float:
    speed, measured_s = state.clock.speed, state.measured.unload_s.value
    if measured_s is not None:
        return measured_s * speed
    return problem.DEFAULT_UNLOAD_S if speed == 1 else speed * problem.DEFAULT_PAUSE_S


def _mean_w(joules: measured.Mean, seconds: measured.Mean) -> float | None:
    return joules.value / seconds.value if joules.value is not None and seconds.value else None


def _guessed_full_w(state: JobState, inputs: Inputs) -> float:
    """Full-speed watts of one board before any was measured: its limit, if it reports one, else as declared."""
    declared = state.spec.declared
    otherwise = declared.tdp_w * (declared.utilisation or 1.0) if declared else problem.DEFAULT_FULL_W
    limits = [reading.limit_found_w or reading.limit_w or otherwise for reading in inputs.devices]
    return sum(limits) / len(limits) if limits else otherwise


def caps(state: JobState) -> tuple[problem.PowerCap, ...]:
    """The calibrated caps; empty while the boards take no limit."""
    if state.curve is None or not state.caps_hold:
        return ()
    return tuple(
        problem.PowerCap(point.cap_w, point.power_w, point.speed)
        for point in state.curve.levels
        if point.kind == "cap" and point.cap_w is not None
    )


def _expected_caps(state: JobState, inputs: Inputs, full_w: float) -> tuple[problem.PowerCap, ...]:
    """While a start waits, the caps that other trainings have: without them it would wait for hours that caps need.
    Once it runs, caps wait until its steps show what they do to its speed."""
    boards = inputs.devices
    if inputs.child.state != "waiting" or state.curve is not None or not state.caps_hold or state.clock.replay:
        return ()
    if not boards or any(board.simulated or board.foreign_pids or board.mig for board in boards):
        return ()
    least_w = max(board.limit_min_w or 0.0 for board in boards)
    return tuple(
        problem.PowerCap(cap_w, watts * full_w, speed, assumed=True)
        for share, watts, speed in ASSUMED_CAPS[:-1]
        if (cap_w := round(share * full_w / len(boards))) >= least_w
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


ASSUMED_CAPS = ((0.60, 0.577, 0.741), (0.72, 0.676, 0.875), (0.86, 0.785, 0.942), (1.0, 1.0, 1.0))
"""(limit, watts, speed) as shares of full speed: the mean of all public measurements, as `power/curves/public.py` has
them."""


def assumed_cap(known: problem.Machine, cap_w: float, boards: int) -> Level:
    """A cap of which no curve tells: watts and speed as other trainings have them under that share of their watts."""
    watts, speed = units.between(ASSUMED_CAPS, min(1.0, cap_w * boards / known.full_w))[1:]
    return Level(cap_name(cap_w), "cap", watts * known.full_w, speed, cap_w=cap_w, assumed=True)


def resume_s(state: JobState) -> float:
    """From the resume request to the first step, in seconds of the job's clock."""
    speed = state.clock.speed
    return min(RESUME_PLAN_MAX_S, (state.measured.resume_s.value or problem.DEFAULT_RESUME_S / speed) * speed)


def likely_wall_w(state: JobState, inputs: Inputs) -> float:
    """As `full_wall_w`, with the watts that a plan assumes until they were measured."""
    assumed = machine(state, inputs)
    return assumed.full_charged_w * assumed.pue


def charged_w(state: JobState, inputs: Inputs) -> tuple[float, float]:
    """What counts at full speed and while paused in memory, as a plan takes it, before PUE."""
    known = machine(state, inputs)
    return known.full_charged_w, known.charged_w(Level("pause", "pause", known.parked_w, 0.0))


def full_wall_w(state: JobState, inputs: Inputs) -> float | None:
    """Full-speed watts that count at the wall, PUE included; None until the boards have been measured at full speed."""
    uuids = tuple(reading.uuid for reading in inputs.devices)
    known = _boards_w(state, "full", uuids, 0.0)[1] if uuids else state.measured.rest_w.value is not None
    return likely_wall_w(state, inputs) if known else None


def parked_wall_w(state: JobState, inputs: Inputs) -> float | None:
    """Likewise while paused in memory; None until every board has been measured so."""
    known = machine(state, inputs)
    return charged_w(state, inputs)[1] * known.pue if known.parked_measured else None


def embodied(state: JobState, inputs: Inputs) -> Embodied | None:
    """What making the job's boards emitted, per hour held, if a plan weighs it and it is known."""
    given = state.spec.embodied
    return None if given is None else making([reading.name for reading in inputs.devices], given)


# --- what idles, and the host --------------------------------------------------------------------------------------

DOUBT_OF_MODEL, DOUBT_OF_DEFAULT = 0.4, 0.67
"""Of the idle watts of a board that was not seen idle: readings of one model lie as far from their median (those of an
H100 from 69 to 100 W), and those of 24 in 29 models from the default (gpus.csv)."""


def idle_w(state: JobState, inputs: Inputs) -> dict[str, float]:
    """The job's part of the watts that each of its boards draws without any process: measured, else those of its model,
    else a default."""
    return {uuid: watts for uuid, (watts, _) in idles(state, inputs).items()}


def idles(state: JobState, inputs: Inputs) -> dict[str, tuple[float, float]]:
    """These watts, and by which share they may be wrong."""
    simulated, found = state.spec.simulated, {}
    for one in inputs.devices:
        model, seen_w = board(one.name), state.measured.idle_w.get(one.uuid, measured.NO_MEAN).value
        known = seen_w or (simulated and simulated.idle_w)
        of_model = model and model.idle_w
        watts = known or of_model or IDLE_OF_LIMIT * _guessed_full_w(state, inputs)
        doubt = 0.0 if known else DOUBT_OF_MODEL if of_model else DOUBT_OF_DEFAULT
        found[one.uuid] = watts * (1.0 if one.share is None else one.share), doubt
    return found


def idle_total_w(state: JobState, inputs: Inputs) -> float:
    """Watts of the job's part of the machine without any work, before PUE."""
    own_idle_w = inputs.readings.host.idle_w or 0.0
    return math.fsum(idle_w(state, inputs).values()) + own_idle_w + host(state, inputs).watts


HOST_OF_LIMIT, HOST_LEAST, HOST_MOST = 0.4, 0.27, 0.53
"""Watts of a server besides boards, CPU and memory, as a share of its boards' limits, and the band: nodes of 8 H100 of
700 W leave 270-450 W per board besides the boards (Latif et al. 2025; arXiv 2506.14551), of which CPU and memory are
about 80."""


class HostWatts(NamedTuple):
    """The job's part of the watts besides boards, CPU and memory: `how` is given, measured, default (with its band), or
    none where nothing else counts or is known."""

    watts: float
    how: Literal["given", "measured", "default", "none"]
    by: str = ""
    band_w: tuple[float, float] | None = None


def host(state: JobState, inputs: Inputs, *, whole: bool = False) -> HostWatts:
    """As given, else as measured, else a server's default by its boards; of a machine that is on anyway none count,
    except of the `whole` of it."""
    spec, reading = state.spec, inputs.readings.host
    if spec.boundary == "always-on" and not whole:
        return HostWatts(0.0, "none")
    if spec.host_w is not None:
        # what is given is one machine's
        return HostWatts(spec.host_w * max(1, len(inputs.readings.nodes)) / inputs.jobs, "given")
    if spec.simulated is not None:
        return HostWatts(0.0, "none")
    if reading.beside_w is not None:
        return HostWatts(reading.beside_w, "measured", reading.beside_by)
    limit_w = math.fsum(one.limit_default_w or one.limit_max_w or problem.DEFAULT_FULL_W for one in inputs.devices)
    if not limit_w:
        return HostWatts(0.0, "none")
    return HostWatts(HOST_OF_LIMIT * limit_w, "default", band_w=(HOST_LEAST * limit_w, HOST_MOST * limit_w))
