"""`web`: the same screen in a real browser, for the one who has the address alone; killed, it takes nothing with it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
from pathlib import Path

import httpx
import pytest
from house import until

from carbontui import protocol

pytest.importorskip("textual_serve")
CHROMIUM = Path("/usr/bin/chromium")
TEXT = (
    "Array.from({length: it.rows}, (_, y) => it.buffer.active.getLine(y).translateToString(true).trimEnd()).join('\\n')"
)


class Web:
    """A running `carbontui web`."""

    def __init__(self, house, *words):
        command = [sys.executable, "-m", "carbontui.cli", "web", *words]
        self.process = subprocess.Popen(
            command, env=house.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.address = self.process.stdout.readline().strip()
        self.forward = self.process.stderr.readline().strip()
        self.origin = self.address.partition("/?")[0]

    def end(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        self.process.communicate(timeout=60)
        return self.process.returncode


@pytest.fixture
def web(house):
    with contextlib.ExitStack() as stack:

        def start(*words):
            made = Web(house, *words)
            stack.callback(made.process.kill)
            return made

        yield start


def test_the_address_opens_it_once_and_for_its_own_page_alone(house, web):
    served = web()
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/\?token=[\w-]{32}", served.address)
    port = served.origin.rpartition(":")[2]
    assert re.fullmatch(rf"carbontui: from another machine: ssh -N -L {port}:127.0.0.1:{port} \S+@\S+", served.forward)
    with httpx.Client() as other, httpx.Client() as own:
        for path in ("/", "/?token=", "/?token=wrong", "/?token=%C3%A9", "/ws", "/static/js/textual.js"):
            refused = other.get(served.origin + path)
            assert (refused.status_code, refused.text.count("\n")) == (403, 1), path
        foreign = {"Origin": "http://evil.example"}, {"Host": "evil.example"}, {"Origin": "null"}
        assert [other.get(served.address, headers=one).status_code for one in foreign] == [403, 403, 403]
        page = own.get(served.address)
        assert page.status_code == 200 and "SameSite=Strict" in (given := page.headers["set-cookie"])
        assert "HttpOnly" in given and "http://fonts" not in page.text and "https://" not in page.text
        assert other.get(served.address).status_code == 403, "the token is spent"
        assert own.get(served.origin + "/").status_code == 200
        assert own.get(served.origin + "/static/js/textual.js").status_code == 200
        assert [own.get(served.origin + "/", headers=one).status_code for one in foreign] == [403, 403, 403]
        asks = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
        asks["Sec-WebSocket-Key"] = "dGhlIHNhbXBsZSBub25jZQ=="
        codes = [own.get(f"{served.origin}/ws", headers=asks | one).status_code for one in ({}, *foreign)]
        assert codes == [403] * 4
    assert served.end() == 0
    assert re.search(r"no job 'nothing'", house.cli("web", "nothing").stderr)


def test_without_the_extra_one_line_says_what_to_install(house, tmp_path):
    (tmp_path / "aiohttp.py").write_text("raise ImportError('No module named aiohttp')\n")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from carbontui.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code, "web"], env=house.env, capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr.count("\n") == 1 and 'pip install "carbontui[web]"' in done.stderr


class Tty:
    """`carbontui attach` on a terminal of 120x40; what it writes is kept."""

    def __init__(self, house, job):
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        env = house.env | {"TERM": "xterm-256color", "COLORTERM": "truecolor", "LANG": "C.UTF-8"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "carbontui.cli", "attach", job],
            env=env,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
        )
        os.close(slave)
        self.written = bytearray()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        with contextlib.suppress(OSError):
            while data := os.read(self.master, 65536):
                self.written += data


class Page:
    """The page in Chromium at 120x40, and beside it a second xterm.js for what a terminal gets."""

    def __init__(self, browser, address):
        context = browser.new_context(viewport={"width": 1200, "height": 800})
        self.requests, self.errors, self.fed = [], [], 0
        self.page = page = context.new_page()
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("websocket", lambda socket: self.requests.append(socket.url))
        page.on("pageerror", lambda error: self.errors.append(str(error)))

        def with_a_handle(route):
            answer = route.fetch()
            changed = answer.text().replace("this.terminal.open(e)", "window.it=this.terminal,this.terminal.open(e)")
            route.fulfill(response=answer, body=changed)

        page.route("**/textual.js", with_a_handle)
        page.goto(address)
        cell = page.evaluate("it._core._renderService.dimensions.css.cell")
        page.set_viewport_size({"width": int(cell["width"] * 120.5) + 1, "height": int(cell["height"] * 40.5) + 1})
        until(lambda: page.evaluate("[it.cols, it.rows]") == [120, 40], what="120x40", every=0.1)
        page.evaluate(
            "window.beside = new it.constructor({cols: 120, rows: 40, allowProposedApi: true, scrollback: 0})"
        )

    def text(self):
        return self.page.evaluate(TEXT)

    def text_of(self, tty):
        more = bytes(tty.written[self.fed :])
        self.fed += len(more)
        self.page.evaluate("given => new Promise(done => beside.write(Uint8Array.from(given), done))", list(more))
        return self.page.evaluate(TEXT.replace("it.", "beside."))

    def until_same(self, tty, what, unlike=""):
        """Until the browser shows exactly what the terminal does, and no longer what it showed before."""

        def pair():
            return self.text(), self.text_of(tty)

        try:
            until(lambda: len(texts := {*pair()}) == 1 and unlike not in texts, what=what, every=0.1)
        except AssertionError as error:
            lines = zip(*(text.splitlines() for text in pair()), strict=False)
            raise AssertionError("\n".join([str(error), *(f"{a}\n{b}" for a, b in lines if a != b)])) from None

    def until_shown(self, *words):
        try:
            until(lambda: all(word in self.text() for word in words), what=f"{words}", every=0.1)
        except AssertionError as error:
            raise AssertionError(f"{error}:\n{self.text()}") from None


@pytest.fixture
def browser():
    sync_api = pytest.importorskip("playwright.sync_api")
    if not CHROMIUM.exists():
        pytest.skip("no Chromium")
    with sync_api.sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        yield found
        found.close()


OPENING = ("?", "l", "w", "i", "d", "e", "S", "t")
"""Each opens a page or a question, which Escape leaves."""


NONE = protocol.Override("", None, None, "")


@pytest.mark.long
def test_chromium_shows_what_the_terminal_shows_takes_its_keys_and_may_die(house, web, browser):
    job = house.start("--zone", "DE", "--budget", "1x", "--steps", "100000", steps=100_000, pause=0.05)
    job.until_connected()
    served, terminal = web(job.id), Tty(house, job.id)
    try:
        shown = Page(browser, served.address)
        shown.until_shown("RUNNING", "carbon intensity")
        shown.until_same(terminal, "the same text as in the terminal")
        for key in [key for opening in OPENING for key in (opening, "Escape")]:
            before = shown.text()
            shown.page.keyboard.press(key)
            os.write(terminal.master, {"Escape": b"\x1b"}.get(key, key.encode()))
            shown.until_same(terminal, f"{key}: the same page as in the terminal", before)
        for key, word in (("b", "boost"), ("r", "")):
            shown.page.keyboard.press(key)
            until(lambda: ((job.served().override or NONE).mode) == word, what=key)  # noqa: B023
        shown.page.keyboard.press("p")
        job.until_state("paused")
        shown.until_shown("PAUSED", "@browser")
        assert job.status()["override"]["by"].endswith("@browser")
        shown.page.keyboard.press("r")
        until(lambda: "@browser until" not in shown.text(), what="back to the plan", every=0.1)
        assert job.served().override is None
        assert {re.match(r"\w+://([^/]*)", url)[1] for url in shown.requests} == {served.origin.partition("//")[2]}
        assert shown.errors == [] and "token" not in shown.page.url
        shown.page.reload()  # the cookie opens it again
        until(
            lambda: shown.page.evaluate("!!window.it") and "carbon intensity" in shown.text(),
            what="the screen",
            every=0.2,
        )
        other = browser.new_context().new_page()
        assert other.goto(served.address).status == 403
        screens = subprocess.run(
            ["pgrep", "-P", str(served.process.pid)], capture_output=True, text=True, check=True
        ).stdout.split()
        served.end(signal.SIGKILL)
        until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in screens), what="the screens' leaving", every=0.1)
        assert shown.page.locator(".said").is_visible()
        job.until_steps()
    finally:
        terminal.process.kill()
        terminal.process.wait()
        os.close(terminal.master)


def test_readonly_lets_no_key_change_anything(house, web, browser):
    job = house.start("--zone", "DE", "--budget", "1x", "--steps", "100000", steps=100_000, pause=0.05)
    job.until_connected()
    shown = Page(browser, web("--readonly", job.id).address)
    shown.until_shown("RUNNING")
    shown.page.keyboard.press("p")
    shown.page.keyboard.press("?")  # keys act in order: once its page is there, the p has been taken
    until(lambda: "RUNNING" not in shown.text(), every=0.1)
    assert job.served().override is None
