"""A job on a nasty simulated board, for calibration: thermal lag, leakage, noise, drift of the speed, bursty load."""

from __future__ import annotations

import random
from collections.abc import Iterator

from carbontui.power.curves.calibration import (
    Action,
    Calibration,
    CalibrationInput,
    Finished,
    GivenUp,
    Pause,
    Resume,
    TryLimit,
)

DT_S = 0.01


class SimulatedJob:
    """Watts and steps in steps of 10 ms. The truth at a cap is its steady state, relative to full at the same time."""

    parked_w, full_w = 118.0, 640.0
    linear, memory = 0.4, 0.3
    ambient_c, kelvin_per_w, thermal_s, leak = 30.0, 0.06, 40.0, 0.0006

    def __init__(
        self,
        seed: int,
        *,
        rate: float = 6.0,
        drift_per_min: float = 0.01,
        noise: float = 0.03,
        burst: float = 1.0,
        stalls: tuple[tuple[float, float], ...] = (),
    ) -> None:
        self.random = random.Random(seed)
        self.rate, self.drift, self.noise = rate, drift_per_min / 60, noise
        self.burst = burst
        """Share of each 250 ms with kernels running; the rest waits for data."""
        self.stalls = stalls
        """Checkpoints, from and to, in seconds of the job's life: no kernels, no steps."""
        self.limit_w = 700.0
        self.paused = False
        self.t = 1000.0
        self.temp_c = self.steady(700.0)[0]
        self.energy_j = self.told_j = 0.0
        self.told_s = self.t
        self.progress = 0.0
        self.timed: tuple[float, int] | None = None
        self.told: tuple[int, tuple[float, int] | None] = (0, None)
        self.asked = True
        self.wobble = 0.0
        self.tick = 0

    def clock(self, cap_w: float, temp_c: float) -> float:
        leak = 1 + self.leak * max(0.0, temp_c - 50)
        room = (cap_w - self.parked_w) / ((self.full_w - self.parked_w) * leak)
        low, high = 0.1, 1.0
        if room >= 1:
            return 1.0
        for _ in range(20):
            middle = (low + high) / 2
            load = self.linear * middle + (1 - self.linear) * middle**3
            low, high = (middle, high) if load <= room else (low, middle)
        return low

    def busy_w(self, x: float, temp_c: float) -> float:
        leak = 1 + self.leak * max(0.0, temp_c - 50)
        return self.parked_w + (self.full_w - self.parked_w) * leak * (self.linear * x + (1 - self.linear) * x**3)

    def speed(self, x: float) -> float:
        return 1 / ((1 - self.memory) / x + self.memory)

    def steady(self, cap_w: float) -> tuple[float, float, float]:
        """Temperature, watts and relative speed after a long time."""
        temp = 60.0
        for _ in range(200):
            x = self.clock(cap_w, temp)
            watts = self.burst * self.busy_w(x, temp) + (1 - self.burst) * self.parked_w
            temp = self.ambient_c + self.kelvin_per_w * watts
        return temp, watts, self.burst_speed(x)

    def burst_speed(self, x: float) -> float:
        return self.speed(x) * self.burst

    def advance(self, seconds: float) -> None:
        for _ in range(round(seconds / DT_S)):
            self.t += DT_S
            self.tick += 1
            stalled = any(start <= self.t - 1000 < end for start, end in self.stalls)
            running = not self.paused and not stalled and self.tick % 25 < round(25 * self.burst)
            self.wobble += -self.wobble * DT_S / 0.5 + self.noise * self.random.gauss(0, 1) * (2 * DT_S / 0.5) ** 0.5
            x = self.clock(self.limit_w, self.temp_c)
            watts = self.busy_w(x, self.temp_c) if running else self.parked_w
            if running and x == 1.0:
                watts *= 1 + self.wobble
            self.temp_c += (self.ambient_c + self.kelvin_per_w * watts - self.temp_c) * DT_S / self.thermal_s
            self.energy_j += watts * DT_S
            if running:
                slow = 1 - self.drift * (self.t - 1000)
                before, rate = self.progress, self.rate * slow * self.speed(x) * (1 + self.wobble)
                self.progress += rate * DT_S
                if self.asked and int(self.progress) > int(before):
                    late_s = (self.progress - int(self.progress)) / rate
                    self.timed, self.asked = (self.t - late_s, int(self.progress)), False
            if self.tick % 97 == 0:  # the meter looks about once a second, out of step with the observer
                self.told_j, self.told_s = self.energy_j, self.t
            if self.tick % 101 == 0:  # and so does the client, whose word is up to 20 ms on its way
                self.tell()

    def tell(self) -> None:
        if self.timed is not None and (self.told[1] is None or self.timed[1] != self.told[1][1]):
            self.told = (int(self.progress), (self.timed[0] + self.random.random() * 0.02, self.timed[1]))
        else:
            self.told = (int(self.progress), self.told[1])
        self.asked = True

    def observe(self) -> CalibrationInput:
        return CalibrationInput(
            mono_s=self.t,
            wall_s=self.t + 1e9,
            step=self.told[0],
            timed=self.told[1],
            energy_j=self.told_j,
            energy_mono_s=self.told_s,
            limit_w=self.limit_w,
            paused=self.paused,
        )


def drive(calibration: Calibration, job: SimulatedJob) -> Iterator[Action]:
    """The supervisor's part: observe each second, do what is asked."""
    while True:
        job.advance(1.0)
        action = calibration.next(job.observe())
        if isinstance(action, TryLimit):
            job.limit_w = action.watts_per_gpu or 700.0
        elif isinstance(action, Pause):
            job.paused = True
        elif isinstance(action, Resume):
            job.paused = False
        yield action
        if isinstance(action, Finished | GivenUp):
            return
