"""Unloads under a real Slurm: when each successor begins against when it was planned, and what is computed.

python tests/bench/bench_successor.py [cycles]      # root, slurm-wlm and munge; results/successor.json
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "slurm")]

from cluster import Cluster, missing
from house import House, until
from outcomes import weights

STEPS, AHEAD_S = 100, 10
TRAIN = """\
import json, os, sys, time
from datetime import datetime, timedelta, timezone
import carbontui
from carbontui.client import marker
folder, cycles, steps, ahead = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
lives = open(os.path.join(folder, "lives"), "a", buffering=1)
lives.write(f"begun {time.time()}\\n")
state = os.path.join(folder, "state.json")
done, value = json.load(open(state)) if os.path.exists(state) else (0, 1)
for _ in range(steps):
    time.sleep(0.01)
    done, value = done + 1, value * 6364136223846793005 % 2**61 + done + 1
    carbontui.step()
json.dump([done, value], open(state + ".part", "w"))
os.replace(state + ".part", state)
if done < cycles * steps:
    clean = datetime.now(timezone.utc) + timedelta(seconds=ahead)
    lives.write(f"planned {clean.timestamp()}\\n")
    marker.write(done, clean.strftime("%Y-%m-%dT%H:%M:%S.%fZ"))
else:
    lives.write(f"weights {value}\\n")
"""


def main() -> None:
    if why := missing():
        sys.exit(why)
    cycles = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    cluster = Cluster()
    with tempfile.TemporaryDirectory(prefix="ct-", dir="/var/tmp") as root:
        house = House(Path(root), None)
        try:
            cluster.start()
            (house.root / "train.py").write_text(TRAIN)
            train = f"{sys.executable} {root}/train.py {root} {cycles} {STEPS} {AHEAD_S}"
            line = f"{sys.executable} -m carbontui.cli run --work 10h --resubmit -- {train}\n"
            cluster.submit(line, env=house.env)
            lives = house.root / "lives"
            until(lambda: lives.exists() and "weights" in lives.read_text(), 100.0 * cycles, "the end of the work")
            words = [line.split() for line in lives.read_text().splitlines()]
        finally:
            cluster.end()
            house.end()
    planned = [float(at) for kind, at in words if kind == "planned"]
    begun = [float(at) for kind, at in words if kind == "begun"][1:]
    late = [b - a for a, b in zip(planned, begun, strict=True)]
    value = next(int(at) for kind, at in words if kind == "weights")
    found = {
        "cycles": len(late),
        "begun_after_plan_s_median": round(statistics.median(late), 1),
        "begun_after_plan_s_least": round(min(late), 1),
        "begun_after_plan_s_most": round(max(late), 1),
        "weights_bit_identical": value == weights(cycles * STEPS),
        "machine": "2 shared vCPU, Linux; Slurm 22.05.8",
        "date": "2026-11-22",
    }
    print(json.dumps(found, indent=1))
    (HERE / "results" / "successor.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
