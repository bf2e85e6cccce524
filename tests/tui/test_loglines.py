"""What a training prints, and what of it reaches the screen."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from rich.color import Color
from rich.style import Style

from carbontui.tui.model.loglines import ROW_MAX, LogLines


def shown(*pieces: str, most: int = 100) -> list[str]:
    lines = LogLines()
    for piece in pieces:
        lines.feed(piece)
    return ["".join(text for text, _ in row).rstrip() for row in lines.rows(most)]


def test_a_progress_bar_overwrites_itself() -> None:
    assert shown("start\n", " 10%|#   |\r", " 50%|##  |\r", "100%|####|") == ["start", "100%|####|"]


def test_nested_bars_move_up_and_down() -> None:
    frames = "".join(f"\router {n}\n\rinner {n}\x1b[A" for n in range(5))
    assert shown(frames + "\n\n", "done\n") == ["outer 4", "inner 4", "done"]


def test_erase_in_line() -> None:
    assert shown("a long row\r\x1b[Kshort") == ["short"]
    assert shown("abc\x1b[2K\rxy") == ["xy"]
    assert shown("abcdef\r\x1b[3C") == ["abcdef"]


def test_colour_stays_and_every_other_escape_is_dropped() -> None:
    lines = LogLines()
    lines.feed("\x1b[1;32mok\x1b[0m \x1b[38;5;208mo\x1b[38;2;1;2;3mt\x1b[m")
    lines.feed("\x1b]52;c;cGF3bmVk\x07\x1b[2J\x1b[?1049h\x1b(Bend\x07\x9b")
    (row,) = lines.rows(9)
    assert "".join(text for text, _ in row) == "ok otend"
    styles = dict(row)
    assert styles["ok"] == Style(bold=True) + Style(color=Color.from_ansi(2))
    assert styles["o"].color == Color.from_ansi(208)
    assert styles["t"].color == Color.from_rgb(1, 2, 3)


def test_a_row_without_an_end_is_bounded() -> None:
    (row,) = shown("x" * 1_000_000)
    assert len(row) == ROW_MAX


def test_newest_rows_only() -> None:
    assert shown("".join(f"{n}\n" for n in range(50)), most=2) == ["48", "49"]


NASTY_PIECES = [
    *("a", "wörld 漢", "\n", "\r", "\t", "\x08", "\x00", "\x9b"),
    *("\x1b[A", "\x1b[2A", "\x1b[9999999A", "\x1b[B", "\x1b[K", "\x1b[1K", "\x1b[31m", "\x1b[0m"),
    *("\x1b", "\x1b[", "\x1b[38;5m", "\x1b[48;2;1m", "\x1b]0;t\x07"),
]
NASTY = st.lists(st.sampled_from(NASTY_PIECES), max_size=40).map("".join)


@settings(max_examples=200, deadline=None)
@given(NASTY, st.integers(0, 60))
def test_where_a_read_ends_makes_no_difference_and_no_control_gets_through(text: str, cut: int) -> None:
    whole, pieces = LogLines(), LogLines()
    whole.feed(text)
    pieces.feed(text[:cut])
    pieces.feed(text[cut:])
    assert whole.rows(100) == pieces.rows(100)
    assert not any(char < " " or "\x7f" <= char <= "\x9f" for row in whole.rows(100) for run, _ in row for char in run)
