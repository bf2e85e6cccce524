"""Figures of the power package, by hand: python tests/bench/bench_power.py [--part NAME] [--out results/power.md]

On the simulated libnvidia-ml: joules against the simulated truth, the time until a limit is given back, the cost of
sampling 8 GPUs at 1 Hz, a driver that hangs, whole jobs, and calibration against the truth over many seeds. The
library's own C cost is part of the sampling figure; a real driver costs more per call, and that is not Python's.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import json
import os
import platform
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "nvmlsim"), str(HERE.parent / "power")]

from bursts import Bursts
from nvmlsim import Sim, build
from simjob import SimulatedJob, drive

from carbontui.power.agent.handle import AgentHandle
from carbontui.power.backends.nvml import NvmlBackend
from carbontui.power.curves.calibration import Calibration, CalibrationSpec, Finished
from carbontui.power.messages import Sample
from carbontui.power.metering.meter import Meter

A100 = {"arch": 7, "has_average": 0, "usage_is_average": 0}
PHASES = [i * 0.618034 % 1 for i in range(20)]
"""Where in their period the bursts are when the sensor's and the observer's rhythms begin."""
LOADS = {
    "steady": (0.0, 1.0),
    "250 ms, 30 %": (0.25, 0.3),
    "1.7 s, 30 %": (1.7, 0.3),
    "10 s, 20 %": (10.0, 0.2),
}
RHYTHMS = {"100 ms, 30 %": (0.1, 0.3), **{name: load for name, load in LOADS.items() if load[0]}}
WANDERS = ((0.0, 60.0), (0.02, 60.0), (0.02, 600.0), (0.05, 60.0))
"""Standard deviation of each period's length, relative, and the seconds that are counted."""


def energy(
    sim: Sim,
    load: tuple[float, float],
    *,
    board: dict[str, float],
    step_s: float,
    fault: str = "",
    phase: float,
    jitter: float = 0.0,
    seconds: float = 60.0,
) -> float:
    """Relative error of some seconds of joules."""
    sim.__init__(sim.library, sim.state, frozen=True)  # type: ignore[misc]
    for key, value in board.items():
        sim.set(key, value)
    bursts = Bursts(sim, *load, phase, jitter)
    bursts.advance(2 + phase % 0.1 * 10 * step_s)
    backend, meter = NvmlBackend(), Meter()
    backend.open()
    uuid = backend.devices()[0].uuid
    true_j = start_j = sim.get("energy_j")

    def observe() -> None:
        at, seen = sim.get("clock_s"), backend.observe(uuid)
        meter.add(
            Sample(
                uuid=uuid,
                mono_s=at,
                wall_s=at,
                energy_uj=seen.energy_uj,
                power_w=seen.power_w,
                kind=seen.kind,
                max_w=700.0,
                lost=seen.lost,
            )
        )

    observe()
    for i in range(round(seconds / step_s)):
        bursts.advance(step_s / 2)
        if i == round(30 / step_s) and fault == "reset":
            sim.set("reset_counter", 1)
        bursts.advance(step_s / 2)
        if i == round(30 / step_s) and fault == "lost":
            sim.set("lost", 1)
        elif not (fault == "lost" and i > round(30 / step_s)):
            true_j = sim.get("energy_j")
        observe()
    backend.close()
    return meter.joules() / (true_j - start_j) - 1


def energies(sim: Sim) -> list[str]:
    cases = [
        ("counter", {}, 1.0, ""),
        ("counter, board read 25 of each 100 ms", A100, 1.0, ""),
        ("counter reset at 30 s", {}, 1.0, "reset"),
        ("GPU lost at 30 s (against the truth until then)", {}, 1.0, "lost"),
        ("no counter, 1 s average at 1 Hz", {"has_counter": 0}, 1.0, ""),
        ("no counter, instant 25 of 100 ms at 10 Hz", {**A100, "has_counter": 0}, 0.1, ""),
    ]
    rows = [
        f"| 60 s of joules, error in %: mean / worst of {len(PHASES)} phases | " + " | ".join(LOADS) + " |",
        "|---" * (len(LOADS) + 1) + "|",
    ]
    for name, board, step_s, fault in cases:
        cells = [cell(sim, load, board=dict(board), step_s=step_s, fault=fault) for load in LOADS.values()]
        rows.append(f"| {name} | " + " | ".join(cells) + " |")
    rows += [
        "",
        "An instant sensor without a counter, 25 of each 100 ms, read at 10 Hz, against bursts that keep its step for "
        "ever and bursts as a training has them:",
        "",
        f"| each period varies by | {' | '.join(RHYTHMS)} |",
        "|---" * (len(RHYTHMS) + 1) + "|",
    ]
    bare = {**A100, "has_counter": 0}
    for jitter, seconds in WANDERS:
        cells = [cell(sim, load, board=bare, step_s=0.1, jitter=jitter, seconds=seconds) for load in RHYTHMS.values()]
        rows.append(f"| {100 * jitter:.0f} %, {seconds / 60:.0f} min | " + " | ".join(cells) + " |")
    return rows


def cell(sim: Sim, load: tuple[float, float], **how: object) -> str:
    errors = [100 * energy(sim, load, phase=phase, **how) for phase in PHASES]  # type: ignore[arg-type]
    return f"{statistics.mean(errors):+.2f} / {max(errors, key=abs):+.2f}"


SUPERVISOR = """
import asyncio
from pathlib import Path
from carbontui.power.agent.handle import AgentHandle
async def main():
    handle = AgentHandle(log=lambda line: None, cwd=Path("/"), job="bench")
    await handle.start()
    await handle.set_limit(400)
    print(handle.pid, flush=True)
    await asyncio.sleep(600)
asyncio.run(main())
"""


def given_back_after_supervisor(sim: Sim, runs: int = 20) -> list[float]:
    """Milliseconds from SIGKILL of the supervisor until the board stands at the limit found."""
    found = []
    for _ in range(runs):
        process = subprocess.Popen([sys.executable, "-c", SUPERVISOR], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        process.stdout.readline()
        assert sim.get("limit_mw") == 400_000
        began = time.monotonic()
        process.kill()
        while sim.get("limit_mw") != 700_000:
            time.sleep(0.0002)
        found.append(1000 * (time.monotonic() - began))
        process.wait()
    return found


async def successor(sim: Sim, runs: int = 10) -> list[float]:
    """Seconds from SIGKILL of the agent, nothing wished any more, until its successor has given the limit back."""
    found = []
    for _ in range(runs):
        handle = AgentHandle(log=lambda line: None, cwd=Path("/"), job="bench")
        await handle.start()
        await handle.set_limit(400)
        assert handle.pid is not None and sim.get("limit_mw") == 400_000
        os.kill(handle.pid, signal.SIGKILL)
        began = time.monotonic()
        given = asyncio.create_task(handle.set_limit(None))
        while sim.get("limit_mw") != 700_000:
            await asyncio.sleep(0.002)
        found.append(time.monotonic() - began)
        await given
        await handle.close()
    return found


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rss_mb(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


async def sampling(devices: int, seconds: float = 60.0) -> tuple[float, float]:
    """Share of one core in percent, and MB resident, of an agent sampling at 1 Hz."""
    handle = AgentHandle(log=lambda line: None, cwd=Path("/"), job="bench")
    await handle.start()
    while len(handle.readings.devices) < devices:
        await asyncio.sleep(0.1)
    await asyncio.sleep(2)
    assert handle.pid is not None
    before, began = cpu_s(handle.pid), time.monotonic()
    await asyncio.sleep(seconds)
    share = 100 * (cpu_s(handle.pid) - before) / (time.monotonic() - began)
    memory = rss_mb(handle.pid)
    await handle.close()
    return share, memory


async def hang(sim: Sim) -> tuple[float, float]:
    """A getter hangs for 60 s: the longest the loop was held up (ms), and the oldest reading before a new agent."""
    handle = AgentHandle(log=lambda line: None, cwd=Path("/"), job="bench")
    await handle.start()
    while not handle.readings.devices:
        await asyncio.sleep(0.05)
    first = handle.pid
    sim.fault("nvmlDeviceGetUtilizationRates", latency_ms=60_000)
    worst = oldest = 0.0
    end = time.monotonic() + 12
    while time.monotonic() < end:
        before = time.monotonic()
        await asyncio.sleep(0.005)
        worst = max(worst, time.monotonic() - before - 0.005)
        if handle.pid not in (None, first):
            sim.fault("nvmlDeviceGetUtilizationRates", count=0)
        oldest = max(oldest, handle.readings.age_s(time.monotonic()))
    await handle.close()
    return 1000 * worst, oldest


def calibrations(seeds: int = 100) -> list[str]:
    natures: dict[str, dict[str, float]] = {
        "noise 3 %, drift 1 %/min, thermal lag": {},
        "drift 2 %/min": {"drift_per_min": 0.02},
        "noise 5 %": {"noise": 0.05},
        "kernels 72 % of each 250 ms": {"burst": 0.72},
        "one step per 0.8 s": {"rate": 1.2},
        "all together, 40 steps/s": {"rate": 40.0, "burst": 0.72, "drift_per_min": -0.01, "noise": 0.05},
    }
    rows = [
        f"| job, {seeds} seeds | watts: median / worst % | caps' speed: median / worst % | within 2 se | minutes |",
        "|---" * 5 + "|",
    ]
    for name, nature in natures.items():
        watts, speeds, inside, minutes = [], [], [], []
        for seed in range(seeds):
            job = SimulatedJob(seed, **nature)  # type: ignore[arg-type]
            spec = CalibrationSpec(
                gpu="H100", gpus=1, fingerprint="f", can_cap=True, limit_min_w=200.0, limit_found_w=700.0
            )
            full, began = job.steady(700.0), job.t
            *_, last = drive(Calibration(spec), job)
            assert isinstance(last, Finished), last
            minutes.append((job.t - began) / 60)
            for point in last.curve.points:
                _, true_w, true_speed = job.steady(point.cap_w or 700.0)
                watts.append(100 * abs(point.power_w / true_w - 1))
                if point.kind == "full":
                    continue  # 1 by definition
                error = point.speed - true_speed / full[2]
                speeds.append(100 * abs(error) / (true_speed / full[2]))
                inside.append(abs(error) <= 2 * point.speed_se)
        rows.append(
            f"| {name} | {statistics.median(watts):.2f} / {max(watts):.2f} | {statistics.median(speeds):.2f} / "
            f"{max(speeds):.2f} | {100 * sum(inside) / len(inside):.0f} % | {statistics.mean(minutes):.1f} |"
        )
    return rows


def live(folder: Path, library: Path) -> list[str]:
    """What needs real processes and real time."""

    def machine(name: str, devices: int = 1) -> Sim:
        # one at a time: the library holds the state of the last alone
        sim = Sim(library, folder / name, devices, frozen=False)
        os.environ.update(sim.env())
        return sim

    one = machine("one")
    times = given_back_after_supervisor(one)
    seconds = asyncio.run(successor(one))
    machine("eight", 8)
    share, memory = asyncio.run(sampling(8))
    worst, oldest = asyncio.run(hang(machine("hung")))
    return [
        f"- limit given back after SIGKILL of the supervisor: median {statistics.median(times):.1f} ms, worst "
        f"{max(times):.1f} ms of {len(times)} (bar 100 ms)",
        f"- given back by the successor after SIGKILL of the agent: median {statistics.median(seconds):.2f} s, "
        f"worst {max(seconds):.2f} s of {len(seconds)} (bar 3 s)",
        f"- sampling 8 GPUs at 1 Hz: {share:.2f} % of one core (bar 0.3 %), {memory:.0f} MB resident",
        f"- a driver call that hangs for 60 s: the supervisor's loop held up at most {worst:.0f} ms, the reading "
        f"at most {oldest:.1f} s old before a new agent answered",
    ]


CHILD = """
import ctypes, os, sys, time
library = ctypes.CDLL("libnvidia-ml.so.1")
library.nvmlInitWithFlags(0)
library.nvmlsim_get.restype = ctypes.c_double
print(library.nvmlsim_get(0, b"energy_j"), flush=True)
time.sleep(float(sys.argv[1]))
print(library.nvmlsim_get(0, b"energy_j"), flush=True)
"""


def jobs(folder: Path, library: Path, rounds: int = 4) -> list[str]:
    """Whole jobs through the command line, several at once, on a board whose load is not theirs: what each account says
    against the truth that its own process read as its first and its last act."""
    rows = [f"| energy of a job, error in %, median / worst of {rounds} | 5 s | 15 s | 60 s |", "|---" * 4 + "|"]
    loads = {name: LOADS[name] for name in ("steady", "250 ms, 30 %", "1.7 s, 30 %")}
    for name, (period_s, duty) in loads.items():
        sim = Sim(library, folder / f"jobs-{len(rows)}", 1, frozen=False)
        sim.load(1.0, period_s=period_s, duty=duty)
        home = folder / f"home-{len(rows)}"
        env = {**os.environ, **sim.env(), "CARBONTUI_HOME": str(home), "CARBONTUI_OFFLINE": "1"}
        cells = []
        for seconds, times in ((5, rounds), (15, rounds), (60, rounds)):
            run = [sys.executable, "-m", "carbontui.cli", "run", "--", sys.executable, "-c", CHILD, str(seconds)]
            started = [
                subprocess.Popen(run, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=folder)
                for _ in range(times)
            ]
            for process in started:
                process.wait()
            errors = []
            for log in home.glob("jobs/*/run.log"):
                status = json.loads((log.parent / "snapshot.json").read_text())
                first_j, last_j = map(float, log.read_text().split())
                errors.append(100 * (status["energy_gpu_kwh"] * 3.6e6 / (last_j - first_j) - 1))
                shutil.rmtree(log.parent)
            cells.append(f"{statistics.median(errors):+.1f} / {max(errors, key=abs):+.1f}")
        rows.append(f"| {name} | " + " | ".join(cells) + " |")
    return rows


def shares(folder: Path, library: Path) -> list[str]:
    """Two jobs on one board: each account against what the driver knows of each process."""
    sys.path.insert(0, str(HERE.parent))
    from test_shares import GB, Job, run

    each, sums = [], []
    memories = ((40, 10), (10, 60))
    cases = [(a, b, memory) for a in (0.2, 0.5, 0.9) for b in (0.05, 0.3, 0.8) for memory in memories]
    for number, (first, second, memory) in enumerate(cases):
        place = folder / f"shares{number}"
        place.mkdir()
        sim = Sim(library, place / "state", 1, frozen=True)
        os.environ.update(sim.env())
        users = [subprocess.Popen(["sleep", "600"], start_new_session=True) for _ in range(2)]
        one, two = (Job(sim, place, f"job{n}", user.pid) for n, user in enumerate(users))
        run(sim, [one], 2)
        sim.process(users[0].pid, level=first, memory_b=memory[0] * GB)
        run(sim, [one, two], 20)
        sim.process(users[1].pid, level=second, memory_b=memory[1] * GB)
        run(sim, [one, two], 60)
        truth = [sim.process_j(user.pid) for user in users]
        each += [100 * abs(job.joules / true_j - 1) for job, true_j in zip((one, two), truth, strict=True)]
        sums.append(100 * abs((one.joules + two.joules) / sum(truth) - 1))
        for user in users:
            user.kill()
            user.wait()
    found = (
        f"each {statistics.median(each):.1f} / {max(each):.1f} %, sum {statistics.median(sums):.2f} / {max(sums):.2f} %"
    )
    return [f"- two jobs on one board, {len(cases)} mixtures of kernels and memory: error median / worst, {found}"]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--part", choices=("energy", "calibration", "live", "jobs", "shares"), help="this part alone")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--anyway", action="store_true", help="on a busy machine too; the load is written down")
    options = parser.parse_args()
    if not options.anyway and os.getloadavg()[0] > 1.5 * (os.cpu_count() or 1):
        sys.exit(f"the machine is busy (load {os.getloadavg()[0]:.1f}): these figures would mean nothing")
    lines = [
        "# Power figures",
        "",
        f"{datetime.date.today()}, {platform.machine()}, {os.cpu_count()} shared vCPU (Xeon), Python "
        f"{platform.python_version()}, simulated libnvidia-ml. Load while measuring {os.getloadavg()[0]:.1f}.",
    ]
    with tempfile.TemporaryDirectory() as folder:
        library = build(Path(folder))
        if library is None:
            sys.exit("no C compiler (cc)")
        os.environ["CARBONTUI_LEASE_DIR"] = str(Path(folder) / "leases")
        os.environ["LD_LIBRARY_PATH"] = str(library.parent)
        parts: dict[str, Callable[[], list[str]]] = {
            "energy": lambda: energies(Sim(library, Path(folder) / "state", frozen=True)),
            "calibration": calibrations,
            "live": lambda: live(Path(folder), library),
            "jobs": lambda: jobs(Path(folder), library),
            "shares": lambda: shares(Path(folder), library),
        }
        for name, part in parts.items():
            if options.part in (None, name):
                lines += ["", *part()]
    text = "\n".join(lines) + "\n"
    print(text)
    if options.out:
        options.out.write_text(text)


if __name__ == "__main__":
    main()
