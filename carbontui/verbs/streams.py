"""stdout and stderr of every verb: text of others (names, logs, providers' words, errors) cannot steer the terminal.

Whatever is written as text is cleaned here, so no verb can forget it; JSON keeps its content, escaped. The screen has
its own place (tui/terminal_diff.py). What a verb copies as bytes, the training's output, is cleaned by `OutputText`
where a person looks at it on a terminal.
"""

from __future__ import annotations

import codecs
import functools
import io
import os
import re
import shutil
import sys
import textwrap
from typing import TYPE_CHECKING, TextIO

from carbontui import units

if TYPE_CHECKING:
    from rich.console import Console

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
    """A text stream on the bytes of another; `styled` lets colours and marks of our own through."""

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
        self._under = stream  # which would close the bytes below when nobody held it

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
    """A closed stream becomes /dev/null, for what we start as well; what is written as text to stdout and stderr is
    cleaned."""
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


def over_itself(text: str, width: int = 78) -> None:
    """Write a line of progress over the one before, where stderr is a terminal; '' ends it."""
    out = sys.__stderr__  # what is cleaned lets no carriage return through
    if out is not None and out.isatty():
        out.write(f"\r{units.printable(text):<{width}.{width}}" if text else "\n")
        out.flush()


def console() -> Console:
    """A console of rich on stdout: its own styles, and nothing else that steers the terminal."""
    return _console_on(sys.stdout)


@functools.cache  # a stream that is dropped closes the bytes below
def _console_on(out: TextIO) -> Console:
    from rich.console import Console

    return Console(file=Clean(out, styled=True) if isinstance(out, io.TextIOWrapper) else out, highlight=False)


def json_for_terminals(text: str) -> str:
    """JSON whose letters no terminal obeys: what is not printable is escaped, so that a reader has it all."""
    return _JSON_ODD.sub(lambda odd: odd[0] if odd[0].isprintable() else _escaped(odd[0]), text)


def _escaped(letter: str) -> str:
    raw = letter.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{raw[at]:02x}{raw[at + 1]:02x}" for at in range(0, len(raw), 2))


class OutputText:
    """A training's output for a terminal: colours and carriage returns stay, other escape codes go."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""

    def piece(self, data: bytes) -> bytes:
        """The next bytes, cleaned; an escape code that is cut off waits for the rest of it."""
        text = self._rest + self._decoder.decode(data)
        cut = _CUT_ESCAPE.search(text)
        self._rest = text[cut.start() :] if cut and len(text) - cut.start() <= ESCAPE_MAX else ""
        text = text[: len(text) - len(self._rest)]
        parts = _STYLE.split(text)
        return "".join(
            part if n % 2 else units.printable(_OTHER_ESCAPE.sub("", part), LAYOUT + "\r\b")
            for n, part in enumerate(parts)
        ).encode()
