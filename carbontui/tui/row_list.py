"""Rows with a cursor, marks, an order and a filter: what the table of jobs and the page of a queue have in common.

A value, replaced at every key and every look. Cursor and marks are those of ids: they stay with their rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Generic, Protocol, TypeVar


class ListedRow(Protocol):
    """What a row must tell."""

    @property
    def id(self) -> str: ...

    @property
    def sought(self) -> str:
        """The text that a filter looks through."""


Row = TypeVar("Row", bound=ListedRow)
List = TypeVar("List", bound="RowList[Any]")
Orders = Mapping[str, Callable[[Any], tuple[object, ...]]]


@dataclass(frozen=True, slots=True)
class RowList(Generic[Row]):
    """`rows` are all there are, in the order they came; `shown` those with the word `wanted`, sorted; `place` is the
    cursor's among them. `cursor` is its id, None while there is no row."""

    ORDERS: ClassVar[Orders] = {}
    """What the rows can be sorted by, in the order of the key. Equal ones stay as they came."""

    rows: tuple[Row, ...] = ()
    shown: tuple[Row, ...] = ()
    place: int = 0
    cursor: str | None = None
    marked: frozenset[str] = frozenset()
    sort: str = "state"
    wanted: str = ""

    def pointed(self) -> Row | None:
        """The row under the cursor."""
        return self.shown[self.place] if self.shown else None

    def meant(self) -> tuple[Row, ...]:
        """What a command is for: the marked rows that are shown, else the one under the cursor."""
        pointed = self.pointed()
        return tuple(row for row in self.shown if row.id in self.marked) or ((pointed,) if pointed else ())

    def now(self: List, rows: tuple[Any, ...]) -> List:
        """The same list after another look."""
        return replace(self, rows=rows, marked=self.marked & {row.id for row in rows})._arranged()

    def moved(self: List, steps: int) -> List:
        return self._at(self.place + steps)

    def toggled(self: List) -> List:
        """Mark the row under the cursor, or take its mark away, and go on to the next."""
        pointed = self.pointed()
        return replace(self, marked=self.marked ^ {pointed.id}).moved(1) if pointed else self

    def resorted(self: List) -> List:
        names = list(self.ORDERS)
        return replace(self, sort=names[(names.index(self.sort) + 1) % len(names)])._arranged()

    def filtered(self: List, word: str) -> List:
        return replace(self, wanted=word.strip())._arranged()

    def _arranged(self: List) -> List:
        word = self.wanted.lower()
        found = [row for row in self.rows if word in row.sought.lower()] if word else self.rows
        listed = replace(self, shown=tuple(sorted(found, key=self.ORDERS[self.sort])))
        at = next((place for place, row in enumerate(listed.shown) if row.id == self.cursor), None)
        # the row of one that is gone goes to its neighbour, not to the top
        return listed._at(self.place if at is None else at)

    def _at(self: List, place: int) -> List:
        if not self.shown:
            held = any(row.id == self.cursor for row in self.rows)  # hidden by the filter: it comes back
            return replace(self, place=0, cursor=self.cursor if held else None)
        place = max(0, min(len(self.shown) - 1, place))
        return replace(self, place=place, cursor=self.shown[place].id)
