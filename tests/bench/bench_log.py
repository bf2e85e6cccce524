"""What the end of a log of 1 GB costs: `log -n 5`, and the page of all output on it. Run by hand:
python tests/bench/bench_log.py [--json FILE] [--rounds 5]

Beside a bare interpreter's and a bare Textual app's figures of the same minute; medians. Bars: 0.3 s and 60 MB.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "tui"), str(HERE)]

from bench_screen import BARE, environ
from house import House
from test_terminals import Terminal

LOG_B = 1_000_000_000
LINE = b"epoch %6d  step %9d  loss 2.3451  lr 3.0e-04  tokens/s 41,235  mem 71.2 GiB\n"


def fill(path: Path) -> None:
    """Distinct lines up to 1 GB."""
    with path.open("ab") as file:
        n = 0
        while file.tell() < LOG_B:
            file.write(b"".join(LINE % (k // 1000, k) for k in range(n, n + 10_000)))
            n += 10_000
        file.write(b"the very last line\n")


TELL = """
import atexit, sys
atexit.register(lambda: sys.stderr.write(open("/proc/self/status").read().split("VmHWM:")[1].split()[0]))
"""
LOG = "from carbontui.cli import main; main()"


def once(code: str, arguments: list[str], env: dict[str, str]) -> tuple[float, float, float, bytes]:
    """Seconds, seconds of CPU, most megabytes resident, output."""
    begun, before = time.monotonic(), os.times()
    # its own most, read by itself: what wait4 tells includes the parent's before the exec
    done = subprocess.run([sys.executable, "-c", TELL + code, *arguments], env=env, capture_output=True, check=True)
    took, after = time.monotonic() - begun, os.times()
    cpu_s = after.children_user + after.children_system - before.children_user - before.children_system
    return took, cpu_s, int(done.stderr) / 1024, done.stdout


def most_mb(pid: int) -> float:
    return int(Path(f"/proc/{pid}/status").read_text().split("VmHWM:")[1].split()[0]) / 1024


async def page(job: str, env: dict[str, str]) -> tuple[float, float, float]:
    """Seconds from the key to the last line, and most megabytes before and after."""
    terminal = Terminal([sys.executable, "-m", "carbontui.cli", "attach", job], environ() | env)
    try:
        await terminal.until(lambda: "very last line" in terminal.words)  # the dashboard's own rows of output
        await terminal.quiet(1.0)
        before, seen, begun = most_mb(terminal.process.pid), len(terminal.seen), time.monotonic()
        os.write(terminal.master, b"l")
        await terminal.until(lambda: b": output" in terminal.seen[seen:])
        return time.monotonic() - begun, before, most_mb(terminal.process.pid)
    finally:
        terminal.close()


async def bare() -> float:
    terminal = Terminal([sys.executable, "-c", BARE], environ())
    try:
        await terminal.until(lambda: b"RUNNING" in terminal.seen)
        await terminal.quiet(1.0)
        return most_mb(terminal.process.pid)
    finally:
        terminal.close()


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__)
    ask.add_argument("--json", type=Path)
    ask.add_argument("--rounds", type=int, default=5)
    given = ask.parse_args()
    with tempfile.TemporaryDirectory() as root, tempfile.TemporaryDirectory(prefix="ct-") as runtime:
        house = House(Path(root), Path(runtime))
        job = house.start(steps=20)
        job.until_exit()
        job.until_over()
        fill(job.dir / "run.log")
        ours, plain, pages, app = [], [], [], []
        for _ in range(given.rounds):
            plain.append(once("pass", [], house.env))
            ours.append(once(LOG, ["log", "-n", "5", job.id], house.env))
            assert ours[-1][3].endswith(b"the very last line\n") and ours[-1][3].count(b"\n") == 5
            pages.append(asyncio.run(page(job.id, house.env)))
            app.append(asyncio.run(bare()))
    middle = statistics.median
    found = {
        "log_n5_s": round(middle(one[0] for one in ours), 3),
        "bare_python_s": round(middle(one[0] for one in plain), 3),
        "log_n5_cpu_s": round(middle(one[1] for one in ours), 3),
        "bare_python_cpu_s": round(middle(one[1] for one in plain), 3),
        "log_n5_mb": round(middle(one[2] for one in ours), 1),
        "bare_python_mb": round(middle(one[2] for one in plain), 1),
        "page_opens_s": round(middle(s for s, _, _ in pages), 3),
        "screen_mb_before": round(middle(mb for _, mb, _ in pages), 1),
        "screen_mb_with_page": round(middle(mb for _, _, mb in pages), 1),
        "bare_textual_mb": round(middle(app), 1),
        "rounds": given.rounds,
        "date": "2026-11-22",
        "machine": f"{os.cpu_count()} shared vCPU, Linux, Python {platform.python_version()}, "
        f"load {os.getloadavg()[0]:.1f}",
    }
    text = json.dumps(found, indent=2) + "\n"
    sys.stdout.write(text)
    if given.json:
        given.json.write_text(text)


if __name__ == "__main__":
    main()
