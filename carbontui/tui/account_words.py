"""What remains to be said when a job is over, for the screen and for plain output."""

from __future__ import annotations

from carbontui import units
from carbontui.tui import words
from carbontui.tui.picture import Picture


def summary(picture: Picture, *, spelt: bool = False) -> list[tuple[str, str]]:
    """What remains to be said when a job is over: (label, words). `spelt`: provenance in words, where no page explains
    the marks."""
    status = picture.status

    def of(field: str) -> str:
        mark = words.mark(status, field)
        return f" ({status.provenance[field].how})" if mark and spelt else f" {mark}" if mark else ""

    rows = [("ended", f"{status.state}, {words.exit_words(status.exit)}: {status.reason.text}")]
    if status.step:
        total = f" of {words.count(status.steps_total)}" if status.steps_total else ""
        loss = "" if status.loss is None else f", loss {status.loss:.4g}"
        rows.append(("steps", f"{words.count(status.step)}{total}{loss}"))
    energy = f"{units.fmt_kwh(status.energy_wall_kwh)}{of('energy_wall_kwh')}"
    if abs(status.energy_wall_kwh - status.energy_gpu_kwh) > 1e-9 and status.energy_gpu_kwh > 0:
        energy += f" (boards alone {units.fmt_kwh(status.energy_gpu_kwh)})"
    rows.append(("energy", energy))
    if status.gco2_g is None:
        rows.append(("emitted", "not known: no grid data"))
    else:
        rows.append(("emitted", f"{units.fmt_grams(status.gco2_g)} CO₂{of('gco2_g')}"))
    if status.avoided_g is not None:
        said = words.avoided_share(status)
        share = "" if said is None else f", {said:.1%} of it"
        rows.append(("avoided", f"{units.fmt_grams(status.avoided_g)} against run-now{share}{of('avoided_g')}"))
    if status.cost is not None:
        rows.append(("cost", units.fmt_money(status.cost.value, status.cost.currency)))
    ended = picture.now_s
    begun = units.from_iso(status.budget.start) if status.budget else ended
    when = words.clock(ended, begun)
    if status.state != "done":
        # stopped or failed: it did not finish, and so was neither early nor late
        rows.append(("at", when))
        return rows
    if status.budget and status.budget.deadline:
        slack = units.from_iso(status.budget.deadline) - ended
        side = f"{units.fmt_duration(abs(slack))} {'before' if slack >= 0 else 'after'} the deadline"
        when += f", {side} ({words.clock_iso(status.budget.deadline, begun)})"
    rows.append(("finish", when))
    return rows
