"""Allowances: how much CO2, money or energy a job may use in total, and the actions if that will not be enough."""

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

from carbontui import units
from carbontui.protocol import Statement, statement

AllowanceKind = Literal["carbon", "cost", "energy"]
OnBudget = Literal["warn", "cap", "ask", "pause", "stop", "stop!"]
KINDS: tuple[AllowanceKind, ...] = ("carbon", "cost", "energy")
ACTS: tuple[OnBudget, ...] = ("warn", "cap", "ask", "pause", "stop", "stop!")
"""`stop` leaves with a checkpoint; `stop!` interrupts (INT, then TERM and KILL), whether or not one can be written."""
DEFAULT_ORDER: tuple[OnBudget, ...] = ("warn", "cap", "ask")
MOST = 1e12
"""Upper bound in grams, currency or kWh."""
_GRAMS = {"mg": 1e-3, "g": 1.0, "kg": 1e3, "t": 1e6}
_KWH = {"wh": 1e-3, "kwh": 1.0, "mwh": 1e3, "j": 1 / units.J_PER_KWH, "kj": 1e3 / units.J_PER_KWH}
_AMOUNT = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]+)(?:\s*CO2e?)?\s*", re.ASCII)
_CURRENCY = re.compile("[A-Z]{3}")
_FORMS = {"carbon": "2kg or 350g", "cost": "12 (in --currency) or 12EUR", "energy": "5kWh or 300Wh"}


class Allowance(NamedTuple):
    """`most` is grams of CO2, an amount of the job's currency, or kWh at the wall, by `kind`."""

    kind: AllowanceKind
    most: float

    def amount(self, currency: str | None, value: float | None = None) -> Statement:
        """An amount of this kind, its own by default, to be told."""
        value = self.most if value is None else value
        if self.kind == "carbon":
            return statement("grams_of_co2", grams=value)
        if self.kind == "energy":
            return statement("energy", kwh=value)
        return statement("money", value=value, currency=currency or "")


def parse(text: str, kind: AllowanceKind, currency: str | None = None) -> Allowance:
    """'2kg', '12', '12EUR', '5kWh', of the `kind` asked for. Raises ValueError naming the value and the form."""
    found = recognised(text, currency)
    if found is None and kind == "cost" and re.fullmatch(r"\s*\d+(\.\d+)?\s*", text, re.ASCII):
        found = Allowance("cost", float(text))
    if found is None or found.kind != kind:
        a = "an" if kind == "energy" else "a"
        raise ValueError(f"{text!r} is not {a} {kind} budget; write it like {_FORMS[kind]}")
    return checked(found)


def checked(allowance: Allowance) -> Allowance:
    """The same allowance if it is valid. Raises ValueError."""
    if not 0 < allowance.most <= MOST:
        raise ValueError(f"the {allowance.kind} budget must be above zero and at most {MOST:g}, not {allowance.most:g}")
    return allowance


def is_amount(text: str) -> bool:
    """Whether a budget text is an amount of CO2, energy or money, not a time."""
    match = _AMOUNT.fullmatch(text)
    return match is not None and (match[2].lower() in (_GRAMS | _KWH) or bool(_CURRENCY.fullmatch(match[2])))


def currency_of(text: str) -> str | None:
    """The currency that an amount of money names: EUR of '12EUR'."""
    match = _AMOUNT.fullmatch(text)
    return match[2] if match and _CURRENCY.fullmatch(match[2]) else None


def recognised(text: str, currency: str | None) -> Allowance | None:
    """The allowance given by a number with a unit; None for anything else. Raises ValueError for an amount in another
    currency than the job's."""
    match = _AMOUNT.fullmatch(text)
    if not match:
        return None
    value, unit = float(match[1]), match[2]
    if (factor := _GRAMS.get(unit.lower())) is not None:
        return Allowance("carbon", value * factor)
    if (factor := _KWH.get(unit.lower())) is not None:
        return Allowance("energy", value * factor)
    if _CURRENCY.fullmatch(unit):
        if unit != currency:
            raise ValueError(f"{text!r}: the job counts in {currency or 'no currency; start it with --currency'}")
        return Allowance("cost", value)
    return None


def parse_order(text: str) -> tuple[OnBudget, ...]:
    """'warn,cap,ask' as actions, in that order. Raises ValueError naming an unknown one."""
    named = [part.strip().lower() for part in text.split(",") if part.strip()]
    if not named:
        raise ValueError(f"{text!r} names nothing to do; write some of {','.join(ACTS)}")
    found: list[OnBudget] = []
    for name in named:
        act = next((known for known in ACTS if known == name), None)
        if act is None:
            raise ValueError(f"{name!r} is not one of {', '.join(ACTS)}")
        if act in found:
            raise ValueError(f"{name!r} is named twice")
        found.append(act)
    return tuple(found)


def order_of(stored: Sequence[str]) -> tuple[OnBudget, ...]:
    """The actions of a stored list that this version knows."""
    return tuple(act for name in stored for act in ACTS if act == name)
