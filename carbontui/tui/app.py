"""The application: the guard against a dead terminal, and the first screen. Everything else is in screens."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import PurePath
from typing import Any, ClassVar, Protocol, runtime_checkable

from rich.console import RenderableType
from textual.app import App, SystemCommand
from textual.binding import Binding, BindingType
from textual.events import Event, Key, Paste
from textual.screen import Screen

from carbontui.tui import inks, terminal
from carbontui.tui.glyphs import BLOCKS, plain
from carbontui.tui.key_order import KeyOrder
from carbontui.tui.terminal_diff import TerminalDiff


@runtime_checkable
class Leaves(Protocol):
    """A screen with something to say when it is left."""

    def farewell(self) -> str: ...


class CarbonApp(App[str | None]):
    """One screen over one job, or the chooser."""

    # every page's sheet at once: one that comes with its page is read by reading all of them again
    CSS_PATH: ClassVar[list[str | PurePath]] = [
        "app.tcss",
        *(f"screens/{page}.tcss" for page in ("dashboard", "jobs", "log", "plan", "queue", "read")),
    ]
    ENABLE_COMMAND_PALETTE = True
    TITLE = "carbontui"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+c", "quit", "leave", id="leave", show=False, priority=True, tooltip="Leave the screen")
    ]

    def __init__(self, first: Callable[[], Screen[str | None]]) -> None:
        super().__init__()
        self._first = first
        self.glyphs = BLOCKS
        self.key_order = KeyOrder(self, super().on_event)
        self._terminal = TerminalDiff()
        for theme in inks.THEMES:
            self.register_theme(theme)
        if not os.environ.get("TEXTUAL_THEME"):
            # sixteen colours leave greys of our own: the terminal's palette then means more
            if self.console.color_system == "standard":
                self.theme = "ansi-dark"
            else:
                # before anything is styled: as a change it would have every sheet read once more
                self.set_reactive(CarbonApp.theme, "carbon-dark")
                self.stylesheet.set_variables(self.get_css_variables())

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return inks.variables(self.current_theme)

    def get_key_display(self, binding: Binding) -> str:
        """A key's name in the letters this terminal has."""
        if binding.key == "enter":
            return "enter"
        return plain(super().get_key_display(binding), self.glyphs)

    async def action_quit(self) -> None:
        """ctrl+c leaves like q does, and says as q does that the training goes on."""
        words = [screen.farewell() for screen in self.screen_stack if isinstance(screen, Leaves)]
        self.exit(message=words[0] if words else None)

    async def on_event(self, event: Event) -> None:
        if isinstance(event, (Key, Paste)) and not event.is_forwarded:
            self.key_order.put(event)
        else:
            await super().on_event(event)

    @property
    def _background_screens(self) -> list[Screen[Any]]:
        # Textual takes the page beneath for visible even where nothing of it shines through: each change there would
        # draw the whole page above it again
        return [] if self.screen.styles.background.a == 1 else super()._background_screens

    def _display(self, screen: Screen[Any], renderable: RenderableType | None) -> None:
        if self._batch_count:
            return  # Textual drops it and repaints later: it is not on the terminal
        super()._display(screen, self._terminal.changes(renderable, self.console))

    def tell_terminal(self, sequence: str, *, bell: bool) -> None:
        """Write an escape beside the screen, and ring where it is urgent."""
        if self._driver is not None and not self.is_headless:
            self._driver.write(sequence + ("\a" if bell else ""))

    def on_resize(self) -> None:
        # a terminal may lay out anew what it shows, and another program may have had it
        self._terminal.forget()

    def on_mount(self) -> None:
        self.run_worker(self.key_order.run(), name="keys", group="keys")
        first = self._first()
        # Textual's own lines and scrollbars are drawn in letters, too
        self.glyphs = getattr(first, "glyphs", BLOCKS)
        self.set_class(not self.glyphs.braille, "-ascii")
        self.push_screen(first, callback=self.exit)
        if not self.is_headless:
            self.set_timer(terminal.START_S, terminal.loaded)
            self.set_interval(terminal.GUARD_EVERY_S, terminal.leave_if_dead)

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """The palette holds every action of the screen, beside the theme and Textual's own."""
        for binding in {active.binding.id: active.binding for active in screen.active_bindings.values()}.values():
            if binding.id and binding.tooltip and binding.id != "leave":
                yield SystemCommand(binding.description, binding.tooltip, self._caller(screen, binding.action))
        yield SystemCommand("theme", "Change the colours", self.action_change_theme)

    def _caller(self, screen: Screen[object], action: str) -> Callable[[], None]:
        def call() -> None:
            self.call_later(screen.run_action, action)

        return call
