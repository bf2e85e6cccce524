"""Orders last: through a keeper that sleeps, a supervisor that dies, a disk that is slow or full."""

import os
import signal
import time

from carbontui.job.keeper.own_sleep import OwnSleep

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
        time.sleep(7.0)
        assert job.tell("stop")
    finally:
        os.kill(keeper, signal.SIGCONT)
    job.until_exit(5.0)
    log = (job.dir / "carbontui.log").read_text()
    assert "keeper: was asleep for" in log and "silent for" not in log and f"supervisor {supervisor} gone (s" not in log
