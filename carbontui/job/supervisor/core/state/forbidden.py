"""Hours in which the user forbids training: parsed from text, mapped to the slots of a plan, skipped for the
soonest finish. They hold until they are over, or until they are removed."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec

from carbontui import protocol, units
from carbontui.job.terms import budget as budgets
from carbontui.protocol import Statement, statement

MOST = 16
"""The most forbidden stretches; more would be hard to keep track of."""
LONGEST_S = 7 * 86400.0
_DAY_S = 86400.0
FORMS = 'write 22:00-06:00, "fri 09:00-12:00", "daily 17:00-20:00" or two RFC 3339 times with / between them'


@dataclass(frozen=True, slots=True)
class ForbiddenHours:
    """[start_s, end_s) on the job's clock; `daily` ones recur at the same local time. `by` is user@tty."""

    start_s: float
    end_s: float
    daily: bool = False
    by: str = ""

    def windows(self, from_s: float, to_s: float) -> Iterator[tuple[float, float]]:
        """Every [start, end) that touches [from_s, to_s)."""
        if not self.daily:
            if self.end_s > from_s and self.start_s < to_s:
                yield self.start_s, self.end_s
            return
        first, last = datetime.fromtimestamp(self.start_s), datetime.fromtimestamp(self.end_s)
        days = timedelta(days=max(0, int((from_s - self.end_s) // _DAY_S) - 1))
        while (start_s := (first + days).timestamp()) < to_s:
            # in naive local time: 17:00 stays 17:00 across a daylight-saving change
            end_s = (last + days).timestamp()
            if end_s > from_s:
                yield start_s, end_s
            days += timedelta(days=1)

    @property
    def said(self) -> Statement:
        return statement("hours_daily" if self.daily else "hours", start_s=self.start_s, end_s=self.end_s)

    def over(self, now_s: float) -> bool:
        return not self.daily and self.end_s <= now_s

    def to_wire(self, now_s: float) -> protocol.ForbiddenStatus:
        """Not yet described in words."""
        start_s, end_s = next(self.windows(now_s, now_s + 3 * _DAY_S), (self.start_s, self.end_s))
        return protocol.ForbiddenStatus(units.iso(start_s), units.iso(end_s), self.daily, self.by)


def parse(text: str, now_s: float, by: str = "") -> ForbiddenHours:
    """The next hours that match `text`. Raises ValueError with the accepted forms."""
    cleaned = units.hours(text, now_s)
    daily = cleaned.lower().startswith("daily ")
    cleaned = cleaned[6:] if daily else cleaned
    parts = [part.strip() for part in (cleaned.split("/") if "/" in cleaned else re.split(r"\s*[-–]\s*", cleaned))]
    if len(parts) != 2 or not all(parts):
        raise ValueError(f"hours {text!r} are not understood; {FORMS}")
    try:
        start_s = _moment(parts[0], now_s)
        # a clock time means its next occurrence after the start
        end_s = _moment(parts[1], max(now_s, start_s))
    except ValueError as error:
        raise ValueError(f"hours {text!r}: {error}") from None
    if not now_s < end_s or not start_s < end_s:
        raise ValueError(f"hours {text!r} end before they begin, or are over")
    if end_s - start_s > (_DAY_S - 900.0 if daily else LONGEST_S):
        raise ValueError(f"hours {text!r} are longer than {'a day' if daily else 'a week'}; stop the job instead")
    if start_s > now_s + budgets.LONGEST_S:
        raise ValueError(f"hours {text!r} are more than a year away")
    return ForbiddenHours(start_s, end_s, daily, by)


def _moment(text: str, now_s: float) -> float:
    if text.lower() == "now":
        return now_s
    found = budgets.parse_until(text, now_s)
    if isinstance(found, str):
        raise ValueError(FORMS)
    return found


def added(hours: tuple[ForbiddenHours, ...], new: ForbiddenHours) -> tuple[ForbiddenHours, ...]:
    """With `new` added, replacing the same hours. Raises ValueError when there are too many."""
    others = tuple(one for one in hours if (one.start_s, one.end_s, one.daily) != (new.start_s, new.end_s, new.daily))
    if len(others) >= MOST:
        raise ValueError(f"{MOST} stretches of forbidden hours are the most; allow some of them first")
    return tuple(sorted((*others, new), key=lambda one: one.start_s))


def current(hours: tuple[ForbiddenHours, ...], now_s: float) -> tuple[ForbiddenHours, ...]:
    """Without those that are over."""
    return hours if not any(one.over(now_s) for one in hours) else tuple(one for one in hours if not one.over(now_s))


def stretches(hours: tuple[ForbiddenHours, ...], from_s: float, to_s: float) -> list[tuple[float, float]]:
    """All windows that touch [from_s, to_s), in order, overlapping or adjacent ones merged."""
    found: list[tuple[float, float]] = []
    for start_s, end_s in sorted(window for one in hours for window in one.windows(from_s, to_s)):
        if found and start_s <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end_s)
        else:
            found.append((start_s, end_s))
    return found


def until_s(hours: tuple[ForbiddenHours, ...], now_s: float) -> float | None:
    """When the forbidden hours in force now end; None if none are."""
    return next((end for start, end in stretches(hours, now_s, now_s + 1.0) if start <= now_s < end), None)


def between_s(hours: tuple[ForbiddenHours, ...], from_s: float, to_s: float) -> float:
    """Forbidden seconds within [from_s, to_s)."""
    return sum(min(end, to_s) - max(start, from_s) for start, end in stretches(hours, from_s, to_s))


def soonest_s(hours: tuple[ForbiddenHours, ...], from_s: float, work_s: float) -> float:
    """When `work_s` of running is done, waiting through forbidden hours."""
    at, left = from_s, work_s
    if not hours:
        return at + left
    for start, end in stretches(hours, from_s, from_s + work_s + budgets.LONGEST_S):
        if start - at >= left - 1e-6:
            break
        left -= max(0.0, start - at)
        at = max(at, end)
    return at + left


def restored(kept: object, now_s: float) -> tuple[ForbiddenHours, ...]:
    """What a predecessor kept. Raises ValueError on an invalid field: years of daily hours would be as many windows
    as days."""
    held = msgspec.convert(kept or (), tuple[ForbiddenHours, ...])[:MOST]
    for one in held:
        longest_s = _DAY_S if one.daily else LONGEST_S
        if not (0 <= one.start_s < one.end_s <= min(one.start_s + longest_s, units.LATEST_S)):
            raise ValueError(f"hours from {one.start_s:g} to {one.end_s:g} are not plausible")
    return current(held, now_s)
