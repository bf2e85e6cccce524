"""The power budget of a site over the day: '120kW', and '80kW 17:00-20:00' for some of its hours."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Sequence
from typing import NamedTuple

_FORM = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(k|m)?w?\s*(?:(\d{1,2}):(\d{2})\s*-\s*(\d{1,2}):(\d{2}))?\s*", re.IGNORECASE)
_SCALE = {"": 1.0, "k": 1e3, "m": 1e6}


class Cap(NamedTuple):
    """Watts, and the minutes of the local day in which they hold; None: all day."""

    watts: float
    minutes: tuple[int, int] | None

    def holds(self, start_s: float, end_s: float) -> bool:
        """Whether it holds at any moment of a slot."""
        if self.minutes is None or end_s - start_s >= 86400.0:
            return True
        begin, end = self.minutes
        at = time.localtime(start_s)
        first = at.tm_hour * 60 + at.tm_min + at.tm_sec / 60
        last = first + (end_s - start_s) / 60
        spans = [(begin, end)] if begin < end else [(begin, 1440), (0, end)]
        return any(first < e + day and last > b + day for b, e in spans for day in (0, 1440))


def parse(text: str) -> Cap:
    """Raises ValueError naming the value and the form."""
    found = _FORM.fullmatch(text)
    watts = float(found[1]) * _SCALE[(found[2] or "").lower()] if found else 0.0
    if found is None or watts <= 0:
        raise ValueError(f"{text!r} is not a power budget; write it like 120kW, or 80kW 17:00-20:00 for some hours")
    if found[3] is None:
        return Cap(watts, None)
    minutes = (int(found[3]) * 60 + int(found[4]), int(found[5]) * 60 + int(found[6]))
    if max(minutes) > 1440 or minutes[0] == minutes[1]:
        raise ValueError(f"{text!r}: hours are from 00:00 to 24:00, the end after the begin")
    return Cap(watts, minutes)


def per_slot(caps: Sequence[Cap], start_s: float, slot_s: float, slots: int) -> list[float]:
    """Watts of every slot: the lowest of those that hold at any moment of it."""
    edges = [start_s + i * slot_s for i in range(slots + 1)]
    return [
        min((cap.watts for cap in caps if cap.holds(begin, end)), default=float("inf"))
        for begin, end in itertools.pairwise(edges)
    ]
