"""A page whose first paint waits for its data, and how that arrives."""

from __future__ import annotations

from textual.message import Message
from textual.screen import Screen

from carbontui.tui.model.feed import News
from carbontui.tui.model.picture import Picture

FIRST_LOOK_S = 0.3
"""A snapshot comes within milliseconds: drawing an empty page before it would cost as much as the first paint."""


class Arrived(Message):
    """News of the job. A newer picture replaces one that was not drawn yet; all else counts."""

    def __init__(self, news: News) -> None:
        super().__init__()
        self.news = news

    def can_replace(self, message: Message) -> bool:
        return isinstance(self.news, Picture) and isinstance(message, Arrived) and isinstance(message.news, Picture)


class PaintsOnce(Screen[str | None]):
    """Nothing of it reaches the terminal until `first_look`, which a timer calls if no data arrives."""

    waiting = True

    def await_first_look(self) -> None:
        """To be called once it is mounted."""
        self.set_timer(FIRST_LOOK_S, self.first_look)

    def first_look(self) -> None:
        if self.waiting:
            self.waiting = False
            self.refresh()

    def _compositor_refresh(self) -> None:
        if self.waiting:
            self._dirty_widgets.clear()  # their regions are noted
        else:
            super()._compositor_refresh()
