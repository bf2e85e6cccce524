"""Twenty unloads and resumes of one training, run by hand: python tests/bench/bench_unloads.py FOLDER [KIND...]

Each is a `carbontui rehearse` of a real job, after some steps that chance decides: the training writes a checkpoint and
leaves, the keeper starts the same command again. The steps and weights at the end are held to the undisturbed run's.
Results: one FOLDER/KIND.json each.
"""

from __future__ import annotations

import json
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

HERE = Path(__file__).parents[1]
sys.path[:0] = [str(HERE), str(HERE / "frameworks"), str(HERE / "client")]

from harness import Outcome
from house import House, Job, until

EXAMPLES = HERE.parent / "examples" / "frameworks"
KINDS = {
    "transformers": ("train_transformers.py", "--samples=1600", "--epochs=20"),
    "lightning": ("train_lightning.py", "--epochs=600"),
    "accelerate": ("train_accelerate.py", "--epochs=600"),
    "keras": ("train_keras.py", "--backend=torch", "--epochs=300"),
    "xgboost": ("train_xgboost.py", "--rounds=20000", "--rows=100000"),
    "lightgbm": ("train_lightgbm.py", "--rounds=8000", "--rows=50000"),
}
"""A script of examples/frameworks and how long it is to be: the twentieth unload must come before its end."""
CYCLES = 20
LONG_S = 3000.0


def cycles(kind: str, root: Path) -> dict[str, object]:
    script, *args = KINDS[kind]
    command = [sys.executable, str(EXAMPLES / script), *args]
    house = House(root, None)
    house.env |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "JAX_PLATFORMS": "cpu", "KERAS_HOME": str(root)}
    folders = [root / "left", root / "alone"]
    for folder in folders:
        folder.mkdir()
    draw, began = random.Random(kind), time.monotonic()
    try:
        run = house.cli("run", "--detach", "--name", kind, "--", *command, cwd=folders[0], check=True)
        job = Job(house, run.stdout.strip(), root / "none")
        verdicts = []
        for number in range(CYCLES):
            at, more = max((v["step"] for v in verdicts), default=0), draw.randint(2, 60)
            until(lambda at=at, more=more: (s := job.served()) and s.clients and s.step >= at + more, LONG_S, "steps")
            told = house.cli("rehearse", "--json", job.id, timeout=LONG_S)
            assert told.returncode == 0, f"unload {number + 1}: {told.stdout}{told.stderr}"
            verdicts.append(json.loads(told.stdout))
        code = job.until_exit(LONG_S)["code"]
        left = Outcome((job.dir / "run.log").read_text(), code)
    finally:
        house.end()
    cycled_s = time.monotonic() - began
    alone_run = subprocess.run(
        command, env=house.env, cwd=folders[1], capture_output=True, text=True, timeout=LONG_S, check=False
    )
    alone = Outcome(alone_run.stdout, alone_run.returncode)
    return {
        "kind": kind,
        "version": version(kind),
        "unloads": len(verdicts),
        "left_at": [v["step"] for v in verdicts],
        "went_on_where_it_left": sum(v["step"] == v["resumed_step"] and v["resumed_step_told"] for v in verdicts),
        "exit_codes": [left.code, alone.code],
        "steps_alone": alone.steps,
        "steps": left.steps,
        "steps_exact": left.steps == alone.steps != [],
        "weights_identical": left.weights == alone.weights != [],
        "leave_s_median": round(statistics.median(v["checkpoint_s"] for v in verdicts), 1),
        "come_back_s_median": round(statistics.median(v["reload_s"] for v in verdicts), 1),
        "all_s": round(cycled_s, 1),
        "machine": f"{os.cpu_count()} shared vCPU, Linux, Python {platform.python_version()}",
        "date": time.strftime("%Y-%m-%d"),
    }


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for one in sys.argv[2:] or KINDS:
        with tempfile.TemporaryDirectory() as place:
            found = cycles(one, Path(place))
        print(json.dumps(found), flush=True)
        (folder / f"{one}.json").write_text(json.dumps(found, indent=2) + "\n")
