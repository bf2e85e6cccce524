"""Grid events: somebody asks a site for fewer watts for a while. What is asked, and what each moment may draw."""

import math
import re

import msgspec
from msgspec import Struct, structs

from carbontui import units
from carbontui.system import untrusted

ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
RAMP_S = 60.0
"""The watts come back over this long where nothing else is asked."""
LONGEST_S = 7 * 86400.0
EARLIEST_S = 366 * 86400.0
"""An event that begins later than this after now is a mistake of the clock or the year."""
MOST_W = 1e9


class EventError(ValueError):
    """An event cannot be taken; the text names the value and the repair."""


class AskedEvent(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The file of an event: `shed_w` fewer than without it, or `target_w` in all, `within_s` of its start."""

    id: str
    start: str
    duration_s: float
    within_s: float
    shed_w: float | None = None
    target_w: float | None = None
    ramp_s: float = RAMP_S


class GridEvent(Struct, frozen=True, kw_only=True):
    """An event in the ledger. Epoch seconds."""

    id: str
    start_s: float
    end_s: float
    """Of what is asked; a cancelled one's is when it was cancelled."""
    within_s: float
    ramp_s: float
    shed_w: float | None = None
    target_w: float | None = None
    by: str = ""
    taken_s: float = 0.0
    """When it was told to this site."""
    cancelled: bool = False
    baseline_w: float | None = None
    """What the boards of all jobs would draw without it; None until it is fixed, at the start at the latest."""
    baseline_method: str = ""
    jobs: tuple[str, ...] = ()
    """Those that were there when it began; without the journal of one its receipt says nothing."""

    @property
    def asked_w(self) -> float | None:
        """Watts to shed; None until the baseline is known."""
        if self.shed_w is not None:
            return self.shed_w
        return None if self.baseline_w is None or self.target_w is None else max(0.0, self.baseline_w - self.target_w)

    @property
    def most_w(self) -> float | None:
        """Watts that remain while it lasts; None until the baseline is known."""
        if self.target_w is not None:
            return self.target_w
        return None if self.baseline_w is None else max(0.0, self.baseline_w - (self.shed_w or 0.0))

    @property
    def over_s(self) -> float:
        """When the watts are back; for one that will never begin, since it was told."""
        return self.end_s + self.ramp_s if self.end_s > self.start_s else self.taken_s

    def state(self, now_s: float) -> str:
        if self.cancelled:
            return "cancelled"
        return "pending" if now_s < self.start_s else "active" if now_s < self.end_s else "over"

    def cap_w(self, now_s: float) -> float | None:
        """Watts that all jobs together may draw now; None: no limit of its own. Back in a straight line after the
        end."""
        low, high = self.most_w, self.baseline_w
        if low is None or not self.start_s <= now_s < self.over_s:
            return None
        if now_s < self.end_s:
            return low
        if high is None or high <= low:
            return None
        return low + (high - low) * (now_s - self.end_s) / self.ramp_s


GATHER_S = 5.0
"""The jobs have said what they draw and can leave this long after an event was told to them."""
BASELINE_PLAN = "the plan in force at its start"


def parse(data: bytes, now_s: float, by: str) -> GridEvent:
    """The event of a file. Raises EventError."""
    try:
        asked = untrusted.decode(data, AskedEvent)
        start_s = units.from_iso(asked.start)
    except (ValueError, msgspec.MsgspecError) as error:
        raise EventError(f"not a grid event: {error}") from None
    if not ID.fullmatch(asked.id):
        raise EventError(f"id {asked.id[:40]!r}: letters, digits, dot, dash and underline, 64 at most")
    if (asked.shed_w is None) == (asked.target_w is None):
        raise EventError("give either shed_w or target_w")
    least = {"duration_s": 1.0, "within_s": 0.0, "ramp_s": 0.0, "shed_w": 1e-3, "target_w": 0.0}
    most = {"duration_s": LONGEST_S, "within_s": asked.duration_s, "ramp_s": LONGEST_S}
    for name, low in least.items():
        value, high = getattr(asked, name), most.get(name, MOST_W)
        if value is not None and not (math.isfinite(value) and low <= value <= high):
            raise EventError(f"{name} is {value:g}; it lies between {low:g} and {high:g}")
    end_s = start_s + asked.duration_s
    if end_s <= now_s:
        raise EventError(f"it is in the past: it ended at {units.iso(end_s)}")
    if start_s > now_s + EARLIEST_S:
        raise EventError(f"start is {asked.start}, more than a year ahead")
    return GridEvent(  # one that has begun elsewhere begins here when it is told
        id=asked.id, start_s=max(start_s, now_s), end_s=end_s, within_s=asked.within_s, ramp_s=asked.ramp_s,
        shed_w=asked.shed_w, target_w=asked.target_w, by=by, taken_s=now_s,
    )  # fmt: skip


def clash(new: GridEvent, known: list[GridEvent]) -> GridEvent | None:
    """A known event whose watts would be asked twice; the ramp back of one may overlap with the next."""
    beside = (one for one in known if not one.cancelled and one.start_s < new.end_s and new.start_s < one.end_s)
    return next(beside, None)


def current(known: list[GridEvent], now_s: float) -> GridEvent | None:
    """The event in force, else the one whose watts are coming back, else the next one."""
    left = [one for one in known if now_s < one.over_s]
    begun = [one for one in left if one.start_s <= now_s]
    return max(begun, key=lambda one: one.start_s, default=min(left, key=lambda one: one.start_s, default=None))


def changed(earlier: GridEvent, new: GridEvent) -> GridEvent:
    """An event under the id of an earlier one: what has begun keeps its start, and what it is measured against. Raises
    EventError."""
    if (state := earlier.state(new.taken_s)) not in ("pending", "active"):
        raise EventError(f"event {new.id} is known already, and {state}; give another id")
    begun = ("start_s", "taken_s", "baseline_w", "baseline_method", "jobs") if state == "active" else ()
    return structs.replace(new, **{name: getattr(earlier, name) for name in begun})


def cancelled(event: GridEvent, now_s: float) -> GridEvent:
    """The event ended now, its watts coming back; one that had not begun never does. Raises EventError."""
    state = event.state(now_s)
    if state in ("over", "cancelled"):
        raise EventError(f"event {event.id} is {state}")
    return structs.replace(event, cancelled=True, end_s=max(event.start_s, now_s))
