"""A job that its scheduler starts again is one job: found by the scheduler's id, in a plain environment here."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import sys

import pytest
from house import until

from carbontui.job.files import store
from carbontui.job.life import requeue
from carbontui.system.life import HostIdentity

SCRIPT = """\
import json, os, sys, time
import carbontui
got, life = open(sys.argv[1], "a", buffering=1), sys.argv[2:]
told = {name: os.environ.get(f"CARBONTUI_{name}") for name in ("RESUME", "START_STEP")}
got.write(json.dumps({**told, "args": life, "job": os.environ["CARBONTUI_JOB"]}) + "\\n")
while not os.path.exists(os.environ["CARBONTUI_SOCKET"]):
    time.sleep(0.02)
for step in range(30):
    time.sleep(0.02)
    carbontui.step()
while os.path.exists(sys.argv[1] + ".stay"):
    time.sleep(0.02)
    carbontui.step()
if not told["RESUME"]:
    with open(os.environ["CARBONTUI_MARKER"], "w") as marker:
        json.dump({"step": 30, "not_before": None}, marker)
print("life over")
"""


class Batch:
    """What a batch script does with `carbontui run --requeue`, start after start."""

    def __init__(self, house):
        self.house = house
        self.got = house.root / "got"
        (house.root / "resumable.py").write_text(SCRIPT)

    def run(self, restarts, *options, number="77", detach=False, **kwargs):
        self.house.env |= {"SLURM_JOB_ID": number, "SLURM_RESTART_COUNT": str(restarts)}
        command = [sys.executable, self.house.root / "resumable.py", self.got, "--lr", "1"]
        asked = [*(["--detach"] if detach else []), "--requeue", *options]
        return self.house.cli("run", *asked, "--", *command, **kwargs)

    def lives(self):
        return [json.loads(line) for line in self.got.read_text().splitlines()]


def test_one_job_over_its_restarts(house):
    """Unloaded, it goes on with resume, step, account, budget, a person's word, name and id of its first start."""
    house.env["CARBONTUI_HOST_W"] = "10"
    batch = Batch(house)
    first = batch.run(0, "--name", "big", "--budget", "30h", "--resume-args", "--init_from='a b'")
    assert first.returncode == 85, first.stderr
    (job,) = store_jobs(house)
    before = kept(job)
    (job / "resume.json.checkpoint").write_text("{}")
    second = batch.run(1, "--name", "big", "--resume-args", "--init_from='a b'")
    assert second.returncode == 0, second.stderr
    assert store_jobs(house) == [job], "one job"
    assert [life["RESUME"] for life in batch.lives()] == [None, "1"]
    assert batch.lives()[1]["START_STEP"] == "30"
    assert [life["args"] for life in batch.lives()] == [["--lr", "1"], ["--lr", "1", "--init_from=a b"]]
    assert (job / "resume.json.checkpoint").exists(), "the framework's checkpoint"
    after = kept(job)
    assert after["progress"]["step"] == 60 and before["progress"]["step"] == 30
    assert after["accounts"]["start_s"] == before["accounts"]["start_s"]
    assert after["accounts"]["energy_wall_kwh"] >= before["accounts"]["energy_wall_kwh"]
    assert after["accounts"]["energy_wall_kwh"] > 0
    assert "life over" in second.stdout and second.stdout.count("life over") == 1, "the first start's output was told"
    spec = json.loads((job / "spec.json").read_text())
    assert (spec["attempt"], spec["name"]) == (1, "big")
    # it has come to its end: what the script starts next is another job
    assert batch.run(1, "--name", "big").returncode == 85
    assert len(store_jobs(house)) == 2


def test_a_person_s_word_and_a_killed_start_are_carried_over(house):
    batch = Batch(house)
    stay = house.root / "got.stay"
    stay.touch()
    job = batch.run(0, "--work", "1h", "--budget", "1x", detach=True, check=True).stdout.strip()
    directory = house.home / "jobs" / job
    until(lambda: len(batch.lives()) == 1 if batch.got.exists() else False, 60, "the first life")
    house.cli("budget", "9h", job, check=True)
    house.cli("boost", job, check=True)
    for role in ("keeper", "supervisor", "child"):  # the node fails
        os.kill(json.loads((directory / "job.json").read_text())["pids"][role][0], signal.SIGKILL)
    until(lambda: not store.load(directory).live, 60, "the end of everything")
    assert batch.run(1, "--work", "1h", detach=True, check=True).stdout.strip() == job
    status = until(lambda: (s := json.loads(house.cli("status", "--json", job).stdout)) and s["override"] and s, 60)
    assert status["override"]["mode"] == "boost"
    assert "9h" in json.dumps(kept(directory)["budget"])
    # not ended by the scheduler's restart (its processes were out of reach): it is followed, not started twice
    assert batch.run(2, "--work", "1h", detach=True, check=True).stdout.strip() == job
    until(lambda: len(batch.lives()) == 2, 60, "the second life")
    stay.unlink()
    until(lambda: (directory / "exit.json").exists(), 60, "the end")
    assert len(batch.lives()) == 2


@pytest.mark.parametrize(
    ("record", "again", "goes_on"),
    [
        (None, True, True),
        (None, False, False),
        ({"code": 0, "unloaded": True}, False, True),
        ({"code": 0}, True, False),
        ({"code": 0, "signals": [15]}, True, True),
        ({"code": 1}, True, True),
        ({"code": 1}, False, False),
        ({"code": None, "signal": 9}, True, True),
    ],
)
def test_what_goes_on(tmp_path, record, again, goes_on):
    job = store.Job("a", "a", tmp_path, HostIdentity("h", "b"), tmp_path, tmp_path, 0.0, (), {}, record)
    assert requeue.goes_on(job, again=again) is goes_on


def test_the_scheduler_s_job_is_named_by_its_words():
    assert requeue.scheduled({}) is None
    batch = {"SLURM_JOB_ID": "7", "SLURM_CLUSTER_NAME": "c"}
    assert requeue.scheduled(batch) == ("slurm c 7", 0)
    assert requeue.scheduled({**batch, "SLURM_RESTART_COUNT": "3"}) == ("slurm c 7", 3)
    tasks = [{**batch, "SLURM_STEP_NUM_TASKS": "2", "SLURM_PROCID": str(n)} for n in (0, 1)]
    assert len({requeue.scheduled(task) for task in tasks}) == 2


@pytest.mark.parametrize(
    ("command", "text", "said"),
    [
        (["sh", "-c", "python train.py"], "--resume", "does not reach the command"),
        (["nice", "bash", "-ec", "python train.py"], "--resume", "does not reach the command"),
        (["true"], "'--resume", "cannot be split"),
    ],
)
def test_arguments_that_could_not_reach_the_training_are_refused(house, command, text, said):
    done = house.cli("run", "--resume-args", text, "--", *command)
    assert done.returncode == 2 and said in done.stderr and "Traceback" not in done.stderr
    assert not list(house.home.glob("jobs/*"))


def store_jobs(house):
    return sorted(path.parent for path in house.home.glob("jobs/*/job.json"))


def kept(directory):
    with sqlite3.connect(f"file:{directory}/journal.db?mode=ro", uri=True) as journal:
        return {key: json.loads(value) for key, value in journal.execute("SELECT key, value FROM state")}
