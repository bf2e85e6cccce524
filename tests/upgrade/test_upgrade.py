"""The package is replaced on disk while a job runs: processes of both versions then serve it, and nothing is lost.

The other version is the wheel beside this file. `site/carbontui` is what the processes of the job import; swapping it
is the upgrade (or the downgrade). What runs already keeps the code it has; what is started from then on has the other.
"""

import json
import os
import signal
import sqlite3
import time
import zipfile
from contextlib import closing
from pathlib import Path

import pytest
from house import until

import carbontui
from carbontui import protocol, units
from carbontui.commands.support import talk
from carbontui.job.files import store

NEW = Path(carbontui.__file__).parent
WHEEL = Path(__file__).parent / "carbontui-0.1.0-py3-none-any.whl"
LEASE_S = 15.0
HOST_W = 100.0
"""Watts of the machine that every job here counts: joules flow without a GPU."""


class Site:
    """A folder of packages ahead of the installed ones, in which carbontui can be swapped at once."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._old = root / "unpacked" / "carbontui"
        with zipfile.ZipFile(WHEEL) as wheel:
            wheel.extractall(root / "unpacked")
        (root / "site").mkdir()

    @property
    def path(self) -> Path:
        return self._root / "site"

    def install(self, version: str) -> None:
        fresh = self._root / "fresh"
        fresh.symlink_to(self._old if version == "old" else NEW)
        fresh.replace(self.path / "carbontui")


@pytest.fixture(params=["old to new", "new to old"])
def upgrade(request, tmp_path, house):
    """A house whose job is started with one version; calling `swap` installs the other."""
    before, after = request.param.split(" to ")
    site = Site(tmp_path)
    site.install(before)
    house.env["PYTHONPATH"], house.module = str(site.path), "carbontui.cli"
    house.home.mkdir()
    (house.home / "config.toml").write_text(f"host_w = {HOST_W}\n")
    house.env["CARBONTUI_BOUNDARY"] = "given-back"  # the older one counts so by the watts alone
    house.swap = lambda: site.install(after)
    return house


def grid(root: Path, dirty: int = 500) -> Path:
    """Recorded intensities of some days around now: four clean hours, four dirty ones, in turn."""
    begin = time.time() // 900 * 900 - 86400
    moments = [begin + 900 * quarter for quarter in range(4 * 96)]
    clock = lambda at: time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))  # noqa: E731
    rows = [f"{clock(at)},{90 if at // 14400 % 2 else dirty}\n" for at in moments]
    path = root / "grid.csv"
    path.write_text("time_utc,carbon_g_per_kwh\n" + "".join(rows))
    return path


def settle(job) -> None:
    """Wait until every process of the job has loaded its code: the boards have been looked at, and steps are made."""
    polled = lambda: "not answered yet" not in refused_cap(job)  # noqa: E731
    until(polled, what="the agent's first word")
    until(lambda: all(asleep(pid) for _ in range(3) for pid in workers_of(job)), what="the worker's imports")
    job.until_steps()


def refused_cap(job) -> str:
    """Why no cap can be set: there is no board, or nobody has looked yet."""
    return talk.ask(store.load(job.dir), protocol.Cmd(1, "cap", {"value_w": 50.0}), protocol.Result).error or ""


def replace(job, role: str) -> None:
    """Kill the process of a role; returns when its successor works."""

    def working() -> bool:
        status = job.status()
        return status["pids"].get(role) not in (first, None) and status["pids"]["supervisor"] is not None

    first = job.status()["pids"][role]
    os.kill(first, signal.SIGKILL)
    until(working, 60, f"a new {role}")


def begins_later(job) -> bool:
    following = job.status()["next"] or {"level": ""}
    return following["level"] == "full" and units.from_iso(following["at"]) > time.time() + 60.0


def faults_of(job) -> list[str]:
    log = (job.dir / "carbontui.log").read_text()
    return [line for line in log.splitlines() if "fault" in line or "Error" in line]


def joules_written(job) -> float:
    with closing(sqlite3.connect(f"file:{job.dir / 'journal.db'}?mode=ro", uri=True)) as db:
        return db.execute("select coalesce(sum(joules), 0) from energy").fetchone()[0]


@pytest.mark.long
def test_a_keeper_of_one_version_goes_on_with_a_supervisor_of_the_other(upgrade):
    # one intensity: nothing to wait for at any hour
    given = ("--budget", "20h", "--work", "10h", "--steps", "100000", "--grid", grid(upgrade.root, dirty=90))
    job = upgrade.start(*given)
    settle(job)
    until(lambda: joules_written(job) > 0, what="joules in the journal")
    upgrade.cli("budget", "30h", job.id, check=True)
    assert "paused at step" in upgrade.cli("pause", job.id, check=True).stdout
    held, before = job.steps(), job.status()
    upgrade.swap()
    replace(job, "supervisor")
    paused = job.until_state("paused")
    taken_over = time.monotonic()
    job.until_connected()
    assert paused["override"] == before["override"] and paused["override_gen"] == before["override_gen"]
    assert paused["budget"] == before["budget"]
    # one version tells joules as of the moment, the other as of its last sample
    until(lambda: job.status()["energy_wall_kwh"] >= before["energy_wall_kwh"] > 0, what="every joule of before")
    assert paused["step"] == held == job.steps()
    # beyond the lease of the one that is gone: it is the successor that holds the pause now
    until(lambda: time.monotonic() > taken_over + LEASE_S + 1, LEASE_S + 5)
    assert job.steps() == held
    upgrade.cli("resume", job.id, check=True)
    job.until_steps()
    status = until(lambda: (s := job.status())["step"] > held and s, what="steps in the status")
    # joules flow on at the machine's watts: neither lost nor counted twice while two versions kept the account
    elapsed_s = time.time() - os.stat(job.dir / "spec.json").st_mtime
    assert status["energy_wall_kwh"] * 3.6e6 >= 0.5 * HOST_W * elapsed_s
    assert not faults_of(job)


def test_the_end_is_seen_and_told_whichever_version_keeps_and_whichever_serves(upgrade):
    job = upgrade.start(code=7)
    settle(job)
    upgrade.swap()
    replace(job, "supervisor")
    job.until_connected()
    job.let_end()
    assert job.until_exit() | {"at": 0} == {"at": 0, "code": 7, "signal": None, "stopped": False, "unloaded": False}
    status = job.until_state("failed")
    assert status["step"] == job.steps()
    assert (status["exit"]["code"], status["exit"]["signal"]) == (7, None)
    assert not faults_of(job)


def test_a_stop_reaches_the_training_across_versions(upgrade):
    job = upgrade.start()
    settle(job)
    upgrade.swap()
    replace(job, "supervisor")
    assert "stopped" in upgrade.cli("stop", job.id, "--now", "--yes", check=True).stdout
    assert job.until_exit()["stopped"]


def test_a_supervisor_of_one_version_plans_with_a_worker_of_the_other(upgrade):
    job = upgrade.start("--budget", "20h", "--work", "10h", "--grid", grid(upgrade.root), "--zone", "DE")
    first = until(lambda: told(job).get("plan"), 60, "the first plan")
    until(lambda: job.steps() > 2 or begins_later(job), what="steps, or a wait")  # nobody is importing the package
    upgrade.swap()
    os.kill(workers_of(job)[0], signal.SIGKILL)
    upgrade.cli("budget", "40h", job.id, check=True)
    # a new plan, or a word that there is none; never silence, and never a plan for another question
    second = until(lambda: (t := told(job)) and (t["plan"]["made_at"] != first["made_at"] or refused(t)) and t, 60)
    plan = second["plan"]
    assert plan["deadline"] != first["deadline"] or refused(second)
    job.until_state("running", "paused", "throttled", "waiting")  # the first plan may come before the start


def test_a_supervisor_of_one_version_reads_an_agent_of_the_other(upgrade):
    job = upgrade.start()
    settle(job)
    upgrade.swap()
    replace(job, "agent")
    before = job.status()["energy_wall_kwh"]
    until(lambda: job.status()["energy_wall_kwh"] > before, what="more joules")
    assert not faults_of(job)


def told(job) -> dict:
    """What a screen is shown: status, plan, frontier."""
    connection, lines = job.connect()
    with connection:
        connection.sendall(b'{"t":"view","rate_hz":1}\n')
        return json.loads(lines.readline())


def refused(snap: dict) -> bool:
    return any("no new plan" in notice for notice in snap["status"]["notices"])


def workers_of(job) -> list[int]:
    return children_of(job.pids()["supervisor"], "carbontui.job.worker")


def asleep(pid: int) -> bool:
    """Whether a process waits to be asked: one that imports computes, or waits for the disk."""
    return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] == "S"


def children_of(pid: int, module: str) -> list[int]:
    """The processes that `pid` started as `python -m module`."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            stat = (entry / "stat").read_text().rpartition(")")[2].split()
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if int(stat[1]) == pid and module.encode() in words:
            found.append(int(entry.name))
    return found
