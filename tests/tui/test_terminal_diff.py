"""What is left out of an update is on the terminal already: both ways of painting end at the same picture."""

from __future__ import annotations

import random
import re

import pytest
from rich.cells import cell_len
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from textual._compositor import LayoutUpdate
from textual.geometry import Region
from textual.strip import Strip

from carbontui.tui.terminal.diff import Changes, TerminalDiff

WIDE, HIGH = 30, 6


def styles() -> list[Style]:
    """New ones for every kind of terminal: a style remembers its codes."""
    return [
        Style(color="#ff0000", bgcolor="#101010"),
        Style(color="#00ff00", bgcolor="#101010", bold=True),
        Style(color="#00ff00", bgcolor="#202020"),
        Style(reverse=True),
        Style(underline=True, color="blue"),
        Style(dim=True, color="blue"),
        Style(dim=True, bold=True, italic=True, strike=True),
        Style.null(),
    ]


CHARS = "ab1 ▁█░│模 "
ENDS = {"22": "12", "23": "3", "24": "4", "25": "5", "27": "7", "29": "9"}
"""The marks that a code ends."""


class Emulated:
    """A terminal that knows as much as the screen uses: moves, colours, letters, rows that scroll, ends erased. It
    repeats no character: tmux and mosh do not either."""

    def __init__(self) -> None:
        self.cells: dict[tuple[int, int], tuple[str, tuple[str, ...]]] = {}
        self.scrolls = self.erased = 0

    def write(self, text: str) -> None:
        x = y = 0
        pen: dict[str, str] = {}
        top, bottom = 0, HIGH - 1
        for token in re.finditer(r"\x1b\[([\d;]*)([A-Za-z])|\x1b\].*?\x1b\\|\x1b(D)|\r?(\n)|(.)", text):
            codes, final, index, newline, char = token.groups()
            if char == "\b":
                x -= 1
                continue
            if final == "H":
                row, _, column = codes.partition(";")
                x, y = int(column or 1) - 1, int(row) - 1
            elif final == "r":
                top, bottom = (int(row) - 1 for row in codes.split(";")) if codes else (0, HIGH - 1)
                x = y = 0
            elif index and y == bottom:
                self.scrolls += 1
                moved = {(cx, cy - 1): cell for (cx, cy), cell in self.cells.items() if top < cy <= bottom}
                unknown = {(cx, bottom): ("unknown", ()) for cx in range(WIDE)}
                self.cells |= moved | unknown
            elif final in ("C", "D"):
                x += int(codes) if final == "C" else -int(codes)
            elif final == "B":
                y += int(codes or 1)
            elif final == "K":
                self.erased += 1
                self.cells |= {(cx, y): (" ", ("", pen.get("back", ""))) for cx in range(x, WIDE)}
            elif final == "m":
                self._pen(pen, codes.split(";"))
            elif newline:
                x, y = 0, y + 1
            elif char:
                hidden = ("front", "back", "1", "2", "3") if char == " " else ("front", "back")
                marks = tuple(sorted(code for what, code in pen.items() if what not in hidden))
                seen = ("" if char == " " and not marks else pen.get("front", ""), pen.get("back", ""), *marks)
                self.cells[x, y] = (char, seen)
                if cell_len(char) == 2:
                    self.cells[x + 1, y] = ("", seen)
                x += cell_len(char)

    def _pen(self, pen: dict[str, str], codes: list[str]) -> None:
        while codes:
            code = codes.pop(0)
            if code in ("", "0"):
                pen.clear()
            elif code in ("38", "48"):
                rest = [codes.pop(0) for _ in range(4 if codes[0] == "2" else 2)]
                pen["front" if code == "38" else "back"] = ";".join((code, *rest))
            elif code in ("39", "49"):
                pen.pop("front" if code == "39" else "back", None)
            elif code in ENDS:
                for mark in ENDS[code]:
                    pen.pop(mark, None)
            elif 30 <= int(code) <= 37 or 90 <= int(code) <= 97:
                pen["front"] = code
            elif 40 <= int(code) <= 47 or 100 <= int(code) <= 107:
                pen["back"] = code
            else:
                pen[code] = code


def line(chance: random.Random, looks: list[Style]) -> Strip:
    """Random pieces; every other one ends in blanks of one look."""
    segments, used = [], 0
    blank = chance.choice((0, chance.randint(1, WIDE)))
    while used < WIDE:
        if used >= WIDE - blank:
            segments.append(Segment(" " * (WIDE - used), chance.choice(looks)))
            break
        text = "".join(chance.choices(CHARS, k=chance.randint(1, 6))) + chance.choice(CHARS) * chance.choice((0, 0, 9))
        while cell_len(text) > WIDE - used:
            text = text[:-1]
        segments.append(Segment(text or " ", chance.choice(looks)))
        used += cell_len(text or " ")
    return Strip(segments)


@pytest.mark.parametrize("erases", [False, True])
@pytest.mark.parametrize("system", ["truecolor", "256", "standard"])
def test_the_terminal_shows_what_it_would_show_if_all_were_sent(system: str, erases: bool) -> None:
    chance = random.Random(7)
    console = Console(force_terminal=True, color_system=system, width=WIDE)
    diff, whole, spared = TerminalDiff(erases=erases), Emulated(), Emulated()
    sent = [0, 0]
    looks = styles()
    lines = [line(chance, looks) for _ in range(HIGH)]
    for _ in range(150):
        lines[chance.randrange(HIGH)] = line(chance, looks)
        first = chance.randint(0, 2)
        shown = [[one] for one in lines[first:]]
        update = LayoutUpdate(shown, Region(0, first, WIDE, HIGH - first))
        everything = update.render_segments(console)
        whole.write(everything)
        changes = diff.changes(update, console)
        if changes is not None:
            assert isinstance(changes, Changes)
            spared.write(changes.text)
            sent[1] += len(changes.text)
        sent[0] += len(everything)
        seen = {(x, y) for y in range(first, HIGH) for x in range(WIDE)}
        assert {at: spared.cells[at] for at in seen} == {at: whole.cells[at] for at in seen}
    assert sent[1] < sent[0] / 3
    assert (spared.erased > 20) == erases


@pytest.mark.parametrize("erases", [False, True])
def test_rows_that_only_moved_up_are_moved_by_the_terminal(erases: bool) -> None:
    chance, looks = random.Random(11), styles()
    console = Console(force_terminal=True, color_system="truecolor", width=WIDE)
    diff, whole, spared = TerminalDiff(erases=erases), Emulated(), Emulated()
    lines = [line(chance, looks) for _ in range(HIGH)]
    for n in range(60):
        first = n % 3
        lines = [*lines[:first], *lines[first + 1 :], line(chance, looks)]
        update = LayoutUpdate([[one] for one in lines], Region(0, 0, WIDE, HIGH))
        whole.write(update.render_segments(console))
        changes = diff.changes(update, console)
        assert isinstance(changes, Changes)
        spared.write(changes.text)
        assert spared.cells == whole.cells
    assert spared.scrolls == 59


def test_the_same_picture_is_nothing_to_send_until_the_terminal_is_forgotten() -> None:
    console = Console(force_terminal=True, color_system="truecolor")
    update = LayoutUpdate([[line(random.Random(1), styles())]], Region(0, 0, WIDE, 1))
    diff = TerminalDiff()
    assert diff.changes(update, console) is not None
    assert diff.changes(update, console) is None
    diff.forget()
    assert diff.changes(update, console) is not None


def test_a_colour_is_sent_once_for_all_that_has_it() -> None:
    console = Console(force_terminal=True, color_system="truecolor", width=WIDE)
    red, green = styles()[:2]
    striped = [[Strip([Segment("ab", one) for _ in range(5) for one in (red, green)])] for _ in range(HIGH)]
    changes = TerminalDiff().changes(LayoutUpdate(striped, Region(0, 0, WIDE, HIGH)), console)
    assert isinstance(changes, Changes) and len(re.findall(r"\x1b\[[\d;]+m", changes.text)) == 3
