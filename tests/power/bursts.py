"""A bursty load on the simulated board, edge by edge on its frozen clock, so that its rhythm may wander."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nvmlsim import Sim


class Bursts:
    """Full load for a share of each period, nothing for the rest; steady with a period of 0.

    phase: where in the period the clock starts, 0..1. jitter: standard deviation of each period's length, relative.
    Without it the bursts keep step for ever with a sensor that looks at 25 of each 100 ms, which no training does.
    """

    def __init__(self, sim: Sim, period_s: float, duty: float, phase: float = 0.0, jitter: float = 0.0) -> None:
        self.sim, self.period_s, self.duty, self.jitter = sim, period_s, duty, jitter
        self.random = random.Random(phase)
        began_s = sim.get("clock_s") - phase * period_s
        self.on, self.off_s, self.next_s = True, began_s + period_s * duty, began_s + period_s
        sim.load(1.0)
        self.advance(0.0)

    def advance(self, seconds: float) -> None:
        end_s = self.sim.get("clock_s") + seconds
        while self.period_s and (edge_s := self.off_s if self.on else self.next_s) <= end_s:
            self.sim.advance(max(0.0, edge_s - self.sim.get("clock_s")))
            self.on = not self.on
            self.sim.load(1.0 if self.on else 0.0)
            if self.on:
                period_s = self.period_s * max(0.1, self.random.gauss(1.0, self.jitter))
                self.off_s, self.next_s = edge_s + period_s * self.duty, edge_s + period_s
        self.sim.advance(end_s - self.sim.get("clock_s"))
