"""Calibrations under checkpoints, evaluations and loader stalls, by hand: the curve against the simulated truth.

python tests/bench/bench_calibration.py [JOBS]
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "power"))
from simjob import SimulatedJob, drive

from carbontui.power.curves import public
from carbontui.power.curves.calibration import Calibration, CalibrationSpec, Finished

WATTS, SPEED = 0.02, 0.04


def stalls(dice: random.Random) -> tuple[tuple[float, float], ...]:
    """20 s checkpoints at random gaps, evaluations of half a minute to two, and empty loaders, all in one life."""
    kinds = [
        (dice.uniform(100, 500), (20.0, 20.0)),
        (dice.uniform(300, 1200), (30.0, 120.0)),
        (dice.uniform(20, 90), (0.6, 5.0)),
    ]
    found = []
    for gap_s, (least, most) in kinds:
        at = dice.expovariate(1 / gap_s)
        while at < 3600:
            lasts = dice.uniform(least, most)
            found.append((at, at + lasts))
            at += lasts + dice.expovariate(1 / gap_s)
    return tuple(sorted(found))


def job(seed: int) -> SimulatedJob:
    dice = random.Random(1000 + seed)
    nature = {
        "rate": dice.uniform(1, 20),
        "drift_per_min": dice.uniform(-0.01, 0.01),
        "noise": dice.uniform(0.01, 0.05),
    }
    return SimulatedJob(seed, burst=dice.choice((1.0, 1.0, 0.72)), stalls=stalls(dice), **nature)


def outcome(seed: int) -> tuple[str, float, float, float]:
    """How it ended, the worst errors of watts and of speed, and the minutes it took."""
    made = job(seed)
    _, full_w, full = made.steady(700.0)
    bounds = {"limit_min_w": 200.0, "limit_found_w": 700.0}
    prior = public.curve("NVIDIA H100", 1, full_w, measured_s=0.0, mark="", **bounds)
    points = () if prior is None else prior.points
    spec = CalibrationSpec(gpu="NVIDIA H100", gpus=1, fingerprint="f", can_cap=True, prior=points, **bounds)
    *_, last = drive(Calibration(spec), made)
    minutes = (made.t - 1000) / 60
    if not isinstance(last, Finished):
        return f"prior kept ({getattr(last, 'why', last)})", 0.0, 0.0, minutes
    watts = speed = 0.0
    for point in last.curve.points:
        _, true_w, true_speed = made.steady(point.cap_w or 700.0)
        watts = max(watts, abs(point.power_w / true_w - 1))
        speed = max(speed, abs(point.speed / (true_speed / full) - 1))
    return "measured", watts, speed, minutes


if __name__ == "__main__":
    count, within = int(sys.argv[1]) if len(sys.argv) > 1 else 40, 0
    for seed in range(count):
        how, watts, speed, minutes = outcome(seed)
        good = how != "measured" or (watts <= WATTS and speed <= SPEED)
        within += good
        mark = "" if good else "  MISSED"
        print(f"{seed:3d} {how:12s} {100 * watts:5.2f} % {100 * speed:5.2f} % {minutes:4.1f} min{mark}", flush=True)
    print(f"{within} of {count}: at most {WATTS:.0%} off in watts and {SPEED:.0%} in speed, or the prior kept")
