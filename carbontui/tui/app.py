"""The application: exits when its terminal is dead, and opens the first screen. Everything else is in screens."""

from collections.abc import Callable
from pathlib import PurePath
from typing import Any, ClassVar, Protocol, runtime_checkable

from rich.console import RenderableType
from textual.app import App
from textual.await_remove import AwaitRemove
from textual.binding import Binding, BindingType
from textual.dom import DOMNode
from textual.events import Event, Key, Paste, Resize
from textual.geometry import Size
from textual.screen import Screen
from textual.widget import Widget

from carbontui.tui.terminal import palette, tty
from carbontui.tui.terminal.diff import TerminalDiff
from carbontui.tui.terminal.keys import KeyOrder
from carbontui.tui.terminal.palette import plain


@runtime_checkable
class Leaves(Protocol):
    """A screen with a message to print when it is left."""

    def farewell(self) -> str: ...


class CarbonApp(App[str | None]):
    """The application: one job's dashboard, or the table of jobs."""

    # every page's sheet at once: loading one later makes Textual parse all of them again
    CSS_PATH: ClassVar[list[str | PurePath]] = [
        "app.tcss",
        *(f"screens/{page}.tcss" for page in ("dashboard", "jobs", "log", "plan", "read")),
    ]
    ENABLE_COMMAND_PALETTE = False
    AUTO_FOCUS = None
    TITLE = "carbontui"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+c", "quit", "leave", id="leave", show=False, priority=True, tooltip="Leave the screen"),
        Binding("ctrl+z", "suspend_process", "shell", id="suspend", show=False, priority=True, tooltip="To the shell"),
    ]

    def __init__(self, first: Callable[[], Screen[str | None]], *, ascii: bool = False) -> None:
        """`ascii`: the terminal shows no other characters."""
        super().__init__()
        self._first = first
        self.ascii = ascii
        # Textual's own lines and scrollbars are characters, too
        self.set_class(ascii, "-ascii")
        self.key_order = KeyOrder(self, super().on_event)
        self._terminal = TerminalDiff(erases=tty.erases())
        for theme in palette.THEMES:
            self.register_theme(theme)
        name = palette.first_theme(self.available_themes)
        if not name and self.console.color_system == "standard":
            # sixteen colours cannot show our greys: use the terminal's palette then
            self.theme = "ansi-dark"
        else:
            # before anything is styled: a later change would parse every sheet once more
            self.set_reactive(CarbonApp.theme, name or "carbon-dark")
            self.stylesheet.set_variables(self.get_css_variables())

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return palette.variables(self.current_theme)

    def get_key_display(self, binding: Binding) -> str:
        """A key's name in characters this terminal can show."""
        if binding.key == "enter":
            return "enter"
        return plain(super().get_key_display(binding), self)

    async def action_quit(self) -> None:
        """ctrl+c leaves as q does, with the same message that the training goes on."""
        words = [screen.farewell() for screen in self.screen_stack if isinstance(screen, Leaves)]
        self.exit(message=words[0] if words else None)

    async def on_event(self, event: Event) -> None:
        if isinstance(event, (Key, Paste)) and not event.is_forwarded:
            if isinstance(event, Key) and event.key.startswith("alt+"):
                # escape and a letter in one packet; no key of ours is an Alt key
                self.key_order.put(Key("escape", "\x1b"))
                event = Key(event.character or "", event.character)
            self.key_order.put(event)
        else:
            await super().on_event(event)

    @property
    def _background_screens(self) -> list[Screen[Any]]:
        # Textual treats the page beneath as visible even where it is fully covered: each change there would redraw the
        # whole page above it
        return [] if self.screen.styles.background.a == 1 else super()._background_screens

    def _prune(self, *nodes: Widget, parent: DOMNode | None = None) -> AwaitRemove:
        # Textual keeps the lines of up to 1,024 widgets that are gone: 0.3 MB for each page opened and left
        for widget in (one for node in nodes for one in node.walk_children(Widget, with_self=True)):
            widget._styles_cache.clear()
        return super()._prune(*nodes, parent=parent)

    def _display(self, screen: Screen[Any], renderable: RenderableType | None) -> None:
        if self._batch_count:
            return  # Textual drops this update and repaints later: it never reaches the terminal
        super()._display(screen, self._terminal.changes(renderable, self.console))

    def tell_terminal(self, sequence: str, *, bell: bool) -> None:
        """Write an escape sequence outside the screen's drawing, and ring the bell if it is urgent."""
        if self._driver is not None and not self.is_headless:
            self._driver.write(sequence + ("\a" if bell else ""))

    def on_resize(self, event: Resize) -> None:
        # a terminal may reflow its contents, and another program may have written to it
        self._terminal.forget()
        if self.is_web and self._driver is not None and self._driver._size not in (None, event.size):
            # a browser's size that comes while we start is overtaken by the one that we were started with
            size = Size(*self._driver._size)
            self.post_message(Resize(size, size))

    def _paint_all(self, _: object) -> None:
        """After a suspension the shell's lines stand where the screen was."""
        self._terminal.forget()
        self.screen.refresh(layout=True)

    def on_mount(self) -> None:
        self.run_worker(self.key_order.run(), name="keys", group="keys")
        self.push_screen(self._first(), callback=self.exit)
        if not self.is_headless:
            self.app_resume_signal.subscribe(self, self._paint_all)
            self.set_timer(tty.START_S, tty.loaded)
            self.set_interval(tty.GUARD_EVERY_S, tty.leave_if_dead)
