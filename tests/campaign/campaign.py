"""One command, one table: kills, fuzz, extremes and soak on real jobs.

python tests/campaign/campaign.py [--minutes 20] [--seed 7] [--results FILE.md]
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parent)]

import extremes
import fuzz
import kills
import soak
from house import House

Rows = list[tuple[str, str, str]]
"""(what, bar, measured)."""


def in_a_house(work: Callable[[House], None]) -> None:
    root, runtime = Path(tempfile.mkdtemp(prefix="ctc-")), Path(tempfile.mkdtemp(prefix="ct-"))
    house = House(root, runtime)
    try:
        work(house)
    finally:
        house.end()
        for folder in (root, runtime):
            shutil.rmtree(folder, ignore_errors=True)


def killed(seconds: float, seed: int) -> tuple[kills.Found, Rows]:
    found = kills.Found()
    in_a_house(lambda house: kills.running(house, seconds, seed, found))
    in_a_house(lambda house: kills.at_rest(house, seed, found))
    return found, [
        ("faults injected", "1,000 in the long form", f"{found.faults:,}"),
        ("steps lost or repeated", "0", f"{found.wrong_steps} of {found.steps:,} steps"),
        ("longest standstill without a person's pause", "18 s", f"{found.longest_standstill_s:.1f} s"),
        ("jobs lost; exit status lost", "0; 0", f"{found.lost_jobs}; {found.wrong_exits}"),
        ("processes left", "0", str(found.left_processes)),
    ]


def fuzzed(seconds: float, seed: int) -> tuple[fuzz.Found, Rows]:
    found = fuzz.Found()

    def work(house: House) -> None:
        job = house.start()
        job.until_steps()
        fuzz.supervisor(job, seconds, seed, found)

    in_a_house(work)
    fuzz.client(min(seconds, 60.0), seed, found)
    return found, [
        ("lines to the supervisor; to the training", "200,000 each", f"{found.lines:,}; {found.client_lines:,}"),
        ("unhandled exceptions", "0", str(len(found.faults))),
        ("slowest status", "0.25 s", f"{found.slowest_status_s:.2f} s"),
        ("log written", "1 MB", f"{found.log_b / 1000:.0f} kB"),
        ("changed by refused orders", "nothing", "; ".join(found.changed) or "nothing"),
    ]


def stretched(every: int) -> tuple[extremes.Found, Rows]:
    found = extremes.Found()

    def work(house: House) -> None:
        job = house.start("--budget", "20h", "--work", "10h", "--zone", "DE")
        job.tell("boost")  # the plan would have it wait
        job.until_steps(100, timeout=40)
        time.sleep(4)
        job.house.cli("stop", job.id, "--now", "--yes", check=True)
        os.environ["CARBONTUI_HOME"] = str(house.home)
        os.environ["CARBONTUI_OFFLINE"] = "1"
        extremes.run(job.dir, found, every)

    in_a_house(work)
    return found, [
        ("starts with an extreme in a stored field", "each answers", f"{found.starts:,}, {len(found.faults)} did not"),
        ("slowest start", "3 s", f"{found.slowest_s:.2f} s"),
    ]


def soaked(seconds: float, seed: int) -> tuple[soak.Found, Rows]:
    found = soak.Found()

    def work(house: House) -> None:
        job = house.start("--budget", "20h", "--work", "10h", "--zone", "DE")
        job.tell("boost")
        job.until_steps()
        soak.run(job, seconds, seed, found)

    in_a_house(work)
    seen = f"{found.viewers:,} viewers, {found.previews:,} previews, {found.agent_kills} agent kills"
    grown = f"{found.growth_kb / 1000:.2f} MB, {found.descriptors:+d}, {found.threads:+d} ({seen})"
    return found, [("growth in the second half; descriptors; threads", "1 MB; 0; 0", grown)]


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__)
    ask.add_argument("--minutes", type=float, default=20.0)
    ask.add_argument("--seed", type=int, default=int(time.time()) % 100_000)
    ask.add_argument("--results", type=Path)
    given = ask.parse_args()
    share_s = 60.0 * given.minutes / 4
    sys.stdout.write(f"seed {given.seed}\n")
    begun = time.time()
    kill, killed_rows = killed(share_s, given.seed)
    fuzzing, fuzz_rows = fuzzed(share_s, given.seed)
    extreme, extreme_rows = stretched(max(1, round(20 / given.minutes)))
    _, soak_rows = soaked(share_s, given.seed)
    machine = f"{os.cpu_count()} shared vCPU, {platform.machine()}, Python {platform.python_version()}"
    lines = [
        "# Faults: the campaign's last full run",
        "",
        f"{time.strftime('%Y-%m-%d')}, {machine}, seed {given.seed}, {(time.time() - begun) / 60:.0f} minutes."
        " Made by tests/campaign/campaign.py.",
        "",
        "| what | bar | measured |",
        "|---|---|---|",
        *(f"| {what} | {bar} | {got} |" for what, bar, got in killed_rows + fuzz_rows + extreme_rows + soak_rows),
        "",
        "Faults: " + ", ".join(f"{name} {count}" for name, count in sorted(kill.by_fault.items())) + ".",
    ]
    text = "\n".join(lines) + "\n"
    sys.stdout.write(text)
    for each in [*fuzzing.faults[:20], *(f"{name}: {why}" for name, why in list(extreme.faults.items())[:40])]:
        sys.stdout.write(f"  {each}\n")
    if given.results:
        given.results.write_text(text)


if __name__ == "__main__":
    main()
