"""How a script calls its training, how it asks for a GPU, and what becomes of the job: a cover of their pairs, drawn by
seed. CARBONTUI_COVER=N tries the first N of its cells instead of six: an hour for all 40, by hand."""

from __future__ import annotations

import itertools
import os
import random
import re
import sys
import time
from collections import Counter

import pytest
from house import until
from test_slurm_life import FORMS

pytestmark = [pytest.mark.xdist_group("slurm"), pytest.mark.timeout(3600)]
SEED, MOST, IN_CI = 51, 40, 6
TORCHRUN = "-m torch.distributed.run --standalone --nproc-per-node 1"
TEMPLATES = {**FORMS, "srun": "{run}\n{after}", "torchrun": "{run}\n{after}"}
BEFORE = {"srun": f"srun {sys.executable}", "torchrun": f"{sys.executable} {TORCHRUN}"}
SLURMS = ("linuxproc", "24.11")
REQUESTS = ("--gpus=1", "--gres=gpu:1", "--gpus-per-node=1", "--ntasks=1 --gpus-per-task=1",
            "--gpus-per-socket=1 --sockets-per-node=1")  # fmt: skip
EVENTS = ("limit", "unload", "scancel")
STEPS = {"limit": 700, "unload": 200, "scancel": 10**9}
TRAIN = """\
import json, os, sys, time
import carbontui
from carbontui.client import marker
folder, steps, event = sys.argv[1], int(sys.argv[2]), sys.argv[3]
state, got, done = f"{folder}/state", open(f"{folder}/got", "a", buffering=1), 0
if os.path.exists(state):
    done = json.load(open(state))
def save():
    json.dump(done, open(state + ".part", "w"))
    os.replace(state + ".part", state)
carbontui.on_checkpoint(save)
first = not done
while done < steps:
    time.sleep(0.06 if event == "limit" else 0.02)
    done += 1
    got.write(f"{done}\\n")
    carbontui.step()
    if event == "unload" and first and done == 100:
        save()
        marker.write(done, time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(time.time() + 3)))
        sys.exit(0)
got.write("end\\n")
"""


def cover() -> list[tuple[str, ...]]:
    """Cells (template, Slurm, request, event), each with as many new pairs as a draw of some finds."""
    dice, left = random.Random(SEED), set[frozenset[tuple[int, str]]]()
    cells = list(itertools.product(TEMPLATES, SLURMS, REQUESTS, EVENTS))

    def pairs(cell: tuple[str, ...]) -> set[frozenset[tuple[int, str]]]:
        return {frozenset(two) for two in itertools.combinations(enumerate(cell), 2)}

    left.update(*map(pairs, cells))
    found = []
    while left and len(found) < MOST:
        found.append(max(dice.sample(cells, 200), key=lambda cell: len(pairs(cell) & left)))
        left -= pairs(found[-1])
    return found


def test_whatever_the_template_request_and_event_all_is_as_in_the_plain_job(cluster, house, tmp_path):
    if cluster.kind == "pgid":
        pytest.skip("the same with any process tracking")
    cells = [cell for cell in cover()[: int(os.environ.get("CARBONTUI_COVER", IN_CI))] if cell[1] == cluster.kind]
    (tmp_path / "train.py").write_text(TRAIN)
    jobs, most = {}, Counter[str]()
    for number, (template, _, request, event) in enumerate(cells):
        folder = tmp_path / str(number)
        folder.mkdir()
        train = f"{BEFORE.get(template, sys.executable)} {tmp_path}/train.py {folder} {STEPS[event]} {event}"
        run = f"{sys.executable} -m carbontui.cli run --intensity 300 --work 10h --resubmit -- {train}"
        script = TEMPLATES[template].format(run=run, lives=folder / "lives", after=f"echo after >> {folder}/after")
        limit = "--time=2" if event == "limit" else "--time=60"
        name = f"cell-{number}"
        env = {**house.env, "PYTHONPATH": "", "OMP_NUM_THREADS": "1"}
        job = cluster.submit(f"{script}\n", *request.split(), limit, f"--job-name={name}", env=env)
        jobs[name] = job, folder, template, request, event

    def rows() -> list[list[str]]:
        told = [row.split("|") for row in cluster.run("squeue", "-h", "-t", "all", "-o", "%j|%i|%T").splitlines()]
        waits = Counter(name for name, _, state in told if state in ("PENDING", "RUNNING"))
        most.update({name: max(0, count - most[name]) for name, count in waits.items()})
        for name, (job, folder, *_, event) in jobs.items():
            got = folder / "got"
            begun = got.exists() and len(got.read_text().splitlines()) > 30
            if event == "scancel" and begun and [name, job, "RUNNING"] in told:
                cluster.run("scancel", job)
        return [row for row in told if row[0] in jobs]

    def over() -> bool:
        time.sleep(1.0)
        return all(state in ("COMPLETED", "CANCELLED", "FAILED", "TIMEOUT") for _, _, state in rows())

    until(over, 240 + 90 * len(cells), "the end of all")
    wrong = []
    for name, (first, folder, template, request, event) in jobs.items():
        chain = [(job, state) for other, job, state in rows() if other == name]
        files = [folder / "got", folder / "after"]
        got, after = (path.read_text().split() if path.exists() else [] for path in files)
        asked = [re.findall(r"TresPer\S+", cluster.run("scontrol", "-o", "show", "job", job)) for job, _ in chain]
        states = [state for _, state in sorted(chain, key=lambda row: int(row[0]))]
        ends, last = event != "scancel", STEPS[event] if event != "scancel" else len(got)
        wanted = {
            "steps": got == [*map(str, range(1, last + 1)), *(["end"] if ends else [])],
            "after": after == (["after"] if ends and template != "exec" else []),
            "states": states[-1] == ("COMPLETED" if ends else "CANCELLED") and set(states[:-1]) <= {"CANCELLED"},
            "lives": len(states) > 1 or not ends,
            "queue": most[name] <= 2,
            "request": all(one == asked[0] and one for one in asked),
        }
        print(cluster.kind, template, request, event, wanted, states)
        if not all(wanted.values()):
            wrong.append((template, request, event, wanted, states, after, got[-3:], cluster.output(first)[-1500:]))
    assert wrong == []
