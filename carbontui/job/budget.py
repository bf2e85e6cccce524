"""The budget: how long a person is willing to wait, as a multiple of flat-out, a duration, or a clock time."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from carbontui import units

_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_CLOCK = re.compile(r"(?:(mon|tue|wed|thu|fri|sat|sun)[a-z]*\s+)?(\d{1,2}):(\d{2})", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Budget:
    """`value` is a factor, seconds from the budget's start, or epoch seconds, by `kind`; `text` is what was typed."""

    kind: Literal["factor", "duration", "deadline"]
    value: float
    text: str

    def deadline_s(self, start_s: float, work_s: float | None) -> float | None:
        """Epoch seconds of the deadline; None for a factor of an unknown amount of work.

        `start_s` is the job's first start, `work_s` the whole work in reference-speed seconds.
        """
        if self.kind == "deadline":
            return self.value
        if self.kind == "duration":
            return start_s + self.value
        return None if work_s is None else start_s + self.value * work_s


def parse(text: str, now_s: float) -> Budget:
    """'1.8x', '18h', 'fri 09:00' or '18:00' (local time, the next one to come). Raises ValueError with the forms."""
    cleaned = text.strip().lower()
    if re.fullmatch(r"\d+(\.\d+)?x", cleaned):
        factor = float(cleaned[:-1])
        if not 1 <= factor <= 1000:
            raise ValueError(f"budget {text!r}: a multiple of flat-out is between 1x and 1000x")
        return Budget("factor", factor, text.strip())
    clock = _CLOCK.fullmatch(cleaned)
    if clock:
        return Budget("deadline", _next(clock[1], int(clock[2]), int(clock[3]), now_s, text), text.strip())
    try:
        seconds = units.parse_duration(cleaned)
    except ValueError:
        try:
            return Budget("deadline", units.from_iso(text), text.strip())
        except ValueError:
            raise ValueError(f'budget {text!r} is not understood; write 1.8x, 18h or "fri 09:00"') from None
    if not 0 < seconds <= 366 * 86400:
        raise ValueError(f"budget {text!r}: a duration is between 1s and 366d")
    return Budget("duration", seconds, text.strip())


def _next(day: str | None, hour: int, minute: int, now_s: float, text: str) -> float:
    if hour > 23 or minute > 59:
        raise ValueError(f"{text!r}: {hour:02d}:{minute:02d} is not a time of day")
    now = datetime.fromtimestamp(now_s).astimezone()
    # wall-clock arithmetic on naive local time: 18:00 stays 18:00 across a change to summer time
    moment = now.replace(hour=hour, minute=minute, second=0, microsecond=0, tzinfo=None)
    if day is not None:
        moment += timedelta(days=(_DAYS.index(day) - moment.weekday()) % 7)
    step = timedelta(days=7 if day is not None else 1)
    while moment.timestamp() <= now_s:
        moment += step
    return moment.timestamp()


def parse_until(text: str, now_s: float) -> float | Literal["next"]:
    """An override's end: 'next', 'HH:MM', 'fri 09:00' or RFC 3339, as epoch seconds. Raises ValueError."""
    cleaned = text.strip().lower()
    if cleaned == "next":
        return "next"
    clock = _CLOCK.fullmatch(cleaned)
    if clock:
        return _next(clock[1], int(clock[2]), int(clock[3]), now_s, text)
    try:
        return units.from_iso(text)
    except ValueError:
        raise ValueError(f'{text!r} is not understood; write 18:00, "fri 09:00" or next') from None
