"""What a hostile or broken provider answers to a real job: bounded, said in a line, and the next source is asked."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from house import House, until

sys.path[:0] = [str(Path(__file__).parents[1] / "grid")]
from grid_site import Request, good

STALL_S, MOST_MB = 0.5, 150.0
PATIENCE_S = 60.0
"""How long the next source may take to be in use: an answer that never ends is given up first."""
AT_ONCE = 3

Sender = Callable[[socket.socket], None]
BARE = """\
import asyncio, sys
async def answer(reader, writer):
    writer.write(await reader.readline())
    writer.close()
async def serve():
    await (await asyncio.start_unix_server(answer, sys.argv[1])).serve_forever()
asyncio.run(serve())
"""
"""A server with nothing else to do, asked beside each supervisor: what the machine itself makes one wait."""


def body(data: bytes, *headers: str, status: str = "200 OK", length: int | None = None) -> Sender:
    head = [f"HTTP/1.1 {status}", f"Content-Length: {len(data) if length is None else length}", "Connection: close"]
    return lambda peer: peer.sendall("\r\n".join([*head, *headers, "", ""]).encode("latin-1") + data)


def arrays(stamps: object, values: object, **more: object) -> Sender:
    """An answer in Energy-Charts' own shape."""
    told = {"unix_seconds": stamps, "co2eq": values, "co2eq_forecast": values, **more}
    return body(json.dumps(told).encode())


def endless(piece: bytes, head: bytes = b"", pause_s: float = 0.0) -> Sender:
    def send(peer: socket.socket) -> None:
        peer.sendall(head)
        while True:
            peer.sendall(piece)
            time.sleep(pause_s)

    return send


def corpus(now_s: float) -> dict[str, Sender]:
    """Forty answers and more, by what is wrong with them."""
    quarter = [int(now_s // 900 * 900) + 900 * k for k in range(-96, 96)]
    ok = b"HTTP/1.1 200 OK\r\nConnection: close\r\n"
    bomb = gzip.compress(b"[" + b"0," * 100_000_000 + b"0]", 9)
    laughs = b'<!DOCTYPE x [<!ENTITY a "ha">' + b"".join(
        b'<!ENTITY %c "%s">' % (98 + n, b"&%c;" % (97 + n) * 10) for n in range(9)
    )
    here = "http://127.0.0.1:1"
    return {
        "empty": body(b""),
        "null": body(b"null"),
        "an array": body(b"[]"),
        "an object": body(b"{}"),
        "a number": body(b"1e999"),
        "a word": body(b'"soon"'),
        "NaN": body(b'{"unix_seconds": [NaN], "co2eq": [Infinity], "co2eq_forecast": [NaN]}'),
        "deep": body(b"[" * 200_000),
        "deep objects": body(b'{"a":' * 100_000),
        "half an object": body(b'{"unix_seconds": [1'),
        "text": body(b"<html><body>\x1b[2JMaintenance \xe2\x80\xae</body></html>"),
        "UTF-16": body('{"unix_seconds": []}'.encode("utf-16")),
        "byte-order mark": body(b"\xef\xbb\xbf{}"),
        "random bytes": body(os.urandom(100_000)),
        "entities": body(laughs + b"]><x>&i;</x>", "Content-Type: application/xml"),
        "gzip bomb": body(bomb, "Content-Encoding: gzip"),
        "gzip of gzip": body(gzip.compress(gzip.compress(b"{}")), "Content-Encoding: gzip, gzip"),
        "unknown encoding": body(b"{}", "Content-Encoding: secret"),
        "cut off": body(b'{"unix_seconds": [', length=10**9),
        "negative length": body(b"{}", length=-1),
        "endless": endless(b" " * 65536, ok + b"\r\n"),
        "endless chunks": endless(b"1\r\n \r\n", ok + b"Transfer-Encoding: chunked\r\n\r\n"),
        "a byte a second": endless(b" ", ok + b"\r\n", 1.0),
        "endless headers": endless(b"X-A: " + b"a" * 1000 + b"\r\n", ok, 0.001),
        "a silent peer": lambda peer: time.sleep(90),
        "a peer that hangs up": lambda peer: None,
        "HTTP/0.9": lambda peer: peer.sendall(b"{}"),
        "not HTTP": lambda peer: peer.sendall(b"SSH-2.0-OpenSSH_9.6\r\n"),
        "status 500": body(b"\x1b]0;owned\x07", status="500 \x1b[31mred"),
        "status 204": body(b"", status="204 No Content"),
        "status 999": body(b"{}", status="999 Odd"),
        "status 429 for ever": body(b"", "Retry-After: inf", status="429 Later"),
        "status 429 since long": body(b"", "Retry-After: -1e9", status="429 Later"),
        "status 503 until 9999": body(b"", "Retry-After: Fri, 31 Dec 9999 23:59:59 GMT", status="503 Later"),
        "a redirect to itself": body(b"", "Location: /again", status="302 Found"),
        "a redirect to a file": body(b"", "Location: file:///etc/passwd", status="302 Found"),
        "a redirect to another port": body(b"", f"Location: {here}/x", status="307 Temporary"),
        "a redirect of a million letters": body(b"", "Location: /" + "a" * 60_000, status="301 Moved"),
        "1971 to 2990": arrays([31_536_000, 32_187_000_000], [300, 300]),
        "all at one time": arrays([quarter[0]] * 5000, [300] * 5000),
        "years of slots of a second": arrays([1e300, -1e300, 0], [1, 2, 3]),
        "a million rows": arrays(list(range(1_000_000)), [300] * 1_000_000),
        "huge integers": body(b'{"unix_seconds": [' + b"9" * 5000 + b'], "co2eq": [1], "co2eq_forecast": [1]}'),
        "words for numbers": arrays(["now"] * 3, ["low"] * 3),
        "objects for numbers": arrays([{}] * 3, [[]] * 3),
        "values beyond reason": arrays(quarter, [1e308] * len(quarter)),
        "negative values": arrays(quarter, [-500] * len(quarter)),
        "more times than values": arrays(quarter, [300]),
        "a key twice": body(b'{"unix_seconds": [1], "unix_seconds": {}, "co2eq": []}'),
    }


class Door:
    """A provider on loopback: `/bad` is answered as told, all else as éCO2mix would answer well."""

    def __init__(self, send: Sender, now_s: float) -> None:
        self._send, self._good = send, good("eco2mix", now_s)
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self._listener.getsockname()[1]
        self.asked = self.helped = 0
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                peer, _ = self._listener.accept()
                threading.Thread(target=self._one, args=(peer,), daemon=True).start()

    def _one(self, peer: socket.socket) -> None:
        with contextlib.suppress(OSError), peer:
            peer.settimeout(90)
            head = b""
            while b"\r\n\r\n" not in head and (piece := peer.recv(65536)):
                head += piece
            target = head.split(b" ")[1].decode(errors="replace") if head.count(b" ") else "/"
            if target.startswith("/good"):
                self.helped += 1
                path, _, query = target.partition("?")
                from urllib.parse import parse_qs

                answer = self._good(Request(path, parse_qs(query), {}))
                body(answer.body, status=f"{answer.status} OK")(peer)
            else:
                self.asked += 1
                self._send(peer)

    def close(self) -> None:
        self._listener.close()


@dataclass
class Found:
    """What the corpus has counted."""

    answers: int = 0
    longest_stall_s: float = 0.0
    longest_bare_s: float = 0.0
    """The same of a server that has nothing else to do."""
    most_mb: float = 0.0
    most_lines: int = 0
    faults: list[str] = field(default_factory=list)


def run(found: Found, every: int = 1) -> None:
    """Each answer (every n-th of them) to a job of its own."""
    now_s = time.time()
    cases = list(corpus(now_s).items())[::every]
    with ThreadPoolExecutor(AT_ONCE) as some:
        for name, why in zip(
            (name for name, _ in cases), some.map(lambda case: _one(*case, now_s, found), cases), strict=True
        ):
            found.answers += 1
            found.faults += [f"{name}: {what}" for what in why]


def _one(name: str, send: Sender, now_s: float, found: Found) -> list[str]:
    root, runtime = Path(tempfile.mkdtemp(prefix="ctc-")), Path(tempfile.mkdtemp(prefix="ct-"))
    house, door = House(root, runtime), Door(send, now_s)
    bare = subprocess.Popen([sys.executable, "-c", BARE, str(root / "bare.sock")], stdin=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{door.port}"
    house.env["CARBONTUI_GRID_URLS"] = f"energy-charts={url}/bad,eco2mix={url}/good"
    house.env["CARBONTUI_OFFLINE"] = "0"
    try:
        return list(_watched(house, door, found))
    except Exception as error:
        return [f"{type(error).__name__}: {error}"]
    finally:
        house.end()
        door.close()
        bare.kill()
        bare.wait()
        for folder in (root, runtime):
            shutil.rmtree(folder, ignore_errors=True)


def _bare(path: Path) -> float:
    begun = time.monotonic()
    with socket.socket(socket.AF_UNIX) as peer:
        peer.connect(str(path))
        peer.sendall(b"\n")
        peer.recv(1)
    return time.monotonic() - begun


def _watched(house: House, door: Door, found: Found) -> Iterator[str]:
    job = house.start("--zone", "FR", "--work", "10h", "--budget", "20h", pause=0.02)
    first = until(lambda: (s := job.served()) and s.pids.supervisor, 30, "a supervisor")
    stall_s, used = 0.0, ""
    due = time.monotonic() + PATIENCE_S
    while time.monotonic() < due and not used:
        begun = time.monotonic()
        connection, _ = job.connect()  # hello and welcome: a turn of its loop
        connection.close()
        stall_s = max(stall_s, time.monotonic() - begun)
        found.longest_bare_s = max(found.longest_bare_s, _bare(house.root / "bare.sock"))
        status = job.served()
        told = status.provenance.get("intensity") if status else None
        # its values, or our own forecast from them; never typical days
        used = told.source if told and door.asked and door.helped and told.how in ("measured", "forecast") else ""
        time.sleep(0.05)
    memory = Path(f"/proc/{first}/status").read_text().split("VmHWM:")[1].split()[0]
    found.longest_stall_s = max(found.longest_stall_s, stall_s)
    found.most_mb = max(found.most_mb, int(memory) / 1024)
    status = job.served()
    lines = [line for line in (status.notices if status else ()) if "127.0.0.1" in line or "Energy-Charts" in line]
    found.most_lines = max(found.most_lines, len(lines))
    if status is None or status.pids.supervisor != first:
        yield "the supervisor was replaced"
    elif not used:
        yield f"the next source is not in use: {status.provenance.get('intensity')} {status.notices}"
    if not door.asked:
        yield "it was never asked"
    if stall_s > STALL_S:
        yield f"stalled for {stall_s:.2f} s"
    if int(memory) / 1024 > MOST_MB:
        yield f"{int(memory) / 1024:.0f} MB"
    if len(lines) > 1:
        yield f"{len(lines)} lines: {lines[:3]}"
    if any("\n" in line or len(line) > 300 for line in lines):
        yield f"not one line: {lines}"
    text = (job.dir / "carbontui.log").read_text() + str(status and status.notices)
    if "\x1b" in text or "\u202e" in text or "Traceback" in text:
        yield "escape codes or a traceback in log or notices"
