"""run.log read by offset: for a live job by its supervisor, of one that is over straight from the file."""

from __future__ import annotations

import os
from pathlib import Path

from carbontui import protocol


def read(path: Path, ask: protocol.LogRead) -> protocol.LogAnswer:
    """A piece of run.log, cut at a whole UTF-8 character; empty while the command has not been started."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            offset = max(0, size + ask.offset) if ask.offset < 0 else min(ask.offset, size)
            file.seek(offset)
            data = file.read(ask.max)
    except FileNotFoundError:
        return protocol.LogAnswer(ask.id, 0, 0, 0, "")
    except OSError as error:
        return protocol.LogAnswer(ask.id, 0, 0, 0, f"(run.log cannot be read: {error.strerror})\n")
    cut = len(data)
    # a character is at most four bytes: step back over one that was cut in two
    for back in range(1, min(4, cut) + 1):
        byte = data[cut - back]
        if byte & 0xC0 != 0x80:
            need = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
            if need > back and offset + cut < size:
                cut -= back
            break
    text = data[:cut].decode("utf-8", errors="replace")
    return protocol.LogAnswer(ask.id, offset, offset + cut, size, text)
