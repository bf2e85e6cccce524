"""Questions before something is done: a value, or whether to stop. The default harms nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Label, OptionList
from textual.widgets.option_list import Option


class AskText(ModalScreen[str | None]):
    """One line of text, checked; None when the person returns. `check` raises ValueError with what is wrong."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "back", id="ask_back", tooltip="Return, nothing done")
    ]

    def __init__(self, title: str, hint: str, value: str, check: Callable[[str], object]) -> None:
        super().__init__()
        self._title, self._hint, self._value, self._check = title, hint, value, check

    def compose(self) -> ComposeResult:
        with Vertical(classes="box"):
            yield Label(self._title, classes="title")
            field = Input(self._value, select_on_focus=True)
            field.cursor_blink = False
            yield field
            yield Label("", classes="error")
            yield Label(f"{self._hint}\nenter does it, esc returns", classes="hint")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        try:
            self._check(event.value)
        except ValueError as error:
            self.query_one(".error", Label).update(str(error))
            return
        self.dismiss(event.value)

    def action_leave(self) -> None:
        self.dismiss(None)


class AskStop(ModalScreen[str | None]):
    """Whether to stop the training ('stop', 'now' or None); keeping it running stands first and is chosen."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "keep running", id="stop_back", tooltip="Return, the training goes on")
    ]

    def __init__(self, name: str) -> None:
        super().__init__()
        self._job_name = name

    def compose(self) -> ComposeResult:
        with Vertical(classes="box"):
            yield Label(f"Stop {self._job_name}?", classes="title", markup=False)
            yield OptionList(
                Option("keep running", id="keep"),
                Option("stop: INT, after 30 s TERM, after 30 s more KILL", id="stop"),
                Option("stop now: INT, TERM, KILL, a second apart", id="now"),
            )
            yield Label("Detaching with q leaves it running.", classes="hint")

    def on_mount(self) -> None:
        self.query_one(OptionList).focus()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(None if event.option.id == "keep" else event.option.id)

    def action_leave(self) -> None:
        self.dismiss(None)
