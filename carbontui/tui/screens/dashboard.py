"""The dashboard: one job on one screen, and the keys that overrule it.

Other screens are loaded when a key asks for them: they bring widgets that the first paint need not wait for.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical
from textual.screen import Screen
from textual.widgets import Footer, Static

from carbontui import link, protocol, units
from carbontui.tui import keys, words
from carbontui.tui.feed import JobFeed
from carbontui.tui.glyphs import Glyphs
from carbontui.tui.messages import Connection, ConnectionChanged, LogArrived, PictureArrived
from carbontui.tui.picture import Choice, Picture, offline
from carbontui.tui.target import Target
from carbontui.tui.widgets.budget_slider import BudgetSlider
from carbontui.tui.widgets.forecast_chart import ForecastChart
from carbontui.tui.widgets.frontier_chart import FrontierChart
from carbontui.tui.widgets.levels import PastLevels, of_point
from carbontui.tui.widgets.log_tail import LogTail
from carbontui.tui.widgets.numbers import Numbers
from carbontui.tui.widgets.state_bar import StateBar
from carbontui.tui.widgets.status_line import StatusLine
from carbontui.tui.widgets.summary import Summary
from carbontui.tui.widgets.watt_chart import WattChart
from carbontui.tui.widgets.watt_rows import WattRows

ANSWER_SHOWN_S = 10.0
AGE_EVERY_S = 2.0
PREVIEW_PAUSE_S = 0.06
"""A held arrow key asks once it rests, not at every step."""
PAST_BUCKETS = 240


class Dashboard(Screen[str | None]):
    """Draws the newest picture; sends what a key asks for; owns nothing."""

    CSS_PATH = "dashboard.tcss"
    AUTO_FOCUS = None
    HORIZONTAL_BREAKPOINTS = [(0, "-toonarrow"), (36, "-tiny"), (64, "-narrow"), (104, "-wide")]
    VERTICAL_BREAKPOINTS = [(0, "-tooflat"), (12, "-short"), (21, "-medium"), (34, "-tall")]
    BINDINGS: ClassVar[list[BindingType]] = keys.BINDINGS

    def __init__(
        self,
        target: Target,
        glyphs: Glyphs,
        *,
        readonly: bool = False,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self.target = target
        self.glyphs = glyphs
        self.readonly = readonly
        self.feed = JobFeed(target.socket, self.post_message, target.read_log)
        self.picture: Picture | None = None
        self.connection = Connection("connecting", f"connecting to {target.name or target.job}")
        self.choice: Choice | None = None
        self.past: PastLevels | None = None
        self._previewing: asyncio.Task[None] | None = None
        self._monotonic = monotonic
        self._arrived_s = monotonic()
        self._asked_past: tuple[object, ...] | None = ()

    def compose(self) -> ComposeResult:
        glyphs = self.glyphs
        yield StateBar(glyphs, id="state")
        with Horizontal(id="top"):
            with Vertical(id="charts"):
                yield ForecastChart(glyphs, id="forecast")
                yield WattChart(glyphs, id="watts")
            with Vertical(id="side"):
                yield FrontierChart(glyphs, id="frontier")
                yield BudgetSlider(glyphs, id="slider")
                yield Numbers(glyphs, id="numbers")
        yield WattRows(glyphs, id="boards")
        yield Summary(glyphs, id="summary")
        yield LogTail(glyphs, id="log")
        yield StatusLine(glyphs, id="status")
        yield Footer(compact=True, show_command_palette=False)
        yield Static("please enlarge the terminal\n(36×12 or more)", id="enlarge")

    def on_mount(self) -> None:
        self.query_one(StateBar).readonly = self.readonly
        if self.target.over and self.target.status is not None:
            self.connection = Connection("over")
            self._show(offline(self.target.status))
            self.feed.read_over()
            return
        self.query_one(StateBar).show(None, self.connection, 0.0)
        self.run_worker(self.feed.run(), name="feed", group="feed")
        self.set_interval(AGE_EVERY_S, self._show_state)

    def on_resize(self) -> None:
        self.call_after_refresh(self._lay_out)

    # --- what arrives ---

    @on(PictureArrived)
    def _picture_arrived(self, message: PictureArrived) -> None:
        self._arrived_s = self._monotonic()
        self._show(message.picture)

    @on(ConnectionChanged)
    def _connection_changed(self, message: ConnectionChanged) -> None:
        self.connection = message.connection
        if message.connection.kind == "reconnecting" and self.picture is not None:
            self.answer("reconnecting; the training goes on")
        elif message.connection.kind == "refused":
            self.answer(message.connection.text, ok=False)
        elif message.connection.kind == "live":
            self.query_one(StatusLine).clear()
        self._show_state()

    @on(LogArrived)
    def _log_arrived(self, message: LogArrived) -> None:
        tail = self.query_one(LogTail)
        if message.fresh:
            tail.begin()
        tail.lines.feed(message.text)
        tail.show()

    def _show(self, picture: Picture) -> None:
        before, self.picture = self.picture, picture
        if self.choice is not None and (before is None or before.frontier is not picture.frontier):
            self._keep_choice(picture)
        with self.app.batch_update():
            if before is None or _shape(before) != _shape(picture):
                self._lay_out()
                self.refresh_bindings()
            self._show_state()
            self._show_charts()
            self.query_one(Numbers).show(picture)
            self.query_one(WattRows).show(picture.status)
            self.query_one(StatusLine).show(picture.status.notices)
            if picture.over:
                self.query_one(Summary).show(picture)
                self.query_one(LogTail).over = True
        self._ask_past(picture)

    def _show_state(self) -> None:
        age_s = self._monotonic() - self._arrived_s
        self.query_one(StateBar).show(self.picture, self.connection, age_s)

    def _show_charts(self) -> None:
        picture = self.picture
        if picture is None:
            return
        preview = None
        if self.choice is not None and picture.plan is not None:
            preview = self.choice.plan or of_point(picture.plan, self.choice.point)
        self.query_one(ForecastChart).show(picture, self.past, preview)
        self.query_one(WattChart).show(picture, self.past, preview)
        self.query_one("#frontier", FrontierChart).show(picture.frontier, self.choice.index if self.choice else None)
        self.query_one(BudgetSlider).show_choice(picture, self.choice)

    def _lay_out(self) -> None:
        """Heights that depend on what there is to show; the rest is in the sheet."""
        picture = self.picture
        if picture is None or not self.is_attached:
            return
        width, height = self.size
        banner = bool(words.banner(picture.status, picture.series))
        self.query_one(StateBar).styles.height = _state_rows(width, height) + banner
        most = 16 if height >= 48 else 8 if height >= 34 else 2
        boards = self.query_one(WattRows)
        boards.with_heading = height >= 34
        boards.styles.height = WattRows.wanted(len(picture.status.gpus), width, most) + boards.with_heading
        self.query_one(ForecastChart).with_axis = width < 64 or height < 21
        self.set_class(picture.over, "-over")
        # a job that was over before anyone looked has no series: its output is worth more than two empty charts
        self.set_class(picture.over and picture.series.watts is None, "-nocharts")
        self.set_class(not _has_choice(picture), "-nofrontier")
        self.query_one(Summary).display = picture.over

    # --- the budget ---

    def action_budget(self, steps: int) -> None:
        frontier = self.picture.frontier if self.picture else None
        if frontier is None or len(frontier.points) < 2:
            self.answer("no other budget would emit less, as far as is known yet (why: i)")
            return
        at = self.choice.index if self.choice else frontier.chosen or 0
        self._look_at(max(0, min(len(frontier.points) - 1, at + steps)))

    @on(FrontierChart.Picked)
    def _picked(self, message: FrontierChart.Picked) -> None:
        self._look_at(message.index)

    def _look_at(self, index: int) -> None:
        picture = self.picture
        if picture is None or picture.frontier is None or index >= len(picture.frontier.points):
            return
        if self.choice is None and index == picture.frontier.chosen:
            return
        if self.choice is not None and index == self.choice.index:
            return
        point = picture.frontier.points[index]
        self.choice = Choice(index, point, keys.budget_text(point, picture.frontier))
        self._show_charts()
        self.refresh_bindings()
        self._stop_previewing()
        self._previewing = asyncio.create_task(self._preview(self.choice), name="preview")

    def _stop_previewing(self) -> None:
        if self._previewing is not None:
            self._previewing.cancel()

    async def _preview(self, choice: Choice) -> None:
        """Ask what the supervisor makes of it; a newer choice cancels this one."""
        await asyncio.sleep(PREVIEW_PAUSE_S)
        try:
            answer = await self.feed.request(protocol.Preview(0, choice.budget))
        except link.LinkError as error:
            answer = None
            failed = str(error)
        if self.choice is not choice:
            return
        if isinstance(answer, protocol.Previewed):
            self.choice = replace(choice, plan=answer.plan, error=answer.error or "")
        else:
            self.choice = replace(choice, error=failed)
        self._show_charts()

    def _keep_choice(self, picture: Picture) -> None:
        """A re-plan has moved the curve: stay at the same budget, or let go when it is gone."""
        choice, frontier = self.choice, picture.frontier
        assert choice is not None
        self.choice = None
        if frontier is not None and len(frontier.points) >= 2:
            near = min(
                range(len(frontier.points)), key=lambda i: abs(frontier.points[i].finish_s - choice.point.finish_s)
            )
            point = frontier.points[near]
            self.choice = Choice(near, point, keys.budget_text(point, frontier), choice.plan)

    def action_back(self) -> None:
        if self.choice is not None:
            self.choice = None
            self._stop_previewing()
            self._show_charts()
            self.refresh_bindings()

    def action_commit(self) -> None:
        choice = self.choice
        if choice is not None:
            self.action_back()
            self.send("budget", {"budget": choice.budget})

    # --- overrides ---

    def action_pause(self) -> None:
        self.send("pause")

    def action_boost(self) -> None:
        self.send("boost")

    def action_resume(self) -> None:
        self.send("resume")

    def action_pause_for(self) -> None:
        self._ask_time("pause")

    def action_boost_for(self) -> None:
        self._ask_time("boost")

    def _ask_time(self, verb: protocol.Verb) -> None:
        from carbontui.tui.screens.ask import AskText

        def answered(text: str | None) -> None:
            if text:
                self.send(verb, keys.until_args(text))

        hint = "30m, 2h, a time like 18:00, or next (the next planned change)"
        self.app.push_screen(AskText(f"{verb} for how long?", hint, "1h", keys.check_until), answered)

    def action_cap(self) -> None:
        from carbontui.tui.screens.ask import AskText

        def answered(text: str | None) -> None:
            if text:
                self.send("cap", {"value_w": units.parse_watts(text)})

        if self.picture is not None and not self.picture.status.gpus:
            self.answer("no GPU of this job to cap (d says what can be done here)", ok=False)
            return
        limits = [gpu.limit_w for gpu in self.picture.status.gpus if gpu.limit_w] if self.picture else []
        hint = f"watts per GPU, like {min(limits) * 0.7:.0f}" if limits else "watts per GPU, like 250"
        self.app.push_screen(AskText("cap each GPU at how many watts?", hint, "", units.parse_watts), answered)

    def action_stop(self) -> None:
        from carbontui.tui.screens.ask import AskStop

        def answered(how: str | None) -> None:
            if how:
                self.send("stop", {"now": how == "now"})

        self.app.push_screen(AskStop(self.target.name or self.target.job), answered)

    def send(self, verb: protocol.Verb, args: dict[str, Any] | None = None) -> None:
        """Send a command with the override generation last seen; its answer goes to the status line."""
        self.answer(f"{verb} …")
        self.run_worker(self._send(verb, args or {}), group="command")

    async def _send(self, verb: protocol.Verb, args: dict[str, Any]) -> None:
        seen = None if verb in ("stop", "budget") or self.picture is None else self.picture.status.override_gen
        try:
            answer = await self.feed.request(protocol.Cmd(0, verb, args, seen))
        except link.LinkError as error:
            self.answer(str(error), ok=False)
            return
        assert isinstance(answer, protocol.Result)
        self.answer(answer.text or verb if answer.ok else answer.error or "refused", answer.ok)

    def answer(self, text: str, ok: bool = True) -> None:
        """Say something in the status line for a while."""
        line = self.query_one(StatusLine)
        line.answer(text, ok)
        told = line.told

        def fade() -> None:
            if line.told is told:
                line.clear()

        self.set_timer(ANSWER_SHOWN_S, fade)

    # --- other screens ---

    def action_log(self) -> None:
        from carbontui.tui.screens.log import LogScreen

        self.app.push_screen(LogScreen(self.feed, self.glyphs, self.target.name or self.target.job))

    def action_help(self) -> None:
        from carbontui.tui.screens.read import Read, help_rows

        self.app.push_screen(Read("keys and marks", help_rows(self, self.glyphs), self.glyphs))

    def action_sources(self) -> None:
        from carbontui.tui.screens.read import Read, source_rows

        if self.picture is not None:
            rows = source_rows(self.picture, self._monotonic() - self._arrived_s)
            self.app.push_screen(Read("where the numbers come from", rows, self.glyphs))

    def action_abilities(self) -> None:
        self.run_worker(self._show_abilities(), group="abilities", exclusive=True)

    async def _show_abilities(self) -> None:
        from carbontui.tui.screens.read import Read, ability_rows

        try:
            answer = await self.feed.request(protocol.AbilitiesAsk(0))
        except link.LinkError as error:
            self.answer(str(error), ok=False)
            return
        assert isinstance(answer, protocol.AbilitiesAnswer)
        self.app.push_screen(Read("what can be measured and done here", ability_rows(answer), self.glyphs))

    def action_detach(self) -> None:
        self.app.exit(message=self.farewell())

    def farewell(self) -> str:
        return keys.farewell(self.target, self.picture)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """A dangerous key does not exist on a read-only screen, nor when the job is over."""
        over = self.picture is not None and self.picture.over
        if action in keys.DANGEROUS and (self.readonly or over):
            return False
        if action in ("commit", "back"):
            return self.choice is not None
        if action in ("budget", "abilities"):
            return not over
        return True

    # --- the past ---

    def _ask_past(self, picture: Picture) -> None:
        """Levels as they were: asked at the start and whenever the level has changed."""
        status = picture.status
        key = (status.level, status.state)
        if self._asked_past is None or key == self._asked_past or picture.over:
            return
        self._asked_past = key
        start = status.budget.start if status.budget else picture.series.watts.start if picture.series.watts else None
        span = picture.now_s - units.from_iso(start) if start else 0.0
        if span > 1.0:
            self.run_worker(self._learn_past(span), group="past", exclusive=True)

    async def _learn_past(self, span_s: float) -> None:
        try:
            answer = await self.feed.request(protocol.HistoryAsk(0, span_s, PAST_BUCKETS))
        except link.RequestRefused as error:
            self.answer(str(error), ok=False)  # an empty past must not pass for a job that did nothing
            return
        except link.LinkError:
            return
        assert isinstance(answer, protocol.HistoryAnswer)
        if not any(answer.level):
            self._asked_past = None  # this supervisor keeps no levels: do not ask again
            return
        self.past = PastLevels.of(answer)
        self._show_charts()


def _shape(picture: Picture) -> tuple[object, ...]:
    """What the layout depends on."""
    return (
        picture.over,
        len(picture.status.gpus),
        _has_choice(picture),
        bool(words.banner(picture.status, picture.series)),
    )


def _has_choice(picture: Picture) -> bool:
    """Whether another budget would change anything."""
    return picture.frontier is not None and len(picture.frontier.points) > 1


def _state_rows(width: int, height: int) -> int:
    """Rows of the state bar: a narrow one needs more of them for the same words."""
    if width >= 104 or (width >= 64 and height < 21):
        return 2
    return 3 if width >= 64 else 4
