"""Whether an estimate's interval holds the truth while the machine's load changes, simulated, by hand.

    python tests/bench/bench_cover.py [SCRIPTS]

Each script has steps of its own length and scatter on a machine of two cores, beside other programs that come and go
every few minutes. Its first 60 s are timed, as `estimate` does, with the share of time that it waited for a core.
"""

from __future__ import annotations

import random
import sys

from carbontui.account.estimate import Blocks

CORES, TRIAL_S = 2, 60.0


class Load:
    """Other runnable programs: how many there are changes every few minutes."""

    def __init__(self, dice: random.Random) -> None:
        self._dice, self._until_s = dice, 0.0
        self._usual = dice.choice((0, 1, 2, 4, 10, 16))
        self.others = self._usual

    def at(self, at_s: float) -> int:
        while at_s >= self._until_s:
            self._until_s += self._dice.expovariate(1 / self._dice.uniform(60, 600))
            self.others = max(0, round(self._usual * self._dice.uniform(0.4, 2.0)))
        return self.others


def script(seed: int) -> tuple[float, float, float, float]:
    """Lower end, expected and upper end of the whole time, and the truth."""
    dice = random.Random(seed)
    load, base_s, scatter = Load(dice), 10 ** dice.uniform(-1.5, 0.3), dice.uniform(0.02, 0.3)
    steps = int(dice.uniform(600, 5400) / base_s)
    blocks, at_s, waited_s, found = Blocks(), 0.0, 0.0, None
    for _ in range(steps):
        own_s = base_s * dice.lognormvariate(0, scatter)
        slower = max(1.0, (load.at(at_s) + 1) / CORES)
        at_s += own_s * slower
        waited_s += own_s * (slower - 1)
        if found is None:
            blocks = blocks.plus(1, own_s * slower)
            if at_s >= TRIAL_S:
                found = blocks.whole(steps, waited_s / at_s)
    assert found is not None
    return found.lo, found.value, found.hi, at_s


if __name__ == "__main__":
    count, held = int(sys.argv[1]) if len(sys.argv) > 1 else 30, 0
    for seed in range(count):
        lo, value, hi, true = script(seed)
        held += lo <= true <= hi
        mark = "" if lo <= true <= hi else "  MISSED"
        print(f"{seed:3d} {value:8.0f} s ({lo:.0f} to {hi:.0f}), truth {true:.0f}{mark}")
    print(f"{held} of {count} intervals hold the truth")
