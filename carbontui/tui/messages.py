"""The screen's own messages, all events that have happened."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from textual.message import Message

from carbontui.tui.picture import Picture


@dataclass(frozen=True, slots=True)
class Connection:
    """Whether the screen is in touch with a supervisor, and a line about it."""

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
    """In touch, or not any more. Never replaced: each one counts."""

    def __init__(self, connection: Connection) -> None:
        super().__init__()
        self.connection = connection


class LogArrived(Message):
    """The next piece of run.log; `fresh` when it does not follow on from the last."""

    def __init__(self, text: str, fresh: bool) -> None:
        super().__init__()
        self.text = text
        self.fresh = fresh
