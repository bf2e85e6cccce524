"""User overrides: set with compare-and-set, shown with author and end, expired by the clock."""

from dataclasses import dataclass
from typing import Annotated, Literal

from msgspec import Meta

from carbontui import protocol, units
from carbontui.protocol import Statement, statement


class OverrideError(ValueError):
    """A request that cannot be accepted, and why."""

    def __init__(self, why: Statement) -> None:
        super().__init__(why.code)
        self.said = why


MODES: tuple[Literal["pause", "boost", "cap"], ...] = ("pause", "boost", "cap")
NO_WATTS = statement("no_watts")


@dataclass(frozen=True, slots=True)
class Overrides:
    """The override in force, its generation, which increases with every change, and its end on the job's clock."""

    current: protocol.Override | None = None
    gen: int = 0
    until_s: Annotated[float, Meta(ge=0, le=units.LATEST_S)] | None = None


def apply(
    overrides: Overrides,
    verb: str,
    *,
    by: str,
    expected_gen: int | None,
    until_s: float | None = None,
    value_w: float | None = None,
) -> Overrides:
    """The overrides after `verb` (pause, boost, cap, resume). Raises OverrideError on a concurrent change."""
    if expected_gen is not None and expected_gen != overrides.gen:
        if overrides.current is None:
            raise OverrideError(statement("cleared_first"))
        raise OverrideError(statement("changed_first", by=overrides.current.by, mode=overrides.current.mode))
    if verb == "resume":
        return Overrides(None, overrides.gen + 1)
    mode = next((mode for mode in MODES if mode == verb), None)
    if mode is None:
        raise OverrideError(statement("not_an_override", verb=verb))
    if verb == "cap" and value_w is None:
        raise OverrideError(NO_WATTS)
    shown = None if until_s is None else units.iso(until_s)
    override = protocol.Override(mode, value_w if verb == "cap" else None, shown, by)
    return Overrides(override, overrides.gen + 1, until_s)


def expire(overrides: Overrides, now_s: float) -> Overrides:
    """The overrides at `now_s`: cleared when expired."""
    over = overrides.current is not None and overrides.until_s is not None and now_s >= overrides.until_s
    return Overrides(None, overrides.gen + 1) if over else overrides
