"""A page to read: the keys and marks, where every number comes from, what can be done here."""

from __future__ import annotations

import textwrap
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.geometry import Size
from textual.screen import ModalScreen, Screen

from carbontui import protocol, units
from carbontui.tui import words
from carbontui.tui.glyphs import Glyphs
from carbontui.tui.picture import Picture
from carbontui.tui.widgets.cells import Cells, Row, width_of


class Page(Cells):
    """Fixed rows."""

    def __init__(self, rows: list[Row], glyphs: Glyphs) -> None:
        super().__init__(glyphs)
        self._page = rows
        self.styles.height = "auto"

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return sum(len(folded(row, width)) for row in self._page)

    def draw(self, width: int, height: int) -> list[Row]:
        return [line for row in self._page for line in folded(row, width)]


def folded(row: Row, width: int) -> list[Row]:
    """A row that is too long, on several: its last text goes on below itself."""
    if width_of(row) <= width or not row:
        return [row]
    lead, (text, ink) = row[:-1], row[-1]
    indent = width_of(lead) if width_of(lead) < width // 2 else 2
    first, *rest = textwrap.wrap(text, max(8, width - indent)) or [""]
    return [[*lead, (first, ink)], *([(" " * indent, ink), (line, ink)] for line in rest)]


class Read(ModalScreen[None]):
    """A title and its rows; any of the closing keys returns."""

    CSS_PATH = "read.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,i,d,question_mark,enter", "leave", "back", id="read_back", tooltip="Return to the dashboard")
    ]

    def __init__(self, title: str, rows: list[Row], glyphs: Glyphs) -> None:
        super().__init__()
        self._title, self._page_rows, self._glyphs = title, rows, glyphs

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="box page") as box:
            box.border_title = self._title
            box.border_subtitle = "esc returns"
            yield Page(self._page_rows, self._glyphs)

    def action_leave(self) -> None:
        self.dismiss(None)


def help_rows(screen: Screen[str | None]) -> list[Row]:
    """Every key that works on this screen now, and the marks."""
    rows: list[Row] = []
    for key, active in screen.active_bindings.items():
        binding = active.binding
        if binding.id and binding.tooltip and active.node is screen:
            shown = {"question_mark": "?"}.get(key, key.replace("shift+", "⇧ "))
            rows.append([(f"{shown:>9}  ", "strong"), (binding.tooltip, "text")])
    rows.append([("   ctrl+p  ", "strong"), ("every action by name", "text")])
    rows += [[], [("  marks behind numbers", "title")]]
    for mark, meaning in words.MARK_MEANING.items():
        rows.append([(f"{mark or 'none':>9}  ", "strong"), (meaning, "dim")])
    return rows


def source_rows(picture: Picture, age_s: float) -> list[Row]:
    """The provenance of every number, the certificate of the plan, and all notices."""
    status = picture.status
    rows: list[Row] = []
    for field, found in sorted(status.provenance.items()):
        mark = words.MARKS[found.how] or " "
        old = "" if found.age_s is None else f", {units.fmt_duration(found.age_s + age_s)} old"
        rows.append([(f"{field:<20} ", "text"), (f"{mark} ", "warning"), (f"{found.how:<11}", "strong")])
        rows[-1].append((f"{found.source}{old}", "dim"))
    if not rows:
        rows.append([("nothing is known of the sources yet", "dim")])
    rows += _plan_rows(picture.plan)
    if status.notices:
        rows += [[], [("notices", "title")]]
        rows += [[("! ", "warning"), (notice, "text")] for notice in status.notices]
    return rows


def ability_rows(answer: protocol.AbilitiesAnswer) -> list[Row]:
    """The capability table by device, then the speed curve of this job."""
    rows: list[Row] = []
    device = None
    for found in answer.rows:
        if found.device != device:
            device = found.device
            rows += [[], [(device, "title")]] if rows else [[(device, "title")]]
        ink = {"supported": "running", "unknown": "dim"}.get(found.support, "warning")
        rows.append([(f"{found.aspect:<15} ", "text"), (f"{found.support:<14} ", ink), (found.why, "dim")])
        if found.fix:
            rows.append([(f"{'mend':>15} ", "dim"), (found.fix, "strong")])
    rows += [[], [("speed against watts, measured on this job", "title")]]
    rows += [[(line, "text")] for line in answer.curve] or [[("not measured yet: carbontui calibrate", "dim")]]
    return rows


def _plan_rows(plan: protocol.PlanView | None) -> list[Row]:
    if plan is None:
        return []
    rows: list[Row] = [[], [("the plan", "title")]]
    rows += [[(line, "text")] for line in plan.explanation.splitlines() if line.strip()]
    if plan.certificate is not None:
        gap = f"{plan.certificate.gap:.2%} at most above the best plan of its forecast"
        rows.append([(f"certificate: {gap}", "dim")])
    for base in plan.baselines:
        late = "" if base.feasible else ", late"
        rows.append([(f"{base.name:<20} ", "dim"), (f"{units.fmt_grams(base.gco2_g)}{late}", "text")])
    return rows
