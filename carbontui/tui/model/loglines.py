"""Rows from a training's output: progress bars overwrite themselves, colours stay, other escapes are dropped.

A newline begins the next row, a carriage return goes to the start of this one, cursor-up moves among the newest rows
(nested progress bars), erase-in-line erases, SGR becomes a style, every other escape is dropped.
"""

import re
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import groupby, islice
from operator import itemgetter

from rich.ansi import AnsiDecoder
from rich.style import Style

from carbontui import protocol

ROW_MAX = 4096
"""Characters kept of one row."""
OPEN_ROWS = 16
"""How far up a cursor may go; rows above are history."""
_PLAIN = Style.null()

_TOKEN = re.compile(
    r"(?P<text>[^\x00-\x1f\x7f\x80-\x9f]+)"
    r"|\x1b\[(?P<args>[0-9;:<=>?]*)[ -/]*(?P<final>[@-~])"
    r"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)"
    r"|\x1b[ -/]*[0-~]"
    r"|(?P<control>[\n\r\t\x08])"
    r"|[\x00-\x1f\x7f\x80-\x9f]"
)
# an escape cut off by the end of a read waits for the next one
_CUT = re.compile(r"\x1b(?:\[[0-9;:<=>?]*[ -/]*|[\]PX^_][^\x07\x1b]{0,4096}\x1b?|[ -/]*)?$")

LogRow = tuple[tuple[str, Style], ...]
"""Runs of equal style."""


class LogLines:
    """Pass output to `feed`; read `rows(n)`. Keeps the newest `keep` rows."""

    def __init__(self, keep: int = 1000) -> None:
        self._rows: deque[list[tuple[str, Style]]] = deque([[]])
        """The rows that the cursor can still come back to."""
        self._open: list[LogRow] | None = None
        """These rows in runs, until the next output."""
        self._closed: deque[LogRow] = deque(maxlen=max(0, keep - OPEN_ROWS - 1))
        self._up = self._column = self._ended = 0
        self._style = _PLAIN
        self._rest = ""

    def feed(self, text: str) -> None:
        """Process the next piece of output; it may be cut anywhere."""
        self._open = None
        text = self._rest + text
        cut = _CUT.search(text)
        self._rest = cut[0] if cut else ""
        end = cut.start() if cut else len(text)
        at = 0
        while at < end:
            token = _TOKEN.match(text, at, end)
            if token is None:  # a lone escape byte
                at += 1
                continue
            at = token.end()
            if token["text"] is not None:
                self._write(token["text"])
            elif token["control"] is not None:
                self._control(token["control"])
            elif token["final"] is not None:
                self._csi(token["args"], token["final"])

    def rows(self, most: int) -> list[LogRow]:
        """The newest rows, oldest first; a last row with nothing on it yet is left out."""
        if self._open is None:
            self._open = [_runs(row) for row in self._rows if row or row is not self._rows[-1]]
        runs = self._open[-most:] if most > 0 else []
        older = max(0, len(self._closed) - max(0, most - len(runs)))
        return [*islice(self._closed, older, None), *runs]

    @property
    def count(self) -> int:
        """How many rows there have been; a last one with nothing on it yet is none."""
        return self._ended + bool(self._rows[-1])

    @property
    def _row(self) -> list[tuple[str, Style]]:
        return self._rows[-1 - self._up]

    def _write(self, text: str) -> None:
        row = self._row
        text = text[: max(0, ROW_MAX - self._column)]
        if self._column > len(row):
            row.extend([(" ", _PLAIN)] * (self._column - len(row)))
        row[self._column : self._column + len(text)] = [(char, self._style) for char in text]
        self._column += len(text)

    def _control(self, char: str) -> None:
        if char == "\r":
            self._column = 0
        elif char == "\n":
            self._column = 0
            if self._up:
                self._up -= 1
            else:
                self._rows.append([])
                self._ended += 1
                if len(self._rows) > OPEN_ROWS + 1:
                    self._closed.append(_runs(self._rows.popleft()))
        elif char == "\t":
            self._write(" " * (8 - self._column % 8))
        else:
            self._column = max(0, self._column - 1)

    def _csi(self, args: str, final: str) -> None:
        if final == "m":
            self._style = sgr(self._style, args)
            return
        if not re.fullmatch(r"\d{0,4}", args):
            return
        number = int(args or 0)
        if final == "A":
            self._up = min(self._up + max(1, number), len(self._rows) - 1, OPEN_ROWS)
        elif final == "B":
            self._up = max(0, self._up - max(1, number))
        elif final == "K":
            row = self._row
            if number == 0:
                del row[self._column :]
            elif number == 1:
                row[: self._column] = [(" ", _PLAIN)] * min(self._column, len(row))
            elif number == 2:
                row.clear()


def _runs(row: list[tuple[str, Style]]) -> LogRow:
    return tuple(("".join(char for char, _ in run), style) for style, run in groupby(row, key=itemgetter(1)))


_TRACEBACK = "Traceback (most recent call last)"
_RAISED = re.compile(r"[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit|Warning|Fault)\b.*|[A-Za-z_][\w.]*: \S.*")
_TRY_OVER = "carbontui: the try was ended here on purpose"
"""The keeper's line (`job/keeper/resume.py`): the command's reaction to its interrupt is above it."""
_ERROR = re.compile(r"\b(?:error|exception|fatal|killed|out of memory)\b", re.IGNORECASE)


def text_of(row: LogRow) -> str:
    return "".join(text for text, _ in row)


def speaks_of_error(text: str) -> bool:
    """Whether a line begins a traceback or says that something went wrong."""
    return _TRACEBACK in text or _ERROR.search(text) is not None


def after_the_try(lines: Sequence[str]) -> int:
    """The first row after a trial run that was ended on purpose: its interrupt is not an error."""
    return next((number + 1 for number in reversed(range(len(lines))) if _TRY_OVER in lines[number]), 0)


ERROR_WITHIN_B = 32 * 1024
"""How far from the end of its output the traceback of a failed job is looked for."""


def error_in(read: Callable[[protocol.LogRead], protocol.LogAnswer]) -> str:
    """A failed training's error, looked for in its stderr first where that is apart; '' where there is none."""
    found = (read(protocol.LogRead(0, -ERROR_WITHIN_B, err=err)) for err in (True, False))
    return next(filter(None, (last_error(answer.text) for answer in found)), "")


def last_error(text: str) -> str:
    """A failed training's error: the last line of its last traceback, else the last line that mentions an error; ''
    where there is none."""
    lines = LogLines(keep=4000)
    lines.feed(text)
    told = [text_of(row) for row in lines.rows(4000)]
    told = told[after_the_try(told) :]
    starts = [number for number, line in enumerate(told) if _TRACEBACK in line]
    if starts:
        # ranks prefix their lines: the prefix of the header is on every line of the traceback
        prefix = told[starts[-1]].partition(_TRACEBACK)[0]
        for line in told[starts[-1] + 1 :]:
            body = line.removeprefix(prefix)
            if body[:1].strip() and _RAISED.match(body):
                return body.strip()
    return next((line.strip() for line in reversed(told) if _ERROR.search(line)), "")


@lru_cache(maxsize=256)
def sgr(style: Style, args: str) -> Style:
    """The style after one SGR sequence; unknown codes change nothing."""
    decoder = AnsiDecoder()
    decoder.style = style
    decoder.decode_line(f"\x1b[{args.replace(':', ';')}m")
    return decoder.style


_BAR = re.compile(r"\|\s*([\d.]+[kMG]?)/([\d.]+[kMG]?)\s*\[")
"""tqdm: '71%|███ | 3394/4800 [18:10<07:31, 3.11it/s]'."""
_SIZES = {"k": 1e3, "M": 1e6, "G": 1e9}


def bar(lines: Iterable[str]) -> tuple[int, int] | None:
    """(done, total) of the newest bar; lines from the oldest on. None where there is none."""
    counts = ((_count(match[1]), _count(match[2])) for line in lines for match in _BAR.finditer(line))
    known = [(done, total) for done, total in counts if done is not None and total and done <= total]
    return known[-1] if known else None


def _count(text: str) -> int | None:
    try:
        return round(float(text.rstrip("kMG")) * _SIZES.get(text[-1], 1.0))
    except (ValueError, OverflowError):
        return None
