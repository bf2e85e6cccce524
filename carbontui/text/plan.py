"""A plan in words: its next stretches, what it saves and why, its constraints and what they cost."""

from collections.abc import Sequence
from typing import Any

from carbontui import units
from carbontui.protocol import Certificate, FrontierPoint, PlanView, Previewed
from carbontui.text import figures
from carbontui.text.forms import Table, until, wordings

Stretches = Sequence[tuple[str, bool, float]]
"""(level, whether it stands still, when it ends) in order."""
_DOING = {"off": "waiting", "unload": "unloading", "unloaded": "unloading", "pause": "pausing", "paused": "pausing"}
NO_CURRENCY = "in the price's currency"


def amount(value: float, unit: str) -> str:
    """Grams, or money in a currency."""
    return figures.grams(abs(value)) if unit == "g" else figures.money(abs(value), unit or NO_CURRENCY)


def _when(end_s: float, now_s: float) -> str:
    """A clock time; for a plan without a date (`now_s` 0) a duration."""
    return figures.clock(end_s, now_s) if now_s else f"{figures.duration(end_s)} from now"


def course(stretches: Stretches, now_s: float) -> str:
    """'pausing until 02:15', 'running at full speed until 18:00, then pausing until 02:15', 'running at cap 300 W to
    the end (15:29)'; '' for none. A stretch that stands still is the whole answer unless it comes second."""

    def doing(name: str, still: bool) -> str:
        return _DOING.get(name.lower(), f"{'holding' if still else 'running'} at {name}{' speed' * (name == 'full')}")

    parts = [f"{doing(name, still)} until {_when(end_s, now_s)}" for name, still, end_s in stretches[:2]]
    if 0 < len(stretches) <= 2:
        name, still, end_s = stretches[-1]
        parts[-1] = f"{doing(name, still)} to the end ({_when(end_s, now_s)})"
    return parts[0] if len(stretches) > 1 and stretches[0][1] else ", then ".join(parts)


def explained(*, now_s: float, stretches: Stretches, verdict: str, late_s: float, **parts: Any) -> str:
    """The next stretches, what the plan saves, what waiting costs, and the runner-up; parts as `plan.Explanation`, of
    which each clause names its own."""
    if verdict == "nothing_left":
        return "Nothing is left to do."
    if verdict == "late":
        return late(now_s=now_s, late_s=late_s, finish_s=stretches[-1][2])
    told = course(stretches, now_s) + _gain(verdict, **parts) + _parked(**parts) + _runner_up(**parts)
    return f"{told[:1].upper()}{told[1:]}.{_rented(**parts)}"


def _gain(verdict: str, *, saved: float, unit: str, waits: bool, forgone: float = 0.0, **_: Any) -> str:
    if forgone:
        return f": no plan would save 0.5 % of the whole job (the best {figures.percent(forgone, 2)})"
    return {
        "saves": f" saves {amount(saved, unit)} on the work left, against running now",
        "needs_watts": ": running now would emit no more, but use watts that other jobs need",
        "best": f": running now {'would be as good' if waits else 'is already the best'}",
    }.get(verdict, "")


def _parked(*, parked_kwh: float, parked: float, switching: float, unit: str, **_: Any) -> str:
    if parked_kwh <= 0:
        return ""
    switches = f" and {amount(switching, unit)} for switching" if switching > 0 else ""
    return f", after {amount(parked, unit)} ({figures.kwh(parked_kwh)}) drawn while paused{switches}"


def _runner_up(*, runner: str, runner_name: str, runner_value: float, runner_w: float, unit: str, **_: Any) -> str:
    throughout = f"{runner_name} throughout" if runner_name else "running now"
    return {
        "": "",
        "no_room": "; pausing does not fit in this budget",
        "too_late": "; waiting would save less than its time is worth",
        "parked_watts": f"; pausing does not pay here: paused GPUs draw {runner_w:.0f} W",
        "no_gain": "; waiting gains nothing here",
        "unbeaten": f"; without waiting nothing beats {throughout}",
        "would_save": f"; {throughout} would have saved {amount(runner_value, unit)}",
        "would_cost": f"; {throughout} would have cost {amount(runner_value, unit)} more",
    }[runner]


def _rented(*, rented_s: float, rent: float, power: float, grams: float, currency: str, **_: Any) -> str:
    """' Waiting 4 h costs 9.60 EUR of rent, saves 0.31 EUR of power and 1.20 kg CO2.'"""
    if rented_s <= 0:
        return ""
    costs: list[str] = [f"{figures.money(rent, currency)} of rent"]
    saves: list[str] = []
    if power:
        (saves if power > 0 else costs).append(f"{figures.money(abs(power), currency)} of power")
    (saves if grams > 0 else costs).append(f"{figures.grams(abs(grams))} CO2")
    told = f" Waiting {figures.duration(rented_s)} costs {' and '.join(costs)}"
    return f"{told}, saves {' and '.join(saves)}." if saves else f"{told}."


def late(*, now_s: float, late_s: float, finish_s: float) -> str:
    when, by = _when(finish_s, now_s), figures.duration(late_s)
    return f"The work does not fit before the deadline: it finishes {by} late, {when}."


def since(*, now_s: float, stretches: Stretches, made_s: float) -> str:
    """The stretches that are left of an older plan, whose gains referred to the moment when it was made."""
    made, told = figures.clock(made_s, now_s), course(stretches, now_s)
    return f"{told[0].upper()}{told[1:]}, as planned at {made}." if told else f"The plan made at {made} is over."


SAME_FINISH_S = 60.0
"""Plans that finish within this of each other finish at the same time, as users read it."""


def forbidden(*, now_s: float, hours: Sequence[str], more_g: float | None) -> str:
    costs = "costs nothing" if more_g is None else f"costs {figures.grams(more_g)}"
    return f"Not running {', '.join(hours)} {costs}."


def overridden(
    *,
    now_s: float,
    mode: str,
    watts: float | None,
    by: str,
    until_s: float | None,
    left_g: float | None,
    alone_g: float | None,
    missed: str,
) -> str:
    """What a user's override does to the rest: `left_g` to emit, `alone_g` by the plan without it, `missed` of the
    budget; None where that is not known, equal figures where the difference is too small to be shown."""
    done = {"pause": "Paused", "boost": "At full speed", "cap": f"Capped at {watts or 0:g} W per GPU"}[mode]
    told = f"{done} by {by}{until(until_s, now_s) or ' until cleared'}"
    if mode == "pause" and until_s is None:
        return f"{told}: no work is done meanwhile{missed and '; ' + missed}."
    if left_g is None or alone_g is None:
        return f"{told}; the rest is planned around it."
    emits = f"{told}: the work left emits {figures.grams(left_g)}"
    if left_g == alone_g:
        return f"{emits}, as the plan alone would."
    side = "more" if left_g > alone_g else "less"
    return f"{emits}, {figures.grams(abs(left_g - alone_g))} {side} than the plan alone ({figures.grams(alone_g)})."


BASES = {"public": "public measurements of other trainings", "imported": "another GPU of this model"}


def curve_assumed(*, now_s: float, basis: str, error: float, takes_s: tuple[float, float] | None) -> str:
    """`takes_s`: how long a calibration takes, where it would pay."""
    told = f"Speeds under caps are from {BASES[basis]}: joules per step ±{figures.percent(error)}."
    if takes_s is None:
        return told
    low, high = (figures.duration(seconds) for seconds in takes_s)
    return f"{told} Measuring them on this job would pay: carbontui learn speed ({low} to {high})."


def certificate(of: Certificate) -> str:
    """'at most 0.06 % above the optimum of its forecast and of the price of time, 0.07 % of those that finish no
    later'."""
    told = proof(of.gap)
    if of.gap_at_finish is None:
        return told
    return f"{told} and the price of time; {figures.percent(of.gap_at_finish, 2)} of plans that finish no later"


def proof(gap: float) -> str:
    """'at most 0.06 % above the optimum of its forecast'."""
    return f"at most {figures.percent(gap, 2)} above the optimum of its forecast"


PLAN: Table = wordings("plan") | {
    "plan_explained": explained,
    "plan_since": since,
    "plan_late": late,
    "plan_forbidden": forbidden,
    "plan_overridden": overridden,
    "curve_assumed": curve_assumed,
}
"""By the code of a `protocol.Statement`."""


# --- against the plan in force ------------------------------------------------------------------------------------

SAME_COURSE = "it changes nothing: the plan stays as it is"


def same_course(one: PlanView | None, other: PlanView | None) -> bool:
    """Whether two plans are the same levels at the same times, half a slot apart at most: made minutes apart from other
    watts, they differ in grams all the same, and that is nothing that a change of plan would give."""
    if one is None or other is None or [name for name, _ in one.levels] != [name for name, _ in other.levels]:
        return False
    pairs = zip(level_ends_s(one), level_ends_s(other), strict=True)
    return all(abs(end_s - other_s) <= one.slot_s / 2 for end_s, other_s in pairs)


def level_ends_s(plan: PlanView) -> list[float]:
    """When each stretch of one level ends, the last with the work."""
    at_s, ends = units.from_iso(plan.start) + plan.first_s - plan.slot_s, []
    for _, slots in plan.levels:
        at_s += slots * plan.slot_s
        ends.append(at_s)
    return [*ends[:-1], units.from_iso(plan.finish)]


def unused(allowed: FrontierPoint | None, planned: FrontierPoint | None) -> str:
    """'allowed, not used: 13 h 00 more would save 1 %', of a budget that does not change the plan."""
    later_s = allowed.finish_s - planned.finish_s if allowed and planned else 0.0
    if not allowed or not planned or later_s < SAME_FINISH_S or allowed.gco2_g >= planned.gco2_g:
        return "the same plan"
    saved = figures.percent(1 - allowed.gco2_g / planned.gco2_g)
    return f"allowed, not used: {figures.duration(later_s)} more would save {saved}"


def difference(previewed: Previewed, currency: str | None) -> str:
    """'CO₂ +38 g, finish +2 h 10, cost +0.12 EUR' against what is in force; the reason where nothing is known."""
    if previewed.error and previewed.plan is None:
        return previewed.error
    now = previewed.instead
    if now is None or previewed.finish is None or previewed.gco2_g is None:
        return "what it costs is not known: no plan is in force"
    if same_course(previewed.plan, now.plan):
        return SAME_COURSE
    later_s = units.from_iso(previewed.finish) - units.from_iso(now.finish)
    parts = [f"CO₂ {figures.change(previewed.gco2_g - now.gco2_g)}"]
    parts.append(f"finish {figures.signed(later_s, figures.duration)}")
    if currency is not None and previewed.cost is not None:
        parts.append(f"cost {figures.signed(previewed.cost - now.cost, lambda more: figures.money(more, currency))}")
    late_s = previewed.plan.late_s if previewed.plan else 0.0
    return ", ".join(parts) + (f"; {figures.duration(late_s)} late" if late_s > 60 else "")
