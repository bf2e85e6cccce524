"""What the screen costs on a real pty, as a ratio to a bare Textual app in the same run. By hand:

    python tests/bench/bench_screen.py [--seconds 15] [--rounds 3] [--anyway]

Bars: at most 1.5 kB/s on any page and 3 % CPU at one picture a second, 0 B/s when nothing changes, first paint within
1 s and 25 kB, at most 12 kB to open any page.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import statistics
import sys
import tempfile
import time
from datetime import date
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tui"))

from fake import FakeSupervisor, past_levels, scene
from test_terminals import SHOW, Terminal, tick

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
    "help": "?",
    "sources": "i",
    "boards": "d",
    "plan": "w",
    "log": "l",
    "pause for": "P",
    "stop": "S",
    "typed budget": "e",
}


async def pages(folder: Path, seconds: int = 5) -> tuple[int, dict[str, tuple[int, float, int]]]:
    """Bytes of the first paint; by page: bytes until it is open, per second while it is, and back to the dashboard."""
    path = folder / "pages"
    async with FakeSupervisor(path, scene()) as fake:
        fake.levels = past_levels()
        terminal = Terminal([sys.executable, "-c", SHOW, str(path)], environ())
        try:
            await terminal.until(lambda: b"epoch 2" in terminal.seen)
            await terminal.quiet(1.5)
            first, second, found = len(terminal.seen), 0, {}
            for name, key in PAGES.items():
                before = len(terminal.seen)
                os.write(terminal.master, key.encode())
                await terminal.quiet(1.5)
                opened = len(terminal.seen) - before
                before = len(terminal.seen)
                for _ in range(seconds):
                    second += 1
                    tick(fake, second)
                    await asyncio.sleep(1.0)
                each = (len(terminal.seen) - before) / seconds
                before = len(terminal.seen)
                os.write(terminal.master, b"\x1b")
                await terminal.quiet(1.5)
                found[name] = (opened, each, len(terminal.seen) - before)
            return first, found
        finally:
            terminal.close()


def medians(rounds: list[dict[str, float]]) -> dict[str, float]:
    return {key: statistics.median(r[key] for r in rounds) for key in rounds[0]}


async def main(seconds: float, rounds: int) -> str:
    with tempfile.TemporaryDirectory() as folder:
        plain, one, eight = [], [], []
        for _ in range(rounds):  # interleaved, so that a busy minute touches all three
            plain.append(await bare(seconds))
            one.append(await ours(seconds, 1, Path(folder)))
            eight.append(await ours(seconds, 8, Path(folder)))
        first, opened = await pages(Path(folder))
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
        f"| first paint, s | 1 | {single['paint_s']:.2f} | {many['paint_s']:.2f} | {base['paint_s']:.2f} |",
        f"| first paint, ratio to bare | | {single['paint_s'] / base['paint_s']:.2f} | "
        f"{many['paint_s'] / base['paint_s']:.2f} | 1 |",
        f"| CPU, % | 3 | {single['cpu']:.1%} | {many['cpu']:.1%} | {base['cpu']:.1%} |",
        f"| bytes of the first paint | 25000 | {first} | | |",
        f"| bytes/s | 1500 | {single['bytes_per_s']:.0f} | {many['bytes_per_s']:.0f} | 0 |",
        f"| bytes/s when nothing changes | 0 | {single['still_bytes_per_s']:.0f} | "
        f"{many['still_bytes_per_s']:.0f} | 0 |",
        f"| CPU when nothing changes, % | | {single['still_cpu']:.1%} | {many['still_cpu']:.1%} | {base['cpu']:.1%} |",
        "",
        "Pages over the dashboard, 1 GPU: at most 12000 bytes to open one, 1500 bytes/s while it is open.",
        "",
        "| page | bytes to open | bytes/s | bytes back to the dashboard |",
        "|---|---|---|---|",
        *(f"| {name} | {cost} | {each:.0f} | {back} |" for name, (cost, each, back) in opened.items()),
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
