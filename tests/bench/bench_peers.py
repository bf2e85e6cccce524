"""Joules under faults beside other meters: python tests/bench/bench_peers.py --peers PYTHON [--out results/peers.md]

PYTHON has zeus 0.16, codecarbon, carbontracker and nvitop. Each case is one simulated board on which all of them and a
job of ours measure at the same time, each held against what the board has really drawn between its own begin and end.
"""

from __future__ import annotations

import argparse
import ctypes
import datetime
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
SECONDS = 100.0
PEERS = ("zeus", "codecarbon", "carbontracker", "nvitop")
Acts = dict[float, Callable[["object"], None]]


def keys(**values: float) -> Callable[[object], None]:
    return lambda sim: [sim.set(key, value) for key, value in values.items()]  # type: ignore[attr-defined]


def every_call(ms: int) -> Callable[[object], None]:
    return lambda sim: sim.fault("nvmlDeviceGet*", latency_ms=ms, count=-1 if ms else 0)  # type: ignore[attr-defined]


BARE, MOMENTS = {"has_counter": 0.0}, {"arch": 7.0, "has_average": 0.0, "usage_is_average": 0.0}
HELD, GOES_ON = keys(hold_counter=1), keys(hold_counter=0)
BURST = ((5.0, HELD), (13.0, GOES_ON))
CASES: dict[str, tuple[dict[str, float], tuple[float, float], Acts]] = {
    "steady": ({}, (0.0, 1.0), {}),
    "3 s square": ({}, (3.0, 0.6), {}),
    "momentary readings (A100)": (MOMENTS, (0.0, 1.0), {}),
    "counter x0.8": ({"counter_gain": 0.8}, (0.0, 1.0), {}),
    "counter x1.2": ({"counter_gain": 1.2}, (0.0, 1.0), {}),
    "counter x1.1": ({"counter_gain": 1.1}, (0.0, 1.0), {}),
    "counter x1.4": ({"counter_gain": 1.4}, (0.0, 1.0), {}),
    "counter in joules (x0.001)": ({"counter_gain": 0.001}, (0.0, 1.0), {}),
    "counter frozen for good": ({}, (0.0, 1.0), {10.0: HELD}),
    "counter frozen 8 s of 20": ({}, (0.0, 1.0), {n + at: a for n in range(0, 100, 20) for at, a in BURST}),
    "counter frozen 15 s": ({}, (0.0, 1.0), {30.0: HELD, 45.0: GOES_ON}),
    "counter reset": ({}, (0.0, 1.0), {40.0: keys(reset_counter=1)}),
    "lost 12 s": ({}, (0.0, 1.0), {40.0: keys(lost=1), 52.0: keys(lost=0)}),
    "driver reload, 12 s": (
        {}, (0.0, 1.0),
        {40.0: lambda sim: sim.driver(loaded=False), 52.0: lambda sim: sim.driver(loaded=True, reload=True)},  # type: ignore[attr-defined]
    ),
    "every call 1.5 s for 20 s": ({}, (0.0, 1.0), {40.0: every_call(1500), 60.0: every_call(0)}),
    "limit unreadable": ({"limit_garbage_mw": 4294967295.0}, (0.0, 1.0), {}),
    "no counter": (BARE, (0.0, 1.0), {}),
    "no counter, 3 s square": (BARE, (3.0, 0.6), {}),
    "no counter, momentary": ({**BARE, **MOMENTS}, (0.0, 1.0), {}),
    "no counter, 0 W for 20 s": (BARE, (0.0, 1.0), {40.0: keys(power_zero=1), 60.0: keys(power_zero=0)}),
    "no counter, +150 W for 5 s": (BARE, (0.0, 1.0), {40.0: keys(garbage_w=150), 45.0: keys(garbage_w=0)}),
}  # fmt: skip


def truth() -> float:
    library = ctypes.CDLL("libnvidia-ml.so.1")
    library.nvmlInitWithFlags(0)
    library.nvmlsim_get.restype = ctypes.c_double
    return float(library.nvmlsim_get(0, b"energy_j"))


def measure(peer: str, seconds: float) -> None:
    """What one of them makes of the time, in a process of its own: joules of its own, and the board's."""
    if peer == "zeus":
        from zeus.monitor import ZeusMonitor

        monitor = ZeusMonitor(gpu_indices=[0], cpu_indices=[])
        begun = truth()
        monitor.begin_window("w", sync_execution=False)
        time.sleep(seconds)
        joules = monitor.end_window("w", sync_execution=False).gpu_energy[0]
    elif peer == "codecarbon":
        from codecarbon import OfflineEmissionsTracker

        tracker = OfflineEmissionsTracker(country_iso_code="DEU", measure_power_secs=1, save_to_file=False, gpu_ids=[0])
        begun = truth()
        tracker.start()
        time.sleep(seconds)
        tracker.stop()
        joules = tracker.final_emissions_data.gpu_energy * 3.6e6
    elif peer == "carbontracker":
        from carbontracker.tracker import CarbonTracker

        tracker = CarbonTracker(epochs=1, components="gpu", epochs_before_pred=0, verbose=0)
        begun = truth()
        thread = tracker.tracker  # it lets go of it at the end
        tracker.epoch_start()
        time.sleep(seconds)
        tracker.epoch_end()
        joules = 3.6e6 * sum(float(part.energy_usage(thread.epoch_times)[0]) for part in thread.components)
    else:
        from nvitop import Device

        device, watts, begun, end = Device(0), [], truth(), time.monotonic() + seconds
        first = time.monotonic()
        while time.monotonic() < end:
            if isinstance(milliwatts := device.power_usage(), int):
                watts.append(milliwatts / 1000)
            time.sleep(1.0)
        joules = sum(watts) / max(1, len(watts)) * (time.monotonic() - first)
    print(json.dumps([joules, truth() - begun]))


CHILD = """
import ctypes, time
library = ctypes.CDLL("libnvidia-ml.so.1")
library.nvmlInitWithFlags(0)
library.nvmlsim_get.restype = ctypes.c_double
truth = lambda: library.nvmlsim_get(0, b"energy_j")
print(truth()); time.sleep({s}); print(truth())
"""
"""Imports next to nothing: what a job is charged begins with its process."""


def case(name: str, library: Path, folder: Path, peers: Path) -> None:
    """All of them beside one board: prints what each is off, as JSON; of ours the band that it prints, too."""
    sys.path.insert(0, str(HERE.parent / "nvmlsim"))
    from nvmlsim import Sim

    given, (period_s, duty), acts = CASES[name]
    sim = Sim(library, folder / "state", frozen=False)
    sim.load(1.0, period_s=period_s, duty=duty)
    keys(**given)(sim)
    (folder / "nvidia-smi").write_text("#!/bin/sh\n")  # CodeCarbon looks for it
    (folder / "nvidia-smi").chmod(0o755)
    env = {
        **os.environ,
        **sim.env(),
        "CARBONTUI_HOME": str(folder),
        "CARBONTUI_LEASE_DIR": str(folder),
        "CARBONTUI_OFFLINE": "1",
        "PATH": f"{folder}:{os.environ['PATH']}",
    }
    run = [
        sys.executable,
        "-m",
        "carbontui",
        "run",
        "-q",
        "--no-cap",
        "--boundary",
        "held",
        "--host-w",
        "0",
        "--name",
        "job",
        "--",
        sys.executable,
        "-IS",
        "-c",
    ]
    wants = [[*run, CHILD.format(s=SECONDS)]]
    wants += [[str(peers), __file__, "--measure", peer] for peer in PEERS]
    started = [
        subprocess.Popen(one, env=env, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        for one in wants
    ]
    for at, act in acts.items():
        timer = threading.Timer(at + 5.0, act, [sim])
        timer.daemon = True
        timer.start()
    said = []
    for one in started:
        try:
            said.append(one.communicate(timeout=SECONDS + 80)[0])
        except subprocess.TimeoutExpired:
            one.kill()
            said.append("")
    found: dict[str, float | str] = {}
    for peer, out in zip(PEERS, said[1:], strict=True):
        try:
            joules, true_j = json.loads(out.splitlines()[-1])
            found[peer] = 100 * (joules / true_j - 1)
        except (ValueError, IndexError):
            found[peer] = "crash"
    status = json.loads(next(folder.glob("jobs/*/snapshot.json")).read_text())
    first_j, last_j = map(float, said[0].split())
    shares = status["provenance"]["energy_gpu_kwh"]["source"]
    so_far = status["account"]["so_far"]
    found["ours"] = 100 * (status["energy_gpu_kwh"] * 3.6e6 / (last_j - first_j) - 1)
    found["band"] = 100 * (so_far["energy_wall_hi_kwh"] / so_far["energy_wall_kwh"] - 1)
    found["says"] = "; ".join(
        filter(None, (shares, *(w["why"] for w in status["witnesses"] if "counter" in w["what"])))
    )
    print(json.dumps(found))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--peers", type=Path)
    parser.add_argument("--measure")
    parser.add_argument("--case", nargs=3)
    parser.add_argument("--at-once", type=int, default=3)
    parser.add_argument("--only", nargs="*", default=list(CASES))
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    if asked.measure:
        measure(asked.measure, SECONDS)
        return
    if asked.case:
        case(asked.case[0], Path(asked.case[1]), Path(asked.case[2]), asked.peers)
        return
    sys.path.insert(0, str(HERE.parent / "nvmlsim"))
    from nvmlsim import build

    with tempfile.TemporaryDirectory() as top:
        library = build(Path(top))

        def of(name: str) -> str:
            folder = Path(tempfile.mkdtemp(dir=top))
            order = [sys.executable, __file__, "--peers", asked.peers, "--case", name, library, folder]
            done = subprocess.run(list(map(str, order)), capture_output=True, text=True)
            if done.returncode:
                return f"| {name} | {done.stderr.splitlines()[-1]} |"
            got = json.loads(done.stdout.splitlines()[-1])
            cells = [one if isinstance(one, str) else f"{one:+.1f}" for one in (got["ours"], *map(got.get, PEERS))]
            row = f"| {name} | {cells[0]} (± {got['band']:.0f}) | {' | '.join(cells[1:])} | {got['says']} |"
            print(row, flush=True)
            return row

        with ThreadPoolExecutor(asked.at_once) as pool:
            rows = list(pool.map(of, asked.only))
    machine = f"{os.cpu_count()} shared vCPU, load {os.getloadavg()[0]:.0f}, simulated NVML"
    head = f"{datetime.date.today()}, {machine}, {SECONDS:.0f} s a case, {asked.at_once} cases at once."
    table = [
        f"| error in % | ours (band) | {' | '.join(PEERS)} | what ours says |",
        "|---" * (len(PEERS) + 3) + "|",
        *rows,
    ]
    if asked.out:
        asked.out.write_text("\n".join(["# Joules under faults beside other meters", "", head, "", *table, ""]))


if __name__ == "__main__":
    main()
