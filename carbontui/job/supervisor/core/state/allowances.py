"""What a job may use in total (a carbon, cost or energy budget), and how much of it is left."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import msgspec

from carbontui.job.terms.allowance import DEFAULT_ORDER, KINDS, Allowance, AllowanceKind, OnBudget, order_of
from carbontui.job.terms.spec import Options

NoCap = Literal["", "no_limits", "unmeasured", "none_saves"]


class Prospect(NamedTuple):
    """Forecast for one allowance. `expected` is the total at the end (None: the end is not known), `used_up_s` when
    nothing is left of it; both take the actions in force into account."""

    allowance: Allowance
    used: float
    expected: float | None = None
    used_up_s: float | None = None


@dataclass(frozen=True, slots=True)
class Allowances:
    """The allowances of a job and the actions in force. Survives a respawn, except `prospects`."""

    given: tuple[Allowance, ...] = ()
    order: tuple[OnBudget, ...] = DEFAULT_ORDER
    prospects: tuple[Prospect, ...] = ()
    over: tuple[AllowanceKind, ...] = ()
    """Allowances expected to be exceeded even with the actions in force."""
    spent: AllowanceKind | None = None
    """The allowance that is used up."""
    cap_w: float | None = None
    """Watts per GPU that the action `cap` limits the job to."""
    no_cap: NoCap = ""
    """Why the action `cap` is called for but unavailable."""
    asked_s: float | None = None
    """Job clock when the question was asked."""
    act: OnBudget | None = None
    """pause or stop, once an allowance is used up."""
    no_stop: bool = False
    """The action `stop` is called for but unavailable: there is no checkpoint function."""
    forecast_share: float = 0.0
    """Relative excess of the forecast band's upper end over the expected remainder."""
    checked_mono_s: float = float("-inf")

    @property
    def doing(self) -> tuple[object, ...]:
        """The parts whose change is worth reporting to the user."""
        return self.over, self.spent, self.act, self.cap_w, self.asked_s

    @property
    def level(self) -> tuple[object, ...]:
        """How far it has come: what is warned of once. One that is used up is not said to be exceeded as well."""
        return (
            tuple(kind for kind in self.over if kind != self.spent),
            self.spent,
            self.act,
            self.cap_w is not None,
            self.asked_s is not None,
        )

    def with_(self, new: Allowance) -> Allowances:
        """With one allowance changed by the user; actions are chosen anew."""
        others = tuple(held for held in self.given if held.kind != new.kind)
        return Allowances(given=(*others, new), order=self.order)


def of_spec(spec: Options) -> Allowances:
    """The allowances given to `run`."""
    asked = (spec.carbon_budget_g, spec.cost_budget, spec.energy_budget_kwh)
    given = tuple(Allowance(kind, most) for kind, most in zip(KINDS, asked, strict=True) if most is not None)
    return Allowances(given=given, order=order_of(spec.on_budget))


class KeptAllowances(msgspec.Struct, frozen=True):
    """What the journal's `state` table has of them."""

    given: tuple[Allowance, ...]
    order: tuple[str, ...]
    cap_w: float | None = None
    asked_s: float | None = None
    act: OnBudget | None = None
    spent: AllowanceKind | None = None


def to_kept(now: Allowances) -> KeptAllowances:
    return KeptAllowances(now.given, now.order, now.cap_w, now.asked_s, now.act, now.spent)


def restored(known: Allowances, kept: object) -> Allowances:
    """What a predecessor kept. Raises msgspec.ValidationError on an invalid field."""
    if not kept:
        return known
    was = msgspec.convert(kept, KeptAllowances)
    return Allowances(**msgspec.structs.asdict(was) | {"order": order_of(was.order)})
