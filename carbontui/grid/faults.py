"""Errors of a request to a provider. Every text is one line for the screen and holds no key.

GridError
├── Unreachable    no name resolution, no connection, no answer in time
├── Denied         401 or 403: the key is missing, wrong or not valid for this zone
├── NotFound       404: the provider moved or does not know the zone
├── Busy           429: too many requests; `retry_after_s` says when to retry
├── ServerFault    5xx
├── BadAnswer      an answer with another format, unit or zone than requested
└── NoData         a well-formed answer without a usable row
"""

from __future__ import annotations


class GridError(Exception):
    """A provider did not answer a request as expected; `str()` is one line for the user."""

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
