"""The dashboard: one job on one screen, and the keys that overrule it.

Other screens are loaded when a key opens them: the first paint need not wait for their widgets.
"""

import os
import time
from collections.abc import Callable
from typing import ClassVar

from msgspec.structs import replace
from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical
from textual.events import Key, ScreenResume, ScreenSuspend
from textual.screen import Screen
from textual.timer import Timer
from textual.widgets import Static

from carbontui import link, units
from carbontui.text import situation
from carbontui.tui.model import notify, state_text
from carbontui.tui.model.budget import BudgetChoice
from carbontui.tui.model.feed import Connection, JobFeed, LogPiece, News, Target
from carbontui.tui.model.view_state import Choice, PastLevels, ViewState, offline
from carbontui.tui.screens.besides import LearnsPast, OffersMove
from carbontui.tui.screens.overruling import Overruling, PendingOverride
from carbontui.tui.screens.pages import FIRST_VIEW_S, Arrived, OpensPages, PaintsOnce
from carbontui.tui.terminal import keys
from carbontui.tui.widgets.boards import WattRows
from carbontui.tui.widgets.bottom import KeyLine, LogTail, PlanBrief, StatusLine, Summary
from carbontui.tui.widgets.budget_slider import BudgetSlider
from carbontui.tui.widgets.forecast_chart import ForecastChart
from carbontui.tui.widgets.frontier_chart import FrontierChart
from carbontui.tui.widgets.numbers import Numbers
from carbontui.tui.widgets.state_bar import StateBar
from carbontui.tui.widgets.timeline import PriceStrip, WattChart

LEGEND_FROM = 34
"""Least rows of a terminal that shows the chart's legend and the price."""

ROOMY_FROM = 38
"""Rows of a terminal on which the reason may take two of them."""


def shape(view_state: ViewState) -> tuple[object, ...]:
    """While this and the size are unchanged, the layout is unchanged."""
    return (
        view_state.over,
        view_state.series.watts is None,
        len(view_state.status.gpus),
        bool(state_text.banner(view_state.status, view_state.series)),
        view_state.series.price is None,
    )


def state_rows(width: int, height: int) -> int:
    """Rows of the state bar: a narrow one needs more of them for the same words, a tall one has them to spare."""
    if height >= ROOMY_FROM:
        return 4
    if width >= 64:
        return 3 if width >= 104 or height < 21 else 4
    return 5 if height >= 18 else 4


AGE_EVERY_S = 2.0
CHARTS_PAUSE_S = 0.3
PRINTED_ROWS = 20


class Dashboard(PaintsOnce, OpensPages, LearnsPast, OffersMove, Overruling):
    """Draws the newest picture; sends what a key asks for; owns nothing."""

    HORIZONTAL_BREAKPOINTS = [(0, "-toonarrow"), (36, "-tiny"), (64, "-narrow"), (104, "-wide"), (160, "-vast")]
    VERTICAL_BREAKPOINTS = [(0, "-tooflat"), (12, "-short"), (21, "-medium"), (34, "-tall")]
    BINDINGS: ClassVar[list[BindingType]] = keys.BINDINGS

    def __init__(
        self,
        target: Target,
        *,
        readonly: bool = False,
        from_table: bool = False,
        table: Callable[[], Screen[str | None]] | None = None,
        until_over: bool | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`from_table`: it was opened from the table of jobs, and returns there; else `table` makes that page.
        `until_over`: `run` has opened it; it closes when the job ends."""
        super().__init__()
        self.from_table, self._table = from_table, table
        self.target, self._until_over = target, until_over
        self.readonly = readonly
        self.feed = JobFeed(target.socket, self._post, target.read_log, target.whole_run, away=target.away)
        self.view_state: ViewState | None = None
        self.connection = Connection("connecting", f"connecting to {target.name or target.job}")
        self.budget = BudgetChoice(self.feed.request, self._choice_changed)
        self.past: PastLevels | None = None
        self._overrides = PendingOverride(link.whoami())
        self._covered = self._zoomed = False
        self._resting: Timer | None = None
        self._monotonic = monotonic
        self._arrived_s = monotonic()

    @property
    def choice(self) -> Choice | None:
        return self.budget.choice

    def compose(self) -> ComposeResult:
        yield StateBar(id="state")
        with Horizontal(id="top"):
            with Vertical(id="charts"):
                yield ForecastChart(id="forecast")
                yield PriceStrip(id="price")
                yield WattChart(id="watts")
            with Vertical(id="side"):
                yield FrontierChart(id="frontier")
                yield BudgetSlider(id="slider")
                yield Numbers(id="numbers")
        yield WattRows(id="boards")
        yield Summary(id="summary")
        with Horizontal(id="bottom"):
            yield LogTail(id="log")
            yield PlanBrief(id="brief")
        yield StatusLine(id="status")
        yield KeyLine(id="keys")
        yield Static("please enlarge the terminal\n(36×12 or more)", id="enlarge")

    def on_mount(self) -> None:
        self.query_one(StateBar).readonly = self.readonly
        self.set_timer(FIRST_VIEW_S, self.first_view)
        if self.target.over and self.target.status is not None:
            self._show(offline(self.target.status))
            self._connected(Connection("over"))
            self.call_after_refresh(self.first_view)
            self.feed.read_over()
            self.run_worker(self._learn_past(), group="past")
            return
        self.query_one(StateBar).show(None, self.connection, 0.0)
        self.run_worker(self.feed.run(), name="feed", group="feed")
        self.set_interval(AGE_EVERY_S, self._grow_older)

    def on_unmount(self) -> None:
        self.budget.stop()

    def on_resize(self) -> None:
        self.call_after_refresh(self._lay_out)

    # --- what arrives ---

    def _post(self, news: News) -> None:
        self.post_message(Arrived(news))

    @on(Arrived)
    def _arrived(self, message: Arrived) -> None:
        news = message.news
        if isinstance(news, LogPiece):
            self._receive(news)
        elif isinstance(news, Connection):
            self._connected(news)
        elif isinstance(news, PastLevels):
            self.past = news
            self._show_charts()
        else:
            self._arrived_s = self._monotonic()
            self._show(replace(news, zoomed=self._zoomed) if self._zoomed else news)
            if self.waiting:
                self.call_after_refresh(self.first_view)

    def _connected(self, connection: Connection) -> None:
        self.connection = connection
        if connection.kind == "reconnecting" and self.view_state is not None:
            self.answer("reconnecting; the training goes on")
        elif connection.kind == "refused":
            self.answer(connection.text, ok=False)
        elif connection.kind == "live":
            self.query_one(StatusLine).clear()
        elif connection.kind == "over" and self._until_over:
            self.app.exit(message=self.farewell())
        elif connection.kind == "over":
            self.run_worker(self._learn_ending(), group="ending", exclusive=True)
        self._show_state()

    def _receive(self, piece: LogPiece) -> None:
        tail = self.query_one(LogTail)
        tail.feed(piece)
        if not self._covered:
            tail.redraw()
            self.query_one(Numbers).receive(tail.rows(PRINTED_ROWS))

    @on(ScreenSuspend)
    def _hide(self) -> None:
        # a page on top covers this one completely, but what is drawn here would still be sent
        self._covered = True

    @on(ScreenResume)
    def _resume(self) -> None:
        if self._covered:
            self._covered = False
            self.query_one(LogTail).redraw()
            self._draw_again(anew=True)

    def _draw_again(self, *, anew: bool = False) -> None:
        if self.view_state is not None and not self._covered:
            self._draw(self.view_state, anew=anew)

    def _show(self, view_state: ViewState) -> None:
        before, self.view_state = self.view_state, view_state
        if before is None or before.frontier is not view_state.frontier or before.plan is not view_state.plan:
            self.budget.replanned(view_state)
        if before is None and not self.readonly:
            self.begin_offers()
        self._tell_overruled(view_state)
        self._tell_elsewhere(before, view_state)
        if not self._covered:
            self._draw(view_state, anew=before is None or shape(before) != shape(view_state))

    def _tell_elsewhere(self, before: ViewState | None, view_state: ViewState) -> None:
        """Notify a user who is not watching, by the terminal."""
        told, tell = notify.news(before, view_state), getattr(self.app, "tell_terminal", None)
        if told and tell is not None and os.environ.get("CARBONTUI_NOTIFY") != "off":
            tell(notify.osc9(told.text), bell=told.urgent)

    def _draw(self, view_state: ViewState, *, anew: bool) -> None:
        with self.app.batch_update():
            if anew:
                self._lay_out()
                self.refresh_bindings()
            self._show_state()
            self._show_charts()
            for widget in (PriceStrip, WattRows):
                self.query_one(widget).show(view_state)
            for headed in (PlanBrief, Numbers):
                self.query_one(headed).show(self._headed(view_state))
            told = situation.notices(view_state.status, view_state.now_s)
            self.query_one(StatusLine).show(told, state_text.last_event(view_state))
            if view_state.over:
                self.query_one(Summary).show(view_state)
                self.query_one(LogTail).over = True

    def _grow_older(self) -> None:
        self.query_one(StatusLine).expire(self._monotonic())
        self._show_state()

    def _show_state(self) -> None:
        if not self._covered:
            at_once = self.choice is not None  # what is chosen is compared with what is now
            self.query_one(StateBar).show(self.view_state, self.connection, self.age_s(), at_once=at_once)

    def age_s(self) -> float:
        """Age of the data shown, in seconds."""
        return self._monotonic() - self._arrived_s

    def _show_charts(self) -> None:
        view_state = self.view_state
        if view_state is None or self._covered:
            return
        preview = self.choice.plan(view_state) if self.choice is not None else None
        for chart in (ForecastChart, WattChart):
            self.query_one(chart).show_levels(view_state, self.past, preview)
        for budgets in ("#frontier", "#slider"):
            self.query_one(budgets, FrontierChart).show_choice(self._headed(view_state), self.choice)

    def _headed(self, view_state: ViewState) -> ViewState:
        """What the headline says: one saving and one end on the whole page, also while that is held to be read."""
        return self.query_one(StateBar).view_state or view_state

    def _lay_out(self) -> None:
        """Set the heights that depend on the content; the rest is in the sheet."""
        view_state = self.view_state
        if view_state is None or not self.is_attached:
            return
        width, height = self.size
        banner = bool(state_text.banner(view_state.status, view_state.series))
        self.query_one(StateBar).styles.height = state_rows(width, height) + banner
        most = 16 if height >= 48 else 4 if height >= 34 else 1
        boards = self.query_one(WattRows)
        boards.with_heading = height >= 34
        boards.styles.height = WattRows.wanted(len(view_state.status.gpus), width, most) + boards.with_heading
        forecast = self.query_one(ForecastChart)
        forecast.with_axis, forecast.with_legend = width < 64 or height < 21, height >= LEGEND_FROM
        self.query_one(PriceStrip).display = view_state.series.price is not None and height >= LEGEND_FROM
        self.set_class(view_state.over, "-over")
        self.set_class(view_state.status.state in ("failed", "lost"), "-failed")
        # a job without a journal has no series: its output is worth more than two empty charts
        self.set_class(view_state.over and view_state.series.watts is None, "-nocharts")
        summary = self.query_one(Summary)
        summary.display, summary.brief = view_state.over, height < (30 if view_state.status.state == "done" else 21)
        summary.styles.height = summary.wanted(view_state, width)

    # --- the budget ---

    async def action_budget(self, steps: int) -> None:
        view_state = self.view_state
        if view_state is None or view_state.frontier is None or len(view_state.frontier.points) < 2:
            await self.action_type_budget()
        else:
            self.budget.step(view_state, steps)

    async def action_type_budget(self) -> None:
        view_state = self.view_state
        if view_state is None or view_state.status.budget is None:
            return
        from carbontui.tui.widgets.prompt import AskText

        held = view_state.status.budget
        now = self.choice.budget if self.choice else f"{held.factor:.2f}x" if held.factor else ""

        def typed(text: str) -> None:
            try:
                keys.check_budget(text)
            except ValueError:
                self.budget.let_go()
            else:
                self.budget.type(units.instant(text, view_state.now_s))

        def answered(text: str) -> None:
            self.budget.let_go()
            self.send("budget", {"budget": units.instant(text, view_state.now_s)})

        hint = "18h, 1.8x or fri 09:00; its effect is shown above"
        await self.mount(AskText("finish within", hint, now, keys.check_budget, answered, typed))

    @on(FrontierChart.Picked)
    def _picked(self, message: FrontierChart.Picked) -> None:
        if self.view_state is not None:
            self.budget.preview_at(self.view_state, message.index)

    def _choice_changed(self) -> None:
        view_state = self.view_state
        if view_state is None:
            return
        # redraw what the user moves first, the charts once it rests: a held key would fill a slow line with them
        self.query_one(BudgetSlider).show_choice(view_state, self.choice)
        if self._resting is not None:
            self._resting.stop()
        self._resting = self.set_timer(CHARTS_PAUSE_S, self._draw_again)
        self.refresh_bindings()

    def action_back(self) -> None:
        if self.choice is None and self.from_table:
            self.dismiss(None)
        self.budget.let_go()

    def action_commit(self) -> None:
        if (choice := self.choice) is not None:
            self.budget.let_go()
            self.send("budget", {"budget": choice.budget})

    def action_zoom(self) -> None:
        self._zoomed = not self._zoomed
        if self.view_state is not None:
            self._show(replace(self.view_state, zoomed=self._zoomed))
            self.answer("zoom: the work" if self._zoomed else "zoom: the whole time to the deadline")

    # --- leaving ---

    def action_detach(self) -> None:
        if self.from_table:
            self.dismiss(None)
        else:
            self.app.exit(message=self.farewell())

    def farewell(self) -> str:
        said = self.target.away() or keys.farewell(self.target, self.view_state)
        return f"carbontui: {said}" if said and self._until_over is not None else said

    def on_key(self, event: Key) -> None:
        """A dim key says why it is dim."""
        active = self.active_bindings.get(event.key)
        why = keys.why_not(active.binding.action, self.view_state) if active and not active.enabled else ""
        if why and not keys.asking(self):
            self.answer(why, ok=False)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """A dangerous key does not exist on a read-only screen, nor when the job is over."""
        over = self.view_state is not None and self.view_state.over
        if keys.asking(self):
            return False  # the prompt takes the keys
        if action in keys.DANGEROUS and (self.readonly or over):
            return False
        if keys.why_not(action, self.view_state):
            return None  # dim
        exists = {
            "back": self.choice is not None or self.from_table,
            "commit": self.choice is not None,
            "move": self.better is not None,
            "table": self.from_table or self._table is not None,
        }
        return exists.get(action, not (over and action in ("budget", "type_budget", "abilities", "plan", "zoom")))
