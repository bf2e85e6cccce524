"""A job's account in words: used against run-now, expected totals, estimates, gaps; one place per statement."""

from collections.abc import Callable, Iterator

from carbontui import protocol, units
from carbontui.protocol import Status
from carbontui.text import figures, first_run, situation
from carbontui.text.sources import called

NOTHING_HELD = "ran at full speed throughout: no saving"
"""Where no lever acted there is no saving, and no percentage of one."""


LEAST_SHARE = 0.005
"""A smaller share would read 0 %."""


def share(avoided_g: float | None, run_now_g: float | None) -> float | None:
    """Avoided CO2 as a share of run-now's; None where it is unknown or negligible."""
    if avoided_g is None or not run_now_g or run_now_g < 0 or abs(avoided_g) < figures.LEAST_G:
        return None
    return avoided_g / run_now_g


def against(avoided_g: float | None, run_now_g: float | None) -> str:
    """'310 g or 20 % less than run-now', 'as much as run-now'; `NOTHING_HELD` where nothing was delayed or
    capped, '' where that is not known."""
    if avoided_g is None or run_now_g is None:
        return "" if avoided_g is None else NOTHING_HELD
    part = share(avoided_g, run_now_g)
    if part is None:
        return "as much as running now"
    percent = f" or {figures.percent(abs(part))}" if abs(part) >= LEAST_SHARE else ""
    return f"{figures.grams(abs(avoided_g))}{percent} {'less' if avoided_g > 0 else 'more'} than running now"


def verdict(status: protocol.Status) -> str:
    """'saves 3.58 kg, −21 %' of a live job, '1.05 kg, −35 % (run now 1.62 kg)' of one that is over; '' where neither is
    known."""
    end = status.at_end
    if status.state in protocol.LIVE_STATES:
        if end is None:
            return ""
        part = share(end.avoided_g, end.run_now_g)
        if end.avoided_g is None or part is None or abs(part) < LEAST_SHARE:
            return "same as running now" if end.run_now_g is not None else f"{figures.grams(end.gco2_g)} at the end"
        verb = "saves" if part > 0 else "costs"
        return f"{verb} {figures.grams(abs(end.avoided_g))}, {figures.signed(-part, figures.percent)}"
    if unmetered(status) or status.gco2_g is None:
        return ""
    part = share(status.avoided_g, status.run_now_g)
    told = figures.grams(status.gco2_g)
    if part is None:
        return f"{told} CO₂"
    return f"{told}, {figures.signed(-part, figures.percent)} (run now {figures.grams(status.run_now_g)})"


def in_time(status: protocol.Status, *, brief: bool = False) -> str:
    """'Wed 14:56, 64 min before the deadline (16:00)' of a job that is done, `brief` '64 min early'; else when it
    ended."""
    ended = units.from_iso(status.ended_at)
    begun = units.from_iso(status.budget.start) if status.budget else ended
    when = figures.clock(ended, begun)
    if status.state == "done" and status.budget and status.budget.deadline:
        slack = units.from_iso(status.budget.deadline) - ended
        side = ("early", "late") if brief else ("before the deadline", "after the deadline")
        told = f"{when}, {figures.duration(abs(slack))} {side[slack < 0]}"
        return told if brief else f"{told} ({figures.clock(units.from_iso(status.budget.deadline), begun)})"
    return when


def avoided(status: protocol.Status) -> str:
    """`against` run-now so far; '' where nothing was used yet."""
    return against(status.avoided_g, status.run_now_g) if status.energy_wall_kwh > 0 else ""


def ending(status: protocol.Status, means: str = "") -> str:
    """How the job has ended and its account in one line; `means`: the avoided CO2 by lever."""
    ended = situation.stated(status)
    if unmetered(status):
        return f"{ended}; {figures.NOT_METERED}"
    said = avoided(status)
    parts = [
        drawn(status, band=False),
        "" if status.gco2_g is None else f"{figures.grams(status.gco2_g)} CO2",
        said + (f" ({means})" if said and means else ""),
        first_run.more(status),
        *(excluded(apart) for apart in status.excluded),
        "" if status.cost is None else figures.money(status.cost.value, status.cost.currency),
    ]
    how = status.provenance.get("energy_gpu_kwh")
    return f"{ended}; " + ", ".join(filter(None, parts)) + (f" ({how.how})" if how else "")


def metered(status: protocol.Status) -> str:
    """'97.2 % of 54 min': how much of the account's time was metered; beside every total, '' before any has passed."""
    known = status.coverage
    if known is None or known.share is None:
        return ""
    return f"{figures.percent(known.share, 1)} of {figures.duration(known.metered_s + known.gap_s)}"


def excluded(apart: protocol.Excluded) -> str:
    """'the try: 20 steps, 42 s, 1.20 Wh, 0.41 g CO2; not in the account'."""
    grams = "" if apart.gco2_g is None else f", {figures.grams(apart.gco2_g)} CO2"
    took = f"{apart.steps:,} steps, {figures.duration(apart.elapsed_s)}, {figures.kwh(apart.energy_wall_kwh)}"
    return f"the {apart.reason}: {took}{grams}; not in the account"


def place_row(place: protocol.PlaceUse) -> tuple[str, str, str, str, str]:
    """Machine, zone, steps, energy and CO2; what was lost with its machine is not known."""
    steps = "not known" if place.steps is None else figures.count(place.steps)
    energy = "not known" if place.energy_wall_kwh is None else figures.kwh(place.energy_wall_kwh)
    return place.host, place.zone or "not known", steps, energy, figures.grams(place.gco2_g)


def of_places(status: protocol.Status) -> list[tuple[str, str]]:
    """(label, text) of what was used where, and of the moves; empty for a job that never moved."""
    rows = map(place_row, status.places)
    told = [
        ("at", f"{host} ({zone}): {steps} steps, {energy}, {grams} CO2") for host, zone, steps, energy, grams in rows
    ]
    told += [] if status.moves_cost is None else [("moves", f"{moves(status.moves_cost)}; in the account")]
    return told + ([] if status.moved_to is None else [("moved to", status.moved_to.host)])


def moves(cost: protocol.MovesCost) -> str:
    """'1.2 Wh, 0.4 g CO2, 2.1 MB copied, 12 s'."""
    used = f"{figures.kwh(cost.energy_wall_kwh)}, {figures.grams(cost.gco2_g)} CO2"
    return f"{used}, {figures.size(cost.bytes)} copied, {figures.duration(cost.s)}"


def better_host(host: str, zone: str, saves: float, later_s: float) -> str:
    """'n2 in SE: −61 %, done 2 h 00 later': the rest of the work there, against staying."""
    when = f"{figures.duration(abs(later_s))} {'later' if later_s > 0 else 'earlier'}"
    done = when if abs(later_s) >= 60 else "as soon"
    return f"{host} in {zone}: {figures.signed(-saves, figures.percent)}, done {done}"


def worth(grams: float) -> bool:
    """Whether an amount is more than what is shown as zero."""
    return abs(grams) >= figures.LEAST_G


def with_band(grams: float, half: float | None) -> str:
    """'+12.3 g ± 0.4 g'; without a band where none is known, or where it would round to nothing."""
    band = "" if half is None or not worth(half) else f" ± {figures.grams(half)}"
    return f"{figures.change(grams)}{band}"


def unmetered(status: protocol.Status) -> bool:
    """Whether a finished job has no metered energy: its consumption is unknown, not 0."""
    return status.state not in protocol.LIVE_STATES and status.energy_wall_kwh <= 0 and not status.excluded


def at_end(end: protocol.AtEnd) -> str:
    """'1.24 kg CO2 (1.10 kg to 1.38 kg), 310 g or 20 % less than run-now (250 g to 370 g)'."""
    told = f"{figures.grams(end.gco2_g)} CO2{_interval(figures.grams, end.gco2_lo_g, end.gco2_hi_g)}"
    if end.avoided_g is None or end.run_now_g is None:
        return told
    less = (end.avoided_lo_g, end.avoided_hi_g)
    lo, hi = less if end.avoided_g > 0 else (_minus(less[1]), _minus(less[0]))
    band = "" if share(end.avoided_g, end.run_now_g) is None else _interval(figures.grams, lo, hi)
    return f"{told}, {against(end.avoided_g, end.run_now_g)}{band}"


def estimate(estimate: protocol.Estimate) -> str:
    """'22 h 16 at full speed (22 h 05 to 22 h 27), 17.0 kWh (16.8 kWh to 17.2 kWh), ...'; a drift is mentioned."""
    parts, told = dict(estimate_rows(estimate)), [full_speed_time(estimate)]
    told += [parts[label] + (" CO2" if label == "CO2" else "") for label in ("energy", "CO2", "cost") if label in parts]
    drift = f"; drifting: {_drift(estimate)}" if estimate.drifting else ""
    return ", ".join(told) + drift + (f"; {_busy(estimate)}" if estimate.core_wait >= BUSY else "")


def full_speed_time(estimate: protocol.Estimate) -> str:
    """'22 h 16 at full speed (22 h 05 to 22 h 27)'."""
    between = _interval(figures.duration, estimate.work_lo_s, estimate.work_hi_s)
    return f"{figures.duration(estimate.work_s)} at full speed{between}"


BUSY = 0.05
"""Below this share of its time spent waiting for a core, a training counts as alone on its machine."""


def _drift(estimate: protocol.Estimate) -> str:
    return f"step time changed by {figures.signed(estimate.drift, figures.percent)} over the steps seen"


def _busy(estimate: protocol.Estimate) -> str:
    return f"busy machine: it waited {figures.percent(estimate.core_wait)} of the time for a core"


def pace_row(pace: protocol.UnitEstimate) -> str:
    """'12 min (11 min to 13 min), 105 Wh, 32 g CO2', of an amount of steps."""
    between = _interval(figures.duration, pace.s_lo, pace.s_hi)
    parts = [f"{figures.duration(pace.s)}{between}"]
    parts += [] if pace.kwh is None else [figures.kwh(pace.kwh)]
    parts += [] if pace.gco2_g is None else [f"{figures.grams(pace.gco2_g)} CO2"]
    return ", ".join(parts)


def estimate_rows(estimate: protocol.Estimate) -> list[tuple[str, str]]:
    """(label, text) for the whole work at full speed: time, energy, CO2 and money, each with its interval."""

    def row(
        label: str, shown: Callable[[float], str], value: float | None, lo: float | None, hi: float | None
    ) -> list[tuple[str, str]]:
        return [] if value is None else [(label, f"{shown(value)}{_interval(shown, lo, hi)}")]

    rows = row("time", figures.duration, estimate.work_s, estimate.work_lo_s, estimate.work_hi_s)
    rows += row("energy", figures.kwh, estimate.energy_wall_kwh, estimate.energy_lo_kwh, estimate.energy_hi_kwh)
    rows += row("CO2", figures.grams, estimate.gco2_g, estimate.gco2_lo_g, estimate.gco2_hi_g)
    currency = estimate.currency or ""
    rows += row("cost", lambda value: figures.money(value, currency), estimate.cost, estimate.cost_lo, estimate.cost_hi)
    if estimate.drifting:
        rows.append(("drifting", f"{_drift(estimate)}: no further drift is covered"))
    if estimate.core_wait >= BUSY:
        rows.append(("busy", f"{_busy(estimate)}; the interval covers from none to twice as many other programs"))
    else:
        rows.append(("load", "a core was free while it was timed, which is assumed of the rest: a crowd takes longer"))
    return rows


def allowance(allowance: protocol.AllowanceStatus, now_s: float) -> str:
    """'1.20 of 2.00 kg CO2 so far, 2.40 kg CO2 expected, used up at Fri 14:00'."""

    def amount(value: float) -> str:
        if allowance.kind == "carbon":
            return f"{figures.grams(value)} CO2"
        return figures.kwh(value) if allowance.kind == "energy" else figures.money(value, allowance.unit)

    told = f"{amount(allowance.used)} of {amount(allowance.most)} so far"
    if allowance.expected is not None:
        told += f", {amount(allowance.expected)} expected"
    if allowance.used_up_at is not None:
        at = units.from_iso(allowance.used_up_at)
        told += f", used up at {figures.named_clock(at, now_s)}" if at > now_s else ", used up"
    return told


def _interval(shown: Callable[[float], str], lo: float | None, hi: float | None) -> str:
    told = "" if lo is None or hi is None else figures.between(shown, lo, hi)
    return f" ({told})" if told else ""


def _minus(value: float | None) -> float | None:
    return None if value is None else -value


def energy(kwh: float, account: protocol.Account | None) -> str:
    """'4.1 kWh ± 6 %'; without a band where it is not known."""
    used = None if account is None else account.so_far
    if used is None or used.energy_wall_hi_kwh is None or used.energy_wall_kwh <= 0:
        return figures.kwh(kwh)
    return f"{figures.kwh(kwh)} ± {figures.percent(used.energy_wall_hi_kwh / used.energy_wall_kwh - 1.0)}"


def whole_machine(status: protocol.Status) -> str:
    """'7.2 kWh ± 9 %', with what idles, and the host; '' where the account has them."""
    whole, boundary = status.whole_machine, status.boundary
    if whole is None or boundary is None or boundary.kind != "always-on" or whole.energy_kwh <= 0:
        return ""
    return f"{figures.kwh(whole.energy_kwh)} ± {figures.percent(whole.hi_kwh / whole.energy_kwh - 1.0)}"


def drawn(status: Status, *, band: bool = True) -> str:
    """'4.1 kWh ± 6 % at the wall', '4.1 kWh above idle'."""
    told = energy(status.energy_wall_kwh, status.account if band else None)
    return told if status.boundary is None else f"{told} {called(status.boundary.kind)}"


def summary(status: protocol.Status, of: Callable[[str], str]) -> list[tuple[str, str]]:
    """The summary of a finished job: (label, text); `of` gives the provenance of a field, as it is written after it."""
    total = f" of {figures.count(status.steps_total)}" if status.steps_total else ""
    steps = (f"{figures.count(status.step)}{total}", situation.loss_words(status)) if status.step else ()
    used = f"{drawn(status)}{of('energy_wall_kwh')}"
    if abs(status.energy_wall_kwh - status.energy_gpu_kwh) > 1e-9 and status.energy_gpu_kwh > 0:
        used += f" (GPUs alone {figures.kwh(status.energy_gpu_kwh)})"
    emitted = f"{figures.grams(status.gco2_g)} CO₂{of('gco2_g')}"
    if unmetered(status) or status.gco2_g is None:
        emitted = f"not known: no {'energy was metered' if unmetered(status) else 'grid data'}"
    said = avoided(status)
    rows = [
        ("ended", situation.ended(status)),
        ("steps", ", ".join(filter(None, steps))),
        ("energy", figures.NOT_METERED if unmetered(status) else used),
        ("machine", (whole := whole_machine(status)) and f"{whole} in all, with what it idles and the host"),
        ("metered", metered(status)),
        ("emitted", emitted),
        ("avoided", said + (of("avoided_g") if said and status.run_now_g is not None else "")),
        ("next time", first_run.more(status)),
        *(("besides", excluded(apart)) for apart in status.excluded),
        *of_places(status),
        ("cost", "" if status.cost is None else figures.money(status.cost.value, status.cost.currency)),
        # stopped or failed: it did not finish, so it was neither early nor late
        ("finish" if status.state == "done" else "at", in_time(status)),
    ]
    return [(label, told) for label, told in rows if told]


# --- what a reader of the output is told ---


class NoticesShown:
    """Which notices are news: each once, those of an allowance once per level."""

    _standing: frozenset[str] = frozenset()
    _shown: frozenset[str] = frozenset()

    def news(self, status: Status) -> list[str]:
        keys = status.notice_keys if len(status.notice_keys) == len(status.notices) else status.notices
        told = dict(zip(keys, situation.notices(status), strict=True))
        # one that went and came back is news again, unless only its figures crossed a line once more
        found = [text for key, text in told.items() if key not in self._standing | self._shown]
        self._standing = frozenset(told)
        self._shown |= {key for key, text in told.items() if key != text}
        return found


HELD = ("waiting", "throttled", "pausing", "paused", "unloaded")
"""States of which a reader of the output wants to know why nothing comes."""


def narrate(old: Status | None, new: Status, notices: NoticesShown) -> Iterator[str]:
    """What a reader of the output would ask about: why nothing comes, and what the supervisor has to say."""
    same = old is not None and (old.state, situation.reason(old)) == (new.state, situation.reason(new))
    begins_again = old is None and (new.state, new.reason.code) == ("unloaded", "exited")
    if new.state in HELD and not same and not begins_again:
        yield situation.stated(new)
    if new.at_end is not None and (old is None or old.at_end is None):
        yield f"at the end: {at_end(new.at_end)}"
    yield from notices.news(new)
