"""Whether the 95 % interval of the estimate holds: coverage over seeded trainings of 1,000 epochs of 50 steps.

    python tests/bench/bench_estimate.py [SEEDS]

Cells: epochs seen x kind of noise. A training "covers" when the true time of the epochs left lies in the interval.

- independent: steps with 10 % deviation
- autocorrelated: the same, first-order with 0.9 from step to step
- outliers: 1 % of the steps take ten times as long
- drift: the level moves by up to 20 % over the epochs seen and stays there (what begins later, nobody can know from
  what was seen); "covered" or "drifting is said", counted apart
- harder, for information: 0.98 from step to step (a burst as long as an epoch), 0.5 from epoch to epoch

Bias: 250 to 6,500 of 10,000 samples with a fixed cost per epoch, regressed on size.
"""

import json
import os
import platform
import sys
import time

import numpy as np
from scipy.signal import lfilter

from carbontui.client import prediction as estimate

EPOCHS, STEPS, NOISE = 1000, 50, 0.1
SEEN = (10, 30, 100, 300)
FIXED_S = (0.005, 0.02, 0.1)


def correlated(dice, rho, shape):
    noise = dice.standard_normal(int(np.prod(shape)))
    noise[0] /= np.sqrt(1 - rho**2)
    return lfilter([np.sqrt(1 - rho**2)], [1, -rho], noise).reshape(shape)


def epochs(kind, dice, seen):
    """Seconds of each epoch, one second in the mean."""
    shape = (EPOCHS, STEPS)
    if kind.startswith("steps "):
        return (1 + NOISE * correlated(dice, float(kind.split()[1]), shape)).mean(axis=1)
    if kind.startswith("epochs "):
        return 1 + 0.03 * correlated(dice, float(kind.split()[1]), (EPOCHS,))
    steps = 1 + NOISE * dice.standard_normal(shape)
    if kind == "outliers":
        steps = np.where(dice.random(shape) < 0.01, 10 * steps, steps)
    if kind == "drift":
        moved = dice.uniform(-0.2, 0.2) * np.minimum(1.0, np.arange(EPOCHS) / (seen - 1))
        steps = steps * (1 + moved)[:, None]
    return steps.mean(axis=1)


KINDS = {
    "independent": "independent",
    "autocorrelated": "steps 0.9",
    "outliers": "outliers",
    "drift": "drift",
    "harder: 0.98 per step": "steps 0.98",
    "harder: 0.5 per epoch": "epochs 0.5",
}


def cell(kind, seen, seeds):
    covered = said = either = 0
    width = 0.0
    for seed in range(seeds):
        times = epochs(kind, np.random.default_rng([seed, seen]), seen)
        found = estimate.remaining([float(t) for t in times[:seen]], EPOCHS - seen)
        inside = found.lo <= times[seen:].sum() <= found.hi
        covered += inside
        said += found.drifting
        either += inside or found.drifting
        width += (found.hi - found.lo) / 2 / found.value / seeds
    told = {"covered": covered / seeds, "drifting": said / seeds, "half_width": round(width, 4)}
    return told | ({"covered_or_said": either / seeds} if kind == "drift" else {})


def bias(fixed_s, seeds=300):
    """Relative error of a whole epoch of 10,000 samples, median over seeds; one second beside the fixed cost."""
    found = []
    for seed in range(seeds):
        dice = np.random.default_rng([seed, int(fixed_s * 1e6)])
        sizes = np.repeat(np.geomspace(250, 6500, 9).astype(int), 30)
        times = fixed_s + sizes * 1e-4 * (1 + NOISE * dice.standard_normal(len(sizes)))
        a, b = estimate.fixed_and_rate([float(n) for n in sizes], [float(t) for t in times])
        found.append((a + b * 10_000) / (1.0 + fixed_s) - 1)
    return float(np.mean(found))


def main(seeds=1000):
    cells = {name: {str(n): cell(kind, n, seeds) for n in SEEN} for name, kind in KINDS.items()}
    found = {
        "seeds": seeds,
        "bars": {"covered": [0.90, 0.98], "drifting_without_drift": 0.05, "bias": 0.02},
        "cells": cells,
        "bias": {str(fixed): round(bias(fixed), 5) for fixed in FIXED_S},
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}",
        "date": time.strftime("%Y-%m-%d"),
    }
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main(*(int(word) for word in sys.argv[1:2]))
