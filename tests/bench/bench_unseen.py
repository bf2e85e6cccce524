"""Trainings that show no step, and slow starts, under real jobs; run by hand: python tests/bench/bench_unseen.py FILE

Eight kinds must be named by their cause within 60 s of CPU work; twenty slow starts (which compute for 90 s of CPU
before their first step) must be blamed on nothing. CPU seconds are the job's own: a busy machine does not count.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parents[1]
sys.path[:0] = [str(HERE), str(HERE / "job")]

from house import House, Job
from test_unseen import ACCUMULATION, ADAM, CASES, LAYER

from carbontui import proc

WORK = "\nwhile True: sum(range(100_000))\n"
PREPARE = "import time\nwhile time.process_time() < 90: sum(range(100_000))\n"
STEPS = "for _ in range(200):\n    grad(); optimizer.step(); time.sleep(0.05)\n"
SLOW = {
    "before torch is imported": PREPARE + ADAM + STEPS,
    "after torch is imported": LAYER + PREPARE + "optimizer = torch.optim.Adam(layer.parameters())\n" + STEPS,
    "before the first step": ADAM + PREPARE + STEPS,
    "in the first step": ACCUMULATION + PREPARE + STEPS,
}
SAID = "no step seen yet: "
FRAGMENTS = {
    "pythonpath": "PYTHONPATH was reset",
    "isolated": "-I ignores PYTHONPATH",
    "no-site": "-S loads no hook",
    "no-environment": "an environment of its own",
    "own-update": "no optimizer of PyTorch's applies them",
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
    }
    slow = int(sys.argv[2]) if len(sys.argv) > 2 else 20
    with tempfile.TemporaryDirectory() as name:
        house = House(Path(name), None)
        try:
            jobs = {}
            scripts = {
                code: (command, script + WORK) for code, (command, script) in CASES.items() if code != "preparing"
            }
            starts = [(f"{i} {why}", ([sys.executable], SLOW[why])) for i, why in enumerate((list(SLOW) * 5)[:slow])]
            for number, (what, (command, script)) in enumerate([*scripts.items(), *starts]):
                path = Path(name, f"{number}.py")
                path.write_text(script)
                run = house.cli(
                    "run", "--detach", "--zone", "DE", "--name", str(number), "--", *command, path, check=True
                )
                jobs[what] = Job(house, run.stdout.strip(), Path(name, "none"))
            kinds, starts_said = {}, {}
            for what, job in jobs.items():
                said = watch(job, 900.0)
                house.cli("stop", "--now", "--yes", job.id)  # what is judged computes no more
                if what in scripts:
                    right = bool(said) and FRAGMENTS[what] in str(said[-1]["text"])
                    kinds[what] = {"right": right, "after_cpu_s": said[-1].get("cpu_s") if said else None}
                else:
                    false = [
                        one["text"]
                        for one in said
                        if SAID in str(one["text"]) and FRAGMENTS["preparing"] not in str(one["text"])
                    ]
                    starts_said[what] = {"false": false, "withdrawn": bool(said) and bool(said[-1].get("stepped"))}
                print(what, said, flush=True)
        finally:
            house.end()
    found["kinds"], found["slow_starts"] = kinds, starts_said
    Path(sys.argv[1]).write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
