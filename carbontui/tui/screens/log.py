"""All of the training's output, read from run.log by offset: the file is the scrollback."""

from collections.abc import Callable, Coroutine
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen

from carbontui import link, protocol
from carbontui.text import figures
from carbontui.tui.model.feed import JobFeed
from carbontui.tui.model.loglines import ROW_MAX, LogLines, LogRow, after_the_try, speaks_of_error, text_of
from carbontui.tui.terminal import keys, palette
from carbontui.tui.terminal.keys import answered
from carbontui.tui.widgets.bottom import KeyLine
from carbontui.tui.widgets.cells import CellRow, Cells, spread

PAGE_B = 64 * 1024
FOLLOW_EVERY_S = 1.0
KEEP_ROWS = 20_000


class LogPage(Cells):
    """A window of rows from the part of the file that has been read."""

    rows: list[LogRow] = []
    top = 0
    match: int | None = None
    """The row that the search found."""
    title = ""
    place = ""

    def draw(self, width: int, height: int) -> list[CellRow]:
        shown = self.rows[self.top : self.top + height - 1]
        head = spread(width, [(f" {self.title}", "title")], [(f"{self.place} ", "dim")])
        rows: list[CellRow] = [head]
        for number, row in enumerate(shown, self.top):
            rows.append([(palette.NOW if number == self.match else " ", "preview"), *row])
        return rows


class LogScreen(Screen[None]):
    """Scrolls through run.log; follows it while at the end."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "up", id="log_up", show=False, tooltip="A line up"),
        Binding("down,j", "move(1)", "down", id="log_down", show=False, tooltip="A line down"),
        Binding("pageup,b", "page(-1)", "up", id="log_page_up", key_display="pgup", tooltip="A page up"),
        Binding("pagedown,space", "page(1)", "down", id="log_page_down", key_display="pgdn", tooltip="A page down"),
        Binding("home,g", "first", "start", id="log_start", key_display="g", tooltip="The start of the file"),
        Binding("end,G,f", "last", "end", id="log_end", key_display="G", tooltip="The end, and follow it"),
        Binding("slash", "search", "search", id="log_search", key_display="/", tooltip="Search all of the output"),
        Binding("n", "next(1)", "next", id="log_next", show=False, tooltip="The next match"),
        Binding("N", "next(-1)", "previous", id="log_previous", show=False, tooltip="The previous match"),
        Binding("exclamation_mark", "error", "first error", id="log_error", key_display="!", tooltip="The first error"),
        Binding("e", "errors", "stderr", id="log_errors", show=False, tooltip="Its stderr, where that is apart; back"),
        Binding("escape,q,l", "dismiss", "back", id="log_back", key_display="q", tooltip="Return to the dashboard"),
    ]

    def __init__(self, feed: JobFeed, title: str) -> None:
        super().__init__()
        self._feed, self._title = feed, title
        self._lines = LogLines(keep=KEEP_ROWS)
        self._begin = self._next = 0
        self._size_b = 0
        self._following = True
        self._wanted = ""
        self._err = False
        """What is shown is run.err."""

    def compose(self) -> ComposeResult:
        yield LogPage(id="page")
        yield KeyLine(id="keys")

    def on_mount(self) -> None:
        self.query_one(LogPage).title = f"{self._title}: output"
        self._run(self._load())
        self.set_interval(FOLLOW_EVERY_S, self._tick)

    def on_resize(self) -> None:
        self.call_after_refresh(self._fit)  # the message stays

    @property
    def _height(self) -> int:
        return max(1, self.query_one(LogPage).content_size.height - 1)

    async def _read(self, offset: int) -> protocol.LogAnswer | None:
        try:
            answer = await self._feed.request(protocol.LogRead(0, offset, PAGE_B, self._err))
        except link.LinkError as error:
            self._say(str(error))
            return None
        assert isinstance(answer, protocol.LogAnswer)
        return answer

    def _say(self, text: str) -> None:
        page = self.query_one(LogPage)
        page.place = text
        page.redraw()

    def _run(self, reading: Coroutine[Any, Any, None]) -> None:
        self.run_worker(reading, group="log", exclusive=True)

    async def _load(self, offset: int = -PAGE_B, *, at_end: bool = True) -> None:
        """Read the page that begins at `offset`, and show its end or its start; the last page of all is followed."""
        answer = await self._read(offset)
        if answer is not None:
            self._take(answer)
            page = self.query_one(LogPage)
            page.top = len(page.rows) if at_end else 0
            self._following = self._following or offset < 0
            self._show()

    def _take(self, answer: protocol.LogAnswer) -> None:
        """Start over with this page."""
        self._lines = _lines_of(answer)
        self._begin, self._next, self._size_b = answer.offset, answer.next, answer.size
        page = self.query_one(LogPage)
        page.rows, page.match = self._lines.rows(KEEP_ROWS), None

    async def settle(self) -> None:
        """Wait until what is being read is on the page: the next key moves through it."""
        await answered(self, "log")

    def _tick(self) -> None:
        # a read that takes longer than the interval is not cut short by the next one
        busy = any(worker.is_running for worker in self.workers if worker.group == "log")
        if self._following and self.is_current and not busy:
            self._run(self._more())

    async def _more(self) -> None:
        answer = await self._read(self._next)
        if answer is None or not answer.text:
            return
        if answer.size - answer.next > PAGE_B or answer.offset < self._next:
            await self._load()
            return
        self._lines.feed(answer.text)
        self._next, self._size_b = answer.next, answer.size
        self.query_one(LogPage).rows = self._lines.rows(KEEP_ROWS)
        self._show()

    def _fit(self) -> None:
        page = self.query_one(LogPage)
        last = max(0, len(page.rows) - self._height)
        page.top = last if self._following else max(0, min(page.top, last))
        page.redraw()

    def _show(self) -> None:
        page = self.query_one(LogPage)
        shown = "following" if self._following else "stopped"
        part = f"{figures.percent(self._begin / max(1, self._size_b))} on" if self._begin else "from the start"
        page.place = f"{shown} · {part} · {figures.size(self._size_b)}"
        self._fit()

    def action_move(self, rows: int) -> None:
        page = self.query_one(LogPage)
        last = max(0, len(page.rows) - self._height)
        top = page.top + rows
        if top < 0 and self._begin > 0:
            self._following = False
            self._run(self._load(max(0, self._begin - PAGE_B + 4096)))
            return
        if top > last and self._next < self._size_b:
            self._run(self._load(max(0, self._next - 4096), at_end=False))
            return
        page.top = max(0, min(last, top))
        self._following = page.top >= last and self._next >= self._size_b
        self._show()

    def action_page(self, pages: int) -> None:
        self.action_move(pages * max(1, self._height - 1))

    def action_first(self) -> None:
        self._following = False
        self._run(self._load(0, at_end=False))

    def action_last(self) -> None:
        self._run(self._load())

    # --- looking for something ---

    async def action_search(self) -> None:
        from carbontui.tui.widgets.prompt import AskText

        def answered(word: str) -> None:
            self._wanted = word.strip()
            if self._wanted:
                self._seek(self._has, -1, from_here=False)

        hint = "a word; n goes to the next match, N to the previous one"
        await self.mount(AskText("look for", hint, self._wanted, str, answered))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if keys.asking(self):
            return False  # the prompt takes the keys
        return action != "next" or bool(self._wanted)

    def action_next(self, way: int) -> None:
        self._seek(self._has, way, from_here=True)

    def action_error(self) -> None:
        """Search from the start of the file: the first error is the cause of those that follow."""
        self._following = False
        self._run(self._first_error())

    async def _first_error(self) -> None:
        await self._turn(True)
        await self._find(speaks_of_error, 0, 1)

    def action_errors(self) -> None:
        self._run(self._other_file())

    async def _other_file(self) -> None:
        if await self._turn(not self._err):
            await self._load()
        else:
            self._say("its stderr is in this output")

    async def _turn(self, err: bool) -> bool:
        """Read run.err, or run.log again, from now on; False if there is only run.log."""
        self._err = err
        answer = await self._read(0)
        self._err = err and answer is not None and answer.err
        self.query_one(LogPage).title = f"{self._title}: {'stderr' if self._err else 'output'}"
        return self._err is err

    def _has(self, text: str) -> bool:
        return self._wanted.lower() in text.lower()

    def _seek(self, fits: Callable[[str], bool], way: int, *, from_here: bool) -> None:
        """Find the nearest matching row in the part that was read, else in the pages of the file beyond it."""
        page = self.query_one(LogPage)
        self._following = False
        at = page.match if from_here and page.match is not None else page.top if from_here else len(page.rows)
        rows = range(at + 1, len(page.rows)) if way > 0 else range(min(at, len(page.rows)) - 1, -1, -1)
        for number in rows:
            if fits(text_of(page.rows[number])):
                self._point(number)
                return
        beyond = self._next if way > 0 else self._begin
        over = beyond >= self._size_b if way > 0 else beyond <= 0
        if over:
            self._say(f"{self._wanted!r} is not {'further on' if way > 0 else 'before'}")
        else:
            self._run(self._find(fits, beyond, way))

    async def _find(self, fits: Callable[[str], bool], offset: int, way: int) -> None:
        """Search the file page by page from a byte, in either direction, until a row matches; show only that page."""
        at = offset if way > 0 else max(0, offset - PAGE_B)
        while True:
            answer = await self._read(at)
            if answer is None:
                return
            rows = _lines_of(answer).rows(KEEP_ROWS)
            tried = after_the_try([text_of(row) for row in rows]) if fits is speaks_of_error else 0
            order = range(tried, len(rows)) if way > 0 else range(len(rows) - 1, -1, -1)
            number = next((n for n in order if fits(text_of(rows[n]))), None)
            if number is not None:
                self._take(answer)
                self._point(number)
                return
            if (way > 0 and answer.next >= answer.size) or (way < 0 and at == 0) or not answer.text:
                self._say("not found in the output")
                return
            # pages overlap by a row's length, so no row is split and missed
            at = max(answer.offset + 1, answer.next - ROW_MAX) if way > 0 else max(0, at - PAGE_B + ROW_MAX)

    def _point(self, number: int) -> None:
        page = self.query_one(LogPage)
        page.match = number
        page.top = max(0, number - self._height // 3)
        self._show()


def _lines_of(answer: protocol.LogAnswer) -> LogLines:
    """The rows of a page; a truncated first one is left out."""
    _, newline, rest = answer.text.partition("\n")
    lines = LogLines(keep=KEEP_ROWS)
    lines.feed(rest if answer.offset > 0 and newline else answer.text)
    return lines
