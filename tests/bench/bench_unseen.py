"""Trainings that show no step, and slow starts, under real jobs; run by hand: python tests/bench/bench_unseen.py FILE

Eight kinds must be named by their cause within 60 s of CPU work; twenty slow starts (which compute 30 to 90 s of CPU
before their first step, in four places) must be blamed on nothing. CPU seconds are the job's own: a busy machine does
not count. A few run at a time.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).parents[1]
sys.path[:0] = [str(HERE), str(HERE / "job")]

from house import House, Job
from test_unseen import ACCUMULATION, ADAM, CASES, LAYER

from carbontui.system import proc

WORK = "\nwhile True: sum(range(100_000))\n"
STEPS = "for _ in range(200):\n    grad(); optimizer.step(); time.sleep(0.05)\n"
CPU_S = (30, 45, 60, 75, 90)
AT_ONCE = 3


def slow_starts() -> dict[str, str]:
    """What each computes where, and its script."""
    found = {}
    for cpu_s in CPU_S:
        prepare = f"import time\nwhile time.process_time() < {cpu_s}: sum(range(100_000))\n"
        found |= {
            f"{cpu_s} s before torch is imported": prepare + ADAM + STEPS,
            f"{cpu_s} s after torch is imported": LAYER
            + prepare
            + "optimizer = torch.optim.Adam(layer.parameters())\n"
            + STEPS,
            f"{cpu_s} s before the first step": ADAM + prepare + STEPS,
            f"{cpu_s} s in the first step": ACCUMULATION + prepare + STEPS,
        }
    return found


SAID = "no step seen yet: "
FRAGMENTS = {
    "pythonpath": "PYTHONPATH was reset",
    "isolated": "-I ignores PYTHONPATH",
    "no-site": "-S loads no hook",
    "no-environment": "an environment of its own",
    "framework": "a loop of JAX",
    "cuda-graph": "a replayed CUDA graph",
    "no-loop": "no training library is loaded",
    "preparing": "waits for the first one",
}


def watch(job: Job, limit_s: float) -> list[dict[str, object]]:
    """What the state line says of no step being seen, with the CPU seconds of the job, until one is."""
    found: list[dict[str, object]] = []
    due = time.monotonic() + limit_s
    while time.monotonic() < due:
        status = job.status()
        pid = (status.get("pids") or {}).get("child")
        text = str((status.get("reason") or {}).get("text", ""))
        if status.get("step"):
            found.append({"stepped": True, "text": text})
            break
        if text.startswith(SAID) and (not found or found[-1]["text"] != text):
            cpu = sum(map(proc.cpu_s, [pid, *proc.descendants(pid)])) if pid else 0.0
            found.append({"text": text, "cpu_s": round(cpu, 1)})
            if "waits for the first one" not in text:
                break
        time.sleep(1.0)
    return found


def main() -> None:
    found: dict[str, object] = {
        "date": time.strftime("%Y-%m-%d"),
        "machine": f"{os.cpu_count()} shared vCPU, Linux, Python {platform.python_version()}",
        "load_before": round(os.getloadavg()[0], 1),
        "note": "first sight at a poll, an upper bound. Stand-ins: cuda-graph has the question whether a graph is "
        "recorded answered yes (no GPU), framework maps a file named as JAX's",
    }
    kinds = {code: (command, script + WORK) for code, (command, script) in CASES.items() if code != "preparing"}
    starts = {what: ([sys.executable], script) for what, script in slow_starts().items()}
    with tempfile.TemporaryDirectory() as name:
        house = House(Path(name), None)

        def seen(number: int, command: list[str], script: str) -> list[dict[str, object]]:
            path = Path(name, f"{number}.py")
            path.write_text(script)
            run = house.cli("run", "--detach", "--zone", "DE", "--name", str(number), "--", *command, path, check=True)
            job = Job(house, run.stdout.strip(), Path(name, "none"))
            said = watch(job, 900.0)
            house.cli("stop", "--now", "--yes", job.id)  # what is judged computes no more
            print(number, said, flush=True)
            return said

        try:
            with ThreadPoolExecutor(AT_ONCE) as pool:
                waiting = {
                    what: pool.submit(seen, number, command, script)
                    for number, (what, (command, script)) in enumerate([*kinds.items(), *starts.items()])
                }
                told = {what: future.result() for what, future in waiting.items()}
        finally:
            house.end()
    found["kinds"] = {
        what: {
            "right": bool(said := told[what]) and FRAGMENTS[what] in str(said[-1]["text"]),
            "after_cpu_s": said[-1].get("cpu_s") if said else None,
        }
        for what in kinds
    }
    found["slow_starts"] = {
        what: {
            "false": [
                one["text"]
                for one in told[what]
                if SAID in str(one["text"]) and FRAGMENTS["preparing"] not in str(one["text"])
            ],
            "withdrawn": bool(told[what]) and bool(told[what][-1].get("stepped")),
        }
        for what in starts
    }
    Path(sys.argv[1]).write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
