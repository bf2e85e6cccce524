"""A page of text: keys and marks, provenance of every number, what can be done here."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen

from carbontui import link
from carbontui.tui.terminal.keys import answered
from carbontui.tui.widgets.cells import CellRow, Scrolled, spread

ASK_EVERY_S = 15.0
DRAW_EVERY_S = 2.0
TEXT_WIDTH_MOST = 100
"""Lines longer than this are hard to read."""


class Page(Scrolled):
    """Rows under a heading."""

    title = ""

    def draw(self, width: int, height: int) -> list[CellRow]:
        shown, part = self.window(width - 2, height - 2)
        right = f"{part} · up and down · esc returns" if part else "esc returns"
        right = right if len(right) <= width - len(self.title) - 4 else part
        return [
            spread(width, [(f" {self.title}", "strong")], [(f"{right} ", "dim")]),
            [],
            *([(" ", "text"), *line] for line in shown),
        ]


class Read(Screen[None]):
    """A title and its rows; any of the closing keys returns. Covers the whole terminal: a visible page beneath would be
    composed again with every change."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,i,d,question_mark,enter", "dismiss", "back", id="read_back", tooltip="Return to the page"),
        Binding("up,k", "move(-1)", "up", id="read_up", show=False, tooltip="A line up"),
        Binding("down,j", "move(1)", "down", id="read_down", show=False, tooltip="A line down"),
        Binding("pageup,b", "page(-1)", "page up", id="read_page_up", show=False, tooltip="A page up"),
        Binding("pagedown,space", "page(1)", "page down", id="read_page_down", show=False, tooltip="A page down"),
        Binding("home,g", "move(-100000)", "start", id="read_start", show=False, tooltip="The start of the page"),
        Binding("end,G", "move(100000)", "end", id="read_end", show=False, tooltip="The end of the page"),
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
        self._asked = False
        self.reply: link.Answer | None = None
        """The newest answer to the request."""
        self.fault = ""
        """Why there is none."""

    def compose(self) -> ComposeResult:
        page = Page(id="page")
        page.title = self._title
        if not self._wide:
            page.most = TEXT_WIDTH_MOST
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

    def _draw(self) -> None:
        if not self.is_current:
            return
        page = self.query_one(Page)
        page.rows = self._rows(self)
        page.redraw()

    def action_move(self, lines: int) -> None:
        self.query_one(Page).scroll(lines)

    def action_page(self, pages: int) -> None:
        self.action_move(pages * max(1, self.query_one(Page).content_size.height - 4))
