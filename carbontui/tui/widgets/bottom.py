"""The foot of the dashboard: the end of the output, the plan in brief, and the summary of a job that is over."""

import textwrap

from textual import events
from textual.screen import Screen

from carbontui.text.account import summary
from carbontui.tui.model import state_text
from carbontui.tui.model.feed import LogPiece
from carbontui.tui.model.loglines import LogLines, LogRow
from carbontui.tui.model.view_state import ViewState
from carbontui.tui.widgets import plan_text
from carbontui.tui.widgets.cells import CellRow, Cells, ViewCells, cut, folded, spread, width_of


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
        told, style_name = (self.offer, "running") if self.offer else (self.event, "dim")
        last: CellRow = [(f"{told} ", style_name)] if told else []
        if not self.notices:
            return [[(f" {told}", style_name)] if told else []]
        more = f" ({len(self.notices) - 1} more: i)" if len(self.notices) > 1 else ""
        room = width - len(more) - 5 - (len(told) + 1 if self.offer else 0)
        first = self.notices[0] if len(self.notices[0]) <= room else cut(self.notices[0], room)
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


class LogTail(Cells):
    """`redraw()` after it has been fed. A stderr that is apart, with its progress bar, stands below the output."""

    over = False

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id)
        self.lines, self.errors = LogLines(keep=200), LogLines(keep=200)
        self._top = self._room = 0

    def feed(self, piece: LogPiece) -> None:
        of = "errors" if piece.err else "lines"
        if piece.fresh:
            setattr(self, of, LogLines(keep=200))
        getattr(self, of).feed(piece.text)

    def rows(self, most: int) -> list[LogRow]:
        """The newest rows: of stderr a third at most, unless there is no other output."""
        output, errors = self.lines.rows(most), self.errors.rows(most)
        below = errors[-max(1, most // 3, most - len(output)) :]
        return [*output[-max(1, most - len(below)) :], *below]

    def draw(self, width: int, height: int) -> list[CellRow]:
        rows: list[CellRow] = [self.heading(width, "output", "l: all of it")]
        beside = width < self.screen.size.width and not self.errors.count
        newest = self.rows(self._kept(height - 1) if beside else height - 1)
        if not newest:
            return [*rows, [(" no output was written" if self.over else " no output yet", "dim")]]
        indented: list[CellRow] = [[(" ", "text"), *row] for row in newest]
        return rows + indented

    def _kept(self, room: int) -> int:
        """How many rows to show. Beside another column a terminal cannot move rows, and each new line would repaint all
        of them: half of them go at once, so that most lines cost themselves."""
        count, more = self.lines.count, room if room != self._room else max(1, room // 2)
        if room != self._room or not 0 <= count - self._top <= room:
            self._top, self._room = count - more, room
        return max(1, min(room, count - self._top))


class PlanBrief(ViewCells):
    """The newest events keep a few rows."""

    TITLE = "the plan"

    def draw_view(self, view_state: ViewState, width: int, height: int) -> list[CellRow]:
        rows = [line for row in plan_text.course_rows(view_state, width) for line in folded(row, width)]
        told = plan_text.event_rows(view_state.status.events, view_state)
        room = height - 1 - min(len(told), 5)
        return [self.heading(width, self.TITLE, "w: all of it"), *rows[:room], *told][:height]


_LABEL = 12
_LEAST_OF_ALL = ("emitted", "avoided", "next time", "finish", "at")
"""Rows kept where space is scarce: how it ended is shown above, its last output below."""


class Summary(ViewCells):
    """Shown once the job is over; `brief`: only the most important rows."""

    brief = False
    added: tuple[tuple[str, str], ...] = ()
    """(label, text) that the job's report adds."""

    def wanted(self, view_state: ViewState, width: int) -> int:
        """Rows that it needs, heading included."""
        return 1 + sum(len(self._folded(told, width)) for _, told in self._said(view_state))

    def _said(self, view_state: ViewState) -> list[tuple[str, str]]:
        def of(field: str) -> str:
            return state_text.marked("", state_text.mark(view_state.status, field))

        status = view_state.status
        least = () if self.added else _LEAST_OF_ALL
        rows = [*(row for row in summary(status, of) if not self.brief or row[0] in least), *self.added]
        yours = "carbontui run ... -- python train.py"
        return [*rows, ("now yours", yours)] if status.replayed and status.state == "done" else rows

    @staticmethod
    def _folded(text: str, width: int) -> list[str]:
        return textwrap.wrap(text, max(8, width - _LABEL)) or [""]

    def draw_view(self, view_state: ViewState, width: int, height: int) -> list[CellRow]:
        rows: list[CellRow] = [self.heading(width, "the job is over", "carbontui report")]
        inks = {"avoided": "running"} if (view_state.status.avoided_g or 0.0) > 0 else {}
        for label, told in self._said(view_state):
            for index, line in enumerate(self._folded(told, width)):
                shown = label if index == 0 else ""
                rows.append([(f" {shown:<10} ", "dim"), (line, inks.get(label, "text"))])
        return rows
