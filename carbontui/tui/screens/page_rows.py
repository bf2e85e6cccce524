"""Rows of the help, sources and boards pages: keys and marks, provenance, what can be done here."""

from rich.cells import cell_len, set_cell_size
from textual.screen import Screen

from carbontui import protocol, units
from carbontui.text import figures, situation, sources
from carbontui.tui.model import state_text
from carbontui.tui.model.view_state import ViewState
from carbontui.tui.terminal import palette
from carbontui.tui.widgets import plan_text
from carbontui.tui.widgets.cells import CellRow

SHAPES = (
    (palette.NOW, "now", "now: left of it what was, right of it what is forecast and planned"),
    (palette.HATCH * 3, "hatch", "the training stands still: paused, unloaded or not started"),
    (palette.BAR[8], "running", "at full speed"),
    (palette.DENSE, "capped", "capped, or running part of the time"),
    (palette.BAR[8], "beyond", "hours after the work is done"),
    (palette.STIPPLE, "past", "the upper part of the forecast's 80 % band"),
    (palette.BROKEN, "dim", "the axis does not begin at zero"),
    (palette.DOTTED, "dim", "the deadline"),
    (palette.DASH * 2, "capped", "watts: the cap"),
    (palette.DASH * 2, "paused", "watts: what a pause draws with the model in memory"),
    (palette.POINT, "strong", "frontier: the budget in force; leftmost is at full speed"),
    (palette.KNOB, "preview", "the budget previewed; enter commits it, esc returns"),
)
"""(shape, ink, meaning)"""


def help_rows(screen: Screen[str | None]) -> list[CellRow]:
    """Every key that works on this screen now, and the marks of numbers and charts."""
    rows: list[CellRow] = []
    for key, active in screen.active_bindings.items():
        binding = active.binding
        if binding.id and binding.tooltip and active.node is screen:
            shown = {"question_mark": "?"}.get(key, key.replace("shift+", "⇧ "))
            rows.append([(f"{shown:>9}  ", "strong"), (binding.tooltip, "text")])
    rows += [[], [("  marks behind numbers", "title")]]
    rows += [[(f"{mark or 'none':>9}  ", "strong"), (said, "dim")] for mark, said in figures.MEANING.items()]
    rows += [[], [("  marks in charts", "title")]]
    rows += [[(f"{shape:>9}", ink), ("  ", "dim"), (meaning, "dim")] for shape, ink, meaning in SHAPES]
    return rows


NUMBERS = {
    "at_end": "at the end",
    "avoided_g": "avoided",
    "cost": "cost",
    "energy_gpu_kwh": "energy of the GPUs",
    "energy_wall_kwh": "energy",
    "estimate": "the whole run",
    "finish_expected": "finish",
    "forecast_errors": "forecast accuracy here",
    "gco2_g": "emitted",
    "intensity": "carbon intensity",
    "power_w": "power",
    "steps_total": "total steps",
}
OF_A_BOARD = {"power_w": "watts", "parked_w": "watts while paused", "limit_w": "cap"}


def number_name(field: str) -> str:
    """What the screen calls a field of the status: 'gpus.0.power_w' is 'GPU 0 watts'."""
    if field.startswith("gpus."):
        _, index, last = field.split(".", 2)
        return f"GPU {index} {OF_A_BOARD.get(last, last)}"
    return NUMBERS.get(field, field)


def source_rows(view_state: ViewState, age_s: float) -> list[CellRow]:
    """The provenance of every number, the certificate of the plan, and all notices."""
    status = view_state.status
    rows: list[CellRow] = []
    for field, found in sorted(status.provenance.items()):
        mark = figures.MARKS[found.how] or " "
        old = "" if found.age_s is None else state_text.age(found.age_s + age_s)
        old = f", {old} old" if old else ""
        rows.append([(f"{number_name(field):<21} ", "text"), (f"{mark} ", "warning"), (f"{found.how:<11}", "strong")])
        rows[-1].append((f"{found.source}{old}", "dim"))
    if not rows:
        rows.append([("no sources known yet", "dim")])
    if view_state.plan is not None:
        rows += [[], [("the plan", "title")], *plan_text.total_rows(view_state.plan, view_state.now_s, status)]
        rows += [[(line, "text")] for line in view_state.plan.curve_note.splitlines()]
    if status.notices:
        rows += [[], [("notices", "title")]]
        rows += [[("! ", "warning"), (one, "text")] for one in situation.notices(status, view_state.now_s)]
    return rows


TITLE_MOST = 44
"""Cells of a source's title."""
SOURCE_STYLE = {"answers": "running", "fallback": "dim", "not asked": "dim", "needs key": "dim"}


def grid_rows(status: protocol.Status, answer: protocol.GridAnswer | None, fault: str, now_s: float) -> list[CellRow]:
    """How good forecasts were here, and every source of the grid. `answer` is None until it arrives, or if it is
    unavailable: `fault` says why."""
    rows: list[CellRow] = [[], [("the grid: forecasts here against realised values", "title")]]
    for one in status.forecast_errors:
        naive = "" if one.naive is None else f" (the same hour of the day before: {figures.percent(one.naive)})"
        held = "" if one.coverage is None else f"; the 80 % band held {figures.percent(one.coverage)}"
        rows.append([(f"{one.lead_h:>3} h ahead  ", "dim"), (f"off by {figures.percent(one.error)}", "strong")])
        rows[-1].append((f"{naive}{held} of {one.hours} hours", "text"))
    rows += [] if status.forecast_errors else [[(" too few hours to judge yet", "dim")]]
    rows += [[], [("the grid: sources, in the order they are tried", "title")]]
    if answer is None:
        return [*rows, [(f" {fault or 'asking the supervisor …'}", "fault" if fault else "dim")]]
    widest = min(TITLE_MOST, max((cell_len(source.title) for source in answer.sources), default=0))
    for source in answer.sources:
        ago = f" {figures.duration(max(0.0, now_s - units.from_iso(source.fetched)))} ago" if source.fetched else ""
        rows.append([(f"{set_cell_size(source.title, widest)}  ", "text")])
        rows[-1].append((f"{source.state}{ago}", SOURCE_STYLE.get(source.state, "warning")))
        rows[-1].append((f"  {source.note or ''}", "dim"))
    told = (("known ", sources.age(status.intensity, now_s)), ("moved by ", answer.moved), ("! ", answer.note))
    rows += [[(what, "dim"), (text, "text")] for what, text in told if text]
    return rows


def ability_rows(answer: protocol.AbilitiesAnswer) -> list[CellRow]:
    """What can be measured and done: what all boards share is said once. Then the speed curve of this job."""
    of: dict[tuple[str, ...], list[str]] = {}
    for found in answer.rows:
        of.setdefault((found.aspect, found.support, found.why, found.fix), []).append(found.device)
    shared: dict[str, list[tuple[str, ...]]] = {}
    for said, devices in of.items():
        name = devices[0] if len(devices) == 1 else f"all {len(devices)}: {devices[0].split(' ', 2)[-1]}"
        shared.setdefault(name, []).append(said)
    rows: list[CellRow] = []
    for device, lines in shared.items():
        rows += [[], [(device, "title")]]
        for aspect, support, why, fix in lines:
            style_name = {"supported": "running", "unknown": "dim"}.get(support, "warning")
            rows.append([(f"{aspect:<15} ", "text"), (f"{support:<14} ", style_name), (why, "dim")])
            rows += [[(f"{'fix':>15} ", "dim"), (fix, "strong")]] if fix else []
    return rows


def curve_rows(answer: protocol.AbilitiesAnswer, view_state: ViewState) -> list[CellRow]:
    """Speed against watts of this job, with the level in force, and what a step costs there; then as measured."""
    status, plan = view_state.status, view_state.plan
    now = status.situation.applied if status.situation else status.level
    levels = sorted((one for one in (plan.table if plan else ()) if one.speed > 0), key=lambda one: one.power_w)
    rows: list[CellRow] = [[], [("speed against watts", "title")]]
    row: CellRow = [("watts→speed  ", "dim")]
    for one in levels:
        watts = f"{one.cap_w:.0f} W" if one.cap_w is not None else one.name
        bar = palette.BAR[max(1, round(8 * min(1.0, one.speed)))]
        row += [(watts, "strong" if one.name == now else "text")]
        row += [(palette.POINT if one.name == now else " ", "strong"), (f"{bar}  ", "capped")]
    here = next((one for one in levels if one.name == now), None)
    full = next((one for one in levels if one.kind == "full"), None)
    if here is not None and full is not None and here is not full:
        less = here.power_w / here.speed / full.power_w * full.speed - 1.0
        row.append((f"   joules per step {figures.signed(less, figures.percent)} at {palette.POINT}", "text"))
    rows += [row] if levels else []
    rows += [[(line, "dim")] for line in (plan.curve_note.splitlines() if plan else ())]
    rows += [[(line, "text")] for line in answer.curve]
    return rows if answer.curve or levels else [*rows, [("not measured yet: carbontui learn speed", "dim")]]
