"""One row above the keys: the supervisor's last answer, else the notices and the last user command."""

from __future__ import annotations

from carbontui.tui import glyphs
from carbontui.tui.widgets.cells import CellRow, Cells, spread


class StatusLine(Cells):
    """`answer(text, ok, until_s)` occupies the row until then or `clear()`; `show(notices, event)` fills it
    otherwise."""

    notices: tuple[str, ...] = ()
    event = ""
    message: tuple[str, str] | None = None
    until_s = float("inf")

    def show(self, notices: tuple[str, ...], event: str = "") -> None:
        self.notices, self.event = notices, event
        self.redraw()

    def answer(self, text: str, ok: bool = True, until_s: float = float("inf")) -> None:
        self.message, self.until_s = (text, "strong" if ok else "fault"), until_s
        self.redraw()

    def expire(self, mono_s: float) -> None:
        if self.message is not None and mono_s >= self.until_s:
            self.clear()

    def clear(self) -> None:
        self.message = None
        self.redraw()

    def draw(self, width: int, height: int) -> list[CellRow]:
        if self.message is not None:
            return [[(" " + self.message[0], self.message[1])]]
        last: CellRow = [(f"{self.event} ", "dim")] if self.event else []
        if not self.notices:
            return [[(f" {self.event}", "dim")] if self.event else []]
        more = f" ({len(self.notices) - 1} more: i)" if len(self.notices) > 1 else ""
        room = width - len(more) - 5
        first = self.notices[0]
        if len(first) > room:
            first = first[: max(0, room - 1)] + glyphs.ELLIPSIS
        return [spread(width, [(" ! ", "warning"), (first, "text"), (more, "dim")], last)]
