"""stdout and stderr of every verb: untrusted text (names, logs, provider text, errors) cannot control the terminal.

All text output is cleaned here, so no verb can forget it; JSON keeps its content, escaped. The screen does this in
tui/terminal/diff.py. What a verb copies as bytes, the training's output, is cleaned by `OutputText` when stdout is a
terminal.
"""

from __future__ import annotations

import codecs
import functools
import io
import json
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Container, Iterable, Sequence
from typing import TYPE_CHECKING, TextIO

from carbontui import units

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

LAYOUT = "\n\t"
_STYLE = re.compile(r"(\x1b\[[0-9;:]*m)")
_CUT_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b\n]*\x1b?|[ -/]*)\Z")
"""An escape code that the next piece may complete."""
_OTHER_ESCAPE = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\)?|[ -/]+[0-~]|[0-~])|\x9b[0-?]*[ -/]*[@-~]"
)
ESCAPE_MAX = 256
_JSON_ODD = re.compile(r"[^\x20-\x7e\n]")


class Clean(io.TextIOWrapper):
    """A text stream on the bytes of another; `styled` lets our own colours and styles through."""

    def __init__(self, stream: io.TextIOWrapper, *, styled: bool = False) -> None:
        # a character the locale lacks (LANG=C) becomes '?', never an error
        super().__init__(
            stream.buffer,
            encoding=stream.encoding,
            errors="replace",
            line_buffering=stream.line_buffering,
            write_through=True,
        )
        self._styled = styled
        self._under = stream  # without a reference it would be collected, and close the underlying bytes

    def write(self, text: str) -> int:
        parts = _STYLE.split(text) if self._styled else (text,)
        super().write("".join(p if n % 2 else units.printable(p, LAYOUT) for n, p in enumerate(parts)))
        return len(text)


def folded(text: str, indent: int = 0) -> str:
    """The text broken between words for the terminal it is printed on, further lines indented; whole into a pipe."""
    out = sys.stdout
    if out is None or not out.isatty():
        return text
    room = max(30, shutil.get_terminal_size().columns - indent - 1)
    told = textwrap.wrap(text, room, break_long_words=False, break_on_hyphens=False)
    return f"\n{'':{indent}}".join(told)


def repair() -> None:
    """Open a closed standard stream on /dev/null, for our child processes as well; clean all text to stdout and
    stderr."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            number = os.open(os.devnull, os.O_RDWR)  # the lowest that is free, which is the closed one's
            os.set_inheritable(number, True)
            setattr(sys, name, open(number, mode))  # noqa: SIM115, PTH123
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # the screen and progress lines write to it directly
            setattr(sys, name, Clean(stream))


def over_itself(text: str) -> None:
    """Overwrite the previous progress line, where stderr is a terminal; '' ends it."""
    out = sys.__stderr__  # the cleaned stream drops carriage returns
    if out is not None and out.isatty():
        out.write(f"\r{units.printable(text):<78.78}" if text else "\n")
        out.flush()


def console() -> Console:
    """A rich console on stdout: its own styles, and no other control of the terminal."""
    return _console_on(sys.stdout)


def table(title: str, head: Sequence[str], rows: Iterable[Sequence[str]], left: Container[int] = (0,)) -> Table:
    """For `console`; columns are flush right but for those in `left`."""
    from rich.table import Table

    made = Table(title=title, title_justify="left")
    for place, name in enumerate(head):
        made.add_column(name, justify="left" if place in left else "right")
    for row in rows:
        made.add_row(*row)
    return made


@functools.cache  # a collected stream closes the underlying bytes
def _console_on(out: TextIO) -> Console:
    from rich.console import Console

    return Console(file=Clean(out, styled=True) if isinstance(out, io.TextIOWrapper) else out, highlight=False)


def json_for_terminals(text: str) -> str:
    """JSON that is safe to print: non-printable characters are escaped, so a reader still gets all of it."""
    return _JSON_ODD.sub(lambda odd: odd[0] if odd[0].isprintable() else json.dumps(odd[0])[1:-1], text)


class OutputText:
    """A training's output for a terminal: colours and carriage returns stay, other escape codes go."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""

    def piece(self, data: bytes) -> bytes:
        """The next bytes, cleaned; a truncated escape code is held back until the rest arrives."""
        text = self._rest + self._decoder.decode(data)
        cut = _CUT_ESCAPE.search(text)
        self._rest = text[cut.start() :] if cut and len(text) - cut.start() <= ESCAPE_MAX else ""
        text = text[: len(text) - len(self._rest)]
        parts = _STYLE.split(text)
        return "".join(
            part if n % 2 else units.printable(_OTHER_ESCAPE.sub("", part), LAYOUT + "\r\b")
            for n, part in enumerate(parts)
        ).encode()
