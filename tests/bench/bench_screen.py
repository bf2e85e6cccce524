"""What the screen costs on a real pty, as a ratio to a bare Textual app in the same run. By hand:

    python tests/bench/bench_screen.py [--seconds 15] [--rounds 3] [--anyway]

Bars: at most 1.5 kB/s and 2 % CPU on any page at one picture a second, 0 B/s when nothing changes, first paint within
25 kB and 1.5 times a bare Textual app, at most 12 kB to open any page, key to paint within 60 ms (p95) with 50 lines
of output a second. The same with 8 boards, a week of forecast, 20,000 lines of output, and the table of 50 jobs on 3
hosts.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import platform
import re
import statistics
import sys
import tempfile
import time
from datetime import date
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tui"))

import msgspec
from fake import GRID, FakeSupervisor, past_levels, prices, scene
from msgspec import structs
from test_terminals import SHOW, Terminal, tick

from carbontui import protocol

BARE = (
    "from textual.app import App\n"
    "from textual.widgets import Label\n"
    "class Bare(App[None]):\n"
    "    def compose(self):\n"
    "        yield Label('RUNNING')\n"
    "    def on_key(self, event):\n"
    "        self.exit()\n"
    "Bare().run()\n"
)
ECHO = (
    "from textual.app import App\n"
    "from textual.widgets import Label\n"
    "class Echo(App[None]):\n"
    "    on = False\n"
    "    def compose(self):\n"
    "        yield Label('RUNNING')\n"
    "    def on_key(self, event):\n"
    "        self.on = not self.on\n"
    "        self.query_one(Label).update('\N{BLACK CIRCLE} on' if self.on else 'off \N{BLACK CIRCLE}')\n"
    "Echo().run()\n"
)
HZ = os.sysconf("SC_CLK_TCK")


def cpu_s(pid: int) -> float:
    """Seconds of CPU a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / HZ


def environ() -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if k not in ("SSH_CONNECTION", "NO_COLOR")}
    return kept | {"TERM": "xterm-256color", "COLORTERM": "truecolor"}


async def first_paint(terminal: Terminal, began: float) -> float:
    await terminal.until(lambda: b"RUNNING" in terminal.seen)
    return time.monotonic() - began


async def bare(seconds: float) -> dict[str, float]:
    began = time.monotonic()
    terminal = Terminal([sys.executable, "-c", BARE], environ())
    try:
        paint = await first_paint(terminal, began)
        await terminal.quiet(1.0)
        used = cpu_s(terminal.process.pid)
        await asyncio.sleep(seconds)
        return {"paint_s": paint, "cpu": (cpu_s(terminal.process.pid) - used) / seconds}
    finally:
        terminal.close()


async def ours(seconds: float, gpus: int, folder: Path) -> dict[str, float]:
    path = folder / f"s{gpus}"
    async with FakeSupervisor(path, scene("running", gpus)) as fake:
        fake.levels = past_levels(gpus)
        began = time.monotonic()
        terminal = Terminal([sys.executable, "-c", SHOW, str(path)], environ())
        try:
            paint = await first_paint(terminal, began)
            await terminal.until(lambda: b"epoch 2" in terminal.seen)
            await terminal.quiet(1.5)
            pid = terminal.process.pid
            used, sent = cpu_s(pid), len(terminal.seen)
            for n in range(1, round(seconds) + 1):
                tick(fake, n)
                await asyncio.sleep(1.0)
            found = {
                "paint_s": paint,
                "cpu": (cpu_s(pid) - used) / round(seconds),
                "bytes_per_s": (len(terminal.seen) - sent) / round(seconds),
            }
            await terminal.quiet(1.5)
            used, sent = cpu_s(pid), len(terminal.seen)
            for _ in range(round(seconds)):
                fake.push(status=fake.snap.status)
                await asyncio.sleep(1.0)
            return found | {
                "still_cpu": (cpu_s(pid) - used) / seconds,
                "still_bytes_per_s": (len(terminal.seen) - sent) / seconds,
            }
        finally:
            terminal.close()


PAGES = {
    "dashboard": "",
    "help": "?",
    "sources": "i",
    "boards": "d",
    "grid": "G",
    "plan": "w",
    "log": "l",
    "pause for": "P",
    "stop": "S",
    "typed budget": "e",
}
LINES = 20_000
WEEK = 7 * 96
HOSTS = ("", "gpu1", "ada@gpu2")
TABLE = (
    "import sys\n"
    "from pathlib import Path\n"
    "from carbontui import protocol, tui\n"
    "from carbontui.tui.jobs_feed import Seen\n"
    "from carbontui.tui.target import Target\n"
    "import msgspec\n"
    "folder = Path(sys.argv[1])\n"
    "statuses = msgspec.json.decode((folder / 'jobs.json').read_bytes(), type=tuple[protocol.Status, ...])\n"
    f"hosts = {HOSTS!r}\n"
    "jobs = tuple(Target(s.job, s.name, folder / s.job, s, host=hosts[n % 3]) for n, s in enumerate(statuses))\n"
    "seen = Seen((('gpu 0', 'H100 71 W of 700 W', True), ('grid', 'DE 324 gCO2/kWh', True)), jobs, 2100.0, 'DE 324')\n"
    "sys.exit(tui.jobs(lambda: seen))\n"
)


def large() -> protocol.Snap:
    """Eight boards, a week of forecast and prices."""
    snap = scene("priced", 8)
    band = snap.series.intensity
    assert band is not None
    mean = tuple(GRID[i % (4 * 72)] for i in range(WEEK))
    lo, hi = (tuple(v * k for v in mean) for k in (0.85, 1.15))
    week = structs.replace(band, mean_g=mean, lo_g=lo, hi_g=hi)
    cost = structs.replace(prices(), mean=tuple(0.0005 * v for v in mean), lo=lo, hi=hi)
    return structs.replace(snap, series=structs.replace(snap.series, intensity=week, price=cost))


async def pages(folder: Path, snap: protocol.Snap, lines: int, seconds: int = 8) -> tuple[int, dict[str, PageCost]]:
    """Bytes of the first paint; by page what it costs."""
    path = folder / f"pages{lines}"
    async with FakeSupervisor(path, snap) as fake:
        fake.levels = past_levels()
        fake.log = b"".join(b"step %6d | loss 1.5\n" % n for n in range(lines)) + fake.log
        terminal = Terminal([sys.executable, "-c", SHOW, str(path)], environ())
        pid = terminal.process.pid
        try:
            await terminal.until(lambda: b"epoch 2" in terminal.seen)
            await terminal.quiet(1.5)
            first, second, found = len(terminal.seen), 0, {}
            for name, key in PAGES.items():
                before = len(terminal.seen)
                os.write(terminal.master, key.encode())
                await terminal.quiet(1.5)
                opened = len(terminal.seen) - before
                before, used = len(terminal.seen), cpu_s(pid)
                for _ in range(seconds):
                    second += 1
                    tick(fake, second)
                    await asyncio.sleep(1.0)
                each, cpu = (len(terminal.seen) - before) / seconds, (cpu_s(pid) - used) / seconds
                before = len(terminal.seen)
                os.write(terminal.master, b"\x1b" if key else b"")
                await terminal.quiet(1.5)
                found[name] = PageCost(opened, each, cpu, len(terminal.seen) - before)
            return first, found
        finally:
            terminal.close()


async def table(folder: Path, jobs: int = 50, seconds: int = 10) -> PageCost:
    """The table of live jobs of three hosts, each of which says something new every second."""
    place = folder / "table"
    place.mkdir()
    base = scene("running").status
    statuses = tuple(structs.replace(base, job=f"j{n:02}", name=f"train-{n:02}") for n in range(jobs))
    (place / "jobs.json").write_bytes(msgspec.json.encode(statuses))
    async with contextlib.AsyncExitStack() as stack:
        fakes = [
            await stack.enter_async_context(FakeSupervisor(place / status.job, structs.replace(scene(), status=status)))
            for status in statuses
        ]
        terminal = Terminal([sys.executable, "-c", TABLE, str(place)], environ())
        try:
            await terminal.until(lambda: b"train-00" in terminal.seen)
            await terminal.quiet(2.0)
            opened, used, pid = len(terminal.seen), cpu_s(terminal.process.pid), terminal.process.pid
            for n in range(seconds):
                for fake in fakes:
                    tick(fake, n)
                await asyncio.sleep(1.0)
            each = (len(terminal.seen) - opened) / seconds
            return PageCost(opened, each, (cpu_s(pid) - used) / seconds, 0)
        finally:
            terminal.close()


async def paints(terminal: Terminal, keys: int) -> list[float]:
    """Seconds from a key to the first paint of the circle that it moves."""
    found = []
    for n in range(keys):
        await asyncio.sleep(0.15 + (n % 7) / 50)
        before, began = len(terminal.seen), time.monotonic()
        os.write(terminal.master, b"\x1b[C" if n % 2 == 0 else b"\x1b[D")
        await terminal.until(lambda before=before: KNOB.search(terminal.seen, before))
        found.append(time.monotonic() - began)
    return sorted(found)


async def key_to_paint(folder: Path, keys: int = 60) -> tuple[list[float], list[float]]:
    """Of the slider with 50 lines of output a second, and of a bare Textual app on the same machine beside it."""
    path = folder / "keys"
    async with FakeSupervisor(path, scene()) as fake:
        fake.levels = past_levels()
        terminal = Terminal([sys.executable, "-c", SHOW, str(path)], environ())
        bare_one = Terminal([sys.executable, "-c", ECHO], environ())
        try:
            await terminal.until(lambda: b"epoch 2" in terminal.seen)
            await bare_one.until(lambda: b"RUNNING" in bare_one.seen)
            await terminal.quiet(1.0)

            async def flood() -> None:
                while True:
                    fake.log += b"\nstep %d | loss 1.4" % len(fake.log)
                    await asyncio.sleep(0.02)

            flooding = asyncio.create_task(flood())
            ours_s = await paints(terminal, keys)
            flooding.cancel()
            return ours_s, await paints(bare_one, keys)
        finally:
            terminal.close()
            bare_one.close()


KNOB = re.compile("\N{BLACK CIRCLE}".encode())


class PageCost(NamedTuple):
    """Bytes until a page is open, bytes/s and share of a core while it is, bytes back to the dashboard."""

    opened: int
    bytes_per_s: float
    cpu: float
    back: int


def quantiles(waits: list[float]) -> str:
    return f"p50 {waits[len(waits) // 2] * 1e3:.0f} ms, p95 {waits[round(len(waits) * 0.95) - 1] * 1e3:.0f} ms"


def rows(found: dict[str, PageCost]) -> list[str]:
    return [f"| {name} | {c.opened} | {c.bytes_per_s:.0f} | {c.cpu:.1%} | {c.back} |" for name, c in found.items()]


def medians(rounds: list[dict[str, float]]) -> dict[str, float]:
    return {key: statistics.median(r[key] for r in rounds) for key in rounds[0]}


async def main(seconds: float, rounds: int) -> str:
    with tempfile.TemporaryDirectory() as folder:
        plain, one, eight = [], [], []
        for _ in range(rounds):  # interleaved, so that a busy minute touches all three
            plain.append(await bare(seconds))
            one.append(await ours(seconds, 1, Path(folder)))
            eight.append(await ours(seconds, 8, Path(folder)))
        first, small = await pages(Path(folder), scene(), 0)
        whole, big = await pages(Path(folder), large(), LINES)
        listed = await table(Path(folder))
        waits, plain_waits = await key_to_paint(Path(folder))
    base, single, many = medians(plain), medians(one), medians(eight)
    load = os.getloadavg()[0]
    lines = [
        "# Screen: what it costs",
        "",
        f"{date.today()}, {os.cpu_count()} shared vCPU ({platform.machine()}), Python {platform.python_version()}, "
        f"load average {load:.1f}, pty 120x40 truecolor, one picture and one line of output a second, "
        f"medians of {rounds} rounds of {seconds:.0f} s. Made by tests/bench/bench_screen.py.",
        "",
        "| | bar | 1 GPU | 8 GPUs | bare Textual app |",
        "|---|---|---|---|---|",
        f"| first paint, s | | {single['paint_s']:.2f} | {many['paint_s']:.2f} | {base['paint_s']:.2f} |",
        f"| first paint, ratio to bare | 1.5 | {single['paint_s'] / base['paint_s']:.2f} | "
        f"{many['paint_s'] / base['paint_s']:.2f} | 1 |",
        f"| CPU, % | 2 | {single['cpu']:.1%} | {many['cpu']:.1%} | {base['cpu']:.1%} |",
        f"| bytes of the first paint | 25000 | {first} | | |",
        f"| bytes/s | 1500 | {single['bytes_per_s']:.0f} | {many['bytes_per_s']:.0f} | 0 |",
        f"| bytes/s when nothing changes | 0 | {single['still_bytes_per_s']:.0f} | "
        f"{many['still_bytes_per_s']:.0f} | 0 |",
        f"| CPU when nothing changes, % | | {single['still_cpu']:.1%} | {many['still_cpu']:.1%} | {base['cpu']:.1%} |",
        "",
        "Pages, 1 GPU: at most 12000 bytes to open one, 1500 bytes/s and 2 % of a core while it is open.",
        "",
        "| page | bytes to open | bytes/s | CPU | bytes back to the dashboard |",
        "|---|---|---|---|---|",
        *rows(small),
        "",
        f"The same with 8 boards, a week of forecast and prices, {LINES} lines of output (first paint {whole} bytes), "
        "and the table of 50 live jobs on 3 hosts:",
        "",
        "| page | bytes to open | bytes/s | CPU | bytes back to the dashboard |",
        "|---|---|---|---|---|",
        *rows({**big, "table, 50 jobs": listed}),
        "",
        f"Key to paint with 50 lines of output a second, {len(waits)} keys: {quantiles(waits)} (bar: p95 60 ms); "
        f"a bare Textual app beside it: {quantiles(plain_waits)}.",
        "",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--anyway", action="store_true", help="measure on a busy machine too; the ratios are the finding"
    )
    args = parser.parse_args()
    if os.getloadavg()[0] > 0.5 * (os.cpu_count() or 1) and not args.anyway:
        sys.exit(f"load average {os.getloadavg()[0]:.1f}: the machine is busy; wait, or say --anyway")
    text = asyncio.run(main(args.seconds, args.rounds))
    (HERE / "results" / "screen.md").write_text(text)
    print(text)
