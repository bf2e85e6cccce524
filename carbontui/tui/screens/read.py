"""A page of text: keys and marks, provenance of every number, what can be done here."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen

from carbontui import link
from carbontui.tui.terminal import keys
from carbontui.tui.terminal.keys import answered
from carbontui.tui.widgets.cells import CellRow, Cells, folded, spread
from carbontui.tui.widgets.prompt import AskText

ASK_EVERY_S = 15.0
DRAW_EVERY_S = 2.0
TEXT_WIDTH_MOST = 100
"""Lines longer than this are hard to read."""


class Page(Cells):
    """Rows under a heading, wrapped to the width, of which a window is shown."""

    title = ""
    matches = ""
    rows: list[CellRow] = []
    top = 0
    most = TEXT_WIDTH_MOST

    def draw(self, width: int, height: int) -> list[CellRow]:
        lines = self.lines(width)
        self.top = max(0, min(self.top, len(lines) - (height - 2)))
        shown = lines[self.top : self.top + height - 2]
        last = self.top + len(shown)
        part = f"{self.top + 1}-{last} of {len(lines)}" if len(lines) > len(shown) else ""
        moves = f"{part} · up and down" if part else ""
        room = width - len(self.title) - 4
        rights = (" · ".join(filter(None, (self.matches, moves, "esc returns"))), part or "esc returns", "")
        right = next(words for words in rights if len(words) <= room or not words)
        return [
            spread(width, [(f" {self.title}", "strong")], [(f"{right} ", "dim")]),
            [],
            *([(" ", "text"), *line] for line in shown),
        ]

    def lines(self, width: int) -> list[CellRow]:
        return [line for row in self.rows for line in folded(row, min(width - 2, self.most))]


class Read(Screen[None]):
    """A title and its rows; any of the closing keys returns. Covers the whole terminal: a visible page beneath would be
    composed again with every change."""

    AUTO_FOCUS = None
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,i,d,question_mark,enter", "leave", "back", id="read_back", tooltip="Return to the dashboard"),
        Binding("up,k", "move(-1)", "up", id="read_up", show=False, tooltip="A line up"),
        Binding("down,j", "move(1)", "down", id="read_down", show=False, tooltip="A line down"),
        Binding("pageup,b", "page(-1)", "page up", id="read_page_up", show=False, tooltip="A page up"),
        Binding("pagedown,space", "page(1)", "page down", id="read_page_down", show=False, tooltip="A page down"),
        Binding("home,g", "move(-100000)", "start", id="read_start", show=False, tooltip="The start of the page"),
        Binding("end,G", "move(100000)", "end", id="read_end", show=False, tooltip="The end of the page"),
        keys.FILTER,
    ]

    def __init__(
        self,
        title: str,
        rows: Callable[[Read], list[CellRow]],
        request: Callable[[], Awaitable[link.Answer]] | None = None,
        *,
        wide: bool = False,
    ) -> None:
        """`rows(page)` are the newest; `request` is repeated while the page is open; `wide`: rows are no prose."""
        super().__init__()
        self._wide = wide
        self._title, self._rows, self._request = title, rows, request
        self._wanted = ""
        self._asked = False
        self.reply: link.Answer | None = None
        """The newest answer to the request."""
        self.fault = ""
        """Why there is none."""

    def compose(self) -> ComposeResult:
        page = Page(id="page")
        page.title = self._title
        page.most = 10_000 if self._wide else TEXT_WIDTH_MOST
        yield page

    def on_mount(self) -> None:
        self._draw()
        self.set_interval(DRAW_EVERY_S, self._draw)
        if self._request is not None:
            self._ask(self._request)
            self.set_interval(ASK_EVERY_S, partial(self._ask, self._request))

    def _ask(self, request: Callable[[], Awaitable[link.Answer]]) -> None:
        async def asked() -> None:
            try:
                self.reply, self.fault = await request(), ""
            except link.LinkError as error:
                self.fault = str(error)
            self._asked = True
            self._draw()

        self.run_worker(asked(), group="ask", exclusive=True)

    async def settle(self) -> None:
        """Wait until the first answer is on the page: the next key moves through it."""
        if self._request is not None and not self._asked:
            await answered(self, "ask")

    def _narrow(self, wanted: str) -> None:
        self._wanted = wanted.strip().lower()
        self._draw()

    def _draw(self) -> None:
        if not self.is_current:
            return
        page = self.query_one(Page)
        page.rows = [row for row in self._rows(self) if self._wanted in "".join(text for text, _ in row).lower()]
        page.matches = f"with {self._wanted!r}: {len(page.rows)}" if self._wanted else "/ filters"
        page.redraw()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return not keys.asking(self)

    async def action_filter(self) -> None:
        hint = "a word, or nothing for all"
        await self.mount(AskText("show only the lines with", hint, self._wanted, str, self._narrow, self._narrow))

    def action_move(self, lines: int) -> None:
        page = self.query_one(Page)
        page.top = max(0, page.top + lines)
        page.redraw()

    def action_page(self, pages: int) -> None:
        self.action_move(pages * max(1, self.query_one(Page).content_size.height - 4))

    def action_leave(self) -> None:
        self.dismiss(None)
