"""The server: its page, who may open it, and one process of the screen for each browser tab.

Every user of the machine reaches the port. The token of the address is worth one visit, which is answered with a
cookie; all else needs that cookie. A page of another origin is refused, and a name of another host: what a browser
sends for somebody else's page never reaches the screen.
"""

import asyncio
import secrets
import socket
from pathlib import Path
from typing import Any

from aiohttp import web
from textual_serve.server import Server

PAGE = Path(__file__).with_name("page.html")
POLICY = "Content-Security-Policy"
HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    POLICY: "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
}
"""The browser itself asks no other host for anything."""
END_S = 2.0
"""Seconds that the screens have to leave at the end."""


class Served:
    """A command's screen on a port of 127.0.0.1."""

    def __init__(self, command: str, port: int) -> None:
        self.token = secrets.token_urlsafe(24)
        self._session = secrets.token_urlsafe(24)
        self._spent = False
        self._cookie = f"carbontui-{port}"  # cookies know no port: another server's would replace it
        self._hosts = (f"127.0.0.1:{port}", f"localhost:{port}")
        self._screens = Server(command, host="127.0.0.1", port=port)

    def run(self, listener: socket.socket) -> None:
        """Serve until SIGINT or SIGTERM."""
        app = web.Application(middlewares=[self._guard])
        app.add_routes([web.get("/", self._page), web.get("/ws", self._screens.handle_websocket)])
        app.add_routes([web.static("/static", self._screens.statics_path)])
        web.run_app(
            app, sock=listener, print=None, access_log=None, shutdown_timeout=END_S, loop=asyncio.new_event_loop()
        )

    @web.middleware  # type: ignore[untyped-decorator, unused-ignore]
    async def _guard(self, request: Any, handler: Any) -> Any:
        """Refuses what is not of the one browser that had the token."""
        origin = request.headers.get("Origin")
        if request.host not in self._hosts or origin not in (None, f"http://{request.host}"):
            return refusal("this address is for a browser at 127.0.0.1 or localhost, and its own page")
        if same(request.cookies.get(self._cookie), self._session):
            if request.path == "/ws" and origin is None:
                return refusal("a websocket needs an Origin")
            return await handler(request)
        if request.method != "GET" or request.path != "/" or not same(request.query.get("token"), self.token):
            return refusal("the token is missing or wrong: open the address that carbontui web has printed")
        if self._spent:
            return refusal("this address has been opened already; for another browser start carbontui web again")
        self._spent = True
        answer = await handler(request)
        answer.set_cookie(self._cookie, self._session, httponly=True, samesite="Strict", path="/")
        return answer

    async def _page(self, request: Any) -> Any:
        nonce = secrets.token_urlsafe(12)
        text = PAGE.read_text(encoding="utf-8").replace("WEBSOCKET", f"ws://{request.host}/ws").replace("NONCE", nonce)
        policy = {POLICY: f"script-src 'self' 'nonce-{nonce}'; {HEADERS[POLICY]}"}
        return web.Response(text=text, content_type="text/html", headers=HEADERS | policy)


def same(given: str | None, secret: str) -> bool:
    """Compared in the same time, however much of it is right."""
    return given is not None and secrets.compare_digest(given.encode(), secret.encode())


def refusal(why: str) -> Any:
    """403, with one line."""
    return web.Response(status=403, text=f"carbontui: {why}\n", headers=HEADERS)
