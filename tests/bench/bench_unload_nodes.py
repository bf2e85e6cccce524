"""A training on two nodes of a real Slurm that leaves before its time limit and goes on in a successor.

python tests/bench/bench_unload_nodes.py [steps]      # root, slurm-wlm, munge and torch; results/unload_nodes.json
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "slurm")]

from cluster import Cluster, free_port, missing
from house import House, until
from several import Several
from test_slurm_unload_nodes import TRAIN, alone

PAUSE_S = 0.03


def main() -> None:
    if why := missing():
        sys.exit(why)
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 4000
    cluster = Cluster(nodes=2)
    with tempfile.TemporaryDirectory(prefix="ct-", dir="/var/tmp") as root:
        house = House(Path(root), None)
        folder = Path(root) / "left"
        folder.mkdir()
        try:
            cluster.start()
            command = f"{sys.executable} {root}/ranks.py {folder} {free_port()} {steps} {PAUSE_S}"
            Several(cluster, house, "--time=2", script=TRAIN, command=command, run="--resubmit")
            until(lambda: all((folder / f"weights.{rank}").exists() for rank in (0, 1)), 900, "the end of the work")
            lines = [(folder / f"marks.{rank}").read_text().split() for rank in (0, 1)]
            lives = [" ".join(of).split("life")[1:] for of in lines]
            weights = {(folder / f"weights.{rank}").read_text() for rank in (0, 1)}
            undisturbed = alone(Path(root) / "alone", Path(root) / "ranks.py", steps)
            jobs = len(list(house.home.glob("jobs/*/job.json")))
        finally:
            cluster.end()
            house.end()
    left = [[life.split()[-1] for life in of[:-1]] for of in lives]
    exact = [[word for word in of if word != "life"] == [str(n) for n in range(1, steps + 1)] for of in lines]
    found = {
        "nodes": 2,
        "slurm_jobs": len(lives[0]),
        "left_at": left[0],
        "same_step_on_both": left[0] == left[1],
        "steps_exact": all(exact),
        "weights_bit_identical": weights == {undisturbed},
        "jobs_in_the_account": jobs,
        "machine": "2 shared vCPU, Linux; Slurm 22.05.8, a namespace per node",
        "date": "2026-11-22",
    }
    print(json.dumps(found, indent=1))
    (HERE / "results" / "unload_nodes.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
