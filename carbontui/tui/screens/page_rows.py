"""Rows of the help, sources and boards pages: keys and marks, provenance, what can be done here."""

from __future__ import annotations

from textual.screen import Screen

from carbontui import protocol
from carbontui.text import figures, marks, situation
from carbontui.tui import glyphs, plan_words, words
from carbontui.tui.picture import Picture
from carbontui.tui.widgets.cells import CellRow
from carbontui.tui.widgets.scale import bars


def help_rows(screen: Screen[str | None]) -> list[CellRow]:
    """Every key that works on this screen now, and the marks of numbers and charts."""
    rows: list[CellRow] = []
    for key, active in screen.active_bindings.items():
        binding = active.binding
        if binding.id and binding.tooltip and active.node is screen:
            shown = {"question_mark": "?"}.get(key, key.replace("shift+", "⇧ "))
            rows.append([(f"{shown:>9}  ", "strong"), (binding.tooltip, "text")])
    rows.append([("   ctrl+p  ", "strong"), ("every action by name", "text")])
    rows += [[], [("  marks behind numbers", "title")]]
    for mark, meaning in marks.MEANING.items():
        rows.append([(f"{mark or 'none':>9}  ", "strong"), (meaning, "dim")])
    rows += [[], [("  marks in charts", "title")]]
    for shape, ink, meaning in _shapes():
        rows.append([(f"{shape:>9}", ink), ("  ", "dim"), (meaning, "dim")])
    return rows


def _shapes() -> list[tuple[str, str, str]]:
    """(shape, ink, meaning)"""
    return [
        (glyphs.NOW, "now", "now: left of it what was, right of it what is forecast and planned"),
        (glyphs.HATCH * 3, "hatch", "the training stands still: paused, unloaded or not started"),
        (glyphs.BAR[8], "running", "at full speed"),
        (glyphs.BAR[8], "capped", "capped, or running part of the time"),
        (glyphs.BAR[8], "beyond", "hours after the work is done"),
        (f"{glyphs.DENSE}{glyphs.STIPPLE}", "past", "the forecast's 80 % band, within the bar and above it"),
        (glyphs.DOTTED, "dim", "the deadline"),
        (glyphs.DASH * 2, "capped", "watts: the cap"),
        (glyphs.DASH * 2, "paused", "watts: what a pause draws with the model in memory (parked)"),
        (glyphs.POINT, "strong", "frontier: the budget in force; leftmost is at full speed"),
        (glyphs.KNOB, "preview", "the budget previewed; enter commits it, esc returns"),
    ]


NUMBERS = {
    "at_end": "at the end",
    "avoided_g": "avoided",
    "cost": "cost",
    "energy_gpu_kwh": "energy of the boards",
    "energy_wall_kwh": "energy",
    "estimate": "the whole run",
    "finish_expected": "finish",
    "forecast_errors": "forecast accuracy here",
    "gco2_g": "emitted",
    "intensity": "carbon intensity",
    "power_w": "power",
    "steps_total": "total steps",
}
OF_A_BOARD = {"power_w": "watts", "parked_w": "parked", "limit_w": "cap"}


def number_name(field: str) -> str:
    """What the screen calls a field of the status: 'gpus.0.parked_w' is 'board 0 parked'."""
    if field.startswith("gpus."):
        _, index, last = field.split(".", 2)
        return f"board {index} {OF_A_BOARD.get(last, last)}"
    return NUMBERS.get(field, field)


def source_rows(picture: Picture, age_s: float) -> list[CellRow]:
    """The provenance of every number, the certificate of the plan, and all notices."""
    status = picture.status
    rows: list[CellRow] = []
    for field, found in sorted(status.provenance.items()):
        mark = marks.MARKS[found.how] or " "
        old = "" if found.age_s is None else words.age(found.age_s + age_s)
        old = f", {old} old" if old else ""
        rows.append([(f"{number_name(field):<21} ", "text"), (f"{mark} ", "warning"), (f"{found.how:<11}", "strong")])
        rows[-1].append((f"{found.source}{old}", "dim"))
    if not rows:
        rows.append([("no sources known yet", "dim")])
    if picture.plan is not None:
        rows += [[], [("the plan", "title")], *plan_words.total_rows(picture.plan)]
        rows += [[(line, "text")] for line in picture.plan.curve_note.splitlines()]
    if status.notices:
        rows += [[], [("notices", "title")]]
        rows += [[("! ", "warning"), (notice, "text")] for notice in status.notices]
    return rows


def board_rows(picture: Picture, width: int) -> list[CellRow]:
    """Each board's state now, and its past watts, from 0 to its limit, on a page this wide."""
    gpus, watts = picture.status.gpus, picture.series.watts
    rows: list[CellRow] = [[("boards", "title")]] if gpus else []
    for place, gpu in enumerate(gpus):
        number = place if gpu.index is None else gpu.index
        where = f"{gpu.node} " if gpu.node else ""
        limit = "" if gpu.limit_w is None else f" of {gpu.limit_w:.0f} W"
        rows.append([(f"{where}GPU {number} ", "text"), (f"{figures.watts(gpu.power_w)}{limit}", "strong")])
        told = [
            "" if gpu.temp_c is None else f"{gpu.temp_c:.0f} °C",
            "" if gpu.sm_mhz is None else f"{gpu.sm_mhz:.0f} MHz",
            "" if gpu.util is None else f"{figures.percent(gpu.util)} busy",
            "" if gpu.memory_used_b is None else f"{gpu.memory_used_b / 2**30:.1f} GiB",
            "" if gpu.parked_w is None else f"parked {gpu.parked_w:.0f} W",
        ]
        rows[-1].append((f"  {' · '.join(filter(None, told))}", "text"))
        if part := situation.own_part(gpu):
            rows.append([(f"{'':>6}", "dim"), (part, "text")])
        if gpu.slowed:
            rows.append([(f"{'':>6}", "dim"), (f"slowed by {gpu.slowed}", "warning")])
        history = watts.gpus_w.get(gpu.uuid, ()) if watts is not None else ()
        history = history[-max(8, min(HISTORY_CELLS, width - 9)) :]
        top = max((value for value in (*history, gpu.limit_w) if value is not None), default=0.0)
        if len(history) > 1 and top > 0:
            rows.append([(f"{'':>6}", "dim"), (bars(history, HISTORY_CELLS, (0.0, top)), "running")])
    return [*rows, []] if rows else []


HISTORY_CELLS = 50


def ability_rows(answer: protocol.AbilitiesAnswer) -> list[CellRow]:
    """The capability table by device, then the speed curve of this job."""
    rows: list[CellRow] = []
    device = None
    for found in answer.rows:
        if found.device != device:
            device = found.device
            rows += [[], [(device, "title")]] if rows else [[(device, "title")]]
        ink = {"supported": "running", "unknown": "dim"}.get(found.support, "warning")
        rows.append([(f"{found.aspect:<15} ", "text"), (f"{found.support:<14} ", ink), (found.why, "dim")])
        if found.fix:
            rows.append([(f"{'fix':>15} ", "dim"), (found.fix, "strong")])
    rows += [[], [("speed against watts", "title")]]
    rows += [[(line, "text")] for line in answer.curve] or [[("not measured yet: carbontui calibrate", "dim")]]
    return rows
