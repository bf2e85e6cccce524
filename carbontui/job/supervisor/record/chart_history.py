"""Past watts and losses in columns of equal time, for charts: a column that fills repaints one cell, not a screen."""

from collections import defaultdict
from dataclasses import dataclass, field

from carbontui import protocol, units

COLUMNS = 240
LATE = 0.2
"""Share of a column after which an unread device counts as missing from it, rather than about to be read."""


@dataclass
class WattHistory:
    """Mean watts per column for the whole job; the span of a column doubles when the job outgrows them."""

    start_s: float
    step_s: float
    _joules: dict[str, dict[int, float]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(float)))
    _seconds: dict[str, dict[int, float]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(float)))

    _until: dict[str, float] = field(default_factory=dict)
    """Until when each device has been read."""

    def add(self, device: str, t0: float, t1: float, joules: float) -> None:
        """Joules of one device over [t0, t1) of the job's clock."""
        if t1 <= t0 or t1 <= self.start_s:
            return
        self._until[device] = t1
        while t1 >= self.start_s + COLUMNS * self.step_s:
            self._double()
        first = max(0, int((t0 - self.start_s) // self.step_s))
        last = int((t1 - self.start_s) // self.step_s)
        for index in range(first, last + 1):
            a = max(t0, self.start_s + index * self.step_s)
            b = min(t1, self.start_s + (index + 1) * self.step_s)
            if b > a:
                self._joules[device][index] += joules * (b - a) / (t1 - t0)
                self._seconds[device][index] += b - a

    def forget(self, device: str) -> None:
        """Drop a device that turned out not to be the job's."""
        for table in (self._joules, self._seconds, self._until):
            table.pop(device, None)

    def _double(self) -> None:
        for table in (self._joules, self._seconds):
            for device, cells in table.items():
                merged: dict[int, float] = defaultdict(float)
                for index, value in cells.items():
                    merged[index // 2] += value
                table[device] = merged
        self.step_s *= 2

    def watts(self) -> protocol.Watts:
        """Columns up to the newest; the total is null where not every board was read."""
        newest = max((max(cells, default=-1) for cells in self._joules.values()), default=-1)
        gpus: dict[str, tuple[float | None, ...]] = {}
        totals: list[float | None] = [None] * (newest + 1)
        holes: set[int] = set()
        for device, joules in self._joules.items():
            seconds = self._seconds[device]
            row = [round(joules[i] / s, 1) if (s := seconds.get(i, 0.0)) > 0 else None for i in range(newest + 1)]
            totals = [sum_w if w is None else (sum_w or 0.0) + w for sum_w, w in zip(totals, row, strict=True)]
            gpus[device] = tuple(row)
            # a sum that lacks a board (lost or unreadable) is not the job's power
            late = self._until[device] < max(self._until.values()) - LATE * self.step_s
            begun = min(joules, default=newest + 1)
            holes |= {i for i in range(begun, newest + 1) if row[i] is None and (late or i < newest)}
        rounded = tuple(None if w is None or i in holes else round(w, 1) for i, w in enumerate(totals))
        return protocol.Watts(units.iso(self.start_s), self.step_s, rounded, gpus)


POINTS = 240


class LossHistory:
    """At most `POINTS` values over the whole run: when full, every second one is dropped."""

    def __init__(self) -> None:
        self._values: list[float] = []
        self._last: float | None = None
        self._every = 1
        self._sampled = 0

    def add(self, loss: float | None) -> None:
        """Add a newly reported loss; an unchanged one is ignored."""
        if loss is None or loss == self._last:
            return
        self._last = loss
        self._sampled += 1
        if self._sampled % self._every == 0:
            self._values.append(round(loss, 5))
        if len(self._values) > POINTS:
            del self._values[1::2]
            self._every *= 2

    def values(self) -> tuple[float, ...]:
        return tuple(self._values)
