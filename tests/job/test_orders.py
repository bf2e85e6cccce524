"""Orders last: through a keeper that sleeps, a supervisor that dies, a disk that is slow or full."""

import asyncio
import errno
import json
import os
import signal
import threading
import time

import pytest
from house import until

from carbontui import units
from carbontui.job.keeper import orders
from carbontui.job.keeper.orders import LoggedOrder
from carbontui.job.keeper.supervisor_handle import SILENT_S, OwnSleep
from carbontui.job.supervisor.record.disk import Disk

KNOWN = ("--work", "10h", "--zone", "DE", "--intensity", "300")
"""A job whose work is known and whose every hour is alike: it starts at any time of the day."""


def test_a_loop_that_was_asleep_knows_it_and_one_that_only_waited_does_not():
    own = OwnSleep(100.0)
    assert own.since_last(101.6) == 0.0
    assert own.since_last(191.6) == 90.0
    assert own.since_last(192.0) == 0.0


def test_a_stop_given_to_a_sleeping_keeper_ends_the_training_once_it_wakes(house):
    job = house.start(*KNOWN)
    job.until_connected()
    supervisor, keeper = job.pids()["supervisor"], job.pids()["keeper"]
    os.kill(keeper, signal.SIGSTOP)
    try:
        time.sleep(SILENT_S + 1)  # this asleep, it must not take its supervisor for silent
        assert job.tell("stop")
    finally:
        os.kill(keeper, signal.SIGCONT)
    job.until_exit()
    log = (job.dir / "carbontui.log").read_text()
    assert "silent for" not in log and f"supervisor {supervisor} gone (s" not in log


def test_a_keeper_that_wakes_without_its_supervisor_knows_of_the_stop(house):
    job = house.start(*KNOWN)
    job.until_connected()
    keeper, supervisor = job.pids()["keeper"], job.pids()["supervisor"]
    os.kill(keeper, signal.SIGSTOP)
    try:
        os.kill(supervisor, signal.SIGKILL)
        until(lambda: job.served() is None)
        house.cli("stop", job.id, "--now", "--yes", check=True)
    finally:
        os.kill(keeper, signal.SIGCONT)
    assert job.until_exit()["stopped"]


def test_a_boost_of_a_waiting_job_says_that_it_waits_for_a_keeper_that_is_stopped(house):
    job = house.start("--work", "1h", "--budget", "20x", *house.dirty_now())
    until(lambda: (s := job.served()) and s.state == "waiting", what="a start that waits")
    keeper = job.pids()["keeper"]
    os.kill(keeper, signal.SIGSTOP)
    try:
        assert job.tell("boost") == "at full speed; accepted, waiting for the monitor process, which does not answer"
    finally:
        os.kill(keeper, signal.SIGCONT)
    job.until_steps()
    assert house.cli("budget", "24x", job.id, check=True).stdout.endswith("; in force\n")


def order(verb, at=1.0, accepted=True, **args):
    return LoggedOrder(verb, args, "me@tty", at, accepted)


def test_orders_are_read_as_they_were_written_and_a_torn_line_costs_none(tmp_path):
    folder = str(tmp_path)
    _, end = orders.append(folder, order("pause", for_s=60.0))
    with (tmp_path / orders.NAME).open("ab") as file:
        file.write(b'{"verb": "bud')  # the disk was full for a moment
    orders.append(folder, order("resume", 2.0))
    given, polled = orders.since(folder, 0)
    assert [(one.verb, one.args, one.by) for one in given] == [
        ("pause", {"for_s": 60.0}, "me@tty"),
        ("resume", {}, "me@tty"),
    ]
    assert given[0].end == end and polled == orders.size(folder)
    assert [one.verb for one in orders.since(folder, end)[0]] == ["resume"]


def test_a_stop_of_an_earlier_life_stops_no_later_one(tmp_path):
    orders.append(str(tmp_path), order("stop"))
    orders.append(str(tmp_path), order("budget", budget="30h"))
    orders.begin(str(tmp_path))
    assert [one.verb for one in orders.since(str(tmp_path), 0)[0]] == ["budget"]


def test_what_is_no_order_is_left_out(tmp_path):
    orders.append(str(tmp_path), order("pause"))
    with (tmp_path / orders.NAME).open("ab") as file:
        file.write(
            b'[]\n{"verb": "stop"}\n{"verb": "stop", "args": 1, "by": "", "at": 0, "accepted": true}\n\xff\n'
            + b'{"verb": "stop", "args": {}, "by": "", "at": NaN, "accepted": true}\n'
            + b"[" * orders.READ_MOST_B
        )
    given, polled = orders.since(str(tmp_path), 0)
    assert [one.verb for one in given] == ["pause"]
    orders.append(str(tmp_path), order("resume"))
    while not (given := orders.since(str(tmp_path), polled))[0]:
        assert given[1] > polled, "what stands behind a line without an end is read, too"
        polled = given[1]


def test_an_answered_order_is_in_the_log_and_in_force_with_the_next_supervisor(house):
    job = house.start(*KNOWN)
    job.until_connected()
    first = job.pids()["supervisor"]
    said = job.tell("pause")
    os.kill(first, signal.SIGKILL)
    assert "paused at step" in said and said.endswith("; in force")
    assert json.loads((job.dir / orders.NAME).read_text())["verb"] == "pause"
    status = until(lambda: (s := job.served()) and s.pids.supervisor != first and s, 60, "a successor")
    assert status.override.mode == "pause"
    assert [event.kind for event in status.events] == ["override"], "who said it is told on"


def test_a_verb_without_an_answer_leaves_its_order_for_the_next_supervisor(house):
    job = house.start(*KNOWN)
    job.until_connected()
    first, keeper = job.pids()["supervisor"], job.pids()["keeper"]
    os.kill(keeper, signal.SIGSTOP)
    try:
        os.kill(first, signal.SIGKILL)
        done = house.cli("budget", "30h", job.id)
    finally:
        os.kill(keeper, signal.SIGCONT)
    assert done.returncode == 3 and done.stderr.startswith(f"carbontui: no supervisor of job {job.id} answers")
    assert done.stderr.endswith("; accepted, waiting for the supervisor\n")
    status = until(lambda: (s := job.served()) and s.budget.deadline and s, 60, "a successor")
    told = until(lambda: "order taken from orders.log: budget" in (job.dir / "carbontui.log").read_text())
    assert told and status
    hours = (time.time() + 30 * 3600) - until(lambda: _deadline_s(job))
    assert abs(hours) < 120


def _deadline_s(job):
    return (s := job.served()) and units.from_iso(s.budget.deadline)


def test_an_order_that_no_disk_takes_is_in_force_and_said_not_to_be_stored(house):
    job = house.start(*KNOWN)
    job.until_connected()
    (job.dir / orders.NAME).mkdir()  # nothing can be appended
    said = job.tell("pause")
    assert "paused at step" in said
    assert said.endswith("; in force; not stored: it ends if the supervisor is replaced")
    assert until(lambda: any("orders are not stored" in line for line in job.served().notices))
    (job.dir / orders.NAME).rmdir()
    until(lambda: (job.dir / orders.NAME).exists(), what="the order, once the disk takes it")
    assert json.loads((job.dir / orders.NAME).read_text())["verb"] == "pause"


async def test_work_of_the_disk_is_done_in_order_while_the_loop_goes_on():
    disk, done, begun, hold = Disk(), [], threading.Event(), threading.Event()
    first = disk.do(lambda: begun.set() or (hold.wait(60) and done.append(1)))
    second = disk.do(lambda: done.append(2))
    assert await asyncio.to_thread(begun.wait, 60)
    assert not first.done() and not second.done()
    hold.set()
    await asyncio.gather(first, second)
    with pytest.raises(OSError, match="full"):
        await disk.do(lambda: _raise(OSError(errno.ENOSPC, "full")))
    disk.close()
    assert done == [1, 2]


def _raise(error):
    raise error


async def test_a_slow_disk_is_called_slow_for_a_minute():
    now = [0.0]
    disk = Disk(lambda: now[0])

    def takes_8_s():
        now[0] += 8.0

    assert disk.slow_s is None
    await disk.do(takes_8_s)
    await disk.do(lambda: None)
    assert disk.slow_s == 8.0
    now[0] += 61.0
    assert disk.slow_s is None
    disk.close()
