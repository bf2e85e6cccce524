"""What forbidden hours would cost, as text."""

from __future__ import annotations

from carbontui import link, protocol, units
from carbontui.job import store
from carbontui.tui.words import SAME_COURSE, same_course, signed
from carbontui.verbs import talk
from carbontui.verbs.failure import Failure


def price(job: store.Job, hours: str) -> str:
    """'22:00 to Mon 06:00: CO2 +38 g, finish +2 h 10'. Raises Failure where the hours cannot be read."""
    snap = talk.snap(job)
    found = talk.ask(job, protocol.Preview(1, forbid=hours))
    if not isinstance(found, protocol.Previewed):
        raise Failure(f"job {job.id} gave an unexpected answer", 1)
    if found.error and found.plan is None:
        known = snap.plan is not None
        # without a plan the hours still apply; only their cost is unknown
        if known or found.misread:
            raise Failure(found.error, 2)
        return f"{hours}: what it costs is not known ({found.error})"
    if not found.text:
        return f"{hours}: {link.OLDER}"
    return f"{found.text}: {words(snap, found)}"


def words(snap: protocol.Snap, found: protocol.Previewed) -> str:
    """The difference between the previewed plan and the plan in force."""
    frontier, cost = snap.frontier, snap.status.cost
    if frontier is None or frontier.chosen is None or snap.status.budget is None or found.finish is None:
        return "what it costs is not known: no plan is in force"
    if same_course(found.plan, snap.plan):
        return SAME_COURSE
    held = frontier.points[frontier.chosen]
    more_g = (found.gco2_g or 0.0) - held.gco2_g
    later_s = units.from_iso(found.finish) - units.from_iso(snap.status.budget.start) - held.finish_s
    parts = [f"CO2 {signed(more_g, units.fmt_grams)}"]
    parts.append(f"finish {signed(later_s, units.fmt_duration)}")
    if cost is not None and found.cost is not None:
        more = found.cost - held.cost
        parts.append(f"cost {signed(more, lambda size: units.fmt_money(size, cost.currency))}")
    late_s = found.plan.late_s if found.plan else 0.0
    return ", ".join(parts) + (f"; {units.fmt_duration(late_s)} late" if late_s > 60 else "")
