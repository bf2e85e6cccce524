"""The training side under the real command line, keeper and supervisor: nothing here is played by a test."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from fake_supervisor import FakeSupervisor
from house import Job, until
from later import needs
from replayed import COUNTING, days, events, lives, start

from carbontui import units

STEPS = 240


def counting(total: int) -> int:
    """What COUNTING computes when nobody disturbs it."""
    value = 1
    for done in range(1, total + 1):
        value = value * 6364136223846793005 % 2**61 + done
    return value


def lengths(*starts) -> list[int]:
    """Steps of every life but the last, from the step each began at."""
    began = [done for (_, _, done), _ in starts]
    return [b - a for a, b in pairwise(began)]


def script_of(house, text: str, name: str = "count.py") -> Path:
    script = house.root / name
    script.write_text(text)
    return script


def unloading_job(house, steps: int, **more) -> Job:
    script = script_of(house, COUNTING)
    argv = [sys.executable, str(script), str(steps), "0.02", str(house.root / "state.json")]
    grid = days(house.root / "grid.csv", clean_h=16)
    return start(house, argv, grid=grid, start_h=12, budget="3x", steps=steps, flat_s=steps * 0.023, **more)


def test_the_plan_unloads_and_brings_back_and_people_pause_between(house):
    """Nothing lost, nothing done twice: the result is that of an undisturbed run, and the journal tells of each."""
    job = unloading_job(house, STEPS)
    held = 0
    while held < 3 and not (job.dir / "exit.json").exists():
        held += house.cli("pause", job.id).stdout.startswith("paused at step")
        house.cli("resume", job.id)
    assert job.until_exit(80)["code"] == 0
    until(lambda: "leaving" in (job.dir / "carbontui.log").read_text(), 60, "the books closed")
    assert f"weights {counting(STEPS)}" in (job.dir / "run.log").read_text()

    first, *later = lives(job)
    assert first[0] == [None, None, 0] and later
    changes = events(job, "state")
    acks = {ack["want_gen"]: ack["step"] for ack in events(job, "ack")}
    unloads = [one for before, one in pairwise(changes) if one["state"] == "unloaded" != before["state"]]
    # by their generations: the journal may hear of the end of a process before its last word has been read
    left = [acks[max(gen for gen in acks if gen <= one["want_gen"])] for one in unloads]
    assert left == lengths(first, *later), "every life ends at the step it acknowledged"
    for (resume, start_step, done), _ in later:
        assert resume == "1" and int(start_step) == done
    paused = [c for c in changes if c["state"] == "paused" and c["reason"] == "override"]
    assert len(paused) >= held and {c["want_gen"] for c in paused if c["mode"] == "pause"} <= set(acks)
    assert not (job.dir / "resume.json").exists()
    assert job.snapshot()["step"] == job.snapshot()["steps_total"] == STEPS


def test_requeue_leaves_with_85_and_keeps_the_marker(house):
    """The scheduler's way: one life, exit code 85, and what is needed to go on lies beside the job."""
    job, code, said = unloading_job(house, STEPS, requeue=True, front=True)
    assert code == 85, said
    assert "unloaded; the scheduler is to start it again" in said
    marker = json.loads((job.dir / "resume.json").read_text())
    assert marker["step"] == json.loads((house.root / "state.json").read_text())["done"] > 0
    assert marker["not_before"] is not None
    assert len(lives(job)) == 1
    status = job.status()
    assert status["state"] == "unloaded" and status["pids"]["child"] is None


def test_what_a_shell_runs_after_an_unload_waits_for_the_whole(house):
    """`python a.py && python b.py`: exit code 0 of an unload must not let b begin on what a has half done."""
    script = script_of(house, COUNTING)
    second = script_of(house, COUNTING.replace('print("weights"', 'print("second"'), "second.py")
    grid, state = days(house.root / "grid.csv", clean_h=16), house.root / "state.json"
    first = f"{sys.executable} {script} {STEPS} 0.02 {state}"
    # a script of its own: it has no state to resume
    then = f"env -u CARBONTUI_RESUME {sys.executable} {second} 5 0.001 {house.root}/b.json"
    job = start(
        house,
        ["sh", "-c", f"{first} && {then}"],
        grid=grid,
        start_h=12,
        budget="3x",
        steps=STEPS + 5,
        flat_s=(STEPS + 5) * 0.023,
    )
    assert job.until_exit(80)["code"] == 0
    out = (job.dir / "run.log").read_text()
    assert f"weights {counting(STEPS)}" in out
    assert out.count("an earlier part of this command was unloaded") >= 1
    assert out.count(f"second {counting(5)}") == 1 and out.index("weights") < out.index("second ")


def left_alone(house, not_before: Callable[[], str | None], timeout_s: float = 60) -> float:
    """Unload a job whose supervisor is gone for good, follow it to its end; when it came back (epoch seconds)."""
    script = script_of(house, COUNTING)
    house.env["CARBONTUI_NO_RESPAWN"] = "1"
    argv = [sys.executable, script, "500", "0.01", house.root / "state.json", "0.001"]
    job = Job(house, house.cli("run", "--detach", "--", *argv, check=True).stdout.strip(), house.root / "marks")
    os.kill(job.pids()["supervisor"], signal.SIGKILL)
    until(lambda: "no new supervisor" in (job.dir / "carbontui.log").read_text(), what="the keeper alone")
    path = Path(json.loads((job.dir / "job.json").read_text())["socket"])
    last = FakeSupervisor(path)  # somebody who asks, of whom the keeper knows nothing
    try:
        last.wait(lambda: last.last() and last.last().can_unload, 30, "the client")
        gen = last.want("unload", not_before=not_before())
        last.wait(lambda: last.acked(gen), 30, "the unload")
        step = last.acked(gen).step
        last.want("run")
        assert job.until_exit(timeout_s)["code"] == 0
    finally:
        last.kill()
    (_, _), ((resume, start_step, done), came_back) = lives(job)
    assert (resume, start_step, done) == ("1", str(step), step)
    assert f"weights {counting(500)}" in (job.dir / "run.log").read_text()
    assert job.status()["state"] == "done"
    return came_back


@pytest.mark.parametrize("later_s", [3, None])
def test_the_keeper_alone_brings_an_unloaded_job_back_when_its_marker_says(house, later_s):
    """At once where it says nothing. A minute without any word, against a marker of years, is in tests/soak."""
    soon = [0]

    def not_before() -> str | None:
        if later_s is None:
            return None
        soon[0] = int(time.time()) + later_s
        return units.iso(soon[0])

    assert left_alone(house, not_before) >= soon[0]


MODULE = """
import os, subprocess, sys, time, torch
from torch.utils.data import DataLoader, TensorDataset
torch.set_num_threads(1)
EVALUATE = '''
import torch
layer = torch.nn.Linear(4, 1)
torch.optim.SGD(layer.parameters(), lr=0.1)
print("evaluated", float(layer(torch.ones(2, 4)).sum()) is not None, flush=True)
'''
if __name__ == "__main__":
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data = DataLoader(TensorDataset(torch.randn(40, 4)), batch_size=2, num_workers=2)
    done = 0
    while not os.path.exists("enough"):
        for (batch,) in data:
            optimizer.zero_grad(); model(batch).sum().backward(); optimizer.step()
            time.sleep(0.02)
            done += 1
    subprocess.run([sys.executable, "-c", EVALUATE], check=True)
    print("module done", done, flush=True)
"""


@needs("torch")
def test_a_module_with_workers_and_an_evaluation_is_one_client(house):
    """`-m pkg`, unchanged: its DataLoader's workers and its evaluation load the hook too and say nothing."""
    (house.root / "pkg").mkdir()
    (house.root / "pkg" / "__init__.py").touch()
    script_of(house, MODULE, "pkg/__main__.py")
    started = house.cli("run", "--detach", "--", sys.executable, "-m", "pkg", check=True)
    job = Job(house, started.stdout.strip(), house.root / "marks")
    until(lambda: (s := job.status()).get("step", 0) > 3 and s, 60, "steps")
    house.cli("pause", job.id, check=True)
    assert job.until_state("paused")["clients"] == 1
    (house.root / "enough").touch()
    house.cli("resume", job.id, check=True)
    seen = set()
    with contextlib.suppress(AssertionError, subprocess.TimeoutExpired):
        until(lambda: seen.add(job.snapshot().get("clients")) or (job.dir / "exit.json").exists(), 60)
    assert job.until_exit(30)["code"] == 0
    assert seen <= {0, 1}
    until(lambda: "leaving" in (job.dir / "carbontui.log").read_text(), 60, "the books closed")
    out = (job.dir / "run.log").read_text()
    assert out.count("evaluated True") == 1
    assert job.snapshot()["step"] == int(out.split("module done ")[1])
