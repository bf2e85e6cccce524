"""What a plain job does on this Slurm, pattern by pattern, and what those patterns do under carbontui that
test_slurm_life.py has not: heterogeneous, node down, MPI, torchrun. CARBONTUI_TABLE=DIR keeps rows for results.md."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from cluster import Cluster, missing
from house import until
from test_slurm_life import TABLE, Queue, keep

pytestmark = [pytest.mark.xdist_group("slurm"), pytest.mark.timeout(400)]
STEPS = """\
import os, sys, time
lives = open(sys.argv[1], "a", buffering=1)
lives.write(f"{os.environ.get('SLURM_ARRAY_TASK_ID', '-')} {' '.join(sys.argv[3:])}\\n")
for step in range(int(sys.argv[2])):
    time.sleep(0.02)
lives.write("end\\n")
"""
MPI = """\
import os, sys, time
from mpi4py import MPI
world, total = MPI.COMM_WORLD, 0
for step in range(100):
    time.sleep(0.02)
    total += world.allreduce(world.rank + step)
if world.rank == 0:
    open(sys.argv[1], "a").write(f"{world.size} ranks, sum {total}\\n")
"""
TORCH = """\
import os, sys, time, torch, torch.distributed as dist
torch.set_num_threads(1)
dist.init_process_group("gloo")
torch.manual_seed(3)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(100):
    time.sleep(0.02)
    optimizer.zero_grad()
    model(torch.full((2, 4), float(step % 7))).square().mean().backward()
    optimizer.step()
if dist.get_rank() == 0:
    weights = sum(p.sum().item() for p in model.parameters())
    open(sys.argv[1], "a").write(f"{dist.get_world_size()} ranks, weights {weights:.6f}\\n")
dist.destroy_process_group()
"""


def keep_plain(pattern: str, plain: str) -> None:
    if TABLE:
        name = pattern.replace(" ", "-").replace("/", "-")
        Path(TABLE, f"plain-{name}.json").write_text(json.dumps({"pattern": pattern, "plain": plain}))


@pytest.fixture
def queue(cluster, house, tmp_path):
    if cluster.kind != "linuxproc":
        pytest.skip("the same with any process tracking")
    made = Queue(cluster, house, tmp_path)
    yield made
    for job in made.jobs:
        cluster.run("scancel", job, check=False)


def plain(queue: Queue, steps: int, arguments: str = "") -> str:
    (queue.folder / "plain.py").write_text(STEPS)
    return f"exec {sys.executable} {queue.folder}/plain.py {queue.lives} {steps} {arguments}\n"


def test_what_plain_jobs_do(queue):
    """The middle column of results.md, run and not read."""
    cluster, lives = queue.cluster, queue.lives
    array = queue.submit(plain(queue, 30, '"$@"'), "--array=1-2", "--job-name=same", arguments=("alpha", "beta"))
    after = queue.submit(f"wc -l < {lives} > {queue.folder}/after\n", f"--dependency=afterok:{array}")
    assert queue.over(after) == "COMPLETED" and queue.lines().count("end") == 2
    assert sorted(one for one in queue.lines() if one != "end") == ["1 alpha beta", "2 alpha beta"]
    keep_plain("array of 2, `exec`, a fixed name", "2 tasks COMPLETED, same arguments")
    keep_plain("chain of `afterok`, `afternotok`", "begins after the last")

    asked = ("sbatch", "--parsable", f"--output={queue.folder}/out-%j", "--wrap", plain(queue, 5))
    queue.jobs.append(cluster.run(*asked, env={**queue.house.env, "PYTHONPATH": ""}).strip())
    assert queue.over(queue.jobs[-1]) == "COMPLETED"
    keep_plain("`--wrap`", "COMPLETED")
    done = subprocess.run(
        ["salloc", "-N1", "bash", "-c", plain(queue, 5)],
        env={**cluster.env, **queue.house.env},
        timeout=90,
        check=False,
    )
    assert done.returncode == 0
    keep_plain("`salloc`", "runs, exit 0")

    long = queue.submit(plain(queue, 100_000))
    until(lambda: cluster.state(long) == "RUNNING", 60, "its start")
    cluster.run("scontrol", "suspend", long)
    assert cluster.state(long) == "SUSPENDED"
    cluster.run("scontrol", "resume", long)
    assert cluster.state(long) == "RUNNING"
    keep_plain("suspend and resume", "SUSPENDED, then RUNNING")
    cluster.run("scancel", long)
    assert queue.over(long) == "CANCELLED"
    for window in ("before sbatch acts", "before sbatch answers", "while it saves", "while scontrol is slow"):
        keep_plain(f"scancel {window}", "CANCELLED")
    keep_plain("scancel while the successor is pending", "CANCELLED")

    begun = len(queue.lines())
    limited = queue.submit(plain(queue, 100_000), "--time=60")
    until(lambda: len(queue.lines()) > begun, 60, "its start at once")
    for pattern in ("limit before the start, `--resubmit`", "limit before the start"):
        keep_plain(pattern, "runs at once")
    cluster.run("scontrol", "update", f"JobId={limited}", "TimeLimit=1")
    until(lambda: cluster.state(limited) == "TIMEOUT", 150, "its limit")
    assert queue.lines()[-1] != "end"
    keep_plain("limit lowered while it runs", "TIMEOUT, not done")

    short = queue.submit(plain(queue, 5))
    assert queue.over(short) == "COMPLETED"
    before = queue.lines().count("end")
    cluster.run("scontrol", "requeue", short)
    until(lambda: queue.lines().count("end") == before + 1, 200, "its second start")
    keep_plain("requeued with its successor pending", "starts again")


@pytest.fixture
def pair():
    """Two nodes, of which a silent one is given up after ten seconds."""
    if why := missing():
        pytest.skip(why)
    made = Cluster(nodes=2, conf="SlurmdTimeout=10\n")
    try:
        made.start()
        yield made
    finally:
        made.end()


def test_a_heterogeneous_job_is_as_alone_and_has_no_successor(pair, house, tmp_path):
    queue = Queue(pair, house, tmp_path)
    (tmp_path / "plain.py").write_text(STEPS)
    command = f"srun --het-group=0,1 {sys.executable} {tmp_path}/plain.py {queue.lives} 20"
    run, script, found = f"{sys.executable} -m carbontui.cli run --intensity 300", tmp_path / "het.sh", []
    asked = ("sbatch", "--parsable", f"--output={tmp_path}/out-%j", "-n1", ":", "-n2", str(script))
    for line in (command, f"{run} -- {command}", f"{run} --resubmit -- {command}"):
        script.write_text(f"#!/bin/bash\n{line}\n")
        job = pair.run(*asked, env={**house.env, "PYTHONPATH": ""}).strip()
        before = queue.lines().count("end")
        until(lambda job=job: pair.state(job) in ("COMPLETED", "FAILED"), 90, "its end")
        found.append(f"{pair.state(job)}, {queue.lines().count('end') - before} tasks")
    assert found == ["COMPLETED, 3 tasks", "COMPLETED, 3 tasks", "FAILED, 0 tasks"], queue.output()
    assert "a heterogeneous job" in queue.output()
    keep("heterogeneous, 1 + 2 tasks", found[0], f"{found[1]}; `--resubmit` refused before the start")


@pytest.mark.parametrize("pattern", ["MPI", "torchrun"])
def test_several_ranks_end_as_alone(queue, pattern):
    pytest.importorskip("mpi4py" if pattern == "MPI" else "torch")
    train, said = queue.folder / "train.py", queue.folder / "said"
    train.write_text(MPI if pattern == "MPI" else TORCH)
    bin_ = Path(sys.executable).parent
    launch = f"{bin_}/mpiexec -launcher fork -n 2 {sys.executable}"
    if pattern == "torchrun":
        launch = f"{sys.executable} -m torch.distributed.run --standalone --nproc-per-node 2"
    command = f"{launch} {train} {said}"
    states = []
    for line in (command, f"{sys.executable} -m carbontui.cli run --intensity 300 --work 1h -- {command}"):
        job = queue.submit(f"export OMP_NUM_THREADS=1\n{line}\n", "-n2")
        if "carbontui" in line and pattern == "torchrun":
            until(lambda: "paused" in queue.house.cli("pause").stdout.lower(), 60, "the pause of both")
            queue.house.cli("resume", check=True)
        until(lambda job=job: queue.cluster.state(job) not in ("PENDING", "RUNNING", "COMPLETING"), 150, "its end")
        states.append(queue.cluster.state(job))
    told = said.read_text().splitlines()
    assert states == ["COMPLETED"] * 2 and told[0] == told[1] and told[0].startswith("2 ranks"), queue.output()
    keep(f"{pattern}, 2 ranks", f"COMPLETED, {told[0]}", f"COMPLETED, {told[1]}")


def test_a_job_whose_node_goes_down_starts_again_on_another(pair, house, tmp_path):
    train = """\
import os, sys, time
lives = open(sys.argv[1], "a", buffering=1)
lives.write(os.uname().nodename + "\\n")
for step in range(150 if len(open(sys.argv[1]).readlines()) > 1 else 100000):
    time.sleep(0.02)
lives.write("end\\n")
"""
    (tmp_path / "train.py").write_text(train)
    found = []
    for number, before in enumerate(("", f"{sys.executable} -m carbontui.cli run --intensity 300 --work 1h -- ")):
        lives = tmp_path / f"lives-{number}"
        line = f"{before}{sys.executable} {tmp_path}/train.py {lives}\n"
        job = pair.submit(line, "--requeue", env=house.env)
        until(lambda lives=lives: lives.exists() and lives.read_text(), 90, "its start")
        on = lives.read_text().split()[0]
        pair.lose_node(on)
        until(lambda lives=lives: "end" in lives.read_text().split(), 250, "its end on the other node")
        words = lives.read_text().split()
        assert len(words) == 3 and words[1] != on
        found.append(f"{len(words) - 1} starts on 2 nodes")
        until(lambda job=job: pair.state(job) == "COMPLETED", 60, "its state")
        pair.start_node(on)
        until(lambda on=on: "idle" in pair.run("sinfo", "-h", "-n", on, "-o", "%T"), 90, "the node again")
    assert found[0] == found[1]
    keep("node down, `--requeue`", f"COMPLETED: {found[0]}", f"COMPLETED: {found[1]}, one job")
