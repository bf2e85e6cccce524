"""What can go wrong between us and a provider. Every text is one line for the screen and holds no key.

GridError
├── Unreachable    no name, no connection, no answer in time
├── Denied         401 or 403: the key is missing, wrong or does not reach this zone
├── NotFound       404: the provider moved or does not know the zone
├── Busy           429: asked too often; `retry_after_s` says when to come back
├── ServerFault    5xx
├── BadAnswer      an answer of another form, unit or zone than asked for
└── NoData         a well-formed answer without a usable row
"""

from __future__ import annotations


class GridError(Exception):
    """A provider did not give what was asked; `str()` is a line for people."""

    retry_after_s: float | None = None
    worth_retrying = False


class Unreachable(GridError):
    worth_retrying = True


class Denied(GridError):
    pass


class NotFound(GridError):
    pass


class Busy(GridError):
    def __init__(self, text: str, retry_after_s: float) -> None:
        super().__init__(text)
        self.retry_after_s = retry_after_s


class ServerFault(GridError):
    worth_retrying = True


class BadAnswer(GridError):
    pass


class NoData(GridError):
    pass
