"""Several jobs are live: which one to look at."""

from __future__ import annotations

import time
from typing import ClassVar

from rich.cells import set_cell_size
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widgets import Footer, Label, OptionList
from textual.widgets.option_list import Option

from carbontui import protocol, units
from carbontui.tui import words
from carbontui.tui.glyphs import Glyphs, plain

_STATE_COLOUR = {
    "running": "green",
    "capped": "cyan",
    "paused": "blue",
    "unloaded": "magenta",
    "warning": "yellow",
    "fault": "red",
    "dim": "default",
}
_NAME_LEAST = 14
_REST = 80
"""Cells of a row that are not the name's: its other columns, and some of the reason."""


def job_row(status: protocol.Status, glyphs: Glyphs, width: int = 80) -> Text:
    """State, name, id, watts while it lives or when it ended, progress, finish, CO2 at the end (or so
    far) and the reason: one job on one row. The name has the room that the width leaves."""
    live = status.state in protocol.LIVE_STATES
    now = units.fmt_watts(status.power_w) if live else words.ended_at(status, time.time())
    row = Text(no_wrap=True, overflow="ellipsis")
    row.append(f"{glyphs.states[status.state]} {status.state:<10}", _STATE_COLOUR[words.STATE_STYLE[status.state]])
    row.append(f"{set_cell_size(plain(status.name, glyphs), max(_NAME_LEAST, width - _REST))} ", "bold")
    done = f"{min(1.0, status.step / status.steps_total):.0%}" if status.steps_total else ""
    ends = words.clock_iso(status.finish_expected, time.time()) if live and status.finish_expected else ""
    end = status.at_end
    grams = "" if end is None else units.fmt_grams(end.gco2_g)
    grams = grams or ("" if status.gco2_g is None else units.fmt_grams(status.gco2_g))
    row.append(f"{status.job:<8.8} {now:>10} {done:>5} {ends:>9} {grams:>8}  ")
    row.append(plain(status.reason.text, glyphs))
    return row


class Picker(Screen[str | None]):
    """A screen with one list of jobs: the one picked is its answer, None where it is left."""

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.app.exit(event.option.id)

    def action_open(self) -> None:
        self.query_one(OptionList).action_select()

    def action_leave(self) -> None:
        self.app.exit(None)


class Choose(Picker):
    """A list of jobs; enter opens one, q leaves."""

    CSS_PATH = "choose.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        # before the list's own binding of the key, which the footer would not show
        Binding("enter", "open", "open", id="open", tooltip="Open the job", priority=True),
        Binding("q,escape", "leave", "leave", id="choose_leave", tooltip="Leave"),
    ]

    def __init__(self, jobs: tuple[protocol.Status, ...], glyphs: Glyphs) -> None:
        super().__init__()
        self._jobs, self.glyphs = jobs, glyphs

    def compose(self) -> ComposeResult:
        yield Label(plain(f"carbontui · {len(self._jobs)} jobs are live", self.glyphs), id="head")
        yield OptionList(
            *(Option(job_row(job, self.glyphs, self.app.size.width), id=job.job) for job in self._jobs), id="jobs"
        )
        yield Footer(compact=True, show_command_palette=False)

    def on_mount(self) -> None:
        self.query_one(OptionList).focus()
