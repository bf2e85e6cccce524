"""Jobs on 2, 4 and 8 nodes of a real Slurm (one machine, a namespace per node): one step for all, whatever dies.

python tests/bench/bench_nodes.py [nodes ...]        # root, slurm-wlm and munge; results/nodes.json
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "slurm")]

from cluster import Cluster, missing
from house import House, until
from several import Several

PAUSES = 34
"""Per size, so that three sizes make a hundred."""


def held(job: Several) -> bool:
    """Whether every rank stands at one step for half a second."""
    before = job.steps()
    time.sleep(0.5)
    return len(set(before)) == 1 and job.steps() == before


def paused(job: Several) -> float:
    since = time.monotonic()
    job.tell("pause")
    until(lambda: job.served().state == "paused", 30, "a pause")
    return time.monotonic() - since


def free_again(job: Several, timeout_s: float = 40.0) -> float:
    """Seconds until every rank has done another five steps."""
    since, goal = time.monotonic(), max(job.steps()) + 5
    until(lambda: min(job.steps()) >= goal, timeout_s, "steps on every node")
    return time.monotonic() - since


def measure(nodes: int) -> dict:
    found: dict = {"nodes": nodes}
    cluster = Cluster(nodes=nodes)
    with tempfile.TemporaryDirectory(prefix="ct-", dir="/var/tmp") as root:
        house = House(Path(root), None)
        try:
            cluster.start()
            job = Several(cluster, house)
            job.until_all(180)
            free_again(job)
            took, same = [], 0
            for _ in range(PAUSES):
                took.append(paused(job))
                same += held(job)
                job.tell("resume")
                free_again(job)
            found |= {"pauses": PAUSES, "same_step": same, "pause_s_median": statistics.median(took)}
            found["pause_s_worst"] = max(took)

            paused(job)
            stood, old = job.steps(), job.pid("supervisor")
            os.kill(old, signal.SIGKILL)
            since = time.monotonic()
            until(lambda: job.pid("supervisor") != old and (s := job.served()) and s.clients == nodes, 30, "successor")
            found["supervisor_killed_all_ranks_back_s"] = time.monotonic() - since
            found["supervisor_killed_steps_between"] = max(job.steps()) - max(stood)

            agent = job.node_agents("n2")
            for pid in agent:
                os.kill(pid, signal.SIGKILL)
            since = time.monotonic()
            until(lambda: (n := job.node_agents("n2")) and n != agent and job.served().clients == nodes, 30, "agent")
            found["node_agent_killed_back_s"] = time.monotonic() - since
            found["node_agent_killed_steps_between"] = max(job.steps()) - max(stood)

            # everything of ours is gone: the lease ends, training goes on
            doomed = [job.pid("keeper"), job.pid("supervisor"), *(p for n in cluster.names for p in job.node_agents(n))]
            for pid in doomed:
                os.kill(pid, signal.SIGKILL)
            found["all_of_ours_killed_free_s"] = free_again(job)
            job.end()
            job.until_over()

            job = Several(cluster, house)
            job.until_all(180)
            frozen = cluster.freeze(cluster.names[-1])
            since = time.monotonic()
            until(lambda: "silent" in job.served().reason.text, 20, "word of it")
            found["silent_node_said_s"] = time.monotonic() - since
            found["silent_node_watts"] = job.served().provenance["power_w"].source
            for pid in frozen:
                os.kill(pid, signal.SIGCONT)
            until(
                lambda: (s := job.served()) and s.clients == nodes and "silent" not in s.reason.text, 60, "its return"
            )
            counted = job.counted_s()
            cluster.run("scancel", job.id)
            since = time.monotonic()
            found["scancel_state"] = job.until_over(90)
            found["scancel_all_gone_s"] = time.monotonic() - since
            found["orphans"] = len(job.left_over())
            counted = job.counted_s()
            found["counted_of_time"] = {device: round(sum_s / span_s, 4) for device, (sum_s, span_s) in counted.items()}

            job = Several(cluster, house, "--time=1")
            job.until_all(180)
            found["time_limit_state"] = job.until_over(200)
            found["time_limit_orphans"] = len(job.left_over())
        finally:
            cluster.end()
            house.end()
    return found


def main() -> None:
    if why := missing():
        sys.exit(why)
    sizes = [int(word) for word in sys.argv[1:]] or [2, 4, 8]
    path = HERE / "results" / "nodes.json"
    kept = json.loads(path.read_text()) if path.exists() else {"runs": []}
    for nodes in sizes:
        found = measure(nodes)
        print(json.dumps(found, indent=1), flush=True)
        kept["runs"] = [run for run in kept["runs"] if run["nodes"] != nodes] + [found]
    kept |= {"machine": "2 shared vCPU, Linux; Slurm 22.05.8, a namespace per node", "date": "2026-11-22"}
    path.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
