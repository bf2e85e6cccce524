"""Exceptions inside a tick: confined to the part that raised them, reported once, cleared when it works again."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Callable, Iterator

from carbontui.protocol import Statement, statement
from carbontui.text.statements import words


class Faults:
    """A supervisor that died of one bad row would die of it again after every respawn; so it survives and reports."""

    def __init__(self, log: Callable[[str], None]) -> None:
        self._log = log
        self._standing: dict[str, str] = {}

    @contextlib.contextmanager
    def confined(self, part: str) -> Iterator[None]:
        """An exception inside ends this block and nothing else. `part` is a code of `text/log.py`'s PARTS."""
        try:
            yield
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
            if self._standing.get(part) != text:
                where = traceback.extract_tb(error.__traceback__)[-1]
                known = {"name": where.name, "line": where.lineno, "file": where.filename}
                self._log(words(statement("fault_logged", part=part, text=text, where=known), 0.0))
            self._standing[part] = text
        else:
            self._standing.pop(part, None)

    @property
    def notices(self) -> list[Statement]:
        return [statement("fault", part=part, text=text) for part, text in self._standing.items()]
