"""The screen's own messages; each reports an event."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from textual.message import Message

from carbontui.tui.picture import Picture


@dataclass(frozen=True, slots=True)
class Connection:
    """Whether the screen is connected to a supervisor, and a line about it."""

    kind: Literal["connecting", "live", "reconnecting", "refused", "over"]
    text: str = ""


class PictureArrived(Message):
    """A new picture of the job; a newer one replaces it unseen."""

    def __init__(self, picture: Picture) -> None:
        super().__init__()
        self.picture = picture

    def can_replace(self, message: Message) -> bool:
        return isinstance(message, PictureArrived)


class ConnectionChanged(Message):
    """Connected, or disconnected. Never replaced by a newer one: each counts."""

    def __init__(self, connection: Connection) -> None:
        super().__init__()
        self.connection = connection


class LogArrived(Message):
    """The next piece of run.log; `fresh` when it does not continue the last one."""

    def __init__(self, text: str, fresh: bool) -> None:
        super().__init__()
        self.text = text
        self.fresh = fresh
