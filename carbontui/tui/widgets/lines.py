"""The two rows at the foot of a page: what was answered, and the keys.

Textual's own footer mounts a widget for each key, again whenever a key is enabled or dimmed, which costs more than
everything else on the page.
"""

from __future__ import annotations

from textual import events
from textual.screen import Screen

from carbontui.tui.terminal import glyphs
from carbontui.tui.widgets.cells import CellRow, Cells, spread, width_of


class StatusLine(Cells):
    """`answer(text, ok, until_s)` occupies the row until then or `clear()`; `show(notices, event)` fills it
    otherwise, with `offer` in place of the event."""

    offer = ""

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
        told, ink = (self.offer, "running") if self.offer else (self.event, "dim")
        last: CellRow = [(f"{told} ", ink)] if told else []
        if not self.notices:
            return [[(f" {told}", ink)] if told else []]
        more = f" ({len(self.notices) - 1} more: i)" if len(self.notices) > 1 else ""
        room = width - len(more) - 5 - (len(told) + 1 if self.offer else 0)
        first = self.notices[0]
        if len(first) > room:
            first = first[: max(0, room - 1)] + glyphs.ELLIPSIS
        return [spread(width, [(" ! ", "warning"), (first, "text"), (more, "dim")], last)]


class KeyLine(Cells):
    """Draws the screen's bindings; a click does what the key would do."""

    _places: list[tuple[int, int, str]] = []
    """First and last column of each key, and the key."""

    def on_mount(self) -> None:
        self.screen.bindings_updated_signal.subscribe(self, self._bindings_changed)

    def _bindings_changed(self, screen: Screen[object]) -> None:
        if self.is_attached and screen is self.screen:
            self.redraw()

    def draw(self, width: int, height: int) -> list[CellRow]:
        row: CellRow = []
        self._places, told = [], set()
        for active in self.screen.active_bindings.values():
            binding = active.binding
            if not binding.show or binding.action in told:
                continue
            told.add(binding.action)
            begin = width_of(row)
            name = self.app.get_key_display(binding)
            if begin + len(name) + len(binding.description) + 1 > width:
                break  # half a word is no help; the help page lists all keys
            row += [(name, "strong" if active.enabled else "dim"), (f" {binding.description} ", "dim")]
            if active.enabled:
                self._places.append((begin, width_of(row), binding.key))
        return [row]

    def on_click(self, event: events.Click) -> None:
        for begin, end, key in self._places:
            if begin <= event.x < end:
                self.app.simulate_key(key)
