"""The budget: how long the user is willing to wait, as a multiple of full-speed, a duration, or a clock time."""

import re
from dataclasses import dataclass
from typing import Literal

import msgspec

from carbontui import units

FACTOR_MAX = 1000.0
LONGEST_S = 366 * 86400.0
"""Latest end of a budget after it is given: more than a year is a typing error, and every slot up to the deadline
costs memory and time."""
PAST_S = 60.0
"""Tolerance for a deadline that was in the future when it was typed."""
DEFAULT = "1.0x"


@dataclass(frozen=True, slots=True)
class Budget:
    """`value` is a factor, seconds from the budget's start, or epoch seconds, by `kind`; `text` is what was typed."""

    kind: Literal["factor", "duration", "deadline"]
    value: float
    text: str

    def deadline_s(self, start_s: float, work_s: float | None) -> float | None:
        """Epoch seconds of the deadline; None for a factor of an unknown amount of work. For long work a factor allows
        at most `LONGEST_S` beyond at full speed.

        `start_s` is the job's first start, `work_s` the whole work in reference-speed seconds.
        """
        if self.kind == "deadline":
            return self.value
        if self.kind == "duration":
            return start_s + self.value
        return None if work_s is None else start_s + work_s + min((self.value - 1.0) * work_s, LONGEST_S)


def parse(text: str, now_s: float) -> Budget:
    """'1.8x', '18h', 'fri 09:00' or '18:00' (local time, next occurrence). Raises ValueError with the forms."""
    cleaned = text.strip().lower()
    if found := re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*[x×]", cleaned):
        factor = float(found[1])
        return checked(Budget("factor", factor, text.strip()), now_s)
    try:
        seconds = units.parse_duration(cleaned)
    except ValueError:
        try:
            moment = units.parse_moment(text, now_s)
        except ValueError as error:
            raise ValueError(f'budget {text!r} is not understood; write 1.8x, 18h or "fri 09:00"') from error
        return checked(Budget("deadline", moment, text.strip()), now_s)
    return checked(Budget("duration", seconds, text.strip()), now_s)


def checked(budget: Budget, now_s: float) -> Budget:
    """The same budget if it is valid at `now_s`. Raises ValueError naming the value and the bounds."""
    value, name = budget.value, f"budget {budget.text!r}"
    if budget.kind == "factor" and not 1 <= value <= FACTOR_MAX:
        raise ValueError(f"{name}: it is at least 1x (no waiting), at most {FACTOR_MAX:g}x")
    if budget.kind == "duration" and not 0 < value <= LONGEST_S:
        raise ValueError(f"{name}: a duration is between 1s and 366d")
    if budget.kind == "deadline" and not value >= now_s - PAST_S:
        raise ValueError(f"{name}: that time is over already")
    if budget.kind == "deadline" and not value <= now_s + LONGEST_S:
        raise ValueError(f"{name}: that is more than 366 days away")
    return budget


def stored(text: str, start_s: float) -> tuple[Budget, str]:
    """(budget, '') from a job's options, read as of the job's start `start_s`; if invalid, the default budget with a
    message."""
    try:
        return parse(text, start_s), ""
    except ValueError as error:
        return parse(DEFAULT, start_s), f"{DEFAULT} in place of the stored budget ({error})"


def restored(kept: object, start_s: float, now_s: float) -> Budget:
    """What a predecessor kept. Raises ValueError if that is not a valid budget for a job started at `start_s`."""
    try:
        budget = msgspec.convert(kept, Budget)
    except msgspec.ValidationError as error:
        raise ValueError(f"the stored budget cannot be used: {error}") from None
    # given at some time since the start: its deadline may have passed, and is no further away than one given now
    early = min(start_s, now_s)
    return checked(budget, early if budget.value <= now_s else now_s)


def parse_until(text: str, now_s: float) -> float | Literal["next"]:
    """An override's end: 'next', 'HH:MM', 'fri 09:00' or RFC 3339, as epoch seconds. Raises ValueError."""
    cleaned = text.strip().lower()
    if cleaned == "next":
        return "next"
    moment = units.parse_moment(text, now_s)
    if not moment <= now_s + LONGEST_S:
        raise ValueError(f"{text!r} is more than 366 days away")
    return moment
