"""No job is running: what this machine draws and what the grid is at, and the jobs that are over."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Footer, OptionList
from textual.widgets.option_list import Option

from carbontui import protocol
from carbontui.tui.glyphs import Glyphs
from carbontui.tui.screens.choose import Picker, job_row
from carbontui.tui.screens.read import folded
from carbontui.tui.widgets.cells import CellRow, Cells

LOOK_EVERY_S = 2.0


@dataclass(frozen=True, slots=True)
class Seen:
    """One look at the machine. A fact is (what, in words, whether it is in order)."""

    facts: tuple[tuple[str, str, bool], ...] = ()
    jobs: tuple[protocol.Status, ...] = ()


class StationFacts(Cells):
    """`show(seen)`: one row per fact, folded where it is long."""

    rows: tuple[CellRow, ...] = ()

    def show(self, seen: Seen) -> None:
        alive = sum(job.state in protocol.LIVE_STATES for job in seen.jobs)
        head = "no job is running here" if not alive else f"jobs running here: {alive}"
        rows: list[CellRow] = [[], [("  carbontui", "title"), (f"  {head}", "text")], []]
        for what, told, fine in seen.facts:
            rows.append([(f"  {what:<9} ", "dim"), (told, "text" if fine else "warning")])
        begin = "carbontui run -- python train.py · see first: carbontui demo"
        self.rows = (*rows, [("  begin     ", "dim"), (begin, "text")], [])
        self.refresh(layout=True)
        self.redraw()

    def get_content_height(self, container: object, viewport: object, width: int) -> int:
        return sum(len(folded(row, width)) for row in self.rows)

    def draw(self, width: int, height: int) -> list[CellRow]:
        return [line for row in self.rows for line in folded(row, width)]


class Station(Picker):
    """Looks every two seconds through `look`, which may block; enter opens a job or its account, q leaves."""

    CSS_PATH = "choose.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        # before the list's own binding of the key, which the footer would not show
        Binding(
            "enter",
            "open",
            "open",
            id="station_open",
            tooltip="Open the job, or the account of one that is over",
            priority=True,
        ),
        Binding("q,escape", "leave", "leave", id="station_leave", tooltip="Leave; nothing of this screen stays behind"),
    ]

    def __init__(self, look: Callable[[], Seen], glyphs: Glyphs) -> None:
        super().__init__()
        self._look, self.glyphs = look, glyphs
        self._shown: tuple[protocol.Status, ...] | None = None

    def compose(self) -> ComposeResult:
        yield StationFacts(self.glyphs, id="facts")
        yield OptionList(id="jobs")
        yield Footer(compact=True, show_command_palette=False)

    def on_mount(self) -> None:
        self.query_one(OptionList).focus()
        self._again()
        self.set_interval(LOOK_EVERY_S, self._again)

    def _again(self) -> None:
        # exclusive: a look that takes longer than the interval is not joined by a second one
        if not any(worker.is_running for worker in self.workers if worker.name == "look"):
            self.run_worker(self._once, thread=True, name="look")

    def _once(self) -> None:
        seen = self._look()
        self.app.call_from_thread(self._show, seen)

    def _show(self, seen: Seen) -> None:
        self.query_one(StationFacts).show(seen)
        if seen.jobs == self._shown:
            return
        self._shown = seen.jobs
        listed = self.query_one(OptionList)
        at = listed.highlighted
        listed.clear_options()
        listed.add_options(Option(job_row(job, self.glyphs, self.app.size.width), id=job.job) for job in seen.jobs)
        listed.highlighted = min(at or 0, len(seen.jobs) - 1) if seen.jobs else None
        self.refresh_bindings()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return action != "open" or bool(self._shown)
