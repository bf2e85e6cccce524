"""A job's account as text: the summary at its end, expected totals, estimates; for the screen and for plain output."""

from __future__ import annotations

from collections.abc import Callable

from carbontui import protocol, units
from carbontui.text import situation
from carbontui.tui import words
from carbontui.tui.picture import Picture


def unmetered(status: protocol.Status) -> bool:
    """Whether a finished job has no metered energy: its consumption is unknown, not 0."""
    return status.state not in protocol.LIVE_STATES and status.energy_wall_kwh <= 0


def at_end(end: protocol.AtEnd) -> str:
    """'1.24 kg CO2 (1.10 kg to 1.38 kg), 310 g or 20 % less than run-now (250 g to 370 g)'."""
    told = f"{units.fmt_grams(end.gco2_g)} CO2{_band(end.gco2_lo_g, end.gco2_hi_g)}"
    if end.avoided_g is None or end.run_now_g is None:
        return told
    if abs(end.avoided_g) < units.LEAST_G:
        return f"{told}, as much as run-now"
    share = f" or {abs(end.avoided_g) / end.run_now_g:.0%}" if end.run_now_g > 0 else ""
    side = "less" if end.avoided_g > 0 else "more"
    less = (end.avoided_lo_g, end.avoided_hi_g)
    lo, hi = less if end.avoided_g > 0 else (_minus(less[1]), _minus(less[0]))
    return f"{told}, {units.fmt_grams(abs(end.avoided_g))}{share} {side} than run-now{_band(lo, hi)}"


def estimate(found: protocol.Estimate) -> str:
    """'22 h 16 flat out (22 h 05 to 22 h 27), 17.0 kWh (16.8 kWh to 17.2 kWh), ...'; a drift is mentioned."""
    parts = dict(estimate_rows(found))
    value, _, between = parts["time"].partition(" (")
    told = [f"{value} flat out ({between}"]
    told += [parts[label] + (" CO2" if label == "CO2" else "") for label in ("energy", "CO2", "cost") if label in parts]
    drift = f"; drifting: step time changed by {found.drift:+.0%} over the steps seen" if found.drifting else ""
    return ", ".join(told) + drift + (f"; {_busy(found)}" if found.core_wait >= BUSY else "")


BUSY = 0.05
"""Below this share of its time spent waiting for a core, a training counts as alone on its machine."""


def _busy(found: protocol.Estimate) -> str:
    return f"busy machine: it waited {found.core_wait:.0%} of the time for a core"


def estimate_rows(found: protocol.Estimate) -> list[tuple[str, str]]:
    """(label, text) for the whole work flat out: time, energy, CO2 and money, each with its interval."""

    def row(label: str, shown: Callable[[float], str], *values: float | None) -> list[tuple[str, str]]:
        value, lo, hi = values
        if value is None:
            return []
        between = "" if lo is None or hi is None else f" ({shown(lo)} to {shown(hi)})"
        return [(label, f"{shown(value)}{between}")]

    rows = row("time", units.fmt_duration, found.work_s, found.work_lo_s, found.work_hi_s)
    rows += row("energy", units.fmt_kwh, found.energy_wall_kwh, found.energy_lo_kwh, found.energy_hi_kwh)
    rows += row("CO2", units.fmt_grams, found.gco2_g, found.gco2_lo_g, found.gco2_hi_g)
    currency = found.currency or ""
    rows += row("cost", lambda value: units.fmt_money(value, currency), found.cost, found.cost_lo, found.cost_hi)
    if found.drifting:
        rows.append(
            ("drifting", f"step time changed by {found.drift:+.0%} over the steps seen: no further drift is covered")
        )
    if found.core_wait >= BUSY:
        rows.append(("busy", f"{_busy(found)}; the interval covers from none to twice as many other programs"))
    return rows


def allowance(found: protocol.Allowance, now_s: float) -> str:
    """'1.20 of 2.00 kg CO2 so far, 2.40 kg CO2 expected, used up at Fri 14:00'."""

    def amount(value: float) -> str:
        if found.kind == "carbon":
            return f"{units.fmt_grams(value)} CO2"
        return units.fmt_kwh(value) if found.kind == "energy" else units.fmt_money(value, found.unit)

    told = f"{amount(found.used)} of {amount(found.most)} so far"
    if found.expected is not None:
        told += f", {amount(found.expected)} expected"
    if found.used_up_at is not None:
        at = units.from_iso(found.used_up_at)
        told += f", used up at {units.fmt_named_clock(at, now_s)}" if at > now_s else ", used up"
    return told


def _band(lo: float | None, hi: float | None) -> str:
    return "" if lo is None or hi is None else f" ({units.fmt_grams(lo)} to {units.fmt_grams(hi)})"


def _minus(value: float | None) -> float | None:
    return None if value is None else -value


def summary(picture: Picture, *, spelt: bool = False) -> list[tuple[str, str]]:
    """The summary of a finished job: (label, text). `spelt`: provenance in words, where no page explains the marks."""
    status = picture.status

    def of(field: str) -> str:
        mark = words.mark(status, field)
        return f" ({status.provenance[field].how})" if mark and spelt else f" {mark}" if mark else ""

    rows = [("ended", f"{status.state}, {situation.exit_words(status.exit)}: {status.reason.text}")]
    if status.step:
        total = f" of {words.count(status.steps_total)}" if status.steps_total else ""
        loss = "" if status.loss is None else f", loss {status.loss:.4g}"
        rows.append(("steps", f"{words.count(status.step)}{total}{loss}"))
    energy = f"{units.fmt_kwh(status.energy_wall_kwh)}{of('energy_wall_kwh')}"
    if abs(status.energy_wall_kwh - status.energy_gpu_kwh) > 1e-9 and status.energy_gpu_kwh > 0:
        energy += f" (boards alone {units.fmt_kwh(status.energy_gpu_kwh)})"
    rows.append(("energy", units.NOT_METERED if unmetered(status) else energy))
    if unmetered(status):
        rows.append(("emitted", "not known: no energy was metered"))
    elif status.gco2_g is None:
        rows.append(("emitted", "not known: no grid data"))
    else:
        rows.append(("emitted", f"{units.fmt_grams(status.gco2_g)} CO₂{of('gco2_g')}"))
    if status.avoided_g is not None:
        said = words.avoided_share(status)
        share = " against run-now" if said is None else f", {said:.1%} of run-now"
        rows.append(("avoided", f"{units.fmt_grams(status.avoided_g)}{of('avoided_g')}{share}"))
    if status.cost is not None:
        rows.append(("cost", units.fmt_money(status.cost.value, status.cost.currency)))
    ended = units.from_iso(status.ended_at)
    begun = units.from_iso(status.budget.start) if status.budget else ended
    when = words.clock(ended, begun)
    if status.state != "done":
        # stopped or failed: it did not finish, so it was neither early nor late
        rows.append(("at", when))
        return rows
    if status.budget and status.budget.deadline:
        slack = units.from_iso(status.budget.deadline) - ended
        side = f"{units.fmt_duration(abs(slack))} {'before' if slack >= 0 else 'after'} the deadline"
        when += f", {side} ({words.clock_iso(status.budget.deadline, begun)})"
    rows.append(("finish", when))
    return rows
