"""Sends the terminal only what changes.

Textual sends every cell of a refreshed region again, with both colours of each piece: opening a page costs the whole
screen twice. Here each update is compared, cell by cell, with what the terminal shows, and colours are sent when they
change. Over a slow line that is the difference between a page at once and a page after half a minute.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

from rich.cells import cell_len
from rich.color import ColorSystem
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment
from rich.style import Style
from textual._compositor import ChopsUpdate, CompositorUpdate, LayoutUpdate
from textual.strip import Strip

from carbontui import units

MOST_CHARS = 2048
"""Cells cached per style; `_cell` keeps more over all styles. One dropped from both is a new object when it recurs, and
is sent once more."""


class CellStyle(NamedTuple):
    """How a cell is painted, as SGR codes. `front` None: a blank, whose foreground is invisible."""

    marks: tuple[str, ...]
    front: str | None
    back: str


class Cell(NamedTuple):
    """The content of one cell; '' in the second cell of a wide character."""

    char: str
    look: CellStyle


class Changes(CompositorUpdate):
    """An update as the terminal needs it, already rendered."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Segment(self.text)

    def __init__(self, text: str) -> None:
        self.text = text

    def render_segments(self, console: Console) -> str:
        return self.text


class TerminalDiff:
    """The terminal's contents, as sent through `changes`."""

    def __init__(self) -> None:
        self._shown: dict[tuple[int, int], Cell] = {}

    def forget(self) -> None:
        """Forget the terminal's contents: it was resized, or another program wrote to it."""
        self._shown.clear()

    def changes(self, update: RenderableType | None, console: Console) -> RenderableType | None:
        """The update without what the terminal already shows; None if nothing is left."""
        pieces = _pieces(update)
        if pieces is None:
            self.forget()
            return update
        system = console._color_system or ColorSystem.TRUECOLOR
        text = self.written(pieces, system)
        return Changes(text) if text else None

    def written(self, pieces: Iterable[tuple[int, int, int, Strip]], system: ColorSystem) -> str:
        out: list[str] = []
        shown = self._shown
        at: tuple[int, int] | None = None
        pen: CellStyle | None = None
        last: CellStyle | None = None
        for x, y, end, strip in pieces:
            for column, cell in _cells(x, strip, system):
                if column >= end:
                    break
                place = (column, y)
                if shown.get(place) is cell:
                    continue
                shown[place] = cell
                char = cell.char
                if not char:
                    continue
                if at != place:
                    out.append(self._moved(at, column, y, pen))
                if cell.look is not last:
                    last = cell.look
                    codes, pen = _turn(pen, last)
                    out.append(codes)
                out.append(char)
                # terminals disagree on the width of some characters: position the cursor explicitly after one
                at = (column + 1, y) if (len(char) == 1 and char < "\u1100") or _drawing(char) else None
        return "".join((*out, "\x1b[0m")) if out else ""

    def _moved(self, at: tuple[int, int] | None, column: int, y: int, look: CellStyle | None) -> str:
        """Moves the cursor to a cell: up to four cells that need no other style are rewritten, so words stay whole."""
        if at is None or at[1] != y or at[0] > column or look is None:
            return f"\x1b[{y + 1};{column + 1}H"
        between = [self._shown.get((x, y)) for x in range(at[0], column)]
        if len(between) <= 4 and all(cell and cell.char and not _turn(look, cell.look)[0] for cell in between):
            return "".join(cell.char for cell in between if cell)
        return f"\x1b[{column - at[0]}C"


def _pieces(update: RenderableType | None) -> list[tuple[int, int, int, Strip]] | None:
    """(column, row, column after the last valid one, strip) of an update; None for another kind of update."""
    if update is None:
        return []
    found: list[tuple[int, int, int, Strip]] = []
    if isinstance(update, LayoutUpdate):
        for y, line in enumerate(update.strips, update.region.y):
            x = update.region.x
            for strip in line:
                found.append((x, y, x + strip.cell_length, strip))
                x += strip.cell_length
        return found
    if isinstance(update, ChopsUpdate):
        for y, x1, x2 in update.spans:
            for end, (x, part) in zip(update.chop_ends[y], update.chops[y].items(), strict=False):
                if part is not None and x <= x2 and end > x1:
                    found.append((x, y, min(end, x2), part))
        return found
    return None


def _cells(x: int, strip: Strip, system: ColorSystem) -> Iterator[tuple[int, Cell]]:
    for segment in strip:
        known = _known(segment.style or Style.null(), system)
        for char in segment.text:
            wide = 1 if char < "\u0300" else cell_len(char)
            if wide:
                yield x, known.get(char) or known.of(char)
                if wide == 2:
                    yield x + 1, known.get("") or known.of("")
                x += wide


class _CellsOfLook(dict[str, Cell]):
    """Cells by character. One object per character and style, so that two cells are compared by identity."""

    def __init__(self, look: CellStyle) -> None:
        self._look = look
        # a blank without attributes has no foreground
        self._blank = look if look.marks else look._replace(front=None)

    def of(self, char: str) -> Cell:
        if len(self) >= MOST_CHARS:
            self.clear()
        cell = self[char] = _cell(units.printable(char), self._blank if char == " " else self._look)
        return cell


_cell = lru_cache(maxsize=32 * MOST_CHARS)(Cell)


@lru_cache(maxsize=4096)
def _known(style: Style, system: ColorSystem) -> _CellsOfLook:
    return _CellsOfLook(_look(style, system))


def _look(style: Style, system: ColorSystem) -> CellStyle:
    marks = tuple(
        code
        for code, on in (
            ("1", style.bold),
            ("2", style.dim),
            ("3", style.italic),
            ("4", style.underline),
            ("5", style.blink),
            ("7", style.reverse),
            ("9", style.strike),
        )
        if on
    )
    front = ";".join(style.color.downgrade(system).get_ansi_codes(foreground=True)) if style.color else "39"
    back = ";".join(style.bgcolor.downgrade(system).get_ansi_codes(foreground=False)) if style.bgcolor else "49"
    return CellStyle(marks, front, back)


_ENDS = {"1": "22", "2": "22", "3": "23", "4": "24", "5": "25", "7": "27", "9": "29"}
"""The code that ends one attribute: a full reset would require sending both colours again."""


@lru_cache(maxsize=4096)
def _turn(was: CellStyle | None, now: CellStyle) -> tuple[str, CellStyle]:
    """The codes that change the current style to the next (None: the default style); and the resulting style."""
    was = was or CellStyle((), "39", "49")
    # a blank without attributes leaves the foreground as it was
    after = now._replace(front=was.front) if now.front is None else now
    codes = list(dict.fromkeys(_ENDS[mark] for mark in was.marks if mark not in now.marks))
    codes += [mark for mark in now.marks if mark not in was.marks or _ENDS[mark] in codes]
    if after.front is not None and after.front != was.front:
        codes.append(after.front)
    if now.back != was.back:
        codes.append(now.back)
    return f"\x1b[{';'.join(codes)}m" if codes else "", after


def _drawing(char: str) -> bool:
    """Box drawing, blocks, shapes and braille: one cell wide everywhere."""
    return "\u2500" <= char <= "\u25ff" or "\u2800" <= char <= "\u28ff"
