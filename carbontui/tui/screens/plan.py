"""The plan page: stretches and their reasons, a cursor that previews another choice for a slot, forbidden hours, and
earlier plans."""

import asyncio
import bisect
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from carbontui import link, protocol, units
from carbontui.text import figures
from carbontui.text.plan import difference
from carbontui.text.statements import rendered
from carbontui.tui.model.view_state import ViewState
from carbontui.tui.screens.overruling import Commands, JobPage, PendingOverride
from carbontui.tui.terminal import keys, palette
from carbontui.tui.terminal.keys import answered
from carbontui.tui.widgets import plan_text
from carbontui.tui.widgets.bottom import KeyLine, StatusLine
from carbontui.tui.widgets.cells import CellRow, Cells, Scrolled, folded
from carbontui.tui.widgets.forecast_chart import ForecastChart
from carbontui.tui.widgets.levels import table
from carbontui.tui.widgets.scale import GUTTER, window

ASK_PAUSE_S = 0.15
"""A held arrow key asks for a preview once it rests."""
REFRESH_S = 1.0
MOVES_EVERY_S = 10.0
"""Seconds of the job's clock: the current time is redrawn at least this often."""
EVENTS_MOST = 200


class PlanChart(ForecastChart):
    """The forecast with a pointer beneath it: `at_s` is its position."""

    at_s: float | None = None
    with_axis = True

    def draw(self, width: int, height: int) -> list[CellRow]:
        rows = super().draw(width, height - 1)
        if self.view_state is None or self.at_s is None:
            return rows
        view = window(self.view_state, width - GUTTER)
        return [*rows, [(" " * (GUTTER + view.column(self.at_s)) + palette.POINTER, "preview")]]


class SlotWords(Cells):
    """What the plan does in a slot, and what the alternative would cost: a row each, two if narrow."""

    rows: list[CellRow] = []

    def draw(self, width: int, height: int) -> list[CellRow]:
        return [line for row in self.rows for line in folded(row, width)[: max(1, height // 2)]]


class Course(Scrolled):
    """The stretches of the plan and the rows beneath them."""

    def draw(self, width: int, height: int) -> list[CellRow]:
        shown, part = self.window(width - 1, height - 1)
        return [self.heading(width, "the plan", part and f"{part} · up and down"), *shown]


class PlanPage(Commands):
    """Of the job that the dashboard shows."""

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (96, "-wide")]
    VERTICAL_BREAKPOINTS = [(0, "-short"), (22, "-medium")]
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,w", "dismiss", "back", id="plan_back", key_display="q", tooltip="Return to the dashboard"),
        Binding("left", "move(-1)", "slot", id="slot_left", key_display="←→", tooltip="The previous slot"),
        Binding("right", "move(1)", "next slot", id="slot_right", show=False, tooltip="The next slot"),
        Binding("shift+left", "move(-4)", "4 slots", id="slot_left4", show=False, tooltip="Four slots back"),
        Binding("shift+right", "move(4)", "4 slots on", id="slot_right4", show=False, tooltip="Four slots on"),
        Binding("home", "move(-100000)", "now", id="slot_now", show=False, tooltip="The current slot"),
        Binding("end", "move(100000)", "deadline", id="slot_end", show=False, tooltip="The last slot"),
        Binding("f", "forbid", "forbid hours", id="forbid", tooltip="Type hours that must not run: 22:00-06:00"),
        Binding("x", "allow", "allow", id="allow", tooltip="Let the forbidden hours under the cursor run, else all"),
        Binding("up,k", "scroll(-1)", "up", id="plan_up", show=False, tooltip="A line up"),
        Binding("down,j", "scroll(1)", "down", id="plan_down", show=False, tooltip="A line down"),
        Binding("pageup", "scroll(-10)", "page up", id="plan_page_up", show=False, tooltip="Ten lines up"),
        Binding("pagedown", "scroll(10)", "page down", id="plan_page_down", show=False, tooltip="Ten lines down"),
    ]

    def __init__(self, dashboard: JobPage) -> None:
        super().__init__()
        self._dashboard, self._view_state = dashboard, dashboard.newest
        self.feed, self.readonly = dashboard.feed, dashboard.readonly
        self._cursor_s: float | None = None
        """When the slot under the cursor begins; None: the current slot."""
        self._asked_end_s = 0.0
        self._answer = ""
        self._overrides = PendingOverride(link.whoami())
        self._events: tuple[protocol.Event, ...] = ()
        self._drawn: ViewState | None = None

    def compose(self) -> ComposeResult:
        yield PlanChart(id="chart")
        yield SlotWords(id="slot")
        yield Course(id="course")
        yield StatusLine(id="told")
        yield KeyLine(id="keys")

    def on_mount(self) -> None:
        self._draw()
        self._ask()
        self.run_worker(self._learn_events(), group="events", exclusive=True)
        self.set_interval(REFRESH_S, self._refresh)

    async def settle(self) -> None:
        """Wait until the events are on the page: the next key moves through it."""
        await answered(self, "events")

    def on_resize(self) -> None:
        self.call_after_refresh(self._draw)

    # --- slots ---

    def _edges(self) -> list[float]:
        """Start times of the plan's slots from now on, and the end of the last."""
        plan, now = self._view_state().plan, self._view_state().now_s
        if plan is None:
            return []
        start, end = units.from_iso(plan.start), units.from_iso(plan.deadline)
        begin = max(start, now)
        if begin >= end - 1.0:
            return []
        edges, at = [begin], start + plan.first_s
        while at < end - 1.0:
            edges += [at] if at > begin + 1.0 else []
            at += plan.slot_s
        return [*edges, end]

    def _place(self, at_s: float | None) -> int:
        """Index of the slot that begins at a time; -1 without a plan. Times are stored, not indices: slots go by."""
        edges = self._edges()[:-1]
        return max(0, bisect.bisect_right(edges, at_s + 1.0) - 1) if at_s is not None and edges else len(edges[:1]) - 1

    @property
    def slot(self) -> int:
        """Index of the slot under the cursor."""
        return self._place(self._cursor_s)

    def _pointed(self) -> tuple[float, float] | None:
        """The slot under the cursor."""
        edges, slot = self._edges(), self.slot
        return (edges[slot], edges[slot + 1]) if slot >= 0 else None

    def action_move(self, slots: int) -> None:
        edges = self._edges()
        if edges:
            place = max(0, min(len(edges) - 2, self.slot + slots))
            self._cursor_s = edges[place] if place else None
        self._changed()

    def _changed(self) -> None:
        self._ask()
        self._draw()
        self.refresh_bindings()

    # --- what is asked ---

    def _ask(self) -> None:
        self._answer = "asking ..."
        pointed = self._pointed()
        self._asked_end_s = pointed[1] if pointed else 0.0
        if pointed is not None:
            self._ask_for(protocol.Preview(0, slot=units.iso((pointed[0] + pointed[1]) / 2)))
        else:
            self._answer = ""
            self.workers.cancel_group(self, "preview")

    def _ask_for(self, asked: protocol.Preview) -> None:
        self.run_worker(self._preview(asked), group="preview", exclusive=True)

    async def _preview(self, asked: protocol.Preview) -> None:
        await asyncio.sleep(ASK_PAUSE_S)
        try:
            answer = await self.feed.request(asked)
        except link.LinkError as error:
            self._answer = str(error)
        else:
            assert isinstance(answer, protocol.Previewed)
            spent = self._view_state().status.cost
            currency = spent.currency if spent else None
            cost = difference(answer, currency)
            if asked.forbid is not None:
                hours = rendered(answer.said, answer.text, self._view_state().now_s)
                self._answer = f"not running {hours}: {cost}" if answer.plan else cost
            else:
                self._answer = f"{self._otherwise()} here: {cost}"
        if self.query(PlanChart):  # a page that is being closed loses its widgets first
            self._draw()

    def _otherwise(self) -> str:
        pointed, plan = self._pointed(), self._view_state().plan
        one = plan_text.stretch_at(plan, sum(pointed) / 2) if pointed else None
        runs = one is not None and table(plan)[one.level].kind not in protocol.STILL
        return "standing still" if runs else "running at full speed"

    async def _learn_events(self) -> None:
        try:
            answer = await self.feed.request(protocol.EventsAsk(0, None, EVENTS_MOST, True))
        except link.LinkError:
            return  # the plan is still shown
        assert isinstance(answer, protocol.EventsAnswer)
        self._events = answer.events
        self._draw()

    # --- drawing ---

    def _refresh(self) -> None:
        view_state, drawn = self._view_state(), self._drawn
        pointed = self._pointed()
        if drawn is None or view_state.plan is not drawn.plan or (pointed and pointed[1] != self._asked_end_s):
            self._ask()
        if drawn is None or view_state.plan is not drawn.plan:
            self.run_worker(self._learn_events(), group="events", exclusive=True)
        if drawn is None or _shown_of(view_state) != _shown_of(drawn):
            self._draw()

    def _draw(self) -> None:
        view_state = self._drawn = self._view_state()
        chart, pointed = self.query_one(PlanChart), self._pointed()
        chart.at_s = None if pointed is None else sum(pointed) / 2
        chart.show_levels(view_state, self._dashboard.past, None)
        slot = self.query_one(SlotWords)
        slot.rows = [plan_text.slot_row(*pointed, view_state)] if pointed else [[(" no plan to ask about", "dim")]]
        slot.rows.append([(" ", "text"), (self._answer, "text")])
        slot.redraw()
        course = self.query_one(Course)
        course.rows = plan_text.course_rows(view_state, course.content_size.width)
        course.rows += plan_text.hours_rows(view_state)
        course.rows += plan_text.event_rows(self._events, view_state)
        course.redraw()

    def action_scroll(self, lines: int) -> None:
        self.query_one(Course).scroll(lines)

    # --- commands ---

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if keys.asking(self):
            return False
        view_state = self._view_state()
        if action in ("forbid", "allow") and (self.readonly or view_state.over):
            return False
        if action == "allow":
            return bool(view_state.status.forbidden)
        return not (action == "move" and view_state.plan is None)

    async def action_forbid(self) -> None:
        from carbontui.tui.widgets.prompt import AskText

        def typed(text: str) -> None:
            if text.strip():
                self._ask_for(protocol.Preview(0, forbid=units.hours(text, self._view_state().now_s)))
            else:
                self._changed()

        def answered(text: str) -> None:
            self.send("forbid", {"hours": units.hours(text, self._view_state().now_s)})
            self._changed()

        hint = "22:00-06:00, fri 09:00-12:00 or daily 17:00-20:00; what they cost is shown above"
        now_s, pointed = self._view_state().now_s, self._pointed()
        here = f"{figures.clock(pointed[0], now_s)}-{figures.clock(pointed[1], pointed[1])}" if pointed else ""
        offered = here if units.hours(here, now_s) != here else ""  # a date is not typed that way
        await self.mount(AskText("hours that must not run", hint, offered, _some, answered, typed))

    def action_allow(self) -> None:
        """Allow the forbidden hours under the cursor, else all of them."""
        pointed = self._pointed()
        at_s = sum(pointed) / 2 if pointed else 0.0
        held = self._view_state().status.forbidden
        here = [one for one in held if units.from_iso(one.start) <= at_s < units.from_iso(one.end)]
        if here and not here[0].daily:
            self.send("allow", {"hours": f"{here[0].start}/{here[0].end}"})
        else:
            self.send("allow", {})


def _shown_of(view_state: ViewState) -> tuple[object, ...]:
    """The parts of a picture drawn here: watts and steps change every second, and nothing here depends on them."""
    status, at_s = view_state.status, view_state.now_s // MOVES_EVERY_S
    held = status.forbidden, status.override, status.state, status.level, status.finish_expected
    return at_s, view_state.plan, view_state.frontier, view_state.series.intensity, held


def _some(text: str) -> None:
    if not text.strip():
        raise ValueError("write 22:00-06:00, fri 09:00-12:00 or daily 17:00-20:00")
