"""What is said of one run: pure functions of what `status --json` showed, and of the truth."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

RIGHT = 0.02
"""A total this near to the truth is right."""
WRONG = 0.05
LATE = 0.6
"""After this share of the run a total that is further off than WRONG is wrong, unless its interval has the truth."""


@dataclasses.dataclass(frozen=True)
class Moment:
    """What was shown at one moment. `high` is infinite for no limit, `low` and `high` None without an interval."""

    step: int
    total: int | None = None
    source: str = ""
    low: float | None = None
    high: float | None = None

    def covers(self, truth: int) -> bool:
        return self.low is not None and self.high is not None and self.low <= truth <= self.high

    def near(self, truth: int, share: float) -> bool:
        return self.total is not None and abs(self.total - truth) <= share * truth

    def wrong(self, truth: int) -> bool:
        """A total that cannot be, or is far off when the run is nearly over, and nothing says that it may be. One that
        is right is not wrong in the last few steps."""
        if self.total is None or self.covers(truth) or self.near(truth, RIGHT):
            return False
        return self.total < self.step or (self.step > LATE * truth and not self.near(truth, WRONG))


def moment(status: dict[str, Any]) -> Moment:
    """Of the body of `status --json`. The source of a total that is no guess is "told"."""
    guess = status.get("guess") or {}
    total = status.get("steps_total")
    low = high = None
    if "low" in guess or guess.get("at_most"):
        low = guess.get("low") or status["step"]
        high = guess.get("high")
        high = guess["steps"] if guess.get("at_most") and high is None else math.inf if high is None else high
    source = guess.get("source") or ("told" if total is not None else "")
    return Moment(status.get("step", 0), guess.get("steps") if total is None else total, source, low, high)


@dataclasses.dataclass(frozen=True)
class Verdict:
    """One run. Steps are those that the tool had counted."""

    truth: int
    counted: int
    """Steps that the tool had counted at the end."""
    first: int | None
    """The first step at which a total was shown; None for never."""
    totals: tuple[tuple[int, int | None, str], ...]
    """(step, total, source) where the total changed."""
    right: bool
    """Within RIGHT when it was due."""
    right_share: float
    """Share of the steps at which the total was right."""
    wrong: bool
    """At some moment wrong without notice."""
    covered: float | None
    """Share of the moments with an interval at which it had the truth; None without any interval."""
    width: float | None
    """Width of the interval when it was due, as a share of the truth; None without one."""


def verdict(moments: Sequence[Moment], truth: int, due: float) -> Verdict:
    """Of the moments of a run in their order. `due` is the step by which the total should be known: the first report
    at or after it is judged."""
    moments = [one for one in moments if one.step > 0]
    shown = [one for one in moments if one.total is not None]
    totals: list[tuple[int, int | None, str]] = []
    for one in moments:
        if (totals[-1][1] if totals else None) != one.total:
            totals.append((one.step, one.total, one.source))
    at_due = next((one for one in moments if one.step >= due), moments[-1] if moments else Moment(0))
    bounded = [one for one in shown if one.low is not None]
    right_steps, before = 0, 0
    for one in moments:
        right_steps += (one.step - before) * one.near(truth, RIGHT)
        before = one.step
    return Verdict(
        truth,
        moments[-1].step if moments else 0,
        shown[0].step if shown else None,
        tuple(totals),
        at_due.near(truth, RIGHT),
        right_steps / truth if truth else 0.0,
        any(one.wrong(truth) for one in moments),
        sum(one.covers(truth) for one in bounded) / len(bounded) if bounded else None,
        (at_due.high - at_due.low) / truth if at_due.low is not None and at_due.high is not None else None,
    )
