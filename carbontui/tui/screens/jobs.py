"""All jobs on one page, live and finished, with boards, grid and watts of the machine above them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen

from carbontui import link, protocol
from carbontui.text import figures
from carbontui.tui import keys
from carbontui.tui.jobs_feed import JobsFeed, Seen
from carbontui.tui.lists import JobList, ListedJob
from carbontui.tui.screens.list_page import MOVES, ListPage
from carbontui.tui.screens.overruling import PendingOverride
from carbontui.tui.screens.read import folded
from carbontui.tui.target import Target
from carbontui.tui.widgets.cells import CellRow, Cells, spread
from carbontui.tui.widgets.lines import KeyLine, StatusLine
from carbontui.tui.widgets.tables import JobTable, counted, summed_w

DRAW_EVERY_S = 1.0
"""The table is redrawn at most this often, whatever the number of jobs; keys redraw it at once."""
COMMANDS = frozenset({"send", "stop"})


def drawn_w(machine_w: float | None, jobs_w: float | None) -> float | None:
    """Watts of the machine; those of its jobs where they are more: a shell without a driver reads the host alone."""
    return max((watts for watts in (machine_w, jobs_w) if watts is not None), default=None)


class MachineFacts(Cells):
    """`show(seen, jobs, shown)`: one summary line, then a row per fact, wrapped if long; `shown` says which jobs are in
    the table, and in which order."""

    head: tuple[CellRow, CellRow] = ([], [])
    rows: tuple[CellRow, ...] = ()

    def show(self, known: Seen, jobs: tuple[ListedJob, ...], shown: str) -> None:
        watts = drawn_w(known.power_w, summed_w(jobs))
        parts = [counted(jobs), "" if watts is None else figures.watts(watts), known.headline]
        heads = list(filter(None, parts))
        while len(" · ".join(heads)) + 13 > self.content_size.width and len(heads) > 1:
            heads.pop()
        left: CellRow = [(" carbontui", "title"), (f"  {' · '.join(heads)}", "text")]
        self.head = left, [(f"{shown} ", "dim")]
        rows: list[CellRow] = []
        widest = max((len(what) for what, _, _ in known.facts), default=0)
        for what, told, fine in known.facts:
            rows.append([(f"  {what:<{max(9, widest)}} ", "dim"), (told, "text" if fine else "warning")])
        if not jobs:
            begin = "carbontui run -- python train.py · see first: carbontui demo"
            rows.append([("  begin     ", "dim"), (begin, "text")])
        tall = self._height(self.content_size.width)
        self.rows = (*rows, [])
        if self._height(self.content_size.width) != tall:
            self.refresh(layout=True)
        self.redraw()

    def _height(self, width: int) -> int:
        return 1 + sum(len(folded(row, width)) for row in self.rows)

    def get_content_height(self, container: object, viewport: object, width: int) -> int:
        return self._height(width)

    def draw(self, width: int, height: int) -> list[CellRow]:
        return [spread(width, *self.head), *(line for row in self.rows for line in folded(row, width))]


class Jobs(ListPage[JobList]):
    """The table of all jobs."""

    SHOWN_WITH = "show only the jobs with", "a part of the name, the state or the reason; nothing for all"
    VERTICAL_BREAKPOINTS = [(0, "-short"), (18, "-medium")]
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("question_mark", "help", "help", id="jobs_help", key_display="?", tooltip="Every key of this page"),
        Binding("q", "leave", "leave", id="jobs_leave", tooltip="Leave; every job goes on"),
        Binding("enter", "open", "open", id="open", tooltip="Open the job under the cursor; q or esc comes back"),
        Binding("space", "mark", "mark", id="mark", tooltip="Mark the job: p, b, r and S apply to all marked jobs"),
        Binding("p", "send('pause')", "pause", id="jobs_pause", tooltip="Hold the chosen jobs at their next step"),
        Binding("b", "send('boost')", "boost", id="jobs_boost", tooltip="Run the chosen jobs at full speed"),
        Binding("r", "send('resume')", "resume", id="jobs_resume", tooltip="Resume the plans of the chosen jobs"),
        Binding("S", "stop", "stop", id="jobs_stop", tooltip="Stop the chosen jobs (asks first)"),
        keys.FILTER,
        Binding("s", "sort", "sort", id="sort", tooltip=f"Sort by the next of: {', '.join(JobList.ORDERS)}"),
        *MOVES,
    ]

    def __init__(
        self,
        look: Callable[[], Seen],
        open_job: Callable[[Target], Screen[Any]],
        *,
        readonly: bool = False,
        now: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(JobList(), open_job, now)
        self.readonly = readonly
        self.feed = JobsFeed(look, self._something_new)
        self._overrides: dict[str, PendingOverride] = {}
        self._new = False

    def compose(self) -> ComposeResult:
        yield MachineFacts(id="facts")
        yield JobTable(id="table")
        yield StatusLine(id="told")
        yield KeyLine(id="keys")

    def on_mount(self) -> None:
        self.set_interval(DRAW_EVERY_S, self._tick)

    def follow(self) -> Coroutine[Any, Any, None]:
        return self.feed.run()

    @property
    def ready(self) -> bool:
        """Whether the jobs are known yet."""
        return self.feed.listing is not None

    async def settle(self) -> None:
        """Wait until the jobs are known: the next key moves among them."""
        await self.feed.looked.wait()

    # --- what arrives ---

    def _something_new(self) -> None:
        first = not self.listed.rows and self.feed.listing is not None
        self._new = True
        if first and not self._covered:
            self._tick()

    def _tick(self) -> None:
        self.query_one(StatusLine).expire(self._monotonic())
        if self._new and not self._covered:
            self._take()
            self.draw_rows()

    def _take(self) -> None:
        self._new = False
        before = len(self.listed.rows)
        self.listed = self.listed.now(self.feed.jobs())
        for job in self.listed.rows:
            _, told = self._said(job).saw(job.status)
            if told and job.live:
                self.answer(f"{job.status.name}: {told}", ok=False)
        if not before and self.listed.rows:
            self.refresh_bindings()

    def draw_rows(self) -> None:
        if self.feed.listing is None:
            return
        with self.app.batch_update():
            table, pointed, wanted = self.query_one(JobTable), self.listed.pointed(), self.listed.wanted
            table.show(self.listed, self._now())
            shown = (table.position(), f"with {wanted!r}" if wanted else "", f"sorted by {self.listed.sort}")
            self.query_one(MachineFacts).show(self.feed.listing, self.listed.rows, " · ".join(filter(None, shown)))
            hidden = pointed is not None and not table.has_messages
            self.query_one(StatusLine).show((), f"{pointed.name}: {pointed.why}" if pointed and hidden else "")

    def action_mark(self) -> None:
        self.change(self.listed.toggled())

    def action_open(self) -> None:
        pointed = self.listed.pointed()
        if pointed is not None:
            self.app.push_screen(self._open(pointed.target))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action in COMMANDS and self.readonly:
            return False
        needs_a_job = action in COMMANDS | {"open", "mark", "sort"}
        return super().check_action(action, parameters) and not (needs_a_job and not self.listed.rows)

    # --- commands ---

    def action_send(self, verb: protocol.Verb) -> None:
        self._send(verb)

    async def action_stop(self) -> None:
        from carbontui.tui.widgets.prompt import AskStop

        meant = self._live()
        if meant:
            who = meant[0].status.name if len(meant) == 1 else f"{len(meant)} jobs"
            await self.mount(AskStop(who, lambda how: self._send("stop", {"now": how == "now"}, meant)))

    def _live(self) -> tuple[ListedJob, ...]:
        meant = tuple(job for job in self.listed.meant() if job.live)
        if not meant:
            self.answer("the job is over: nothing to do", ok=False)
        return meant

    def _said(self, job: ListedJob) -> PendingOverride:
        return self._overrides.setdefault(job.id, PendingOverride(link.whoami()))

    def _send(
        self, verb: protocol.Verb, args: dict[str, Any] | None = None, meant: tuple[ListedJob, ...] | None = None
    ) -> None:
        """Send to every chosen job; each command names its job's override generation last seen."""
        meant = self._live() if meant is None else meant
        if meant:
            asked = [(job, self._said(job).next_gen(verb)) for job in meant]
            self.answer(f"{verb} …")
            self.run_worker(self._ask(verb, args or {}, asked), group="command")

    async def _ask(self, verb: protocol.Verb, args: dict[str, Any], asked: list[tuple[ListedJob, int | None]]) -> None:
        answers = await asyncio.gather(*(self._one(verb, args, job, gen) for job, gen in asked))
        refused = [text for ok, text in answers if not ok]
        if refused:
            self.answer("; ".join(refused), ok=False)
        else:
            self.answer(answers[0][1] if len(answers) == 1 else f"{verb}: {len(answers)} jobs")

    async def _one(
        self, verb: protocol.Verb, args: dict[str, Any], job: ListedJob, gen: int | None
    ) -> tuple[bool, str]:
        """Whether one job accepted the command, and a line about it."""
        ok, told = await self._said(job).send(partial(self.feed.request, job.id), verb, args, gen)
        return ok, f"{job.status.name}: {told}"
