"""Defensive HTTP GET: deadlines on everything, a size limit, typed errors, no key in any text.

Names are resolved in a daemon thread with its own deadline, because the C library's resolver has neither cancellation
nor a timeout; so a dead name server never blocks the event loop or its shutdown. httpx (which imports rich and click)
and stamina are imported with the first request, off the event loop: a job on a recorded grid needs neither, and they
are a tenth of what a supervisor imports.
"""

from __future__ import annotations

import asyncio
import email.utils
import ipaddress
import json
import logging
import math
import os
import socket
import ssl
import threading
import time
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

from carbontui import __version__
from carbontui.grid.faults import BadAnswer, Busy, Denied, GridError, NotFound, ServerFault, Unreachable

if TYPE_CHECKING:
    import httpx

NAME_S = 2.0
ANSWER_S = 6.0
SIZE_MAX = 16 * 1024 * 1024
BLOCK = 64 * 1024
"""Bytes decompressed at a time, so that a compressed body never takes much more memory than the limit."""
REDIRECTS_MAX = 3
ATTEMPTS = 2
BUSY_S = 300.0
NAME_KEPT_S = 300.0

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


class Http:
    """Sends the requests of one feed's providers."""

    def __init__(
        self,
        *,
        resolve: Callable[..., Any] = socket.getaddrinfo,
        answer_s: float = ANSWER_S,
        name_s: float = NAME_S,
        record: Callable[[str, bytes], None] | None = None,
    ) -> None:
        self.skew_s: float | None = None
        self._resolve = resolve
        self._answer_s = answer_s
        self._name_s = name_s
        self._record = record
        self._names: dict[tuple[str, int], tuple[float, str]] = {}

    async def json(self, url: str, params: Mapping[str, str] | None = None, **how: Any) -> Any:
        """The decoded JSON body. Raises GridError."""
        reply = await self.get(url, params, **how)
        try:
            return json.loads(reply.body)
        except (ValueError, RecursionError):
            raise BadAnswer(f"{host_of(url)} sent {_what(reply.body)} instead of JSON") from None

    async def get(
        self,
        url: str,
        params: Mapping[str, str] | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        auth: tuple[str, str] | None = None,
        keyed: bool = True,
        patience: float = 1.0,
        busy_s: float = BUSY_S,
        again: bool = True,
    ) -> HttpReply:
        """One answer with status 200; with `again`, retried once with back-off where that may help. Raises GridError.

        `keyed`: whether the request carries a key that may be refused; `patience`: factor on the usual deadline;
        `busy_s`: how long to wait after a 429 without Retry-After.
        """
        question = _Question(
            url, dict(params or {}), dict(headers or {}), auth, keyed, patience * self._answer_s, busy_s
        )
        try:
            await in_thread(_tls, deadline_s=question.answer_s)
        except asyncio.TimeoutError:
            raise Unreachable("this machine is too busy to send a network request") from None
        if not again:
            return await self._once(question)
        import stamina

        async for attempt in stamina.retry_context(
            on=_worth_retrying,
            attempts=ATTEMPTS,
            timeout=question.answer_s,
            wait_initial=0.3,
            wait_max=2.0,
            wait_jitter=0.5,
        ):
            with attempt:
                return await self._once(question)
        raise AssertionError("the loop above returns or raises")

    async def _once(self, question: _Question) -> HttpReply:
        import httpx

        host = host_of(question.url)
        try:
            return await asyncio.wait_for(self._follow(question), question.answer_s)
        except asyncio.TimeoutError:
            raise Unreachable(f"{host} did not answer within {question.answer_s:g} s") from None
        except httpx.ConnectError:
            raise Unreachable(f"{host} refused the connection") from None
        except httpx.HTTPError as error:
            raise Unreachable(f"the request to {host} failed ({type(error).__name__})") from None
        except (httpx.InvalidURL, ssl.SSLError, OSError, ValueError) as error:
            raise Unreachable(f"{host} cannot be reached ({type(error).__name__})") from None

    @staticmethod
    def url_of(url: str, params: Mapping[str, str] | None) -> httpx.URL:
        """The whole URL; parameters already in `url` are kept."""
        import httpx

        return httpx.URL(url).copy_merge_params(dict(params)) if params else httpx.URL(url)

    async def _follow(self, question: _Question) -> HttpReply:
        import httpx

        target = self.url_of(question.url, question.params)
        async with httpx.AsyncClient(verify=_tls(), timeout=question.answer_s, follow_redirects=False) as client:
            for _ in range(REDIRECTS_MAX + 1):
                request = await self._request(client, target, question.headers)
                response = await client.send(request, auth=question.auth, stream=True)
                try:
                    if response.has_redirect_location:
                        onward = target.join(response.headers["location"])
                        _check_onward(target, onward)
                        target = onward
                        continue
                    return await self._read(response, target.host, question)
                finally:
                    await response.aclose()
        raise BadAnswer(f"{target.host} redirects more than {REDIRECTS_MAX} times")

    async def _request(self, client: httpx.AsyncClient, url: httpx.URL, headers: Mapping[str, str]) -> httpx.Request:
        sent = {"User-Agent": f"carbontui/{__version__}", "Accept-Encoding": "gzip", **headers}
        extensions: dict[str, Any] = {}
        if not _proxied():
            address = await self._address(url.host, url.port or (443 if url.scheme == "https" else 80))
            if address != url.host:
                sent["Host"] = url.netloc.decode("ascii")
                extensions["sni_hostname"] = url.host
                url = url.copy_with(host=address)
        return client.build_request("GET", url, headers=sent, extensions=extensions)

    async def _address(self, host: str, port: int) -> str:
        try:
            ipaddress.ip_address(host)
            return host
        except ValueError:
            pass
        known = self._names.get((host, port))
        if known and time.monotonic() - known[0] < NAME_KEPT_S:
            return known[1]
        try:
            found = await in_thread(self._resolve, host, port, 0, socket.SOCK_STREAM, deadline_s=self._name_s)
        except asyncio.TimeoutError:
            raise Unreachable(f"the name {host} was not resolved within {self._name_s:g} s") from None
        except OSError:
            raise Unreachable(f"the name {host} cannot be resolved (no network?)") from None
        if not found:
            raise Unreachable(f"the name {host} has no address")
        # IPv4 first: a broken IPv6 route would use up the whole deadline
        found = sorted(found, key=lambda entry: entry[0] != socket.AF_INET)
        address = str(found[0][4][0])
        self._names[host, port] = (time.monotonic(), address)
        return address

    async def _read(self, response: httpx.Response, host: str, question: _Question) -> HttpReply:
        body = await _body(response, host) if response.status_code < 500 else b""
        self._note_clock(response)
        status = response.status_code
        if status == 429:
            wait_s = _retry_after(response.headers.get("retry-after"), question.busy_s)
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
        if self._record is not None:
            self._record(str(self.url_of(question.url, question.params)), body)
        return HttpReply(body, _date(response, "last-modified"))

    def _note_clock(self, response: httpx.Response) -> None:
        there_s = _date(response, "date")
        if there_s is not None:
            self.skew_s = there_s - time.time()


@dataclass(frozen=True, slots=True)
class _Question:
    """One request with its options."""

    url: str
    params: dict[str, str]
    headers: dict[str, str]
    auth: tuple[str, str] | None
    keyed: bool
    answer_s: float
    busy_s: float


async def _body(response: httpx.Response, host: str) -> bytes:
    """The body, decompressed block by block. Raises BadAnswer above SIZE_MAX, however small the compressed form."""
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("identity", "gzip", ""):
        raise BadAnswer(f"{host} sent a body compressed as {encoding[:20]!r}, which was not requested")
    unpacked = zlib.decompressobj(16 + zlib.MAX_WBITS) if encoding == "gzip" else None
    body = bytearray()
    async for part in response.aiter_raw():
        while part:
            if unpacked is None:
                body += part
                part = b""
            else:
                try:
                    body += unpacked.decompress(part, BLOCK)
                except zlib.error:
                    raise BadAnswer(f"{host} sent a broken or cut-off body") from None
                part = unpacked.unconsumed_tail
            if len(body) > SIZE_MAX:
                raise BadAnswer(f"{host} sent more than {SIZE_MAX // 2**20} MiB")
    if unpacked is not None and not unpacked.eof and body:
        raise BadAnswer(f"{host} sent a broken or cut-off body")
    return bytes(body)


def _check_onward(target: httpx.URL, onward: httpx.URL) -> None:
    """Allow a redirect to the same host and port, or from http to https on the standard ports; any other would hand the
    key to whoever listens there. Raises BadAnswer."""
    if onward.host != target.host:
        raise BadAnswer(f"{target.host} redirects to {onward.host}; not followed")
    if onward.scheme != target.scheme and onward.scheme != "https":
        raise BadAnswer(f"{target.host} redirects to unencrypted {onward.scheme}; not followed")
    upgraded = onward.scheme != target.scheme
    ports = [url.port or (443 if url.scheme == "https" else 80) for url in (target, onward)]
    if ports != [80, 443] if upgraded else ports[0] != ports[1]:
        raise BadAnswer(f"{target.host} redirects to its port {ports[1]}; not followed")


def _date(response: httpx.Response, name: str) -> float | None:
    try:
        return email.utils.parsedate_to_datetime(response.headers[name]).timestamp()
    except (KeyError, ValueError, TypeError):
        return None


def _worth_retrying(error: Exception) -> bool:
    return isinstance(error, GridError) and error.worth_retrying


def _proxied() -> bool:
    """Whether a proxy is set: it then resolves the names."""
    return any(os.environ.get(name) for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"))


def _retry_after(text: str | None, otherwise_s: float = BUSY_S) -> float:
    """Seconds of a Retry-After header (a number or a date), between 1 s and a day; `otherwise_s` if not a time."""
    wait_s = otherwise_s
    if text:
        try:
            wait_s = float(text)
        except ValueError:
            try:
                wait_s = email.utils.parsedate_to_datetime(text).timestamp() - time.time()
            except (ValueError, TypeError):
                wait_s = otherwise_s
    return min(86400.0, max(1.0, wait_s)) if math.isfinite(wait_s) else otherwise_s


def _what(body: bytes) -> str:
    start = body.lstrip()[:200].lower()
    if start.startswith((b"<!doctype html", b"<html")):
        return "a web page"
    if start.startswith(b"<"):
        return "XML"
    return "a broken or cut-off body"


def host_of(url: str) -> str:
    import httpx

    try:
        return httpx.URL(url).host or "the provider"
    except httpx.InvalidURL:
        return "the provider"
