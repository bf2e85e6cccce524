"""Reads run.log by offset: for a live job in its supervisor, for a finished one straight from the file."""

import codecs
import contextlib
import math
import os
import re
from collections.abc import Iterable
from glob import escape
from pathlib import Path
from typing import BinaryIO

from carbontui import protocol

BLOCK_B = 256 * 1024
_LINE_END = re.compile(rb"\r\n|\r|\n")


def last_lines(file: BinaryIO, lines: int) -> int:
    """Offset at which the last `lines` lines begin (a carriage return ends one too), read from the end backwards.

    A log has no size limit, and the machine's memory belongs to the training.
    """
    size = end = file.seek(0, os.SEEK_END)
    if not lines:
        return size
    following = b""
    found = 0
    while end > 0:
        begin = max(0, end - BLOCK_B)
        file.seek(begin)
        block = file.read(end - begin)
        ends = [begin + match.end() for match in _LINE_END.finditer(block)]
        if block.endswith(b"\r") and following.startswith(b"\n"):
            ends.pop()  # the line ends after the newline, which has been counted already
        for at in reversed(ends):
            if at == size:
                continue
            found += 1
            if found == lines:
                return at
        following, end = block[:1], begin
    return 0


def written(log: Path, child: int | None) -> Path:
    """The file that has the newest output: `log`, or what it was renamed to (by logrotate, mv) while the process
    `child` writes on into it; where nobody writes, the newest of those names if `log` is gone or empty."""
    for number in (1, 2):
        with contextlib.suppress(OSError):
            path = Path(f"/proc/{child}/fd/{number}").readlink() if child else log
            if path.parent == log.parent.resolve() and path.name.startswith((f"{log.name}.", f"{log.name}-")):
                return path
    with contextlib.suppress(OSError):
        if not log.exists() or not log.stat().st_size:
            return max(log.parent.glob(f"{escape(log.name)}[.-]*"), key=lambda one: one.stat().st_mtime_ns, default=log)
    return log


def another(file: BinaryIO, log: Path, child: int | None) -> BinaryIO | None:
    """What has the newest output now, opened, where it is another file than `file`."""
    with contextlib.suppress(OSError):
        now = written(log, child).open("rb")
        if not os.path.sameopenfile(now.fileno(), file.fileno()):
            return now
        now.close()
    return None


def tail(file: BinaryIO, most_b: int) -> bytes:
    """What follows in a file that grows; one that was cut (copytruncate) is read from its start."""
    if os.fstat(file.fileno()).st_size < file.tell():
        file.seek(0)
    return file.read(most_b)


TAIL_B = 16 * 1024
_NUMBER = r"([-+]?(?:\d+(?:\.\d*)?(?:e[-+]?\d+)?|nan|inf(?:inity)?))(?:\.0+)?(?![\w.])"
_NAME = (
    r"(?<![\w/.-])(?:(?:train(?:ing)?|avg|mean)[ _/]?)?loss(?:_step|_epoch)?['\"]?\s*(?:(?:[:=]|->|is|was|became)\s*)?"
    r"['\"]?(?:tensor\(|np\.float\d+\()?"
)
_LOSS = re.compile(_NAME + _NUMBER, re.IGNORECASE)
"""In tqdm's postfix, the dictionaries of Transformers (words since 5.0), Lightning's bar ("loss_step=nan.0"), JSON
lines, NumPy's scalars, and said in words ("Loss is nan, stopping training")."""
_SEQUENCE = re.compile(r"\x1b\[[0-9;:]*m")


def printed_loss(logs: Iterable[Path]) -> protocol.Loss | None:
    """The last loss printed near the end of these files, in whole lines, a bar's redrawn line included: of the file
    written last that has one; None where none has."""
    changed: list[tuple[int, Path]] = []
    for path in logs:
        with contextlib.suppress(OSError):
            changed.append((path.stat().st_mtime_ns, path))
    for _, path in sorted(changed, reverse=True):
        output = read(path, protocol.LogRead(0, -TAIL_B, max=TAIL_B)).text
        words = _LOSS.findall(_SEQUENCE.sub("", output[: max(map(output.rfind, "\n\r")) + 1]))
        if words and math.isfinite(value := float(words[-1])):
            return protocol.Loss(value, printed=True)
        if words:
            word: protocol.NotFinite = "NaN" if math.isnan(value) else "inf" if value > 0 else "-inf"
            return protocol.Loss(None, False, word=word, printed=True)
    return None


def read(log: Path, ask: protocol.LogRead, err: Path | None = None, child: int | None = None) -> protocol.LogAnswer:
    """A piece of run.log, or of run.err where there is one, cut at a UTF-8 character boundary; empty while the command
    has not been started. `child` is the process that writes."""
    path, of_err = (err, True) if ask.err and err is not None else (log, False)
    path = written(path, child)
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            offset = max(0, size + ask.offset) if ask.offset < 0 else min(ask.offset, size)
            file.seek(offset)
            data = file.read(ask.max)
    except FileNotFoundError:
        return protocol.LogAnswer(ask.id, 0, 0, 0, "", of_err)
    except OSError as error:
        return protocol.LogAnswer(ask.id, 0, 0, 0, f"({path.name} cannot be read: {error.strerror or error})\n", of_err)
    end, decoder = offset + len(data), codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(data, final=end >= size)
    end -= len(decoder.getstate()[0])  # a character that was cut in two
    return protocol.LogAnswer(ask.id, offset, end, size, text, of_err)
