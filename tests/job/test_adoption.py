"""A training whose keeper and supervisor are gone is taken up as it is: by restart, run, attach and doctor."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import time

import pytest
from house import until

from carbontui.job.files import store
from carbontui.job.keeper.command import UNKNOWN, Adopted, exit_status
from carbontui.job.terms import child as children
from carbontui.system import proc


def kill(job, *roles):
    """Kill these processes of a job; none can replace another in between. The pid of its training."""
    pids = job.pids()
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for role in roles:
            os.kill(pids[role], number)
    until(lambda: not store.load(job.dir).kept, what="the keeper's end")
    return pids["child"]


@pytest.fixture
def orphan(house):
    """A job whose training alone is left, and the training's pid."""
    job = house.start("--intensity", "300", code=7)
    job.until_connected()
    return job, kill(job, "keeper", "supervisor")


def taken_up(job, child):
    """Until its training is in touch with a new supervisor, without having been started again."""
    status = job.until_connected(20)
    assert status.pids.child == child and status.pids.keeper and proc.start_time(child) is not None
    assert job.served().state == "running"
    return status


def test_restart_takes_a_training_up_and_everything_is_as_before(house, orphan):
    job, child = orphan
    refused = house.cli("pause", job.id)
    assert refused.returncode == 3 and f"carbontui restart {job.id}" in refused.stderr
    began = time.monotonic()
    house.env["CUDA_VISIBLE_DEVICES"] = "7"  # of another shell: the boards are those of the job
    house.cli("restart", job.id, check=True)
    taken_up(job, child)
    assert "CUDA_VISIBLE_DEVICES" not in proc.environment(job.pids()["supervisor"])
    assert time.monotonic() - began < 15  # on a busy machine; 2 s on an idle one
    assert "paused at step" in house.cli("pause", job.id, check=True).stdout
    house.cli("boost", job.id, check=True)
    job.let_end()
    assert job.until_exit()["code"] in (7, None)  # as far as the kernel lets others see it
    job.until_over()
    steps = [int(line.split()[0]) for line in job.marks.read_text().splitlines()]
    assert steps == list(range(1, len(steps) + 1)) and job.status()["step"] == len(steps)


def test_a_taken_up_training_is_stopped_and_restarted_once_more(house, orphan):
    job, child = orphan
    (job.dir / "environment.json").unlink()  # as with --no-spool: its environment is read from the process
    for _ in range(2):
        house.cli("restart", job.id, check=True)
        taken_up(job, child)
        kill(job, "keeper", "supervisor")
    house.cli("restart", job.id, check=True)
    house.cli("stop", "--yes", "--now", job.id, check=True)
    assert job.until_exit()["stopped"] and proc.start_time(child) is None


def test_of_several_restarts_one_takes_it_up_and_all_succeed(house, orphan):
    job, child = orphan
    command = [sys.executable, "-m", "carbontui.cli", "restart", job.id]
    some = [subprocess.Popen(command, env=house.env, stdout=subprocess.DEVNULL) for _ in range(3)]
    codes = [each.wait(60) for each in some]
    taken_up(job, child)
    # who comes when the first keeper is there already is told that it is live
    assert set(codes) <= {0, 1} and 0 in codes
    assert (job.dir / "carbontui.log").read_text().count("taken up") == 1


def test_a_supervisor_without_a_keeper_makes_way_for_one_that_has_one(house):
    job = house.start("--intensity", "300")
    before = job.until_connected()
    child = kill(job, "keeper")
    assert job.served().pids.keeper is None
    house.cli("restart", job.id, check=True)
    assert taken_up(job, child).pids.supervisor != before.pids.supervisor


def test_run_of_the_same_name_and_command_takes_it_up(house, orphan):
    job, child = orphan
    argv = store.load(job.dir).argv
    other = house.cli("run", "--detach", "--name", "t", "--", "sleep", "1")
    assert other.returncode == 2 and "is running" in other.stderr
    assert house.cli("run", "--detach", "--name", "t", "--", *argv, check=True).stdout.strip() == job.id
    taken_up(job, child)


@pytest.mark.parametrize("verb", [("doctor", "--repair"), ("attach",)])
def test_doctor_and_attach_take_it_up(house, orphan, verb):
    job, child = orphan
    if verb[0] == "doctor":
        assert f"fix: carbontui restart {job.id}" in house.cli("doctor").stdout
    process = subprocess.Popen(
        [sys.executable, "-m", "carbontui.cli", *verb],
        env=house.env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    taken_up(job, child)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=30)
    assert verb[0] == "doctor" or "taken up again" in said


def test_an_end_whose_code_nobody_knows_is_said_to_be_one():
    assert [exit_status(code) for code in (0, 7, -9, UNKNOWN)] == [(0, None), (7, None), (None, 9), (None, None)]
    end = children.ending(children.exited({"code": None, "signal": None, "at": 1.0}))
    assert end.state == "lost" and end.why.said.code == "ended_unknown"


ORPHAN = """\
import os, subprocess, sys
left = subprocess.Popen(["sh", "-c", sys.argv[1]], start_new_session=True, stdout=-3, stderr=-3)
print(left.pid, flush=True)
"""


@pytest.mark.parametrize(("ends", "code"), [("exit 7", 7), ("exit 0", 0), ("kill -9 $$", -9)])
def test_the_end_of_a_process_of_others_is_noticed_at_once(tmp_path, ends, code):
    told = subprocess.run([sys.executable, "-c", ORPHAN, f"sleep 0.5; {ends}"], capture_output=True, check=True)
    pid = int(told.stdout)
    with selectors.DefaultSelector() as selector:
        adopted = Adopted(pid, proc.start_time(pid), str(tmp_path), selector)
        assert not adopted.ended()
        assert selector.select(20), "it wakes the loop"
        assert adopted.ended() and not adopted.ended()
        assert adopted.returncode in (code, UNKNOWN) and selector.select(0) == []


def test_the_exit_code_that_a_client_left_is_taken_from_nobody_else(tmp_path):
    with selectors.DefaultSelector() as selector:
        for start, code in ((5, 3), (6, UNKNOWN)):
            (tmp_path / "ended-999999999.json").write_text(json.dumps({"start_time": 5, "code": 3}))
            adopted = Adopted(999_999_999, start, str(tmp_path), selector)
            assert adopted.ended() and adopted.returncode == code
            assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("script", "code"),
    [("", 0), ("raise ValueError", 1), ("import sys; sys.exit(3)", None), ("raise SystemExit(3)", None)],
)
def test_a_client_leaves_the_exit_code_that_it_is_sure_of(tmp_path, script, code):
    begins = "import atexit; from carbontui.client import marker; atexit.register(marker.leave_exit_code, 0, 5)"
    path = tmp_path / "train.py"
    path.write_text(f"{begins}; {script}")
    env = os.environ | {"CARBONTUI_MARKER": str(tmp_path / "resume.json")}
    process = subprocess.Popen([sys.executable, path], env=env, stderr=subprocess.DEVNULL)
    process.wait(30)
    left = store.read_json(tmp_path / f"ended-{process.pid}.json")
    assert left == (None if code is None else {"start_time": 5, "code": code})
