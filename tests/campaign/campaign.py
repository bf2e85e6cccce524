"""One command, one table: kills, reboots, clocks, surroundings, providers, fuzz, extremes and soak, on real jobs.

python tests/campaign/campaign.py [--minutes 60] [--faults 1000] [--seed 7] [--only kills,fuzz] [--results FILE.md]

The whole takes about 85 minutes: the kills 35 of them (2 s a fault all in all), the soak 30, the extremes 5 to 10.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parent)]

import adoption
import clocks
import cycles
import disks
import extremes
import fuzz
import hidden
import kills
import lasting
import providers
import rest
import soak
import surroundings
from house import House

Rows = list[tuple[str, str, str]]
"""(what, bar, measured)."""
LONG_MIN = 60.0
"""Minutes of a run that reaches every number of the bars."""
FAULTS = 1000
FAULT_S = 1.5
"""How long a fault takes on average, with four jobs: so long the trainings under caps are hit."""
EXTREMES = 8
"""Runs of the long form, of seeds in a row, that go through every extreme in every field once."""
SITE = "2400W"
"""Of four boards of 700 W: a boost fits, all of them do not."""


BUNDLES = Path(tempfile.gettempdir()) / f"ctc-bundles-{os.getpid()}"
"""Of the jobs of the part under way; shipped beside the result if the part fails."""


def in_a_house(work: Callable[[House], Any]) -> Any:
    root, runtime = Path(tempfile.mkdtemp(prefix="ctc-")), Path(tempfile.mkdtemp(prefix="ct-"))
    house = House(root, runtime)
    try:
        return work(house)
    finally:
        if BUNDLES.exists():
            for record in house.home.glob("jobs/*/job.json"):
                house.cli("doctor", "--bundle", BUNDLES / f"{record.parent.name}.zip", record.parent.name)
        house.end()
        for folder in (root, runtime):
            shutil.rmtree(folder, ignore_errors=True)


def killed(seconds: float, seed: int, faults: int = 40) -> tuple[kills.Found, Rows]:
    """About `faults` faults: of jobs that train, of jobs at rest beside them, under a site budget, in rehearsals and
    tries, and of trainings without a keeper."""
    found = kills.Found()
    jobs = 4 if faults > 100 else 2
    resting = threading.Thread(
        target=in_a_house,
        args=(lambda house: rest.run(house, max(1, faults // 25), seed, found, 2 if faults > 100 else 1, seconds),),
    )
    resting.start()
    in_a_house(lambda house: kills.running(house, seconds, seed, found, jobs, faults))
    resting.join()
    in_a_house(lambda house: kills.running(house, seconds / 8, seed, found, jobs, faults // 8, SITE))
    for part in (cycles.rehearsing, cycles.trying):
        in_a_house(lambda house, part=part: part(house, seconds / 10, seed, found))
    in_a_house(lambda house: kills.orphaned(house, max(1, faults // 50), seed, found))
    wrong = f"{found.wrong_steps} of {found.steps:,} steps"
    return found, [
        ("faults injected, amid so many answered orders", f"{FAULTS:,}", f"{found.faults:,}; {found.orders:,}"),
        ("answered orders lost; totals fallen", "0; 0", f"{found.lost_orders}; {found.fallen}"),
        ("booked of a true joule of a board, per job", "0.98-1.02", span(found.booked)),
        (
            "booked of a host's constant watts, by the jobs of a house; load",
            "0.98-1.02",
            f"{span(found.host)}; {os.getloadavg()[1]:.1f}",
        ),
        ("steps lost or repeated", "0", wrong),
        ("longest standstill without a person's pause", "18 s", f"{found.longest_standstill_s:.1f} s"),
        ("jobs lost; exit status lost", "0; 0", f"{found.lost_jobs}; {found.wrong_exits}"),
        ("processes left; power limits left", "0; 0", f"{found.left_processes}; {found.left_limits}"),
    ]


def span(some: list[float]) -> str:
    return f"{min(some):.4f}-{max(some):.4f}" if some else "-"


def adopted(rounds: int, seed: int) -> tuple[adoption.Found, Rows]:
    found = adoption.Found()
    in_a_house(lambda house: adoption.run(house, rounds, seed, found))
    seen = f"{found.rounds}; {len(found.faults)}; {found.slowest_s:.1f} s; {span(found.account)}"
    what = "keeper and supervisor killed, then restart; faults; slowest; booked of a true joule"
    return found, [(what, "50; 0; 5 s; 0.99-1.01", seen)]


def out_of_sight(*_: object) -> tuple[hidden.Found, Rows]:
    found = hidden.Found()
    if hidden.possible():
        in_a_house(lambda house: hidden.run(house, found))
    what = "verbs from another pid namespace, after a change of hostname, with a damaged record; faults"
    return found, [(what, "40; 0", f"{found.tried}; {len(found.faults)}")]


def rebooted(*_: object) -> tuple[list[str], Rows]:
    wrong: list[str] = in_a_house(lambda house: rest.rebooted(house, kills.Found()))
    what = "reboot while waiting, unloaded, running with a checkpoint"
    return wrong, [(what, "named by every looking verb, resumes", f"{len(wrong)} faults")]


def clocked(*_: object) -> tuple[clocks.Found, Rows]:
    found = clocks.Found()
    in_a_house(lambda house: clocks.run(house, found))
    seen = f"{found.jumps}; {len(found.faults)}; {found.slowest_answer_s:.2f} s"
    return found, [("clock set by up to ten years; faults; slowest answer", "-; 0; -", seen)]


def surrounded(every: int) -> tuple[surroundings.Found, Rows]:
    found = surroundings.Found()
    surroundings.run(found, every)
    return found, [("limits and environments; faults", "-; 0", f"{found.tried}; {len(found.faults)}")]


def provided(every: int) -> tuple[providers.Found, Rows]:
    found = providers.Found()
    providers.run(found, every)
    seen = f"{found.answers}; {len(found.faults)}"
    return found, [
        ("hostile answers of a provider; faults", "40; 0", seen),
        ("loop's longest stall (a bare server's beside it); supervisor's memory", "0.5 s; 150 MB", _of(found)),
        ("lines said of it", "1", str(found.most_lines)),
    ]


def _of(found: providers.Found) -> str:
    return f"{found.longest_stall_s:.2f} s ({found.longest_bare_s:.2f} s); {found.most_mb:.0f} MB"


def fuzzed(seconds: float, seed: int) -> tuple[fuzz.Found, Rows]:
    found = fuzz.Found()

    def work(house: House) -> None:
        job = house.start("--budget", "20h", "--zone", "DE")
        job.until_steps()
        fuzz.supervisor(job, seconds, seed, found)

    in_a_house(work)
    fuzz.client(min(seconds, 60.0), seed, found)
    slow = f"{found.median_status_s:.3f} s; {found.slowest_status_s:.2f} s"
    return found, [
        ("lines to the supervisor; to the training", "200,000 each", f"{found.lines:,}; {found.client_lines:,}"),
        ("unhandled exceptions", "0", str(len(found.faults))),
        ("status meanwhile: median; slowest", "0.25 s", slow),
        ("log written", "1 MB", f"{found.log_b / 1000:.0f} kB"),
        ("changed by refused orders", "nothing", "; ".join(found.changed) or "nothing"),
    ]


def stretched(seed: int, every: int) -> tuple[extremes.Found, Rows]:
    found = extremes.Found()

    def work(house: House) -> None:
        job = house.start("--budget", "20h", "--work", "10h", "--zone", "DE")
        job.tell("boost")  # the plan would have it wait
        job.until_steps(100, timeout=40)
        time.sleep(4)
        job.house.cli("stop", job.id, "--now", "--yes", check=True)
        os.environ["CARBONTUI_HOME"] = str(house.home)
        os.environ["CARBONTUI_OFFLINE"] = "1"
        extremes.run(job.dir, found, seed, every)

    in_a_house(work)
    return found, [
        ("starts with an extreme in a stored field", "each answers", f"{found.starts:,}, {len(found.faults)} did not"),
        ("refused in one line: the start's own file holds it", "-", f"{found.refused:,}"),
        ("slowest start", "3 s", f"{found.slowest_s:.2f} s"),
    ]


def soaked(seconds: float, seed: int) -> tuple[soak.Found, Rows]:
    found = soak.Found()

    def work(house: House) -> None:
        job = house.start("--budget", "20h", "--work", "10h", "--zone", "DE", steps=10**7)
        job.tell("boost")
        job.until_steps()
        soak.run(job, seconds, seed, found)

    in_a_house(work)
    seen = f"{found.viewers:,} viewers, {found.previews:,} previews, {found.agent_kills} agent kills"
    grown = f"{found.growth_kb / 1000:.2f} MB, {found.descriptors:+d}, {found.threads:+d} ({seen})"
    sizes = " ".join(f"{kb / 1000:.1f}" for kb in found.sizes_kb)
    return found, [
        (f"growth after warm-up in {seconds / 60:.0f} min; descriptors; threads", "1 MB; 0; 0", grown),
        ("resident, once a twentieth of the time", "", f"{sizes} MB"),
    ]


def killed_after_answers(rounds: int, seed: int) -> tuple[lasting.Found, Rows]:
    found = lasting.Found()
    in_a_house(lambda house: lasting.answered_then_killed(house, rounds, seed, found))
    seen = f"{found.orders}; {found.stored}; {len(found.lost)}"
    return found, [("orders whose supervisor died after the answer; stored; lost", "100; 100; 0", seen)]


def asleep(sleep_s: float) -> tuple[lasting.Found, Rows]:
    found = lasting.Found()
    in_a_house(lambda house: lasting.while_the_keeper_sleeps(house, sleep_s, found))
    seen = f"{found.slowest_s:.2f} s; {len(found.lost)}"
    return found, [(f"orders in a keeper's sleep of {sleep_s:.0f} s: in force after it; faults", "5 s; 0", seen)]


def slow_disk(each_s: float, for_s: float) -> tuple[disks.Found, Rows]:
    found = disks.Found()
    in_a_house(lambda house: disks.slow(house, each_s, for_s, found))
    seen = f"{found.orders}; {found.slowest_answer_s:.1f} s; {len(found.faults)}"
    return found, [(f"orders while every write takes {each_s:.0f} s; slowest answer; faults", "-; 20 s; 0", seen)]


def broken_disk(for_s: float) -> tuple[disks.Found, Rows]:
    found = disks.Found()
    in_a_house(lambda house: disks.failing(house, for_s, found))
    seen = f"{found.orders}; {found.longest_standstill_s:.1f} s; {len(found.faults)}"
    return found, [
        (f"orders while a file's writes fail for {for_s:.0f} s; longest standstill; faults", "-; -; 0", seen)
    ]


def no_locks(*_: object) -> tuple[disks.Found, Rows]:
    found = disks.Found()
    in_a_house(lambda house: disks.without_locks(house, found))
    return found, [("events in a journal without POSIX locks; faults", "-; 0", f"{found.rows}; {len(found.faults)}")]


def parts(minutes: float, seed: int, faults: int | None = None) -> dict[str, Callable[[], tuple[Any, Rows]]]:
    """What a run of about so many minutes consists of; `faults` is how many of them are tried."""
    share = min(1.0, minutes / LONG_MIN)
    every = max(1, round(0.25 / share))
    tried = round(FAULTS * share) if faults is None else faults
    return {
        "kills": lambda: killed(FAULT_S * tried, seed, tried),
        "adoption": lambda: adopted(max(1, round(50 * share)), seed),
        "hidden": out_of_sight,
        "reboot": rebooted,
        "clocks": clocked,
        "surroundings": lambda: surrounded(every),
        "providers": lambda: provided(every),
        "fuzz": lambda: fuzzed(240 * share, seed),
        "extremes": lambda: stretched(seed, max(1, round(EXTREMES / share))),
        "orders": lambda: killed_after_answers(max(5, round(100 * share)), seed),
        "asleep": lambda: asleep(max(12.0, 90.0 * share)),
        "slow disk": lambda: slow_disk(8.0, max(20.0, 200.0 * share)),
        "broken disk": lambda: broken_disk(max(10.0, 60.0 * share)),
        "no locks": no_locks,
        "soak": lambda: soaked(soak.LONG_S * share, seed),
    }


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__)
    ask.add_argument("--minutes", type=float, default=LONG_MIN)
    ask.add_argument("--faults", type=int, help="How many are tried; by the minutes otherwise.")
    ask.add_argument("--seed", type=int, default=int(time.time()) % 100_000)
    ask.add_argument("--only", default="", help="some of: " + ", ".join(parts(1, 0)))
    ask.add_argument("--results", type=Path)
    given = ask.parse_args()
    sys.stdout.write(f"seed {given.seed}\n")
    begun, rows, said = time.time(), [], []
    for name, part in parts(given.minutes, given.seed, given.faults).items():
        if given.only and name not in given.only.split(","):
            continue
        at = time.time()
        BUNDLES.mkdir()
        failed = True
        try:
            found, more = part()
            failed = bool(notes(found))
        finally:
            ship(name, (given.results or Path()).parent if failed else None)
        rows += more
        sys.stdout.write(f"{name}: {time.time() - at:.0f} s\n")
        for row in more:
            sys.stdout.write(f"  {row}\n")
        for each in notes(found):
            sys.stdout.write(f"  ! {each}\n")
        sys.stdout.flush()
        if isinstance(found, kills.Found):
            said.append("Faults: " + ", ".join(f"{what} {n}" for what, n in sorted(found.by_fault.items())) + ".")
    machine = f"{os.cpu_count()} shared vCPU, {platform.machine()}, Python {platform.python_version()}"
    lines = [
        "# Faults: the campaign's last full run",
        "",
        f"{time.strftime('%Y-%m-%d')}, {machine}, seed {given.seed}, {(time.time() - begun) / 60:.0f} minutes."
        " Made by tests/campaign/campaign.py.",
        "",
        "| what | bar | measured |",
        "|---|---|---|",
        *(f"| {what} | {bar} | {got} |" for what, bar, got in rows),
        "",
        *said,
    ]
    text = "\n".join(lines) + "\n"
    sys.stdout.write(text)
    if given.results:
        given.results.write_text(text)


def ship(part: str, beside: Path | None) -> None:
    """The part's bundles: into the folder where the result is, if it has failed."""
    for bundle in BUNDLES.iterdir():
        if beside is not None:
            shutil.copy(bundle, beside / f"{part.replace(' ', '-')}-{bundle.name}")
    shutil.rmtree(BUNDLES)


def notes(found: Any) -> list[str]:
    """What went wrong, in words."""
    if isinstance(found, list):
        return found
    kept = {kills.Found: "notes", lasting.Found: "lost"}.get(type(found), "faults")
    faults = getattr(found, kept, [])
    return [f"{name}: {why}" for name, why in faults.items()] if isinstance(faults, dict) else list(faults)[:40]


if __name__ == "__main__":
    main()
