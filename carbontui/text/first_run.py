"""The words of a first run: what is asked, what budgets give, what was assumed, and what would save more."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from carbontui import protocol
from carbontui.text import figures, sources

BUDGET = "How long may it take, like 2x, 18h or tomorrow 9"

NO_ANSWER = "no answer for a minute: it starts without, and nothing waits"


class Offer(NamedTuple):
    """A budget as a multiple of the work, the share of CO2 it saves against run-now, and when it ends."""

    factor: float
    saved: float
    finish_s: float


def zone(candidates: Sequence[str], likely: str) -> str:
    if likely:
        return "Grid zone, for its carbon intensity (kept in the settings)"
    hint = f"perhaps {', '.join(candidates)}" if candidates else "like DE or US-CAL-CISO"
    return f"Grid zone, for its carbon intensity ({hint}; Enter: none, it will not wait)"


def offers(zone: str, work_s: float, given: Sequence[Offer], *, known: bool) -> Iterator[str]:
    """What each budget gives, a line each; nothing where that is not known."""
    if not given:
        return
    work = figures.duration(work_s)
    of = f"{work} of work" if known else f"work of, say, {work} (the real length is measured once it runs)"
    yield f"On typical days of {zone}, {of}:"
    for _, same in groupby(given, key=lambda offer: (offer.factor == 1, round(offer.finish_s / 60))):
        offer, *others = same
        ends = f", ends {figures.clock(offer.finish_s, offer.finish_s - work_s)}" if known else ""
        wait = " (no waiting)" if offer.factor == 1 else ""
        gained = gain(offer.saved, offer.finish_s - given[0].finish_s)
        yield f"  {', '.join(f'{one.factor:g}x' for one in (offer, *others))}{wait}  {gained}{ends}"


def gain(saved: float, later_s: float) -> str:
    """'−12 % CO2, 3 h 10 later', against running now."""
    less = f"−{figures.percent(saved)} CO2" if saved >= 0.005 else "saves nothing"
    return less + (f", {figures.duration(later_s)} later" if later_s >= 60 else "")


def assumed(zone: str | None, own: bool, budget: str) -> str:
    """'zone DE by the time zone, budget 1.0x: nothing waits (--budget 2x may)': what nobody has said."""
    of = f"zone {zone}{'' if own else ' by the time zone'}" if zone else "zone not known (--zone)"
    return f"{of}, budget {budget}" + (": nothing waits (--budget 2x may)" if budget == "1.0x" else "")


def counts(kind: str, why: str) -> str:
    """'counts what it draws above idle; --boundary given-back: all that it draws (no scheduler was found)': of a
    boundary that nobody has given."""
    return f"counts {sources.OTHERWISE[kind]} ({sources.SIGNS[why]})" if why else ""


def more(status: protocol.Status) -> str:
    """The one thing that would have saved more; '' where none stands out, something was saved or the job failed."""
    if (status.avoided_g or 0.0) > 0 or status.state == "failed":
        return ""
    if status.intensity is None or not status.intensity.zone:
        return "with --zone it can be planned by the grid"
    if status.budget is None or not status.budget.work_known:
        counted = status.state == "done" and status.step
        return f"with {f'--steps {status.step}' if counted else '--work or --steps'} it can be planned"
    waits = status.budget.factor is None or status.budget.factor >= 1.05
    return "" if waits else "with --budget 2x it may wait for cleaner hours"
