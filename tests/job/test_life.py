"""Whether a job lives, as every verb answers it: from another pid namespace, under another hostname, with its record
damaged; and its death, which is proven or not known."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import subprocess

import pytest
from house import until

from carbontui.job.files import store
from carbontui.system import life, proc
from carbontui.system.life import HostIdentity, Life

HERE = life.here()
HIDDEN = ("unshare", "-p", "-f", "--mount-proc")
RENAMED = ("unshare", "-u", "sh", "-c", 'hostname other; exec "$@"', "sh")
isolated = pytest.mark.skipif(
    subprocess.run([*HIDDEN, "true"], capture_output=True, check=False).returncode != 0,
    reason="no namespace can be made here",
)


@pytest.fixture
def gone():
    """Pid and start time of a process that has ended."""
    process = subprocess.Popen(["true"])
    start = proc.start_time(process.pid) or 1
    process.wait()
    return process.pid, start


@pytest.mark.parametrize(
    ("place", "unseen"),
    [
        (HERE, ""),
        (HERE._replace(host="renamed"), ""),
        (HERE._replace(pidns=HERE.pidns + 1), "namespace"),
        (HostIdentity(HERE.host, HERE.boot), ""),
        (HERE._replace(boot="another"), ""),
        (HERE._replace(boot="another", pidns=1), ""),
        (HERE._replace(boot="another", host="other"), "host"),
        (HERE._replace(boot="another", machine="other"), "host"),
    ],
)
def test_the_same_boot_is_the_same_machine_and_a_namespace_hides(place, unseen):
    assert place.unseen(HERE) == unseen


@pytest.mark.parametrize(
    ("place", "ended", "known"),
    [
        (HERE, False, Life("dead")),
        (HERE._replace(boot="another"), False, Life("dead")),
        (HERE._replace(boot="another", host="other"), False, Life("unknown", "host")),
        (HERE._replace(pidns=1), False, Life("unknown", "namespace")),
        (None, False, Life("unknown", "damaged")),
    ],
)
def test_death_is_proven_where_everything_could_be_seen_else_unknown(tmp_path, gone, place, ended, known):
    assert life.judge(tmp_path, place, [gone, None], ["", tmp_path / "none"], ended=ended) == known


def test_free_locks_prove_death_even_where_nothing_else_is_seen(tmp_path):
    hidden = HERE._replace(pidns=1)
    for name in (life.LOCK, life.TRAINING_LOCK):
        assert life.judge(tmp_path, hidden, [], [], ended=False).state == "unknown"
        (tmp_path / name).touch()
    assert life.judge(tmp_path, hidden, [], [], ended=False) == Life("dead")
    (tmp_path / life.TRAINING_LOCK).unlink()
    assert life.judge(tmp_path, None, [], [], ended=True) == Life("dead")


@pytest.mark.parametrize("proof", ["keeper", "training", "socket", "pid"])
def test_any_proof_of_life_suffices(tmp_path, gone, proof):
    path = tmp_path / "job.sock"
    name = life.LOCK if proof == "keeper" else life.TRAINING_LOCK
    with socket.socket(socket.AF_UNIX) as door, open(tmp_path / name, "w") as file:
        if proof == "socket":
            door.bind(str(path))
            door.listen()
        if proof in ("keeper", "training"):
            fcntl.flock(file, fcntl.LOCK_EX)
        mine = (os.getpid(), proc.start_time(os.getpid()) or 0)
        processes = [gone, mine if proof == "pid" else None]
        assert life.judge(tmp_path, HERE, processes, [path], ended=False) == Life("alive")
    assert life.judge(tmp_path, HERE, [gone], [path], ended=False) == Life("dead")


def test_a_keeper_is_not_refused_because_somebody_looks_at_its_lock(tmp_path):
    with open(tmp_path / "lock", "w") as looker:
        fcntl.flock(looker, fcntl.LOCK_SH)
        assert life.locked(str(tmp_path / "lock")) is None
        fcntl.flock(looker, fcntl.LOCK_UN)
        taken = life.locked(str(tmp_path / "lock"))
        assert taken is not None and life.is_locked(tmp_path / "lock")
        os.close(taken)


def break_record(job):
    (job.dir / "job.json").write_text("{")


def orphan(job):
    """Kill keeper and supervisor; neither can replace the other in between."""
    pids = job.pids()
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for role in ("keeper", "supervisor"):
            os.kill(pids[role], number)
    until(lambda: not store.load(job.dir).kept, what="the keeper's end")
    return pids["child"]


def refused(house, code, *args):
    """The text of a refusal, which never says of a living job that it is over."""
    done = house.cli(*args)
    assert done.returncode == code and " over" not in done.stderr and "lost" not in done.stderr, done.stderr
    return done.stderr


@isolated
@pytest.mark.parametrize("way", ["namespace", "hostname", "damaged"])
def test_every_verb_reaches_a_job_whose_processes_are_hidden(house, way):
    job = house.start("--intensity", "300", "--work", "9h")
    job.until_connected()
    house.prefix = {"namespace": HIDDEN, "hostname": RENAMED}.get(way, ())

    def say(*args):
        if way == "damaged":
            break_record(job)
        return house.cli(*args, check=True).stdout

    assert f"{job.id}  t" in (listed := say("ls")) and "running" in listed
    assert json.loads(say("status", "--json", job.id))["state"] == "running"
    assert "paused at step" in say("pause", job.id)
    assert "back" in say("resume", job.id)
    assert "budget 30h" in say("budget", "30h", job.id)
    assert "at full speed" in say("boost", job.id)
    assert "is running; stop it first" in refused(house, 2, "rm", job.id)
    assert "is running" in refused(house, 1, "restart", job.id)
    assert f"job {job.id} stopped" in say("stop", "--yes", "--now", job.id)
    assert proc.start_time(job.pids()["child"]) is None
    assert "forgot" in say("rm", job.id) and not job.dir.exists()


@isolated
def test_an_orphan_of_another_namespace_is_named_and_kept(house):
    job = house.start("--intensity", "300")
    job.until_connected()
    child = orphan(job)
    house.prefix = HIDDEN
    assert "namespace" in (listed := house.cli("ls", check=True).stdout) and "running" in listed
    refused(house, 2, "rm", job.id)
    for verb, code in (("pause", 3), ("stop", 1), ("restart", 1)):
        assert "namespace" in refused(house, code, verb, job.id)
    house.prefix = ()
    os.kill(child, signal.SIGKILL)
    until(lambda: proc.start_time(child) is None)
    house.prefix = HIDDEN
    assert "forgot" in house.cli("rm", job.id, check=True).stdout


def test_an_orphan_with_a_damaged_record_is_stopped(house):
    job = house.start("--intensity", "300")
    job.until_connected()
    child = orphan(job)
    break_record(job)
    assert "training goes on" in house.cli("ls", check=True).stdout
    refused(house, 2, "rm", job.id)
    house.cli("stop", "--yes", "--now", job.id, check=True)
    assert proc.start_time(child) is None and "stopped" in house.cli("ls", "--all", check=True).stdout


def test_a_keeper_writes_its_jobs_damaged_record_again(house):
    job = house.start("--intensity", "300")
    path = job.dir / "job.json"
    before = json.loads(path.read_text())
    assert before["pidns"] == HERE.pidns and before["machine"] == HERE.machine
    break_record(job)
    assert until(lambda: store.read_json(path), 20, "a record")["pids"]["child"] == before["pids"]["child"]
    path.unlink()
    until(lambda: store.read_json(path), 20, "a record")


def test_what_may_live_is_neither_removed_nor_started_twice(house):
    job = house.start(steps=20)
    job.until_over()
    record = json.loads((job.dir / "job.json").read_text())
    for name in ("exit.json", "snapshot.json"):
        (job.dir / name).unlink()
    (job.dir / life.TRAINING_LOCK).unlink()
    (job.dir / "job.json").write_text(json.dumps(record | {"pidns": 1}))
    assert json.loads(house.cli("status", job.id, "--json", check=True).stdout)["step"] is None, "0 would be a figure"
    told = refused(house, 2, "rm", job.id)
    assert "not known" in told and "namespace" in told and f"rm -r {job.dir}" in told
    refused(house, 1, "restart", job.id)
    assert "not known" in house.cli("ls", check=True).stdout
    (job.dir / "job.json").write_text("")
    assert "job.json is damaged" in refused(house, 2, "rm", job.id)
