"""`carbontui fleet` slot after slot: a controller that is away for a while is said, and looked for again."""

from __future__ import annotations

import importlib

import pytest
from click.testing import CliRunner

from carbontui.commands.support.command import Failure
from carbontui.extensions.fleet.queue_problem import Assumed, FleetTerms, Move
from carbontui.extensions.fleet.rounds import MoveLog
from carbontui.slurm import queue

verb = importlib.import_module("carbontui.extensions.fleet.commands")


class Ended(Exception):
    pass


@pytest.fixture
def rounds(monkeypatch, tmp_path):
    """What each round does, and how long is slept between."""
    plan, slept = [], []

    def one(*args, **kwargs):
        done = plan.pop(0) if plan else Ended()
        if isinstance(done, Exception):
            raise done
        return done

    monkeypatch.setenv("CARBONTUI_HOME", str(tmp_path))
    monkeypatch.setattr(verb, "one_round", one)
    # shorter ones are of a wait for a process
    monkeypatch.setattr(verb.time, "sleep", lambda span_s: slept.append(span_s) if span_s >= 1.0 else None)
    return plan, slept


def test_an_hour_without_a_controller_is_said_and_the_next_round_plans_again(rounds):
    plan, slept = rounds
    away = Failure("squeue: slurm_load_jobs error: Unable to contact slurm controller (connect failure)", 1)
    plan += [None, *[away] * 60, None]
    done = CliRunner().invoke(verb.fleet, ["--cap", "1kW", "--slot", "15m"])
    assert isinstance(done.exception, Ended)
    said = [line for line in done.stderr.splitlines() if line]
    assert len(said) == 60 and all(line.endswith("retrying in 60 s") for line in said)
    assert slept[1:61] == [60.0] * 60


def test_once_and_a_dry_run_end_with_the_failure(rounds):
    plan, slept = rounds
    for option in ("--once", "--dry-run"):
        plan.append(Failure("sinfo: not found", 1))
        done = CliRunner().invoke(verb.fleet, ["--cap", "1kW", option], standalone_mode=False)
        assert isinstance(done.exception, Failure) and done.exception.message == "sinfo: not found" and slept == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "needs the site's budget"),
        (["--cap", "1kW", "--slot", "1s"], "between 10 s and one day"),
        (["--cap", "1kW", "--slot", "soon"], "is not a duration"),
        (["--cap", "1kW 25:00-26:00"], "hours are from 00:00 to 24:00"),
        (["--cap", "1kW", "--gpu-w", "hot"], "--gpu-w: 'hot' is not a power"),
    ],
)
def test_what_cannot_be_meant_is_one_line(rounds, options, said):
    done = CliRunner().invoke(verb.fleet, options, standalone_mode=False)
    failure = done.exception
    assert (
        isinstance(failure, Failure) and failure.code == 2 and said in failure.message and "\n" not in failure.message
    )


def waits(job: str, begin_s: float, user: str = "ann") -> queue.QueuedJob:
    words = job, "PENDING", user, "BeginTime", "", "train", ""
    return queue.QueuedJob(*words, begin_s, None, begin_s, 3600.0, 1.0, queue.JobNote(), 1, 1, 0)


def test_what_is_put_off_is_moved_first_and_no_more_than_is_allowed():
    soon, late, theirs = waits("1", 100.0), waits("2", 9000.0), waits("3", 50.0, "bob")
    moves = [Move(late, 500.0, None, ""), Move(soon, 7000.0, None, ""), Move(theirs, 800.0, None, "")]
    for most, of_user, first in ((2, 9, ["3", "1"]), (9, 1, ["3", "1"]), (9, 9, ["3", "1", "2"])):
        now, later = FleetTerms([], Assumed(0.0, 0.0), 1800.0, most, of_user).allowed(moves)
        assert [move.job.id for move in now] == first and len(now) + len(later) == 3


def test_a_log_that_was_cut_short_is_read_and_continued(tmp_path, monkeypatch):
    (tmp_path / "scontrol").write_text("#!/bin/sh\ncat > /dev/null\n")
    (tmp_path / "scontrol").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    path, hour_s = tmp_path / "log", 4e9
    log = MoveLog(path)
    log.move([Move(waits("1", hour_s), hour_s + 60, None, "planned")], ())
    with pytest.raises(BlockingIOError, match="another fleet"):
        MoveLog(path)
    del log
    path.write_bytes(path.read_bytes() + b'[1]\n{"job": 7}\n{"at": "2027')
    log = MoveLog(path)
    log.move([Move(waits("1", hour_s + 60), hour_s + 90, None, "planned")], ())
    assert path.read_bytes().splitlines()[3] == b'{"at": "2027'
    # back to before both moves; a job elsewhere than it was put, and one that was never moved, stay
    moves, _ = log.undo([waits("1", hour_s + 90), waits("2", hour_s)])
    assert [(move.job.id, move.at_s) for move in moves] == [("1", hour_s)]
    log.move([Move(waits("1", hour_s), hour_s + 60, None, "planned")], ())
    assert log.undo([waits("1", hour_s + 1234)]) == ([], [])
