"""The keys of the page in one row at its foot. Textual's own footer mounts a widget for each key, again whenever a key
is enabled or dimmed, which costs more than everything else on the page."""

from __future__ import annotations

from textual import events
from textual.screen import Screen

from carbontui.tui.widgets.cells import CellRow, Cells, width_of


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
