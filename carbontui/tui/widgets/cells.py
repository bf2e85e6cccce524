"""Rows of cells, repainted only where they changed: the base of every drawing on the screen.

Each drawing compares its new rows with the old ones and refreshes those that differ; of these the terminal is sent what
it does not show yet (`terminal_diff.py`). An unchanged chart costs nothing, a growing column one cell.
"""

import re
import textwrap
from collections.abc import Iterable

from rich.cells import cell_len, set_cell_size
from rich.color import Color as RichColor
from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.geometry import Region, Size
from textual.strip import Strip
from textual.widget import Widget

from carbontui.tui.model.view_state import ViewState
from carbontui.tui.terminal import palette
from carbontui.tui.terminal.palette import FAINT

StyleName = str | Style
"""The name of a colour of the theme ('running', or 'running/band' for one colour on another), or a ready style."""
Span = tuple[str, StyleName]
CellRow = list[Span]

_BOLD = frozenset({"strong", "title"})
_BACK = {"hatch": "hatch-back", "banner": "banner-back"}


class Cells(Widget):
    """A drawing. Subclasses implement `draw`; `redraw()` repaints what changed."""

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self._spans: list[CellRow] = []
        self._rows: list[CellRow] = []
        """As drawn, and fitted to the width: a row that is drawn as before is not fitted again."""
        self._drawn: Size = Size(0, 0)
        self._styles: dict[str, Style] = {}
        self._base: Style | None = None

    def draw(self, width: int, height: int) -> list[CellRow]:
        """The rows of a drawing of this size; missing rows and cells are blank."""
        raise NotImplementedError

    def redraw(self) -> None:
        """Draw again and refresh the rows that changed."""
        size = self.content_size
        if not self.is_attached or not self.display or not size:
            self._rows, self._drawn = [], Size(0, 0)
            return
        if size != self._drawn:
            # nothing on the terminal to compare with: draw everything
            self._fill(size)
            self.refresh()
            return
        before = self._rows
        self._rows = self._build(size)
        for y, (old, new) in enumerate(zip(before, self._rows, strict=True)):
            if old != new:
                self.refresh(Region(0, y, size.width, 1))

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._rows, self._drawn = [], Size(0, 0)
        self._styles.clear()
        self._base = None

    def render_line(self, y: int) -> Strip:
        size = self.content_size
        if size != self._drawn:
            self._fill(size)
        if self._base is None:
            self._base = self.rich_style  # read once: Textual recomputes it up to the screen each time
        base = self._base
        if y >= len(self._rows):
            return Strip.blank(size.width, base)
        return Strip(
            [Segment(text, base + self.style_name(style_name)) for text, style_name in self._rows[y]], size.width
        )

    def style_name(self, style_name: StyleName) -> Style:
        """The style of a name; 'a/b' paints the colour of a on the colour of b."""
        if isinstance(style_name, Style):
            return style_name
        found = self._styles.get(style_name)
        if found is None:
            front, _, back = style_name.partition("/")
            if back == "cursor" and self.app.current_theme.ansi:
                # no grey of the terminal's own palette is sure to be visible; reverse is
                found = self._styles[style_name] = Style(reverse=True, bold=True if front in _BOLD else None)
                return found
            back = back or _BACK.get(front, "")
            found = self._styles[style_name] = Style(
                color=self._colour(front),
                bgcolor=self._colour(back) if back else None,
                bold=True if front in _BOLD else None,
                dim=True if front in FAINT and self.app.current_theme.ansi else None,
            )
        return found

    def _colour(self, name: str) -> RichColor:
        # theme variables, not component classes: those would be styled for each widget before the first paint
        return Color.parse(self.app.theme_variables[f"ink-{name}"]).rich_color

    def heading(self, width: int, left: str, right: str | CellRow = "", style_name: StyleName = "dim") -> CellRow:
        """A dim rule with a title and text at its right end."""
        told: CellRow = [(right, style_name)] if isinstance(right, str) else right
        room = width - len(left) - 3  # beside the title and its blanks
        tail = [(" ", style_name), *told, (" ", style_name)] if 0 < width_of(told) <= room - 3 else []
        rule = palette.RULE
        return [(rule + " ", "faint"), (left, "title"), (" " + rule * (room - width_of(tail)), "faint"), *tail]

    def _fill(self, size: Size) -> None:
        self._rows, self._drawn = self._build(size), size

    def _build(self, size: Size) -> list[CellRow]:
        if size.width < 1 or size.height < 1:
            return []
        rows = self.draw(size.width, size.height)[: size.height]
        rows += [[] for _ in range(size.height - len(rows))]
        app, was = self.app, zip(self._spans, self._rows, strict=False) if size == self._drawn else ()
        known = {y: fitted for y, (spans, fitted) in enumerate(was) if y < len(rows) and spans == rows[y]}
        self._spans = rows
        return [
            known.get(y) or fit([(palette.plain(text, app), style_name) for text, style_name in row], size.width)
            for y, row in enumerate(rows)
        ]


class Scrolled(Cells):
    """Rows wrapped to the width, of which a window is shown from `top` on."""

    rows: list[CellRow] = []
    top = 0
    most = 10_000

    def window(self, width: int, height: int) -> tuple[list[CellRow], str]:
        """The rows that fit, and '1-20 of 41' if those are not all."""
        lines = [line for row in self.rows for line in folded(row, min(width, self.most))]
        self.top = max(0, min(self.top, len(lines) - height))
        shown = lines[self.top : self.top + height]
        return shown, f"{self.top + 1}-{self.top + len(shown)} of {len(lines)}" if len(lines) > len(shown) else ""

    def scroll(self, lines: int) -> None:
        self.top = max(0, self.top + lines)
        self.redraw()


class ViewCells(Cells):
    """A drawing of the job: `show(view_state)`. Subclasses implement `draw_view`; before the first picture there is
    their heading alone."""

    TITLE = ""
    view_state: ViewState | None = None

    def show(self, view_state: ViewState) -> None:
        self.view_state = view_state
        self.redraw()

    def draw(self, width: int, height: int) -> list[CellRow]:
        if self.view_state is None:
            return [self.heading(width, self.TITLE)] if self.TITLE else []
        return self.draw_view(self.view_state, width, height)

    def draw_view(self, view_state: ViewState, width: int, height: int) -> list[CellRow]:
        """The rows of a drawing of this size."""
        raise NotImplementedError


def fit(row: Iterable[Span], width: int) -> CellRow:
    """The row exactly `width` terminal cells wide, cut or padded; neighbours of one ink are one span."""
    spans: CellRow = []
    left = width
    for text, style_name in row:
        # a stray control byte must not move the cursor
        whole = text if text.isprintable() else _CONTROL.sub(" ", text)
        part = whole[:left] if whole.isascii() else set_cell_size(whole, min(left, cell_len(whole)))
        left -= len(part) if part.isascii() else cell_len(part)
        if spans and spans[-1][1] == style_name:
            spans[-1] = (spans[-1][0] + part, style_name)
        elif part:
            spans.append((part, style_name))
        if part != whole:
            break
    return [*spans, (" " * left, "text")] if left else spans


_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def cut(text: str, cells: int, *, right: bool = False) -> str:
    """The text in exactly this many cells, right-aligned if `right`, with an ellipsis if truncated."""
    if cells < 1 or cell_len(text) > cells:
        return set_cell_size(text, max(0, cells - 1)) + palette.ELLIPSIS if cells > 0 else ""
    fill = " " * (cells - cell_len(text))
    return fill + text if right else text + fill


def width_of(row: CellRow) -> int:
    return sum(cell_len(text) for text, _ in row)


def spread(width: int, left: CellRow, right: CellRow) -> CellRow:
    """Left and right ends of one line; the right end gives way when both do not fit."""
    gap = width - width_of(left) - width_of(right)
    return [*left, (" " * gap, "text"), *right] if gap >= 2 else left


def folded(row: CellRow, width: int) -> list[CellRow]:
    """A long row as several: its last text continues below itself, or below the whole row if that is narrow."""
    if width_of(row) <= width or not row:
        return [row]
    lead, (text, style_name) = row[:-1], row[-1]
    used = width_of(lead)
    if used < width // 2:
        first, *rest = textwrap.wrap(text, max(8, width - used)) or [""]
        return [[*lead, (first, style_name)], *([(" " * used, style_name), (line, style_name)] for line in rest)]
    return [lead, *([("  ", style_name), (line, style_name)] for line in textwrap.wrap(text, max(8, width - 2)))]
