"""`carbontui fleet` slot after slot: a controller that is away for a while is said, and looked for again."""

from __future__ import annotations

import importlib

import pytest
from click.testing import CliRunner

from carbontui.commands.support.command import Failure

verb = importlib.import_module("carbontui.extensions.fleet.commands")


class Ended(Exception):
    pass


@pytest.fixture
def rounds(monkeypatch):
    """What each round does, and how long is slept between."""
    plan, slept, told = [], [], []

    def one(*args, **kwargs):
        told.append(dict(args[3]))
        done = plan.pop(0) if plan else Ended()
        if isinstance(done, Exception):
            raise done
        return done

    monkeypatch.setattr(verb, "one_round", one)
    # shorter ones are of a wait for a process
    monkeypatch.setattr(verb.time, "sleep", lambda span_s: slept.append(span_s) if span_s >= 1.0 else None)
    return plan, slept, told


def test_an_hour_without_a_controller_is_said_and_the_next_round_plans_again(rounds):
    plan, slept, told = rounds
    away = Failure("squeue: slurm_load_jobs error: Unable to contact slurm controller (connect failure)", 1)
    plan += [{"12": 50.0}, *[away] * 60, {"13": 70.0}]
    done = CliRunner().invoke(verb.fleet, ["--cap", "1kW", "--slot", "15m"])
    assert isinstance(done.exception, Ended)
    said = [line for line in done.stderr.splitlines() if line]
    assert len(said) == 60 and all(line.endswith("retrying in 60 s") for line in said)
    assert slept[1:61] == [60.0] * 60
    # what the first round has set is still known: those jobs are about to begin
    assert told[0] == {} and told[1] == {"12": 50.0} and told[-1] == {"12": 50.0, "13": 70.0}


def test_once_and_a_dry_run_end_with_the_failure(rounds):
    plan, slept, _ = rounds
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
