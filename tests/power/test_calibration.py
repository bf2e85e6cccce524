"""Calibration on simulated jobs: watts and speeds within 3 % of the truth, and never a half-learned curve."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simjob import SimulatedJob, drive

from carbontui.job.supervisor.core.rules.calibration import failures
from carbontui.power.curves.calibration import (
    Calibration,
    CalibrationInput,
    CalibrationSpec,
    Finished,
    GivenUp,
    Pause,
    TryLimit,
)
from carbontui.power.curves.curve import Curve, Point, before, combined, fitted, isotonic, useful
from carbontui.power.curves.files import fingerprint, load, save
from carbontui.power.curves.step_rate import RateEstimate, WindowRate, estimated, rate_at, window_rate
from carbontui.power.messages import Outcome


def spec(**changes: object) -> CalibrationSpec:
    base: dict[str, object] = {
        "gpu": "NVIDIA H100",
        "gpus": 1,
        "fingerprint": "f",
        "can_cap": True,
        "limit_min_w": 200.0,
        "limit_found_w": 700.0,
    }
    return CalibrationSpec(**{**base, **changes})  # type: ignore[arg-type]


def calibrate(job: SimulatedJob, **changes: object) -> Curve:
    *_, last = drive(Calibration(spec(**changes)), job)
    assert isinstance(last, Finished), last
    return last.curve


@pytest.mark.parametrize(
    "nature",
    [
        {},
        {"drift_per_min": 0.02},
        {"noise": 0.05},
        {"burst": 0.72},
        {"rate": 1.2},
        {"rate": 40.0, "burst": 0.72, "drift_per_min": -0.01, "noise": 0.05},
    ],
    ids=str,
)
def test_every_level_within_3_percent(nature: dict[str, float]) -> None:
    job = SimulatedJob(seed=4, **nature)  # type: ignore[arg-type]
    full = job.steady(700.0)
    curve = calibrate(job)
    assert len(curve.points) == 6 and curve.points[-1].kind == "full"
    for point in curve.points:
        _, watts, speed = job.steady(point.cap_w or 700.0)
        assert point.power_w == pytest.approx(watts, rel=0.03)
        assert point.speed == pytest.approx(speed / full[2], rel=0.03)
        assert 0 < point.power_se < 0.05 * watts and 0 <= point.speed_se < 0.03
    assert curve.parked_w == pytest.approx(118, rel=0.03)
    assert curve.levels[-1].kind == "full" and curve.pause_s is not None and curve.resume_s is not None


@pytest.mark.parametrize("start_s", [25.0, 29.0, 33.0])
def test_a_checkpoint_at_the_end_of_a_window_is_in_neither_its_watts_nor_its_pace(start_s: float) -> None:
    job = SimulatedJob(seed=4, stalls=((start_s, start_s + 20),), drift_per_min=0.0)
    curve = calibrate(job, can_cap=False)
    _, watts, _ = job.steady(700.0)
    assert curve.points[-1].power_w == pytest.approx(watts, rel=0.03)
    assert curve.rate_steps_per_s == pytest.approx(job.rate, rel=0.03)


def test_checkpoints_at_random_gaps_do_not_matter() -> None:
    dice, at, stalls = random.Random(3), 15.0, []
    while at < 1500:
        stalls.append((at, at + 20))
        at += 20 + dice.uniform(30, 150)
    job = SimulatedJob(seed=4, stalls=tuple(stalls), drift_per_min=0.0)
    full = job.steady(700.0)
    for point in calibrate(job).points:
        _, watts, speed = job.steady(point.cap_w or 700.0)
        assert point.power_w == pytest.approx(watts, rel=0.02)
        assert point.speed == pytest.approx(speed / full[2], rel=0.04)


def test_what_is_known_better_already_is_kept() -> None:
    job = SimulatedJob(seed=1)
    known = tuple(Point(kind="cap", cap_w=w, power_w=w, power_se=1.0, speed=0.9, speed_se=1e-4) for w in (200.0, 650.0))
    *_, last = drive(Calibration(spec(prior=known)), job)
    assert isinstance(last, GivenUp) and "less well than before" in last.why


def test_two_estimates_of_a_level_count_by_their_certainty() -> None:
    one, other = level(300, 300, 0.5), msgspec.structs.replace(level(300, 290, 0.6), power_se=2.0, speed_se=0.01)
    both = combined(one, other)
    assert (both.power_w, both.speed) == (pytest.approx(298.0), pytest.approx(0.52))
    assert both.power_se < 1.0 and both.speed_se < 0.005
    assert before((one, other, level(None, 650, 1.0)), level(200, 200, 0.3)) is None, "nothing was known so low"


def test_without_permission_full_and_parked_only() -> None:
    job = SimulatedJob(seed=1)
    curve = calibrate(job, can_cap=False, why_not_cap="needs root")
    assert [point.kind for point in curve.points] == ["full"]
    assert curve.parked_w == pytest.approx(118, rel=0.03) and "needs root" in curve.note


def test_a_refused_cap_ends_the_caps_not_the_calibration() -> None:
    job = SimulatedJob(seed=1)
    calibration = Calibration(spec())
    capped = False
    for _ in range(400):
        job.advance(1.0)
        observation = job.observe()
        if capped:
            fields = {f: getattr(observation, f) for f in observation.__struct_fields__}
            observation = CalibrationInput(**{**fields, "refused": "no permission"})
        action = calibration.next(observation)
        if isinstance(action, TryLimit):
            capped = action.watts_per_gpu is not None
        if isinstance(action, Pause):
            job.paused = True
        elif action.__class__.__name__ == "Resume":
            job.paused = False
        if isinstance(action, Finished):
            break
    assert isinstance(action, Finished)
    assert [point.kind for point in action.curve.points] == ["full"] and "no permission" in action.curve.note


def test_a_disturbance_gives_up() -> None:
    job = SimulatedJob(seed=1)
    calibration = Calibration(spec())
    job.advance(1)
    calibration.next(job.observe())
    fields = {f: getattr(job.observe(), f) for f in job.observe().__struct_fields__}
    action = calibration.next(CalibrationInput(**{**fields, "disturbed": "paused by ada@pts/3"}))
    assert action == GivenUp("paused by ada@pts/3")


def test_a_job_that_takes_no_step_gives_up() -> None:
    job = SimulatedJob(seed=1, rate=0.0)
    *_, last = drive(Calibration(spec()), job)
    assert isinstance(last, GivenUp) and "no step" in last.why


def test_a_meter_that_stands_still_gives_up() -> None:
    job, calibration = SimulatedJob(seed=1), Calibration(spec())
    job.advance(1)
    frozen = job.observe()
    for _ in range(200):
        job.advance(1)
        fields = {f: getattr(job.observe(), f) for f in frozen.__struct_fields__}
        still = {"energy_j": frozen.energy_j, "energy_mono_s": frozen.energy_mono_s}
        action = calibration.next(CalibrationInput(**{**fields, **still}))
        if isinstance(action, GivenUp):
            break
    assert action == GivenUp("watts could not be read")


@given(st.lists(st.tuples(st.floats(-10, 10), st.floats(0.1, 10)), min_size=1, max_size=12))
@settings(max_examples=100, deadline=None)
def test_isotonic_is_monotone_and_keeps_the_weighted_mean(pairs: list[tuple[float, float]]) -> None:
    values, weights = [v for v, _ in pairs], [w for _, w in pairs]
    fit = isotonic(values, weights)
    assert all(a <= b + 1e-9 for a, b in itertools.pairwise(fit))
    assert sum(f * w for f, w in zip(fit, weights, strict=True)) == pytest.approx(
        sum(v * w for v, w in pairs), abs=1e-6
    )
    ordered = sorted(values)
    assert isotonic(ordered, weights) == pytest.approx(ordered)


def level(cap: float | None, watts: float, speed: float) -> Point:
    kind = "full" if cap is None else "cap"
    return Point(kind=kind, cap_w=cap, power_w=watts, power_se=1.0, speed=speed, speed_se=0.005)  # type: ignore[arg-type]


def test_a_level_that_turns_between_its_neighbours_beat_is_dropped() -> None:
    points = [level(300, 300, 0.5), level(400, 400, 0.85), level(500, 500, 0.87), level(None, 650, 1.0)]
    kept = [point.cap_w for point in useful(points, 120)]
    assert kept == [400, None]  # 300 W at 0.5 and 500 W at 0.87 lie below the line between parked, 400 W and full


def test_noise_never_makes_more_watts_slower() -> None:
    noisy = fitted([level(None, 650, 1.0), level(500, 502, 1.01), level(400, 400, 0.8)])
    assert [point.cap_w for point in noisy] == [400, 500, None]
    assert [round(point.speed, 3) for point in noisy] == sorted(round(point.speed, 3) for point in noisy)
    assert noisy[-1].speed == 1.0


def window(dice: random.Random, rate: float, variability: float, seconds: float, start_s: float = 0.0) -> WindowRate:
    """Steps that take 1 / rate on average, timed about once a second."""
    timed: list[tuple[float, int]] = []
    at_s, count = start_s, 0
    while at_s < start_s + seconds:
        # steps of chance lengths: the time of n of them has the variance n * (variability / rate)
        at_s += dice.gammavariate(1 / (variability * rate), variability)
        count += 1
        if not timed or at_s - timed[-1][0] >= 1.0:
            timed.append((at_s, count))
    found = window_rate(timed)
    assert found is not None
    return found


def test_the_error_of_a_rate_covers_the_truth_and_is_not_idle() -> None:
    dice = random.Random(2)
    offs = []
    for _ in range(150):
        rate, variability = dice.uniform(0.3, 30), dice.choice([1e-4, 1e-3, 4e-3])
        windows = [window(dice, rate, variability, 20) for _ in range(5)]
        found = estimated(windows[0], windows)
        offs.append((found.value - rate) / found.se)
    assert sum(abs(off) > 2 for off in offs) <= 0.05 * len(offs)
    assert sum(abs(off) > 0.5 for off in offs) >= 0.4 * len(offs)


def test_one_window_that_looks_calm_by_luck_is_not_believed() -> None:
    dice = random.Random(3)
    wild = [window(dice, 5.0, 1e-3, 30) for _ in range(4)]
    calm = window(dice, 5.0, 1e-6, 15)
    assert estimated(calm, [*wild, calm]).se > 5 * estimated(calm, [calm]).se


def test_whole_counts_that_stand_still_against_the_clock_leave_no_error() -> None:
    found = window_rate([(at_s, round(at_s * 1.02)) for at_s in (step / 1.02 for step in range(20))])
    assert found is not None and found.rate == pytest.approx(1.02)
    told_again = [(at_s + late_s, count) for at_s, count in [(0.0, 3), (6.0, 9), (12.0, 15)] for late_s in (0, 0.5)]
    assert window_rate(told_again) == window_rate(told_again[::2]), "a step told twice was done when it was told first"


def test_too_few_steps_have_no_rate() -> None:
    assert window_rate([]) is None
    assert window_rate([(0.0, 1), (9.0, 2)]) is None
    assert window_rate([(0.0, 1), (1.0, 2), (2.0, 3)]) is None
    assert window_rate([(0.0, 1), (0.5, 2), (5.2, 3)]) is None


def test_a_drift_is_taken_off_by_a_line_and_a_turn_by_the_neighbours() -> None:
    line = [RateEstimate(at_s, 10 - at_s / 100, 0.05) for at_s in (0.0, 60.0, 120.0, 180.0, 240.0)]
    there = rate_at(line, 90.0)
    assert there.value == pytest.approx(9.1) and there.se < 0.03
    jump = [RateEstimate(at_s, 10.0 if at_s < 100 else 9.0, 0.05) for at_s in (0.0, 60.0, 120.0, 180.0, 240.0)]
    assert rate_at(jump, 30.0).value == pytest.approx(10.0) and rate_at(jump, 210.0).value == pytest.approx(9.0)


def test_the_curve_comes_back_from_its_file_and_belongs_to_its_script(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("a = 1")
    argv = ["python", "train.py", "--lr", "1"]
    mark = fingerprint(argv, tmp_path)
    curve = Curve(
        gpu="H100", gpus=2, fingerprint=mark, measured_s=1.0, rate_steps_per_s=2.0, points=(level(None, 650, 1.0),)
    )
    save(curve, tmp_path / "curves")
    assert load("H100", 2, mark, tmp_path / "curves") == curve
    assert load("H100", 1, mark, tmp_path / "curves") is None
    script.write_text("a = 2")
    assert fingerprint(argv, tmp_path) != mark
    (path,) = (tmp_path / "curves").iterdir()
    path.write_text("{")
    assert load("H100", 2, mark, tmp_path / "curves") is None


def test_a_curve_without_caps_never_replaces_one_that_knows_them(tmp_path: Path) -> None:
    full = Point(kind="full", cap_w=None, power_w=680.0, power_se=2.0, speed=1.0, speed_se=0.001)
    known = Curve(
        gpu="H100", gpus=1, fingerprint="f", measured_s=1.0, rate_steps_per_s=9.0, points=(full,), levels=(full,)
    )
    poor = msgspec.structs.replace(known, measured_s=2.0, note="without caps: --no-cap")
    save(poor, tmp_path)
    save(known, tmp_path)
    with pytest.raises(OSError, match="knows caps"):
        save(poor, tmp_path)
    assert load("H100", 1, "f", tmp_path) == known
    save(msgspec.structs.replace(known, measured_s=3.0), tmp_path)


def test_only_lasting_refusals_are_learnt_from() -> None:
    outside = Outcome("GPU-a", False, "outside", 500.0, "the limit was changed outside")
    refused = Outcome("GPU-b", False, "no_permission", None, "only root sets limits")
    assert failures([Outcome("GPU-a", True, "applied", 300.0)]) == ("", "")
    assert failures([refused, outside]) == ("the limit was changed outside", "only root sets limits")


def test_a_level_that_draws_less_than_a_pause_is_useful() -> None:
    """Boards that others keep busy, or that draw little at work: the pause is the worse of the two."""
    flat = {258.0: 512.0, 407.0: 810.0, 584.0: 1166.0, None: 1359.0}
    points = [
        Point(kind="full" if cap is None else "cap", cap_w=cap, power_w=w, power_se=5.0, speed=s, speed_se=0.006)
        for (cap, w), s in zip(flat.items(), (0.999, 0.999, 1.0, 1.0), strict=True)
    ]
    for parked_w in (None, 200.0, 512.0, 900.0, 1365.0):
        assert [point.cap_w for point in useful(points, parked_w)] == [258.0, None], parked_w
