"""The plan as text: its stretches and the reason for each, the cost of a slot or of forbidden hours, earlier plans."""

import textwrap

from carbontui import protocol, units
from carbontui.protocol import statement
from carbontui.text import figures as form
from carbontui.text import situation
from carbontui.text.plan import certificate
from carbontui.text.statements import rendered
from carbontui.tui.model import state_text
from carbontui.tui.model.view_state import ViewState
from carbontui.tui.widgets.cells import CellRow
from carbontui.tui.widgets.levels import table

SAME_G_PER_KWH = 0.02
"""Means that differ by a smaller share count as equally clean."""


def span(start: str, end: str, now_s: float) -> str:
    """'21:24 to Thu 02:00'."""
    first, last = situation.clock(start, now_s), situation.clock(end, now_s)
    day, _, at = last.rpartition(" ")
    # the day is written once
    return f"{first} to {at if day and first.startswith(day) else last}"


def running_mean(plan: protocol.PlanView) -> float | None:
    """Energy-weighted gCO2/kWh of the stretches that run; None where none does."""
    infos = table(plan)
    running = [one for one in plan.windows if one.level in infos and infos[one.level].kind not in protocol.STILL]
    kwh = sum(one.kwh for one in running)
    return sum(one.g_per_kwh * one.kwh for one in running) / kwh if kwh > 0 else None


def money_of(plan: protocol.PlanView) -> str:
    """The currency in which the plan gains; '' where it gains grams."""
    return next((unit for one in plan.said if (unit := str(one.parts.get("unit", "g"))) != "g"), "")


def stretch_at(plan: protocol.PlanView | None, at_s: float) -> protocol.PlanWindow | None:
    """The plan's stretch at a time; None without a plan, and after its end."""
    windows = plan.windows if plan else ()
    return next((one for one in windows if units.from_iso(one.start) <= at_s < units.from_iso(one.end)), None)


def why(one: protocol.PlanWindow, view_state: ViewState) -> str:
    """Why the plan chose this level for a stretch, in a few words."""
    plan = view_state.plan
    assert plan is not None
    kind = table(plan)[one.level].kind if one.level in table(plan) else "full"
    start, end = units.from_iso(one.start), units.from_iso(one.end)
    level_in_force = view_state.status.override
    if level_in_force is not None and start <= view_state.now_s < end:
        return f"{level_in_force.mode} by {level_in_force.by}"
    forbidden = ((units.from_iso(hours.start), units.from_iso(hours.end)) for hours in view_state.status.forbidden)
    if kind in protocol.STILL and any(begins < end and ends > start for begins, ends in forbidden):
        return "hours that must not run"
    mean = running_mean(plan)
    if mean is None:
        return ""
    if money_of(plan) and kind not in ("cap", "duty"):
        return "cheaper hours come" if kind in protocol.STILL else "the cheapest hours that fit"
    if kind in protocol.STILL:
        if one.g_per_kwh > mean * (1 + SAME_G_PER_KWH):
            return f"dirtier than the {mean:.0f} g/kWh where it runs"
        return "cleaner hours come" if kind == "off" else "too short to be worth a start"
    if kind in ("cap", "duty"):
        return "fewer watts for each step, and there is time"
    if all(at.level in table(plan) and table(plan)[at.level].kind == "full" for at in plan.windows):
        return "no cleaner hours worth a wait"
    still = [at for at in plan.windows if at.level in table(plan) and table(plan)[at.level].kind in protocol.STILL]
    cleaner = any(at.g_per_kwh > one.g_per_kwh * (1 + SAME_G_PER_KWH) for at in still)
    return "cleaner than where it stands still" if cleaner else "the time is needed"


def course_rows(view_state: ViewState, width: int) -> list[CellRow]:
    """A row per stretch: when, level, intensity, grams, what it gains, why."""
    plan = view_state.plan
    if plan is None:
        why_not = situation.reason(view_state.status, view_state.now_s)
        return [[(f" {line}", "dim")] for line in textwrap.wrap(f"no plan yet: {why_not}", max(8, width - 2))]
    wide, narrow = width >= 84, width < 58
    figures = f"{'CO₂':>8}" if narrow else f"{'g/kWh':>6}{'CO₂':>9}{'GAINS':>9}"
    cells, level = (20, 10) if narrow else (23, 11)
    head = f" {'WHEN':<{cells}}{'LEVEL':<{level}}{figures}" + ("  WHY" if width >= 106 else "")
    rows: list[CellRow] = [[(head, "dim")]]
    infos = table(plan)
    endless = view_state.status.finish_expected is None
    for one in plan.windows:
        info = infos.get(one.level)
        style_name = state_text.KIND_STYLE[info.kind] if info else "text"
        when = span(one.start, one.end, view_state.now_s)
        if endless and one is plan.windows[-1]:
            when = f"{situation.clock(one.start, view_state.now_s)} {situation.open_end(view_state.status)}"
        when = when.replace(" to ", "–") if narrow else when
        row: CellRow = [
            (f" {when:<{cells}}", "text"),
            (f"{situation.level(one.level, plan.table, step=view_state.status.step):<{level}}", style_name),
        ]
        gains = f"{form.grams(one.gain_g)}" if abs(one.gain_g) >= form.LEAST_G else "–"
        if narrow:
            row.append((f"{form.grams(one.gco2_g):>8}", "text"))
        else:
            row.append((f"{one.g_per_kwh:>6.0f}{form.grams(one.gco2_g):>9}", "text"))
            row.append((f"{gains:>9}", "running" if one.gain_g >= form.LEAST_G else "dim"))
        if wide:
            row.append((f"  {why(one, view_state)}", "dim"))
        rows.append(row)
    return [*rows, [], *total_rows(plan, view_state.now_s, view_state.status)]


def total_rows(plan: protocol.PlanView, now_s: float, status: protocol.Status | None = None) -> list[CellRow]:
    """What the rest takes, why, and what it would take otherwise; of one without an end, what it takes until then."""
    parked = sum(one.gco2_g for one in plan.windows if (level := table(plan).get(one.level)) and level.still)
    currency = money_of(plan)

    def money(cost: float) -> str:
        return f", {form.money(cost, currency)}" if currency else ""

    whole = f"{form.grams(plan.gco2_g)} CO₂, {form.kwh(plan.kwh)}{money(plan.cost)}"
    endless = status is not None and status.finish_expected is None
    rest = f"to {situation.clock(plan.finish, now_s)}" if endless else "the rest"
    rows: list[CellRow] = [[(f" {rest:<9} ", "dim"), (whole, "text")]]
    if parked > 0:
        rows[-1].append((f"; standing still costs {form.grams(parked)} of it", "text"))
    for line in situation.explanation(plan, now_s, status).splitlines():
        rows.append([(" why       ", "dim"), (line, "text")])
    if plan.certificate is not None:
        rows.append([(" proof     ", "dim"), (certificate(plan.certificate), "text")])
    if plan.baselines:
        rows += [[], [(f" otherwise the rest would {'take' if currency else 'emit'}", "title")]]
    widest = max((len(base.name) for base in plan.baselines), default=0)
    for base in plan.baselines:
        taken = f"{form.grams(base.gco2_g)}{money(base.cost)}{'' if base.feasible else ', late'}"
        rows.append([(f" {base.name:<{widest}}  ", "dim"), (taken, "text")])
    if plan.weights:
        rows += [[], [(" by weight the rest would take", "title")]]
    for one in plan.weights:
        share = f"carbon {form.percent(one.carbon)}"
        taken = f"{form.grams(one.gco2_g)}, {form.money(one.cost, one.currency)}"
        rows.append([(f" {share:<20}", "dim"), (taken, "text")])
    return rows


def hours_rows(view_state: ViewState) -> list[CellRow]:
    """The forbidden hours, and who set them."""
    level_in_force = view_state.status.forbidden
    if not level_in_force:
        return []
    rows: list[CellRow] = [[], [(" hours that must not run", "title"), ("  x allows them again", "dim")]]
    for one in level_in_force:
        span_s = {"start_s": units.from_iso(one.start), "end_s": units.from_iso(one.end)}
        hours = rendered(statement("hours_daily" if one.daily else "hours", **span_s), one.text, view_state.now_s)
        rows.append([(f" {hours:<28}", "text"), (f"by {one.by}", "dim")])
    return rows


def event_rows(events: tuple[protocol.Event, ...], view_state: ViewState) -> list[CellRow]:
    """The events and plans, newest first."""
    rows: list[CellRow] = [[], [(" what happened, newest first", "title")]] if events else []
    for one in reversed(events[-60:]):
        style_name = "text" if one.kind != "plan" else "dim"
        rows.append([(f" {situation.clock(one.at, view_state.now_s):>12}  ", "dim")])
        rows[-1].append((rendered(one.said, one.text, view_state.now_s), style_name))
    return rows


def slot_row(at_s: float, end_s: float, view_state: ViewState) -> CellRow:
    """Line 1: the plan's level in a slot, and its intensity."""
    band, plan = view_state.series.intensity, view_state.plan
    grams = ""
    if band is not None:
        index = int(((at_s + end_s) / 2 - units.from_iso(band.start)) // band.step_s)
        value = band.mean_g[index] if 0 <= index < len(band.mean_g) else None
        grams = "" if value is None else f"{value:.0f} g/kWh"
    stretch = stretch_at(plan, (at_s + end_s) / 2)
    level = "after the end" if stretch is None else situation.level(stretch.level, plan.table if plan else ())
    when = f"{state_text.clock(at_s, view_state.now_s)} to {state_text.clock(end_s, view_state.now_s)}"
    reason = "" if stretch is None else why(stretch, view_state)
    told = " · ".join(filter(None, (grams, reason)))
    return [(f" {when}  ", "strong"), (level, "text"), (f"  {told}", "dim")]
