"""SIGSTOP on request: a program without steps is held by signal, and let go whatever becomes of us."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from drawn import drawn
from house import until
from states import PAUSE, board, policy, rank

from carbontui import protocol
from carbontui.job.keeper.signals import Freezer
from carbontui.job.supervisor.core.state.override import Overrides
from carbontui.job.supervisor.core.state.progress import Progress
from carbontui.job.terms.child import Child
from carbontui.system import proc

LOOP = "i=0; while true; do i=$((i+1)); echo $i > count; sleep 0.02; done"


def stopped(pid: int) -> bool:
    """Whether the program stands; a shell stopped in the middle of a vfork shows it only by its child."""
    for one in (pid, *proc.descendants(pid)):
        with contextlib.suppress(OSError):
            if Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()[0] == "T":
                return True
    return False


@pytest.fixture
def program(tmp_path):
    """A shell loop in a process group of its own."""
    process = subprocess.Popen(["/bin/sh", "-c", LOOP], cwd=tmp_path, start_new_session=True)
    yield process
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def paused(age_s=100.0, sigstop=True, frozen=False, **fields):
    """What is decided on a program whose plan says pause, without a step unless `fields` say so."""
    return policy(
        PAUSE, **{"child": Child("running", age_s=age_s, frozen=frozen), "ranks": (), **fields}, sigstop=sigstop
    )


SHARED = (board(pids=(1, 2), name="H100"),)
"""A board whose processes would wait for each other."""


def test_only_on_request_only_without_steps_and_never_at_once_by_the_plan():
    assert paused()[0].freeze
    assert not paused(sigstop=False)[0].freeze
    assert not paused(progress=Progress(step=3, work_s=7200.0))[0].freeze, "a loop that reconnects answers at its steps"
    assert not paused(ranks=(rank(),))[0].freeze
    assert not paused(boards=SHARED)[0].freeze and not paused(guarded=False)[0].freeze
    assert not paused(age_s=9)[0].freeze, "its first step may be on its way"
    person = Overrides(protocol.Override("pause", None, None, "ada@pts/1"))
    assert paused(age_s=3, override=person)[0].freeze


def test_it_is_paused_only_once_it_stands_and_a_refusal_says_why():
    asked, decision = paused()
    assert decision.state == "pausing"
    _, decision = paused(asked=asked, frozen=True)
    assert decision.state == "paused" and "SIGSTOP" in drawn(decision)
    asked, decision = paused(asked=asked, frozen=True, boards=SHARED)
    assert not asked.freeze and "2 processes use H100" in drawn(decision)
    assert "--sigstop" in drawn(paused(sigstop=False)[1]), "without it the way to get it is named"
    refused = drawn(paused(guarded=False)[1])
    assert "monitor process" in refused and "is gone" in refused and "--sigstop" not in refused, (
        "who asked for it is not told to"
    )


def test_the_group_stands_while_the_lease_is_renewed_and_goes_on_after_it(program):
    changes = []
    freezer = Freezer(lambda _text: None, lambda: changes.append(freezer.frozen))
    freezer.hold(program.pid, 15.0, now=100.0)
    assert freezer.frozen, freezer.why
    until(lambda: stopped(program.pid), what="the stop")
    freezer.tick(114.0)
    os.killpg(program.pid, signal.SIGCONT)  # by another's hand
    freezer.hold(program.pid, 15.0, now=114.0)
    until(lambda: stopped(program.pid), what="standing again")
    freezer.tick(128.9)
    assert freezer.frozen and stopped(program.pid)
    freezer.tick(129.0)
    until(lambda: not stopped(program.pid), what="going on")
    assert changes == [True, False]


def test_a_process_that_left_the_group_is_named_and_nothing_is_stopped(tmp_path):
    script = "setsid sleep 60 & while true; do sleep 0.05; done"
    process = subprocess.Popen(["/bin/sh", "-c", script], start_new_session=True)
    try:
        away = until(lambda: [p for p in proc.descendants(process.pid) if os.getpgid(p) != process.pid], what="it")
        freezer = Freezer(lambda _text: None, lambda: None)
        freezer.hold(process.pid, 15.0, now=0.0)
        assert not freezer.frozen and str(away[0]) in freezer.why and not stopped(process.pid)
    finally:
        for pid in (*proc.descendants(process.pid), process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()


def test_when_its_holder_is_killed_it_goes_on(program):
    code = (
        "import sys, time; from carbontui.job.keeper.signals import Freezer\n"
        "f = Freezer(lambda t: None, lambda: None); f.hold(int(sys.argv[1]), 1e9, 0.0)\n"
        "print('held', flush=True); time.sleep(600)"
    )
    holder = subprocess.Popen([sys.executable, "-c", code, str(program.pid)], stdout=subprocess.PIPE)
    assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
    until(lambda: stopped(program.pid), what="the stop")
    holder.kill()
    holder.wait()
    until(lambda: not stopped(program.pid), what="going on")


def test_a_job_without_steps_is_held_through_a_respawn_and_freed_by_any_death(house):
    done = house.cli("run", "--detach", "--sigstop", "--", "/bin/sh", "-c", LOOP, check=True)
    job = done.stdout.strip()
    count = house.root / "count"

    def record():
        return house.cli("status", job, "--json").stdout

    def pids():
        found = json.loads((house.home / "jobs" / job / "job.json").read_text())["pids"]
        return {role: entry[0] for role, entry in found.items() if entry}

    until(count.exists, what="the program")
    child = pids()["child"]
    assert "paused (SIGSTOP)" in house.cli("pause", job, check=True).stdout
    until(lambda: stopped(child), what="the stop")
    first = pids()["supervisor"]
    os.kill(first, signal.SIGKILL)
    until(lambda: pids().get("supervisor", first) != first, what="a successor")
    until(lambda: '"paused"' in record(), what="the pause taken over")
    until(lambda: stopped(child), what="the stop")
    house.cli("resume", job, check=True)
    until(lambda: not stopped(child), what="going on")
    house.cli("pause", job, check=True)
    until(lambda: stopped(child), what="the stop")
    now = pids()
    os.kill(now["supervisor"], signal.SIGSTOP)  # it must not be the one that lets go
    os.kill(now["keeper"], signal.SIGKILL)
    until(lambda: not stopped(child), what="going on")
    before = time.monotonic(), count.read_text()
    until(lambda: count.read_text() != before[1], what="its work")
