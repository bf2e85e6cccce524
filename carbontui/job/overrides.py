"""A person's overrides: set with compare-and-set, shown with who and until when, expired by the clock or the plan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from carbontui import protocol, units


class OverrideError(ValueError):
    """An override that cannot be taken; the text says why."""


@dataclass(frozen=True, slots=True)
class Overrides:
    """The override in force and its generation, which grows with every change.

    `until_s` is the end on the job's clock; `after_level` is the planned level an override `until next` outlives.
    """

    current: protocol.Override | None = None
    gen: int = 0
    until_s: float | None = None
    after_level: str | None = None

    def to_dict(self) -> dict[str, Any]:
        o = self.current
        current = None if o is None else {"mode": o.mode, "value_w": o.value_w, "until": o.until, "by": o.by}
        return {"current": current, "gen": self.gen, "until_s": self.until_s, "after_level": self.after_level}

    @staticmethod
    def from_dict(kept: dict[str, Any] | None) -> Overrides:
        if not kept:
            return Overrides()
        current = protocol.Override(**kept["current"]) if kept.get("current") else None
        return Overrides(current, int(kept["gen"]), kept.get("until_s"), kept.get("after_level"))


def apply(
    held: Overrides,
    verb: str,
    *,
    by: str,
    expected_gen: int | None,
    until: float | str | None = None,
    value_w: float | None = None,
    planned_level: str | None = None,
) -> Overrides:
    """The overrides after `verb` (pause, boost, cap, resume). Raises OverrideError when another hand was faster."""
    if expected_gen is not None and expected_gen != held.gen:
        who = held.current.by if held.current else "someone"
        what = held.current.mode if held.current else "cleared the override"
        raise OverrideError(f"{who} was faster ({what}); look again and repeat")
    if verb == "resume":
        return Overrides(None, held.gen + 1)
    if verb not in ("pause", "boost", "cap"):
        raise OverrideError(f"{verb!r} is no override")
    if verb == "cap" and value_w is None:
        raise OverrideError("cap needs watts per GPU, like 300W")
    until_s = float(until) if isinstance(until, (int, float)) else None
    shown = "next" if until == "next" else (units.iso(until_s) if until_s is not None else None)
    mode: Any = verb
    override = protocol.Override(mode, value_w if verb == "cap" else None, shown, by)
    return Overrides(override, held.gen + 1, until_s, planned_level if shown == "next" else None)


def expire(held: Overrides, now_s: float, planned_level: str | None) -> Overrides:
    """The overrides at `now_s`: cleared when their time is over or the planned level has changed."""
    if held.current is None:
        return held
    over = held.until_s is not None and now_s >= held.until_s
    if held.current.until == "next" and planned_level is not None:
        if held.after_level is None:
            return Overrides(held.current, held.gen, held.until_s, planned_level)
        over = over or planned_level != held.after_level
    return Overrides(None, held.gen + 1) if over else held
