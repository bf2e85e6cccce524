"""What the screen costs on a real pty, as a ratio to a bare Textual app in the same run. By hand:

    python tests/bench/bench_screen.py [start] [pages] [large] [table] [keys] [line]

A part each, all of them without a word; a part's figures are kept in results/screen.json beside those of the others,
and results/screen.md is made of them.

Bars: at most 1.5 kB/s and 2 % CPU on any page at one picture a second, 0 B/s when nothing changes, first paint within
25 kB and 1.5 times a bare Textual app, at most 12 kB to open any page, key to paint within 60 ms (p95) with 50 lines
of output a second, `carbontui line` within 3 times `python -c 'import json, socket'`. The same with 8 boards, a week of
forecast, 20,000 lines of output, and the table of 50 jobs on 3 hosts.

Bytes do not depend on the machine. First paints are taken in turn, and the ratio is the median of theirs; that of the
fastest of each stands beside it, since other work only adds to the others. CPU is that of /proc/PID/schedstat.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import platform
import re
import socket
import statistics
import sys
import tempfile
import time
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tui"))

import msgspec
from fake import GRID, FakeSupervisor, past_levels, prices, scene
from msgspec import structs
from test_terminals import SHOW, Terminal, tick

from carbontui import protocol
from carbontui.system import proc

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
ROUNDS = 9
SECONDS = 8


def cpu_s(pid: int) -> float:
    """Seconds of CPU a process has used, of all its threads."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def environ() -> dict[str, str]:
    """A terminal with all colours; Python keeps its bytecode, as an installed package does."""
    kept = {k: v for k, v in os.environ.items() if k not in ("SSH_CONNECTION", "NO_COLOR", "PYTHONDONTWRITEBYTECODE")}
    return kept | {"TERM": "xterm-256color", "COLORTERM": "truecolor"}


class Paint(NamedTuple):
    """From the start to the first RUNNING on the terminal: seconds, seconds of CPU; bytes until nothing more comes."""

    wall_s: float
    cpu_s: float
    bytes: int


async def first_paint(command: list[str]) -> Paint:
    began = time.monotonic()
    terminal = Terminal(command, environ())
    try:
        await terminal.until(lambda: b"RUNNING" in terminal.seen)
        wall, cpu = time.monotonic() - began, cpu_s(terminal.process.pid)
        await terminal.quiet(1.0)
        return Paint(wall, cpu, len(terminal.seen))
    finally:
        terminal.close()


async def start(folder: Path) -> dict[str, Any]:
    """First paints, a bare Textual app and ours in turn, so that a busy minute touches all of them."""
    found: dict[str, list[Paint]] = {"bare": [], "1 GPU": [], "8 GPUs": []}
    for _ in range(ROUNDS + 1):
        found["bare"].append(await first_paint([sys.executable, "-c", BARE]))
        for gpus, name in ((1, "1 GPU"), (8, "8 GPUs")):
            path = folder / f"s{gpus}"
            async with FakeSupervisor(path, scene("running", gpus)) as fake:
                fake.levels = past_levels(gpus)
                found[name].append(await first_paint([sys.executable, "-c", SHOW, str(path)]))
    bare = found["bare"][1:]  # the first of each fills the caches
    return {
        name: {
            "wall_s": statistics.median(one.wall_s for one in paints[1:]),
            "cpu_s": statistics.median(one.cpu_s for one in paints[1:]),
            "wall_ratio": statistics.median(a.wall_s / b.wall_s for a, b in zip(paints[1:], bare, strict=True)),
            "fastest_ratio": min(one.wall_s for one in paints[1:]) / min(one.wall_s for one in bare),
            "cpu_ratio": statistics.median(a.cpu_s / b.cpu_s for a, b in zip(paints[1:], bare, strict=True)),
            "bytes": paints[-1].bytes,
        }
        for name, paints in found.items()
    }


async def still(folder: Path) -> PageCost:
    """A picture a second in which nothing is new."""
    path = folder / "still"
    async with FakeSupervisor(path, scene()) as fake:
        fake.levels = past_levels()
        terminal = Terminal([sys.executable, "-c", SHOW, str(path)], environ())
        try:
            await terminal.until(lambda: b"epoch 2" in terminal.seen)
            await terminal.quiet(1.5)
            used, sent = cpu_s(terminal.process.pid), len(terminal.seen)
            for _ in range(SECONDS):
                fake.push(status=fake.snap.status)
                await asyncio.sleep(1.0)
            spent = (cpu_s(terminal.process.pid) - used) / SECONDS
            return PageCost(0, (len(terminal.seen) - sent) / SECONDS, spent, 0)
        finally:
            terminal.close()


PAGES = {
    "dashboard": "",
    "help": "?",
    "sources": "i",
    "boards": "d",
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
    "from carbontui.tui.model.jobs_feed import JobsSnapshot\n"
    "from carbontui.tui.model.feed import Target\n"
    "import msgspec\n"
    "folder = Path(sys.argv[1])\n"
    "statuses = msgspec.json.decode((folder / 'jobs.json').read_bytes(), type=tuple[protocol.Status, ...])\n"
    f"hosts = {HOSTS!r}\n"
    "jobs = tuple(Target(s.job, s.name, folder / s.job, s, host=hosts[n % 3]) for n, s in enumerate(statuses))\n"
    "facts = (('gpu 0', 'H100 71 W of 700 W', True), ('grid', 'DE 324 gCO2/kWh', True))\n"
    "seen = JobsSnapshot(facts, jobs, 2100.0, 'DE 324')\n"
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


async def pages(folder: Path, snap: protocol.Snap, lines: int) -> tuple[int, dict[str, PageCost]]:
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
                for _ in range(SECONDS):
                    second += 1
                    tick(fake, second)
                    await asyncio.sleep(1.0)
                each, cpu = (len(terminal.seen) - before) / SECONDS, (cpu_s(pid) - used) / SECONDS
                before = len(terminal.seen)
                os.write(terminal.master, b"\x1b" if key else b"")
                await terminal.quiet(1.5)
                back = terminal.seen[before:]
                found[name] = PageCost(opened, each, cpu, len(back), len(SEQUENCE.sub(b"", back)))
            return first, found
        finally:
            terminal.close()


async def table(folder: Path, jobs: int = 50) -> PageCost:
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
            for n in range(SECONDS):
                for fake in fakes:
                    tick(fake, n)
                await asyncio.sleep(1.0)
            each = (len(terminal.seen) - opened) / SECONDS
            return PageCost(opened, each, (cpu_s(pid) - used) / SECONDS, 0)
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
                for second in itertools.count(1):
                    tick(fake, second)
                    for _ in range(50):
                        fake.log += b"\nstep %d | loss 1.4" % len(fake.log)
                        await asyncio.sleep(0.02)

            flooding = asyncio.create_task(flood())
            ours_s = await paints(terminal, keys)
            flooding.cancel()
            return ours_s, await paints(bare_one, keys)
        finally:
            terminal.close()
            bare_one.close()


SEQUENCE = re.compile(rb"\x1b(?:\[[0-9;?<>=]*[a-zA-Z]|.)|[\r\n\x08]")
KNOB = re.compile("\N{BLACK CIRCLE}".encode())


class PageCost(NamedTuple):
    """Bytes until a page is open, bytes/s and share of a core while it is, bytes back to the dashboard, and those of
    them that are characters: no colour and no move."""

    opened: int
    bytes_per_s: float
    cpu: float
    back: int
    back_text: int = 0


async def line(folder: Path) -> dict[str, float]:
    """`carbontui line` of one live job beside the Python it is measured by, in turn; seconds of wall time."""
    home, mine = folder / "home", [os.getpid(), proc.start_time(os.getpid())]
    (home / "jobs" / "k7q2mz").mkdir(parents=True)
    record = {"job": "k7q2mz", "host": socket.gethostname(), "boot": proc.boot_id(), "started": 1.0}
    record |= {"pids": {"keeper": mine}, "socket": str(folder / "line")}
    (home / "jobs" / "k7q2mz" / "job.json").write_text(json.dumps(record))
    commands = {
        "python": [sys.executable, "-c", "import json, socket"],
        "line": [str(Path(sys.executable).with_name("carbontui")), "line"],
    }
    took: dict[str, list[float]] = {name: [] for name in commands}
    async with FakeSupervisor(folder / "line", scene()):
        for _ in range(3 * ROUNDS + 1):
            for name, command in commands.items():
                began = time.monotonic()
                done = await asyncio.create_subprocess_exec(
                    *command, env=environ() | {"CARBONTUI_HOME": str(home)}, stdout=asyncio.subprocess.PIPE
                )
                said, _ = await done.communicate()
                took[name].append(time.monotonic() - began)
                assert done.returncode == 0 and (name == "python" or said.startswith("▶".encode())), said
    ratio = statistics.median(a / b for a, b in zip(took["line"][1:], took["python"][1:], strict=True))
    return {**{name: statistics.median(times[1:]) for name, times in took.items()}, "ratio": ratio}


async def keys(folder: Path) -> dict[str, dict[str, float]]:
    ours, bare = await key_to_paint(folder)
    return {name: {"p50_s": q[9], "p95_s": q[18]} for name, q in (("ours", cut(ours)), ("bare", cut(bare)))}


def cut(waits: list[float]) -> list[float]:
    return statistics.quantiles(waits, n=20, method="inclusive") if len(waits) > 1 else waits * 19


async def measured(part: str, folder: Path) -> Any:
    if part == "start":
        return await start(folder)
    if part in ("pages", "large"):
        first, found = await pages(folder, *((scene(), 0) if part == "pages" else (large(), LINES)))
        unchanged = {"nothing changes": await still(folder)} if part == "pages" else {}
        return {"first": first, "pages": {name: cost._asdict() for name, cost in (found | unchanged).items()}}
    if part == "table":
        return (await table(folder))._asdict()
    return await (keys(folder) if part == "keys" else line(folder))


def page(kept: dict[str, Any]) -> str:
    """The figures as a page."""
    begin = kept["start"]["figures"]
    names = list(begin)
    lines = [
        "# Screen: what it costs",
        "",
        f"{os.cpu_count()} shared vCPU ({platform.machine()}), Python {platform.python_version()}, pty 120x40 "
        "truecolor, one picture and one line of output a second. Made by tests/bench/bench_screen.py. Load average: "
        + ", ".join(f"{part} {one['load']:.1f}" for part, one in kept.items())
        + f". {date.today()}.",
        "",
        f"| first paint, medians of {ROUNDS} | bar | {' | '.join(names)} |",
        "|---|---|" + "---|" * len(names),
        "| s | | " + " | ".join(f"{begin[n]['wall_s']:.2f}" for n in names) + " |",
        "| median of the ratios | 1.5 | " + " | ".join(f"{begin[n]['wall_ratio']:.2f}" for n in names) + " |",
        "| ratio of the fastest | | " + " | ".join(f"{begin[n]['fastest_ratio']:.2f}" for n in names) + " |",
        "| median of the ratios of CPU | | " + " | ".join(f"{begin[n]['cpu_ratio']:.2f}" for n in names) + " |",
        "| bytes | 25000 | " + " | ".join(str(begin[n]["bytes"]) for n in names) + " |",
        "",
    ]
    told = {
        "pages": "Pages, 1 GPU: at most 12000 bytes to open one, 1500 bytes/s and 2 % of a core while it is open. "
        "Back: 1500 bytes, which the characters of what was covered exceed without a colour or a move.",
        "large": f"With 8 boards, a week of forecast and prices, {LINES} lines of output:",
    }
    for part, words in told.items():
        found = kept[part]["figures"]["pages"]
        if part == "large":
            found = {**found, "table, 50 jobs on 3 hosts": kept["table"]["figures"]}
        head = [
            "| page | bytes to open | bytes/s | CPU | bytes back | its characters alone |",
            "|---|---|---|---|---|---|",
        ]
        rows = [
            f"| {name} | {c['opened']} | {c['bytes_per_s']:.0f} | {c['cpu']:.1%} | {c['back']} | {c['back_text']} |"
            for name, c in found.items()
        ]
        lines += [words, "", *head, *rows, ""]
    waits, asked = kept["keys"]["figures"], kept["line"]["figures"]
    told_keys = [f"{one['p50_s'] * 1e3:.0f} / {one['p95_s'] * 1e3:.0f} ms" for one in (waits["ours"], waits["bare"])]
    return "\n".join(
        (
            *lines,
            f"Key to paint with 50 lines of output a second, p50 / p95: {told_keys[0]} (bar: p95 60 ms); a bare "
            f"Textual app beside it: {told_keys[1]}.",
            "",
            BURSTS,
            "",
            f"`carbontui line` with a live job: {asked['line'] * 1e3:.0f} ms, `python -c 'import json, socket'`: "
            f"{asked['python'] * 1e3:.0f} ms; median of the ratios {asked['ratio']:.2f} (bar 3).",
            "",
        )
    )


BURSTS = """\
1,000 seeded bursts of 2 to 9 keys over the dashboard, its pages, questions, the table and the jobs opened from it,
beside the same keys one by one, in one run of 2026-11-22: 1,000 of 1,000 end in the same state
(`CARBONTUI_TEST_BURSTS=1000 pytest tests/tui/test_key_order.py -k random`)."""
PARTS = ("start", "pages", "large", "table", "keys", "line")
RESULTS = HERE / "results"


def main(parts: list[str]) -> None:
    record = RESULTS / "screen.json"
    kept: dict[str, Any] = json.loads(record.read_text()) if record.exists() else {}
    for part in parts or PARTS:
        with tempfile.TemporaryDirectory() as folder:
            figures = asyncio.run(measured(part, Path(folder)))
        kept[part] = {"date": str(date.today()), "load": round(os.getloadavg()[0], 1), "figures": figures}
        print(part, json.dumps(kept[part]), flush=True)
        record.write_text(json.dumps(kept, indent=1) + "\n")
    if all(part in kept for part in PARTS):
        (RESULTS / "screen.md").write_text(page(kept))


if __name__ == "__main__":
    if unknown := set(sys.argv[1:]) - set(PARTS):
        sys.exit(f"no such part: {', '.join(sorted(unknown))}; there are: {', '.join(PARTS)}")
    main(sys.argv[1:])
