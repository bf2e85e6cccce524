"""What a job may use in all (a carbon, cost or energy budget), and how that stands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from carbontui.job.allowance import DEFAULT_ORDER, KINDS, Allowance, AllowanceKind, OnBudget, order_of
from carbontui.job.spec import Options


class Prospect(NamedTuple):
    """How one allowance stands. `expected` is the total at the end (None: the end is not known) and `used_up_s` the
    moment at which nothing is left of it, both with what is being done about it."""

    allowance: Allowance
    used: float
    expected: float | None = None
    used_up_s: float | None = None


@dataclass(frozen=True, slots=True)
class Allowances:
    """The allowances of a job, and what is being done. Survives a respawn but for `prospects`."""

    given: tuple[Allowance, ...] = ()
    order: tuple[OnBudget, ...] = DEFAULT_ORDER
    prospects: tuple[Prospect, ...] = ()
    over: tuple[AllowanceKind, ...] = ()
    """Those that are expected to be exceeded as things stand, acts included."""
    spent: AllowanceKind | None = None
    """The one that is used up."""
    cap_w: float | None = None
    """Watts per GPU that the act `cap` holds the job to."""
    no_cap: str = ""
    """Why the act `cap` cannot be taken, where it should be."""
    asked_s: float | None = None
    """Job clock since which the question stands."""
    act: OnBudget | None = None
    """pause or stop, once something is used up."""
    no_stop: str = ""
    """Why the act `stop` cannot be taken, where it should be."""
    forecast_share: float = 0.0
    """By how much the rest may come out above what is expected of it: the upper end of the forecast's band."""
    judged_mono_s: float = float("-inf")

    @property
    def doing(self) -> tuple[object, ...]:
        """What a person would want to read of when it changes."""
        return self.over, self.spent, self.act, self.cap_w, self.asked_s

    def with_(self, new: Allowance) -> Allowances:
        """With one that a person has changed: what is being done is judged anew."""
        others = tuple(held for held in self.given if held.kind != new.kind)
        return Allowances(given=(*others, new), order=self.order)


def of_spec(spec: Options) -> Allowances:
    """What `run` was asked for."""
    asked = (spec.carbon_budget_g, spec.cost_budget, spec.energy_budget_kwh)
    given = tuple(Allowance(kind, most) for kind, most in zip(KINDS, asked, strict=True) if most is not None)
    return Allowances(given=given, order=order_of(spec.on_budget))


def to_kept(held: Allowances) -> dict[str, Any]:
    """For the journal's `state` table."""
    return {
        "given": [[entry.kind, entry.most] for entry in held.given],
        "order": list(held.order),
        "cap_w": held.cap_w,
        "asked_s": held.asked_s,
        "act": held.act,
        "spent": held.spent,
    }


class _Kept(msgspec.Struct):
    given: list[tuple[AllowanceKind, float]]
    order: list[str]
    cap_w: float | None = None
    asked_s: float | None = None
    act: OnBudget | None = None
    spent: AllowanceKind | None = None


def restored(known: Allowances, kept: Any) -> Allowances:
    """What a predecessor kept. Raises msgspec.ValidationError where a field is not what it should be."""
    if not kept:
        return known
    was = msgspec.convert(kept, _Kept)
    given = tuple(Allowance(kind, most) for kind, most in was.given)
    order = order_of(was.order)
    return Allowances(given, order, cap_w=was.cap_w, asked_s=was.asked_s, act=was.act, spent=was.spent)
