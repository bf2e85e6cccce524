"""Rows with a cursor, marks, an order and a filter, as the table of jobs and the queue page use them.

A value, replaced at every key and every look. Cursor and marks refer to ids, so they stay with their rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Generic, Protocol, TypeVar


class ListedRow(Protocol):
    """What a row must provide."""

    @property
    def id(self) -> str: ...

    @property
    def sought(self) -> str:
        """The text that a filter searches."""


Row = TypeVar("Row", bound=ListedRow)
List = TypeVar("List", bound="RowList[Any]")
Orders = Mapping[str, Callable[[Any], tuple[object, ...]]]


@dataclass(frozen=True, slots=True)
class RowList(Generic[Row]):
    """`rows` are all rows in the order given; `shown` those that contain `wanted`, sorted; `place` is the cursor's
    index among them. `cursor` is its id, None while there is no row."""

    ORDERS: ClassVar[Orders] = {}
    """The sort orders, in the order the key cycles through. Equal rows keep their order."""

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
        """The rows a command applies to: the marked rows that are shown, else the one under the cursor."""
        pointed = self.pointed()
        return tuple(row for row in self.shown if row.id in self.marked) or ((pointed,) if pointed else ())

    def now(self: List, rows: tuple[Any, ...]) -> List:
        """The same list after another look."""
        return replace(self, rows=rows, marked=self.marked & {row.id for row in rows})._arranged()

    def moved(self: List, steps: int) -> List:
        return self._at(self.place + steps)

    def toggled(self: List) -> List:
        """Mark or unmark the row under the cursor, and move to the next."""
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
        # when the cursor's row is gone it moves to the neighbour, not to the top
        return listed._at(self.place if at is None else at)

    def _at(self: List, place: int) -> List:
        if not self.shown:
            held = any(row.id == self.cursor for row in self.rows)  # hidden by the filter: it comes back
            return replace(self, place=0, cursor=self.cursor if held else None)
        place = max(0, min(len(self.shown) - 1, place))
        return replace(self, place=place, cursor=self.shown[place].id)
