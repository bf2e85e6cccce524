"""All jobs on one page, live and finished, with boards, grid and watts of the machine above them."""

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

from msgspec.structs import replace
from rich.cells import cell_len
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.events import ScreenResume, ScreenSuspend
from textual.screen import Screen

from carbontui import link, protocol, units
from carbontui.text import figures
from carbontui.tui.model.feed import Target
from carbontui.tui.model.jobs_feed import JobsFeed, JobsSnapshot
from carbontui.tui.model.lists import JobList, ListedJob
from carbontui.tui.screens.overruling import Answers, PendingOverride
from carbontui.tui.terminal import keys, palette
from carbontui.tui.widgets import boards
from carbontui.tui.widgets.bottom import KeyLine, StatusLine
from carbontui.tui.widgets.cells import CellRow, Cells, cut, folded, spread
from carbontui.tui.widgets.tables import JobTable, counted

DRAW_EVERY_S = 1.0
"""The table is redrawn at most this often, whatever the number of jobs; keys redraw it at once."""
COMMANDS = frozenset({"send", "stop"})
HEADLINES_LEAST = 3
"""Rows beneath the table for the reason of the job under the cursor."""


def _who(meant: tuple[ListedJob, ...]) -> str:
    names = ", ".join(job.name for job in meant)
    return names if len(names) <= 40 else f"{len(meant)} jobs"


class MachineHead(Cells):
    """`show(seen, jobs, shown)`: how many jobs live, watts, the grid; then the boards, then what is not in order.
    `shown` says which jobs are in the table, and in which order."""

    known: JobsSnapshot | None = None
    jobs: tuple[ListedJob, ...] = ()
    shown = ""

    def show(self, known: JobsSnapshot, jobs: tuple[ListedJob, ...], shown: str) -> None:
        tall = self._height()
        self.known, self.jobs, self.shown = known, jobs, shown
        if self._height() != tall:
            self.refresh(layout=True)
        self.redraw()

    def faults(self) -> list[tuple[str, str]]:
        return [(what, told) for what, told, fine in self.known.facts if not fine] if self.known else []

    def _height(self) -> int:
        return 2 + bool(self.faults())

    def get_content_height(self, container: object, viewport: object, width: int) -> int:
        return self._height()

    def gpus(self) -> tuple[protocol.Gpu, ...]:
        """The boards of this machine."""
        assert self.known is not None
        here = [job.status for job in self.jobs if job.live and not job.target.host]
        return boards.merged(here, self.known.boards)

    def draw(self, width: int, height: int) -> list[CellRow]:
        known = self.known
        if known is None:
            return [[(" carbontui", "title")]]
        gpus = self.gpus()
        watts, limits = boards.drawn_w(gpus, known.host_w), [gpu.limit_w for gpu in gpus if gpu.limit_w]
        drawn = "" if watts is None else figures.watts(watts)
        if drawn and gpus and len(limits) == len(gpus):
            drawn += f" of {figures.watts(sum(limits))}"
        heads = list(filter(None, (counted(self.jobs), drawn, *known.headline.split(" · "))))
        while len(" · ".join(heads)) + 13 > width and len(heads) > 1:
            heads.pop()
        left: CellRow = [(" carbontui", "title"), (f"  {' · '.join(heads)}", "text")]
        load = "" if known.load is None else f" load {known.load:.0f} of {known.cores}"
        host = f"host {figures.watts(known.host_w)}{load}" if known.host_w is not None else load.strip()
        rows = [spread(width, left, [(f"{self.shown} ", "dim")]), boards.line(gpus, width, host)]
        if faults := self.faults():
            more = f" ({len(faults) - 1} more: d)" if len(faults) > 1 else ""
            rows.append([(" ! ", "warning"), (cut(": ".join(faults[0]), width - 4 - len(more)), "text"), (more, "dim")])
        return rows


class Headlines(Cells):
    """`show(listed)`: why the job under the cursor does what it does, then every job that stands still or failed."""

    listed = JobList()

    def show(self, listed: JobList) -> None:
        self.listed = listed
        self.redraw()

    def draw(self, width: int, height: int) -> list[CellRow]:
        pointed, label = self.listed.pointed(), self.listed.labels()
        if pointed is None:
            return [[(" begin: carbontui run -- python train.py · see first: carbontui demo", "dim")]]
        others = [job for job in self.listed.shown if job.needs_attention and job.id != pointed.id]
        widest = min(24, max(cell_len(label(job)) for job in (pointed, *others)))
        rows: list[CellRow] = [[(palette.RULE * width, "faint")]]
        for job in (pointed, *others):
            style_name = "fault" if job.state in ("failed", "lost") else "text" if job is pointed else "dim"
            lead = (f" {cut(label(job), widest)}  ", "dim")
            told = folded([lead, (job.headline, style_name)], width)
            short = job is not pointed and len(rows) + len(told) > height
            rows += [[lead, (cut(job.headline, width - widest - 3), style_name)]] if short else told
        return rows


class Jobs(Answers):
    """The table of all jobs. `open_job` makes the page of a job, which returns here when it is left. While another page
    is on top this one requests nothing: that page requests what it shows."""

    VERTICAL_BREAKPOINTS = [(0, "-short"), (18, "-medium")]
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("question_mark", "help", "help", id="jobs_help", key_display="?", tooltip="Every key of this page"),
        Binding("q", "dismiss", "leave", id="jobs_leave", tooltip="Leave; every job goes on"),
        Binding("enter", "open", "open", id="open", tooltip="Open the job under the cursor; q or esc comes back"),
        Binding("space", "mark", "mark", id="mark", tooltip="Mark the job: p, b, r and S mean all marked jobs"),
        Binding("p", "send('pause')", "pause", id="jobs_pause", tooltip="Hold the chosen jobs (asks first)"),
        Binding("b", "send('boost')", "boost", id="jobs_boost", tooltip="Run the chosen jobs at full speed (asks)"),
        Binding("r", "send('resume')", "resume", id="jobs_resume", tooltip="Resume their plans (asks first)"),
        Binding("S", "stop", "stop", id="jobs_stop", tooltip="Stop the chosen jobs (asks first)"),
        Binding("d", "machine", "machine", id="machine", tooltip="Every GPU of the machine, its host and its grid"),
        Binding("slash", "filter", "filter", id="filter", key_display="/", tooltip="Show only what contains a word"),
        Binding("s", "sort", "sort", id="sort", tooltip=f"Sort by the next of: {', '.join(JobList.ORDERS)}"),
        Binding("escape", "back", "back", id="list_back", show=False, tooltip="Clear marks and filter; to the job"),
        Binding("up,k", "move(-1)", "up", id="list_up", show=False, tooltip="A row up"),
        Binding("down,j", "move(1)", "down", id="list_down", show=False, tooltip="A row down"),
        Binding("pageup", "page(-1)", "page up", id="list_page_up", show=False, tooltip="A page up"),
        Binding("pagedown", "page(1)", "page down", id="list_page_down", show=False, tooltip="A page down"),
        Binding("home,g", "move(-1000000)", "first", id="list_first", show=False, tooltip="The first row"),
        Binding("end,G", "move(1000000)", "last", id="list_last", show=False, tooltip="The last row"),
    ]

    def __init__(
        self,
        observe: Callable[[], JobsSnapshot],
        open_job: Callable[[Target], Screen[Any]],
        *,
        readonly: bool = False,
        now: Callable[[], float] = time.time,
    ) -> None:
        super().__init__()
        self.listed = JobList()
        self._open, self._now = open_job, now
        self._covered = False
        self.readonly = readonly
        self.feed = JobsFeed(observe, self._something_new)
        self._overrides: dict[str, PendingOverride] = {}
        self._new = False

    def compose(self) -> ComposeResult:
        yield MachineHead(id="facts")
        yield JobTable(id="table")
        yield Headlines(id="headlines")
        yield StatusLine(id="told")
        yield KeyLine(id="keys")

    def on_mount(self) -> None:
        self._follow()
        self.set_interval(DRAW_EVERY_S, self._tick)

    def _follow(self) -> None:
        self.run_worker(self.feed.run(), group="feed", exclusive=True)

    def on_screen_suspend(self, _: ScreenSuspend) -> None:
        self._covered = True
        self.workers.cancel_group(self, "feed")

    def on_screen_resume(self, _: ScreenResume) -> None:
        if self._covered:
            self._covered = False
            self._follow()

    async def settle(self) -> None:
        """Wait until the jobs are known: the next key moves among them."""
        await self.feed.polled.wait()

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
            _, told = self._said(job).update(job.status)
            if told and job.live:
                self.answer(f"{job.status.name}: {told}", ok=False)
        if not before and self.listed.rows:
            self.refresh_bindings()

    def draw_rows(self) -> None:
        if self.feed.listing is None:
            return
        with self.app.batch_update():
            table, wanted = self.query_one(JobTable), self.listed.wanted
            self._share_rows(table)
            table.show(self.listed, self._now())
            ends = (units.from_iso(end) for job in self.listed.rows if (end := job.status.finish_expected))
            times = figures.clock_names(self._now(), max(self._now(), *ends, 0.0))
            order = f"sorted by {self.listed.sort} · all times {times}"
            shown = (table.position(), f"with {wanted!r}" if wanted else "", order)
            self.query_one(MachineHead).show(self.feed.listing, self.listed.rows, " · ".join(filter(None, shown)))
            self.query_one(Headlines).show(self.listed)

    def _share_rows(self, table: JobTable) -> None:
        """The table as tall as its rows, as long as a reason fits beneath it."""
        room = self.size.height - self.query_one(MachineHead).size.height - HEADLINES_LEAST - 2
        wanted = max(3, min(len(self.listed.shown) + 1, room))
        if table.styles.height is None or table.styles.height.value != wanted:
            table.styles.height = wanted

    def on_resize(self) -> None:
        self.call_after_refresh(self.draw_rows)

    def action_machine(self) -> None:
        from carbontui.tui.screens.read import Read

        def rows(page: Read) -> list[CellRow]:
            known, head = self.feed.listing, self.query_one(MachineHead)
            if known is None:
                return []
            gpus = head.gpus()
            told = boards.rows(gpus, None, self.app.size.width - 2) if gpus else []
            widest = max((len(what) for what, _, _ in known.facts), default=0)
            for what, text, fine in known.facts:
                told.append([(f" {what:<{widest}}  ", "dim"), (text, "text" if fine else "warning")])
            return told

        self.app.push_screen(Read("this machine", rows, wide=True))

    # --- keys ---

    def change(self, listed: JobList) -> None:
        self.listed = listed
        self.draw_rows()

    def action_mark(self) -> None:
        self.change(self.listed.toggled())

    def action_move(self, rows: int) -> None:
        self.change(self.listed.moved(rows))

    def action_page(self, pages: int) -> None:
        self.action_move(pages * max(1, self.query_one(JobTable).content_size.height - 2))

    def action_sort(self) -> None:
        self.change(self.listed.resorted())

    async def action_filter(self) -> None:
        from carbontui.tui.widgets.prompt import AskText

        def typed(word: str) -> None:
            self.change(self.listed.filtered(word))

        hint = "a part of the name, the state or the reason; nothing for all"
        await self.mount(AskText("show only the jobs with", hint, self.listed.wanted, str, typed, typed))

    def action_back(self) -> None:
        if not (self.listed.marked or self.listed.wanted) and len(self.app.screen_stack) > 2:
            self.dismiss(None)  # a dashboard has opened it
        else:
            self.change(replace(self.listed, marked=frozenset()) if self.listed.marked else self.listed.filtered(""))

    def action_open(self) -> None:
        if (pointed := self.listed.pointed()) is not None:
            self.app.push_screen(self._open(pointed.target))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action in COMMANDS and self.readonly:
            return False
        needs_a_job = action in COMMANDS | {"open", "mark", "sort"}
        return not keys.asking(self) and not (needs_a_job and not self.listed.rows)  # an open prompt takes the keys

    # --- commands ---

    async def action_send(self, verb: protocol.Verb) -> None:
        """A key commands a job that is one row among many: it is named before anything is sent."""
        from carbontui.tui.widgets.prompt import AskYes

        if meant := self._live():
            await self.mount(AskYes(f"{verb} {_who(meant)}?", lambda _: self._send(verb, {}, meant)))

    async def action_stop(self) -> None:
        from carbontui.tui.widgets.prompt import AskStop

        if meant := self._live():
            await self.mount(AskStop(_who(meant), lambda how: self._send("stop", {"now": how == "now"}, meant)))

    def _live(self) -> tuple[ListedJob, ...]:
        meant = tuple(job for job in self.listed.meant() if job.live)
        if not meant:
            self.answer("the job is over: nothing to do", ok=False)
        return meant

    def _said(self, job: ListedJob) -> PendingOverride:
        return self._overrides.setdefault(job.id, PendingOverride(link.whoami()))

    def _send(self, verb: protocol.Verb, args: dict[str, Any], meant: tuple[ListedJob, ...]) -> None:
        """Send to every chosen job; each command names its job's override generation last seen."""
        asked = [(job, self._said(job).next_gen(verb)) for job in meant]
        self.answer(f"{verb} …")
        self.run_worker(self._ask(verb, args, asked), group="command")

    async def _ask(self, verb: protocol.Verb, args: dict[str, Any], asked: list[tuple[ListedJob, int | None]]) -> None:
        sent = (self._said(job).send(partial(self.feed.request, job.id), verb, args, gen) for job, gen in asked)
        told = zip(asked, await asyncio.gather(*sent), strict=True)
        answers = [(ok, f"{job.status.name}: {text}") for (job, _), (ok, text) in told]
        refused = [text for ok, text in answers if not ok]
        done = answers[0][1] if len(answers) == 1 else f"{verb}: {len(answers)} jobs"
        self.answer("; ".join(refused) or done, ok=not refused)
