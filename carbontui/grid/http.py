"""Defensive HTTP GET: deadlines on everything, a size limit, typed errors, no key in any text.

A request runs in a daemon thread that is abandoned at its deadline, because the C library's resolver has neither
cancellation nor a timeout; so a dead name server never blocks the event loop or its shutdown. httpx (which imports rich
and click) and stamina are imported with the first request: a job on a recorded grid needs neither, and they are a tenth
of what a supervisor imports.
"""

from __future__ import annotations

import asyncio
import contextlib
import email.utils
import logging
import math
import socket
import ssl
import threading
import time
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from carbontui import __version__

if TYPE_CHECKING:
    import httpx


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


ANSWER_S = 6.0
SIZE_MAX = 16 * 1024 * 1024
REDIRECTS_MAX = 3
ATTEMPTS = 2
BUSY_S = 300.0

# at INFO these log whole URLs, and two providers take their key in the URL
logging.getLogger("httpx").setLevel(logging.WARNING)
logging.getLogger("httpcore").setLevel(logging.WARNING)

T = TypeVar("T")


async def in_thread(function: Callable[..., T], *args: Any, deadline_s: float) -> T:
    """Run in its own daemon thread; TimeoutError at the deadline, after which the thread is abandoned."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if not done.done():
            done.set_exception(error) if error else done.set_result(result)  # type: ignore[arg-type]

    def run() -> None:
        result, error = None, None
        try:
            result = function(*args)
        except BaseException as caught:
            error = caught
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, result, error)

    threading.Thread(target=run, name=f"grid-{getattr(function, '__name__', 'call')}", daemon=True).start()
    return await asyncio.wait_for(done, deadline_s)


@lru_cache(maxsize=1)
def _tls() -> ssl.SSLContext:
    """The first call imports httpx and stamina and reads the system's certificates."""
    import httpx
    import stamina

    # retries are not logged: the feed's note reports the outcome
    stamina.instrumentation.set_on_retry_hooks(())
    return httpx.create_ssl_context()


@dataclass(frozen=True, slots=True)
class HttpReply:
    """Body, and its Last-Modified time in epoch seconds."""

    body: bytes
    modified_s: float | None


@dataclass(frozen=True, slots=True)
class Question:
    """One request with its options."""

    url: str
    params: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    auth: tuple[str, str] | None = None
    keyed: bool = True
    """Whether it carries a key that may be refused."""
    patience: float = 1.0
    """Factor on the usual deadline."""
    busy_s: float = BUSY_S
    """How long to wait after a 429 without Retry-After."""
    again: bool = True
    """Whether it is retried once, with back-off, where that may help."""

    @property
    def host(self) -> str:
        try:
            return urlsplit(self.url).hostname or "the provider"
        except ValueError:
            return "the provider"

    def whole_url(self) -> httpx.URL:
        """With the parameters; those already in `url` are kept."""
        import httpx

        return httpx.URL(self.url).copy_merge_params(self.params) if self.params else httpx.URL(self.url)


class Http:
    """Sends the requests of one feed's providers."""

    def __init__(self, *, answer_s: float = ANSWER_S, record: Callable[[str, bytes], None] | None = None) -> None:
        self.skew_s: float | None = None
        self._answer_s = answer_s
        self._record = record

    async def get(self, question: Question) -> HttpReply:
        """An answer with status 200. Raises GridError."""
        answer_s = question.patience * self._answer_s
        try:
            await in_thread(_tls, deadline_s=answer_s)
        except asyncio.TimeoutError:
            raise Unreachable("this machine is too busy to send a network request") from None
        try:
            reply = await in_thread(self._ask, question, answer_s, deadline_s=answer_s)
        except asyncio.TimeoutError:
            raise _overdue(question, answer_s) from None
        if self._record is not None:
            self._record(str(question.whole_url()), reply.body)
        return reply

    def _ask(self, question: Question, answer_s: float) -> HttpReply:
        import stamina

        def worth_it(error: Exception) -> bool:
            return question.again and isinstance(error, GridError) and error.worth_retrying

        retrying = stamina.RetryingCaller(ATTEMPTS, answer_s, wait_initial=0.3, wait_max=2.0, wait_jitter=0.5)
        return retrying(worth_it, self._once, question, answer_s)

    def _once(self, question: Question, answer_s: float) -> HttpReply:
        import httpx

        host = question.host
        sent = {"User-Agent": f"carbontui/{__version__}", "Accept-Encoding": "gzip", **question.headers}
        # the next address of a host is tried after a third: a broken IPv6 route does not use up the deadline
        timeout = httpx.Timeout(answer_s, connect=answer_s / 3)
        try:
            with httpx.Client(verify=_tls(), timeout=timeout) as client:
                request = client.build_request("GET", question.whole_url(), headers=sent)
                for _ in range(REDIRECTS_MAX + 1):
                    with contextlib.closing(client.send(request, auth=question.auth, stream=True)) as response:
                        if response.next_request is None:
                            return self._read(response, question, answer_s)
                        _check_onward(request.url, response.next_request.url)
                        request = response.next_request
            raise BadAnswer(f"{host} redirects more than {REDIRECTS_MAX} times")
        except httpx.TimeoutException:
            raise _overdue(question, answer_s) from None
        except httpx.ConnectError as error:
            if _unresolved(error):
                raise Unreachable(f"the name {host} cannot be resolved (no network?)") from None
            raise Unreachable(f"{host} refused the connection") from None
        except httpx.HTTPError as error:
            raise Unreachable(f"the request to {host} failed ({type(error).__name__})") from None
        except (httpx.InvalidURL, ssl.SSLError, OSError, ValueError) as error:
            raise Unreachable(f"{host} cannot be reached ({type(error).__name__})") from None

    def _read(self, response: httpx.Response, question: Question, answer_s: float) -> HttpReply:
        host = question.host
        body = _body(response, question, answer_s) if response.status_code < 500 else b""
        if (there_s := _date(response, "date")) is not None:
            self.skew_s = there_s - time.time()
        status = response.status_code
        if status == 429:
            wait_s = _retry_after(response, question.busy_s)
            raise Busy(f"{host} limits requests: the next one is allowed in {wait_s:.0f} s (429)", wait_s)
        if status == 403 and not question.keyed:
            raise Denied(f"{host} needs no key, but refuses requests from this machine (403)")
        if status in (401, 403):
            raise Denied(f"{host} refuses the key or requires one ({status})")
        if status == 404:
            raise NotFound(f"{host} has nothing at this address (404)")
        if status >= 500:
            raise ServerFault(f"{host} reports a server error ({status})")
        if status != 200:
            raise BadAnswer(f"{host} answered {status}")
        if not body.strip():
            raise BadAnswer(f"{host} sent an empty body")
        return HttpReply(body, _date(response, "last-modified"))


def _overdue(question: Question, answer_s: float) -> Unreachable:
    return Unreachable(f"{question.host} did not answer within {answer_s:g} s")


def _body(response: httpx.Response, question: Question, answer_s: float) -> bytes:
    """The body, unpacked. Raises BadAnswer above SIZE_MAX, however small the compressed form."""
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("identity", "gzip", ""):
        raise BadAnswer(f"{question.host} sent a body compressed as {encoding[:20]!r}, which was not requested")
    too_large = BadAnswer(f"{question.host} sent more than {SIZE_MAX // 2**20} MiB")
    packed, due_s = bytearray(), time.monotonic() + answer_s
    for part in response.iter_raw():
        if time.monotonic() > due_s:  # a trickle: the caller has left
            raise _overdue(question, answer_s)
        packed += part
        if len(packed) > SIZE_MAX:
            raise too_large
    if encoding != "gzip" or not packed:
        return bytes(packed)
    unpacking = zlib.decompressobj(16 + zlib.MAX_WBITS)
    with contextlib.suppress(zlib.error):
        body = unpacking.decompress(packed, SIZE_MAX + 1)
        if len(body) > SIZE_MAX:
            raise too_large
        if unpacking.eof:
            return body
    raise BadAnswer(f"{question.host} sent a broken or cut-off body")


def _check_onward(here: httpx.URL, onward: httpx.URL) -> None:
    """Allow a redirect to the same host and port, or to the same by https; any other would hand the key to whoever
    listens there. Raises BadAnswer."""
    if (onward.scheme, onward.host, onward.port) not in [(way, here.host, here.port) for way in (here.scheme, "https")]:
        where = f"{onward.scheme}://{onward.netloc.decode('ascii', 'replace')}"
        raise BadAnswer(f"{here.host} redirects to {where}; not followed")


def _unresolved(error: BaseException | None) -> bool:
    """Whether it began with the name."""
    return isinstance(error, socket.gaierror) or (
        error is not None and _unresolved(error.__cause__ or error.__context__)
    )


def _date(response: httpx.Response, name: str) -> float | None:
    try:
        return email.utils.parsedate_to_datetime(response.headers[name]).timestamp()
    except (KeyError, ValueError, TypeError):
        return None


def _retry_after(response: httpx.Response, otherwise_s: float) -> float:
    """Seconds of a Retry-After header (a number or a date), between 1 s and a day; `otherwise_s` if not a time."""
    try:
        wait_s = float(response.headers["retry-after"])
    except (KeyError, ValueError):
        until_s = _date(response, "retry-after")
        wait_s = otherwise_s if until_s is None else until_s - time.time()
    return min(86400.0, max(1.0, wait_s)) if math.isfinite(wait_s) else otherwise_s
