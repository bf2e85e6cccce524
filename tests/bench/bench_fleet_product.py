"""10,000 jobs on the way that users take: `submit` states them, `squeue` shows them, `fleet` plans and asks scontrol.

    python tests/bench/bench_fleet_product.py [jobs]        # results/fleet_product.json

squeue, sinfo and scontrol are scripts that hand out and take what Slurm's would: rows of the jobs as sbatch was asked
for them, the nodes, orders. All jobs wait now. Their levels come from a curve as `calibrate --export` writes it, so
they are planned with the error of another board. Rivals live by the same rules (fleet_rivals.py), with exact speeds.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from bench_fleet import BUDGET, HERE, SPEED, WATTS, synthetic
from click.testing import CliRunner
from fleet_rivals import FULL, Site, Trace, fifo, greedy

from carbontui import cli, units
from carbontui.extensions.fleet.problem import NEVER
from carbontui.slurm.queue import asked

SLOT_S, SLOTS, JOBS_A_GPU = 1800.0, 96, 10_000 / 8800
SQUEUE = f"""#!{sys.executable}
import json, sys
form = next((one for one in sys.argv if one.startswith("--Format=")), "")
mark = form.removeprefix("--Format=JobID:0").partition(":")[0]
for job in json.load(open("JOBS")) if form else ():
    print(f"0{{mark}}:" + "".join(f"{{field}}{{mark}};" for field in job))
"""


def submitted(folder: Path, trace: Trace, now: float, grid: Path) -> list[list[str]]:
    """The rows that squeue would show of the jobs, each submitted with its own `submit`."""
    verb = importlib.import_module("carbontui.extensions.fleet.commands")
    commands, runner, rows = [], CliRunner(), []
    verb.commands.submitted = lambda command: commands.append(list(command)) or str(len(commands))
    full = {"kind": "full", "cap_w": None, "power_w": WATTS[0], "power_se": 1.0, "speed": 1.0, "speed_se": 0.002}
    caps = [
        {"kind": "cap", "cap_w": watts, "power_w": watts, "power_se": 1.0, "speed": speed, "speed_se": 0.002}
        for watts, speed in zip(WATTS[1:].tolist(), SPEED[1:].tolist(), strict=True)
    ]
    curve = folder / "curve.json"
    about = {"schema": "carbontui.curve/1", "gpu": "A", "gpus": 1, "fingerprint": "x", "measured_s": 1.0}
    curve.write_text(json.dumps({**about, "rate_steps_per_s": 1.0, "points": [*caps, full], "levels": [*caps, full]}))
    for job in range(len(trace.gpus)):
        work_s, end_s = trace.length[job, FULL] * SLOT_S, now + trace.end[job] * SLOT_S
        words = ["submit", "--grid", str(grid), "--work", f"{work_s:.0f}s", "--budget", units.iso(end_s)]
        words += ["--curve", str(curve), "--gpus", str(trace.gpus[job]), "--", f"--gpus={trace.gpus[job]}", "job.sh"]
        done = runner.invoke(cli.cli, words, standalone_mode=False)
        assert done.exception is None, done.exception
        comment = next(word for word in commands[-1] if word.startswith("--comment=")).partition("=")[2]
        begin = next((word.rpartition("+")[2] for word in commands[-1] if word.startswith("--begin=")), "0seconds")
        start = time.time() + float(begin.removesuffix("seconds"))
        gres = f"gres:gpu:{trace.gpus[job]}"
        rows.append([str(job + 1), "PENDING", "ann", f"{start:.0f}", "N/A", "4-00:00:00", "1", "BeginTime", "", "train",
                     "gpu", comment, f"{start:.0f}", "1", "1", "1", "*:*:*", "OK", "N/A", "N/A", gres, "N/A",
                     "N/A"])  # fmt: skip
    return rows


def scripts(folder: Path, gpus: int) -> dict[str, str]:
    (folder / "squeue").write_text(SQUEUE.replace("JOBS", f"{folder}/jobs.json"))
    nodes = "\n".join(f"n{i}\x1fidle\x1f64\x1fgpu:8\x1fgpu" for i in range(gpus // 8))
    (folder / "nodes").write_text(nodes + "\n")
    (folder / "sinfo").write_text(f"#!/bin/sh\ncat {folder}/nodes\n")
    (folder / "scontrol").write_text(
        f'#!/bin/sh\nif [ "$1" = show ]; then echo "Configuration as of $(date +%s)"; else cat > {folder}/orders; fi\n'
    )
    for name in ("squeue", "sinfo", "scontrol"):
        (folder / name).chmod(0o755)
    return {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "CARBONTUI_HOME": str(folder / "home"), "TZ": "UTC"}


def bench(count: int) -> dict[str, object]:
    folder = Path(tempfile.mkdtemp(prefix="ct-fleet-"))
    os.environ |= {"CARBONTUI_HOME": str(folder / "home"), "TZ": "UTC"}
    time.tzset()
    some, weight = synthetic(1, count)
    now = (time.time() + 60) // SLOT_S * SLOT_S + SLOT_S
    grid = folder / "grid.csv"
    at = [now + (slot - 2) * SLOT_S for slot in range(SLOTS + 60)]
    mean = np.concatenate([weight[-2:], weight, np.full(58, weight.mean())]) / SLOT_S * units.J_PER_KWH
    lines = [f"{units.iso(when)},{value:.3f}" for when, value in zip(at, mean.tolist(), strict=True)]
    grid.write_text("time_utc,carbon_g_per_kwh\n" + "\n".join(lines) + "\n")
    trace = Trace(np.zeros(len(some.arrival), dtype=int), some.gpus, some.watts, some.length, some.end)
    gpus = round(count / JOBS_A_GPU / 8) * 8
    env = scripts(folder, gpus)
    began = time.perf_counter()
    (folder / "jobs.json").write_text(json.dumps(submitted(folder, trace, now, grid)))
    submit_s = time.perf_counter() - began
    power = np.full(SLOTS, BUDGET * gpus * WATTS[0])
    command = ["fleet", "--cap", f"{power[0]:.0f}W", "--grid", str(grid), "--once", "--json"]
    began = time.perf_counter()
    done = subprocess.run([sys.executable, "-m", "carbontui.cli", *command], env=env, capture_output=True, text=True)
    wall_s = time.perf_counter() - began
    assert done.returncode == 0, done.stderr
    told, held = json.loads(done.stdout), np.full(SLOTS, float(gpus))
    # a slot may have begun meanwhile
    passed = round((units.from_iso(told["first_slot"]) - now) / SLOT_S)
    weight = mean[2 + passed : 2 + passed + SLOTS] * SLOT_S / units.J_PER_KWH
    trace.end = trace.end - passed
    work = trace.gpus * trace.length[:, FULL]
    spent = np.concatenate([[0.0], np.cumsum(weight)])

    def row(start: np.ndarray, level: np.ndarray) -> dict[str, float]:
        on = np.nonzero(start != NEVER)[0]
        end = start[on] + trace.length[on, level[on]]
        whole = np.minimum(end.astype(int), SLOTS - 1)
        grams = trace.watts[on, level[on]] * (spent[whole] + (end - whole) * weight[whole] - spent[start[on]])
        return {
            "t_co2": round(float(grams.sum()) / 1e6, 3),
            "g_per_gpu_h": round(float(grams.sum() / (work[on].sum() * SLOT_S / 3600)), 2),
            "undone": round(1 - float(work[on].sum() / work.sum()), 5),
        }

    # what scontrol was asked for: a start and a cap for each job; one without an order stays at its own start
    start, level = np.full(len(work), NEVER), np.zeros(len(work), dtype=int)
    first_s = units.from_iso(told["first_slot"])
    lines = [line.split(" ", 3) for line in (folder / "orders").read_text().splitlines()]
    orders = {words[1].partition("=")[2]: words for words in lines}
    for job in told["jobs"]:
        number = int(job["job"]) - 1
        if job["start"] is None:
            continue
        start[number] = round((units.from_iso(job["start"]) - first_s) / SLOT_S)
        if job["job"] in orders:
            noted = asked(orders[job["job"]][3].strip().removeprefix("Comment="))
            level[number] = 0 if noted.cap_w is None else WATTS.tolist().index(noted.cap_w)
    late = sum(
        units.from_iso(job["end"]) > units.from_iso(job["deadline"]) + 1
        for job in told["jobs"]
        if job["end"] is not None
    )
    found = {
        "jobs": len(work), "gpus": gpus, "budget_of_nameplate": BUDGET, "submit_s": round(submit_s, 1),
        "fleet_wall_s": round(wall_s, 1), "load_average": round(os.getloadavg()[0], 1),
        "above_bound": round(told["gap"], 5), "orders": len(orders), "planned_late": late,
        "highest_of_budget": round(max(told["watts"]) / power[0], 4),
        "constant_cap_beside": {**told["constant_cap"], "undone": len(told["constant_cap"]["undone"])},
        "fleet": row(start, level),
    }  # fmt: skip
    none = np.zeros(len(work), dtype=int)
    capped = {f"{WATTS[lv]:.0f} W": row(fifo(trace, Site(power, held), lv), none + lv) for lv in range(len(WATTS))}
    least = min(entry["undone"] for entry in capped.values())
    best = min((name for name in capped if capped[name]["undone"] <= least + 0.01), key=lambda n: capped[n]["t_co2"])
    found["constant_caps"], found["best_constant_cap"] = capped, {"cap": best, **capped[best]}
    cost = lambda slot, n: np.concatenate([weight, np.full(SLOTS, weight.mean())])[slot : slot + n]  # noqa: E731
    found["greedy"] = row(*greedy(trace, Site(power, held), cost))
    return found


if __name__ == "__main__":
    made = {
        "machine": "2 shared vCPU, Linux",
        "date": time.strftime("%Y-%m-%d"),
        "found": bench(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000),
    }
    (HERE / "results" / "fleet_product.json").write_text(json.dumps(made, indent=1) + "\n")
    print(json.dumps(made, indent=1))
