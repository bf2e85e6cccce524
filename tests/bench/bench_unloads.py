"""Twenty unloads and resumes of one training, run by hand: python tests/bench/bench_unloads.py FOLDER [KIND...]

Each life of the command is a process of its own that leaves at a step the script does not know beforehand (drawn from a
seed) and is started again as the keeper starts it; the steps and weights at the end are held to the undisturbed run's.
Results: one FOLDER/KIND.json each.
"""

from __future__ import annotations

import json
import os
import platform
import random
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parents[1]
sys.path[:0] = [str(HERE / "frameworks"), str(HERE / "client")]

from fake_supervisor import supervised
from harness import Training

from carbontui.client import inject

EXAMPLES = HERE.parent / "examples" / "frameworks"
KINDS = {
    "transformers": ("train_transformers.py", 120),
    "lightning": ("train_lightning.py", 192),
    "accelerate": ("train_accelerate.py", 256),
}
CYCLES = 20


def cycles(kind: str, root: Path) -> dict[str, object]:
    name, total = KINDS[kind]
    draw = random.Random(kind)
    at = sorted(draw.sample(range(2, total - 1), CYCLES))
    steps = [b - a for a, b in zip([0, *at], at, strict=False)]
    steps = [max(2, n) for n in steps]  # a hook's first boundary is none where a checkpoint may be taken
    with supervised() as supervisor:
        hook = inject.build(root / "hook")

        def training(folder: str) -> Training:
            return Training(root / folder, hook, supervisor, EXAMPLES / name)

        began = time.monotonic()
        alone = training("alone").alone()
        alone_s = time.monotonic() - began
        lives = list(training("left").lives(*steps))
        last = lives[-1]
    return {
        "kind": kind,
        "unloads": len(lives) - 1,
        "exit_codes": sorted({life.code for life in lives}),
        "steps_alone": alone.steps,
        "steps": last.steps,
        "steps_exact": last.steps == alone.steps != [],
        "weights_identical": last.weights == alone.weights != [],
        "alone_s": round(alone_s, 1),
        "all_lives_s": round(time.monotonic() - began - alone_s, 1),
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
