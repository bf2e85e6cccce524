"""When a speed curve may be measured, what invalidates it, whether an earlier one is usable, and how it is shown."""

from collections.abc import Sequence

from carbontui.job.supervisor.core.planning import finish
from carbontui.job.supervisor.core.state import boards
from carbontui.job.supervisor.core.state.inputs import Inputs
from carbontui.job.supervisor.core.state.job import JobState
from carbontui.power.curves.calibration import CalibrationSpec
from carbontui.power.curves.curve import Curve, Point
from carbontui.power.messages import Code, Outcome, Reading
from carbontui.protocol import Statement, statement

TAKES_S = (300.0, 900.0)
"""Duration of a calibration: with uniform steps, and where the rate varies by 10 % from second to second."""
SLACK_S = 1800.0
"""An automatic calibration needs this much slack: it costs about two minutes of full-speed work."""
WARM_S = 120.0
"""An automatic calibration starts only after this long at full: compilation and warm-up are over."""
ASSUME_SAMPLES = 20
"""A curve not measured here is scaled to full-speed watts of this many samples, about one per second."""
LOWER = 1.03
"""If the curve's full-speed watts exceed the present limit by more than this, it was measured under a higher limit."""
PASSING: frozenset[Code] = frozenset({"outside", "held", "foreign", "lost", "error"})
"""Temporary refusals: they say nothing about what these boards can do at another time."""


def refusal(state: JobState, inputs: Inputs) -> Statement | None:
    """Why no calibration can start now; None when it can."""
    if state.clock.replay:
        return statement("replay_uncalibrated")
    if not inputs.devices:
        return statement("no_gpu")
    if not inputs.ranks:
        return statement("no_step_yet")
    if state.override.current is not None:
        return statement("overridden", by=state.override.current.by)
    if state.decision.state not in ("running", "throttled"):
        return statement("job_is", state=state.decision.state)
    foreign = [pid for reading in inputs.devices for pid in reading.foreign_pids]
    if foreign:
        return statement("gpu_of_others", pid=foreign[0])
    if any(reading.mig for reading in inputs.devices):
        return statement("gpu_in_slices")
    return statement("no_slack_to_calibrate") if finish.must_run(state, inputs) else None


def runs_warm(state: JobState, inputs: Inputs) -> bool:
    """Whether the training runs at a level that warms it up: at full speed, or under a cap of the plan."""
    return state.decision.state in ("running", "throttled") and bool(inputs.ranks) and state.asked.duty is None


def worth_it(state: JobState, inputs: Inputs, warm_s: float) -> bool:
    """Whether to calibrate automatically: within the slack, on boards that take limits, after `warm_s` at full
    speed."""
    left, deadline = state.progress.left_s, state.deadline_s
    # a curve without caps was measured when none could be set
    known = state.curve is not None and not state.curve.note and state.curve.basis == "measured"
    if known or warm_s < WARM_S or left is None or deadline is None or deadline - inputs.now_s - left < SLACK_S:
        return False
    if not state.spec.cap or refusal(state, inputs):
        return False
    return all(r.caps["limit"].support == "yes" if "limit" in r.caps else False for r in inputs.devices)


def drawn_w(state: JobState, inputs: Inputs) -> float | None:
    """Total full-speed watts of the boards, to which a curve measured elsewhere is scaled until this job is calibrated.

    None if not known well enough, if no limit can be set, or if a cap's true speed could not be observed.
    """
    means = [state.measured.full_w.get(reading.uuid) for reading in inputs.devices]
    known = [mean.value for mean in means if mean and mean.value is not None and mean.samples >= ASSUME_SAMPLES]
    if not known or len(known) < len(means) or not state.caps_hold:
        return None
    if not state.progress.step or state.progress.ref_rate is None:
        return None
    if state.clock.replay or any(
        reading.simulated or reading.foreign_pids or reading.mig for reading in inputs.devices
    ):
        return None
    return sum(known)


def simulated_curve(state: JobState, inputs: Inputs) -> Curve:
    """The curve of simulated boards, known exactly because it is their model."""
    board, count = state.spec.simulated, len(inputs.devices)
    assert board is not None
    points = tuple(
        Point(
            kind="full" if limit_w == board.points[-1][0] else "cap",
            cap_w=None if limit_w == board.points[-1][0] else limit_w,
            power_w=watts * count,
            power_se=0.0,
            speed=speed,
            speed_se=0.0,
        )
        for limit_w, watts, speed in board.points
    )
    return Curve(
        gpu=inputs.devices[0].name,
        gpus=count,
        fingerprint="",
        measured_s=inputs.now_s,
        simulated=True,
        rate_steps_per_s=0.0,
        points=points,
        levels=points,
        parked_w=board.parked_w * count,
        basis="public",
    )


def spec_of(state: JobState, inputs: Inputs, fingerprint: str) -> CalibrationSpec:
    """The bounds of a calibration on these boards."""
    devices = inputs.devices
    bad = next((r.caps["limit"] for r in devices if "limit" in r.caps and r.caps["limit"].support != "yes"), None)
    lows = [reading.limit_min_w for reading in devices if reading.limit_min_w is not None]
    founds = [reading.limit_found_w for reading in devices if reading.limit_found_w is not None]
    return CalibrationSpec(
        gpu=devices[0].name,
        gpus=len(devices),
        fingerprint=fingerprint,
        prior=state.curve.points if state.curve is not None and state.curve.basis != "measured" else (),
        can_cap=state.spec.cap and bad is None and len(lows) == len(founds) == len(devices),
        limit_min_w=max(lows, default=None),
        limit_found_w=min(founds, default=None),
        simulated=any(reading.simulated for reading in devices),
        why_not_cap="--no-cap" if not state.spec.cap else bad.why if bad else "",
    )


def disturbance(state: JobState, inputs: Inputs) -> Statement | None:
    """Why measuring is not possible at the moment; None when it is."""
    if (held := state.override.current) is not None:
        return statement("disturbed_by_user", mode=held.mode, by=held.by)
    if finish.must_run(state, inputs):
        return statement("disturbed_by_deadline")
    if inputs.leader is None:
        return statement("disturbed_by_disconnection")
    if boards.unseen(state.boards, inputs) or any(reading.lost for reading in inputs.devices):
        return statement("disturbed_by_lost_gpu")
    if any(reading.foreign_pids for reading in inputs.devices):
        return statement("disturbed_by_others")
    return None


def failures(outcomes: Sequence[Outcome]) -> tuple[str, str]:
    """(temporary failure that invalidates this measurement, permanent reason why no cap can be set); '' for none."""
    failed = [outcome for outcome in outcomes if not outcome.ok]
    passing = [outcome.text or outcome.code for outcome in failed if outcome.code in PASSING]
    lasting = [outcome.text or outcome.code for outcome in failed if outcome.code not in PASSING]
    return next(iter(passing), ""), next(iter(lasting), "")


def in_force_w(reading: Reading) -> float | None:
    """The cap in force on a board; 0 while one is set but its effect not yet seen, so not to be measured yet."""
    if reading.proving:
        return 0.0
    return reading.limit_w if reading.clocks_w is None else reading.clocks_w


def too_high_w(curve: Curve, inputs: Inputs) -> tuple[float, float] | None:
    """(board's full-speed watts then, watts allowed now) if an earlier curve was measured under a higher limit."""
    tops = [reading.limit_found_w for reading in inputs.devices if reading.limit_found_w is not None]
    drawn = next((p.power_w for p in curve.points if p.kind == "full"), 0.0) / curve.gpus
    return (drawn, min(tops)) if tops and drawn > LOWER * min(tops) else None


def usable_levels(curve: Curve, inputs: Inputs) -> tuple[Point, ...]:
    """The levels of an earlier curve that the boards still allow."""
    low = max((reading.limit_min_w or 0.0 for reading in inputs.devices), default=0.0)
    return tuple(point for point in curve.levels if point.cap_w is None or point.cap_w >= low)
