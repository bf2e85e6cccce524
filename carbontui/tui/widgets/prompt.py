"""A prompt at the foot of the page: a value, or whether to stop. Nothing is done by default.

Not a dialog over the page: what the question is about stays visible, and only the rows of the prompt are repainted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.events import Key
from textual.widgets import Input, Label, OptionList
from textual.widgets.option_list import Option

from carbontui.tui.terminal.palette import plain


class Prompt(Vertical):
    """Closes with its answer; None when the user returns without one. `then` gets any other; `typed` gets the text
    while it is typed, and '' when the user returns."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "back", id="prompt_back", tooltip="Return without doing anything")
    ]

    def __init__(
        self, title: str, then: Callable[[str], None], typed: Callable[[str], None] = lambda text: None
    ) -> None:
        super().__init__(id="prompt")
        self._title, self._then, self.typed = title, then, typed

    def answer(self, value: str | None) -> None:
        self.app.call_later(self._close, value)  # a widget cannot wait for its own end

    async def _close(self, value: str | None) -> None:
        """Remove it and act on the answer."""
        await self.remove()
        if value is None:
            self.typed("")
        else:
            self._then(value)

    def action_leave(self) -> None:
        self.answer(None)


class AskText(Prompt):
    """One line of text. `check` raises ValueError with what is wrong, while the question is still open."""

    def __init__(
        self,
        title: str,
        hint: str,
        value: str,
        check: Callable[[str], object],
        then: Callable[[str], None],
        typed: Callable[[str], None] = lambda text: None,
    ) -> None:
        super().__init__(title, then, typed)
        self._hint, self._value, self._check = hint, value, check

    def compose(self) -> ComposeResult:
        whole = f"{self._hint} · enter does it, esc returns"
        self._hint = whole if len(whole) + 2 <= self.app.size.width else self._hint
        yield Label(plain(self._title, self.app), classes="title", markup=False)
        field = Input(self._value, select_on_focus=True, compact=True)
        field.cursor_blink = False
        yield field
        yield Label(plain(self._hint, self.app), classes="hint", markup=False)

    def on_mount(self) -> None:
        self.query_one(Input).focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        self.say(self._hint)
        self.typed(event.value)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        try:
            self._check(event.value)
        except ValueError as error:
            self.say(str(error), ok=False)
            return
        self.answer(event.value)

    def say(self, text: str, ok: bool = True) -> None:
        """Set the row beneath the input."""
        line = self.query_one(".hint", Label)
        line.set_class(not ok, "error")
        line.update(plain(text, self.app))


class AskYes(Prompt):
    """A question that y or enter answers; every other key leaves things as they are."""

    can_focus = True

    def compose(self) -> ComposeResult:
        yield Label(plain(self._title, self.app), classes="title", markup=False)
        yield Label(plain("y or enter: yes · esc: no", self.app), classes="hint", markup=False)

    def on_mount(self) -> None:
        self.focus()

    def on_key(self, event: Key) -> None:
        event.stop()
        self.answer("yes" if event.key in ("y", "enter") else None)


class AskStop(Prompt):
    """Whether to stop the training ('stop' or 'now'); keeping it running comes first and is preselected."""

    def __init__(self, name: str, then: Callable[[str], None]) -> None:
        super().__init__(f"Stop {name}? (q, detach, leaves it running)", then)

    def compose(self) -> ComposeResult:
        yield Label(plain(self._title, self.app), classes="title", markup=False)
        yield OptionList(
            Option("keep running", id="keep"),
            Option("stop: INT, after 30 s TERM, after 30 s more KILL", id="stop"),
            Option("stop now: INT, TERM, KILL, a second apart", id="now"),
        )

    def on_mount(self) -> None:
        self.query_one(OptionList).focus()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.answer(None if event.option.id == "keep" else event.option.id)
