"""Sends the terminal only what changes.

Textual sends every cell of a refreshed region again, with both colours of each piece: opening a page costs the whole
screen twice. Here each update is compared, cell by cell, with what the terminal shows, and each colour is sent once,
for all that has it. Over a slow line that is the difference between a page at once and a page after half a minute.
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple

from rich.cells import cell_len
from rich.color import ColorSystem
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.style import Style
from textual._compositor import ChopsUpdate, CompositorUpdate, LayoutUpdate
from textual.strip import Strip

from carbontui import units

MOST_CHARS = 2048
"""Cells cached per style; `_cell` keeps more over all styles. One dropped from both is a new object when it recurs, and
is sent once more."""
MOST_COLUMNS = 1 << 16
"""No terminal is as wide."""


class CellStyle(NamedTuple):
    """How a cell is painted, as SGR codes. `front` None: a blank, whose foreground is invisible."""

    marks: tuple[str, ...]
    front: str | None
    back: str


class Cell(NamedTuple):
    """The content of one cell; '' in the second cell of a wide character."""

    char: str
    cell_style: CellStyle


class Changes(CompositorUpdate):
    """An update as the terminal needs it, already rendered."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield self.text

    def __init__(self, text: str) -> None:
        self.text = text

    def render_segments(self, console: Console) -> str:
        return self.text


Rows = Mapping[int, Mapping[int, Cell]]
"""By row, by column."""


class TerminalDiff:
    """The terminal's contents, as sent through `changes`. `erases`: what it erases has the background in force. A run
    of one character is sent whole: tmux up to 3.4 repeats ASCII alone, mosh nothing, and both call themselves xterm."""

    def __init__(self, *, erases: bool = False) -> None:
        self._shown: dict[int, dict[int, Cell]] = {}
        self._erases = erases

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
        text = self.written(pieces, system, console.width)
        return Changes(text) if text else None

    def written(self, pieces: Iterable[tuple[int, int, int, Strip]], system: ColorSystem, width: int) -> str:
        rows: dict[int, dict[int, Cell]] = {}
        for x, y, end, strip in pieces:
            rows.setdefault(y, {}).update(zip(range(x, end), _cells(strip, system), strict=False))
        ends = width if self._erases else 0
        text = _text(rows, self._shown, ends)
        found = [text, _scrolled(rows, self._shown, width, ends) if text and self._shown else ""]
        for y, row in rows.items():
            self._shown.setdefault(y, {}).update(row)
        return min(filter(None, found), key=len, default="")


def _text(rows: Rows, shown: Rows, width: int) -> str:
    """What turns the terminal that shows the one into one that shows the other; a blank end of a row of this width is
    erased (0: written)."""
    out: list[str] = []
    at: tuple[int, int] | None = None
    pen: CellStyle | None = None
    erased: set[int] = set()
    for y, column, blank in _by_pen(rows, shown, width):
        cell = rows[y][column]
        char = cell.char
        if not char or (column >= blank and y in erased):
            continue
        if at != (column, y):
            out.append(_moved(rows[y], shown.get(y, {}), at, column, y, pen))
        codes, pen = _turn(pen, cell.cell_style)
        out.append(codes)
        if column >= blank:
            out.append("\x1b[K")
            at = column, y
            erased.add(y)
            continue
        out.append(char)
        # terminals disagree on the width of some characters: position the cursor explicitly after one
        at = (column + 1, y) if (len(char) == 1 and char < "\u1100") or _drawing(char) else None
    return "".join((*out, "\x1b[0m")) if out else ""


def _by_pen(rows: Rows, shown: Rows, width: int) -> Iterator[tuple[int, int, int]]:
    """(row, column, column from which the row is erased) of the cells that the terminal does not show: all that need no
    other codes, then the next, since a colour costs more than a move."""
    groups: dict[CellStyle, list[tuple[int, int, int]]] = {}
    pen: CellStyle | None = None
    group: list[tuple[int, int, int]] = []
    for y, row in rows.items():
        was = shown.get(y, {})
        changed = [column for column, cell in row.items() if was.get(column) is not cell]
        blank = _blank_from(row, was, width) if changed else MOST_COLUMNS
        for column in changed:
            now = row[column].cell_style
            codes, pen = _turn(pen, now)
            if codes or not groups:
                group = groups.setdefault(now, [])
            group.append((y, column, blank))
    return itertools.chain.from_iterable(groups.values())


def _blank_from(row: Mapping[int, Cell], was: Mapping[int, Cell], width: int) -> int:
    """The column from which the row is nothing but one background, if erasing it is shorter; else beyond its end."""
    last = row.get(width - 1)
    if last is None or last.char != " " or last.cell_style.front is not None:
        return MOST_COLUMNS
    at = width - 1
    while at and (row.get(at - 1) or was.get(at - 1)) is last:
        at -= 1
    return at if sum(was.get(x) is not last for x in range(at, width)) > len("\x1b[K") else MOST_COLUMNS


def _moved(
    row: Mapping[int, Cell],
    was: Mapping[int, Cell],
    at: tuple[int, int] | None,
    column: int,
    y: int,
    cell_style: CellStyle | None,
) -> str:
    """Moves the cursor to a cell: up to four cells that need no other style are rewritten, so words stay whole."""
    home = f"\x1b[{y + 1};{column + 1}H" if column else f"\x1b[{y + 1}H"
    if at is None or at[1] > y or (at[0] not in row and at[0] not in was):  # beyond the end terminals disagree
        return home
    aside, down = column - at[0], y - at[1]
    if down == 1 and not column:
        return "\r\n"
    if not down and 0 < aside <= 4 and cell_style is not None:
        between = [row.get(x) or was.get(x) for x in range(at[0], column)]
        if all(cell and cell.char and not _turn(cell_style, cell.cell_style)[0] for cell in between):
            return "".join(cell.char for cell in between if cell)
    moves = f"\x1b[{down if down > 1 else ''}B" if down else ""
    moves += "\b" * -aside if -4 <= aside < 0 else f"\x1b[{abs(aside)}{'C' if aside > 0 else 'D'}" if aside else ""
    return min(home, moves, key=len)


def _scrolled(rows: Rows, shown: Rows, width: int, ends: int) -> str:
    """The same, where whole rows only moved up, as in a log: the terminal moves them, the new last row is sent whole.

    A region and an index within it are understood by every terminal since the VT100. What colour the new row is blank
    in is not agreed on, so nothing of it is taken as shown.
    """
    known = {y: {**shown.get(y, {}), **row} for y, row in rows.items()}
    after = {y: row for y, row in known.items() if len(row) == width}
    first = last = -2
    for y in sorted(after):
        if y + 1 in after and after[y] == shown.get(y + 1) and after[y] != shown.get(y):
            first, last = y if last != y - 1 else first, y
    if last < 0:
        return ""
    moved = {**shown, **{y: shown[y + 1] for y in range(first, last + 1)}, last + 1: {}}
    text = _text({**rows, last + 1: after[last + 1]}, moved, ends)
    return f"\x1b[{first + 1};{last + 2}r\x1b[{last + 2}H\x1bD\x1b[r{text}"


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


def _cells(strip: Strip, system: ColorSystem) -> list[Cell]:
    """The cells of a strip, from its first column on."""
    cells: list[Cell] = []
    for segment in strip:
        known = _known(segment.style or Style.null(), system)
        if _narrow(segment.text):
            cells += map(known.__getitem__, segment.text)
            continue
        for char in segment.text:
            wide = 1 if char < "\u0300" else cell_len(char)
            cells += (known[char], known[""])[:wide]
    return cells


@lru_cache(maxsize=4096)
def _narrow(text: str) -> bool:
    """Whether each of its characters takes one cell."""
    return text.isascii() or all(char < "\u0300" or cell_len(char) == 1 for char in text)


class _StyledCells(dict[str, Cell]):
    """Cells by character. One object per character and style, so that two cells are compared by identity."""

    def __init__(self, cell_style: CellStyle) -> None:
        self._cell_style = cell_style
        # a blank without a line or a change of sides has no foreground, and looks alike in bold
        self._blank = (
            cell_style if SHOWN_ON_BLANKS.intersection(cell_style.marks) else cell_style._replace(marks=(), front=None)
        )

    def __missing__(self, char: str) -> Cell:
        if len(self) >= MOST_CHARS:
            self.clear()
        cell = self[char] = _cell(units.printable(char), self._blank if char == " " else self._cell_style)
        return cell


_cell = lru_cache(maxsize=32 * MOST_CHARS)(Cell)


@lru_cache(maxsize=4096)
def _known(style: Style, system: ColorSystem) -> _StyledCells:
    return _StyledCells(_cell_style(style, system))


_MARKS = {"1": "bold", "2": "dim", "3": "italic", "4": "underline", "5": "blink", "7": "reverse", "9": "strike"}
"""By their codes, as Rich names them."""


def _cell_style(style: Style, system: ColorSystem) -> CellStyle:
    marks = tuple(code for code, name in _MARKS.items() if getattr(style, name))
    front = ";".join(style.color.downgrade(system).get_ansi_codes(foreground=True)) if style.color else "39"
    back = ";".join(style.bgcolor.downgrade(system).get_ansi_codes(foreground=False)) if style.bgcolor else "49"
    return CellStyle(marks, front, back)


_ENDS = {"1": "22", "2": "22", "3": "23", "4": "24", "5": "25", "7": "27", "9": "29"}
"""The code that ends one attribute: a full reset would require sending both colours again."""
SHOWN_ON_BLANKS = frozenset("4579")
"""The attributes that a blank shows."""


@lru_cache(maxsize=4096)
def _turn(was: CellStyle | None, now: CellStyle) -> tuple[str, CellStyle]:
    """The codes that change the current style to the next (None: the default style); and the resulting style."""
    was = was or CellStyle((), "39", "49")
    # such a blank leaves the foreground and the weight as they were
    after = now
    if now.front is None:
        after = CellStyle(tuple(mark for mark in was.marks if mark not in SHOWN_ON_BLANKS), was.front, now.back)
    codes = list(dict.fromkeys(_ENDS[mark] for mark in was.marks if mark not in after.marks))
    codes += [mark for mark in after.marks if mark not in was.marks or _ENDS[mark] in codes]
    if after.front is not None and after.front != was.front:
        codes.append(after.front)
    if now.back != was.back:
        codes.append(now.back)
    return f"\x1b[{';'.join(codes)}m" if codes else "", after


def _drawing(char: str) -> bool:
    """Box drawing, blocks, shapes and braille: one cell wide everywhere."""
    return "\u2500" <= char <= "\u25ff" or "\u2800" <= char <= "\u28ff"
