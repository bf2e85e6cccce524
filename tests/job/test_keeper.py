"""The keeper alone: supervisors that die at once, a run.log that is gone, a stop that finds nothing running."""

import asyncio
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time

import pytest
from drawn import drawn
from house import until
from states import inputs, job_state

from carbontui.job.files import places
from carbontui.job.keeper import job_files, messages, resume
from carbontui.job.keeper import process as keeper
from carbontui.job.keeper import supervisor_handle as watch
from carbontui.job.keeper.resume import DryRun
from carbontui.job.life import descriptors
from carbontui.job.supervisor.core.rules.control import decide
from carbontui.job.supervisor.shell.keeper_handle import KeeperHandle

RUN = """\
import sys
from carbontui.job.keeper import __main__ as entry
from carbontui.job.keeper import process as keeper
from carbontui.job.keeper import supervisor_handle as watch
keeper.FIRST_HOLD_S, keeper.resuming.ALONE_S, watch.BACKOFF_MAX_S = 1000.0, float(sys.argv[2]), 0.3
entry.main()
"""


OUTPUTS = {"err": "", "input": descriptors.NOTHING.spec(None)}


@pytest.fixture
def alone(tmp_path):
    """Start a keeper of `argv` in a directory without spec.json, so that every supervisor dies at once."""
    started = []

    def start(*argv, alone_s=60.0, **spec):
        facts = {"job": "k", "job_dir": str(tmp_path), "argv": argv, "cwd": str(tmp_path), "hold": False}
        facts |= {"log": str(tmp_path / "run.log"), "socket": str(tmp_path / "s"), "public": {"job": "k"}}
        facts |= {"door": str(tmp_path / "door"), **OUTPUTS, **spec}
        process = subprocess.Popen(
            [sys.executable, "-c", RUN, "k", str(alone_s)],
            stdin=subprocess.PIPE,
            stderr=(tmp_path / "carbontui.log").open("ab"),
            cwd=tmp_path,
            start_new_session=True,
        )
        started.append(process)
        process.stdin.write(json.dumps(facts).encode())
        process.stdin.close()
        return process

    yield start
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def exit_of(directory):
    until((directory / "exit.json").exists, what="exit.json")
    return json.loads((directory / "exit.json").read_text())


def test_a_held_start_is_not_held_for_ever_by_supervisors_that_die_at_once(tmp_path, alone):
    alone("true", hold=True, alone_s=3.0)
    assert exit_of(tmp_path)["code"] == 0
    until(lambda: "gone (" in (tmp_path / "carbontui.log").read_text())


def test_a_supervisor_that_cannot_read_its_job_says_so_in_one_line(tmp_path):
    (tmp_path / "spec.json").write_text("{")
    command = [sys.executable, "-m", "carbontui.job.supervisor", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1 and "spec.json" in done.stderr and "Traceback" not in done.stderr


def test_a_command_starts_without_its_run_log(tmp_path, alone):
    alone("sh", "-c", "echo said; exit 9", log=str(tmp_path / "gone" / "run.log"))
    assert exit_of(tmp_path)["code"] == 9
    assert "run.log cannot be opened" in (tmp_path / "carbontui.log").read_text()


def bare(tmp_path):
    spec = {"job": "k", "job_dir": str(tmp_path), "argv": ["true"], "cwd": str(tmp_path), "public": {}}
    return keeper.Keeper(
        {**spec, **OUTPUTS, "log": os.devnull, "socket": str(tmp_path / "s"), "door": str(tmp_path / "d")},
        dict(os.environ),
        {},
    )


def test_a_keeper_that_only_watches_sleeps_and_takes_no_stop(tmp_path):
    places.write(tmp_path, places.Places(1, holder=False, leased=True, peer="n2").leased_for(600, places.now()))
    one = bare(tmp_path)
    assert one.wait_s() > 1.0 and one.facts().moved_to == "n2"
    one.stop(now=True)
    assert one.exit is None


def test_a_stop_while_unloaded_is_a_stop_and_nothing_is_to_be_started_again(tmp_path):
    one = bare(tmp_path)
    one.unloaded = True
    one.wait.begin(time.time() + 3600)
    one.stop(now=False)
    record = json.loads((tmp_path / "exit.json").read_text())
    assert record["stopped"] and not record["unloaded"]
    one.supervisor.due = None
    one.tick()
    assert one.child is None


def test_a_training_that_unloads_at_every_start_is_started_ever_later():
    rest, waits = resume.Rest(), []
    for _ in range(6):
        rest.after(1000.0, 1000.0)
        waits.append(round(max(0.0, rest.until - 1000.0)))
    assert waits[0] == 0 and waits[-1] == 64 and waits == sorted(waits)
    rest.after(1000.0, 4600.0)
    assert rest.until <= 4600.0, "one that trained for an hour is not at fault"


def test_an_unload_that_was_rehearsed_is_no_childs_that_leaves_at_every_start():
    trial = DryRun(trying=False)
    trial.started(resumed=False)
    trial.apply_order(messages.Retry(True))
    assert trial.asked
    trial.left()
    trial.started(resumed=True)
    trial.apply_order(messages.Retry(True))  # a successor's repetition, before anybody has judged the resume
    assert not trial.asked
    trial.apply_order(messages.Retry(False))
    trial.apply_order(messages.Retry(True))
    assert trial.asked


def test_supervisors_that_soon_fall_silent_are_counted_for_their_successor(tmp_path, monkeypatch):
    told = []
    real = subprocess.Popen

    def started(command, **how):
        told.append(how["env"]["CARBONTUI_SILENT_DEATHS"])
        os.write(int(command[-1]), b"{}\n")  # its first word
        return real(["sleep", "60"])

    with selectors.DefaultSelector() as selector:
        one = watch.SupervisorHandle(str(tmp_path), selector, lambda _: None, take=lambda _: None, changed=lambda: None)
        monkeypatch.setattr(watch.subprocess, "Popen", started)
        for _ in range(4):
            one.due = 0.0
            one.tick(time.monotonic(), wanted=True)
            selector.select()[0][0].data()
            one.tick(time.monotonic() + 10, wanted=False)
    assert told == ["0", "1", "2", "3"]


def test_a_supervisor_may_be_slow_to_its_first_word_but_not_for_ever(tmp_path, monkeypatch):
    real = subprocess.Popen
    monkeypatch.setattr(watch.subprocess, "Popen", lambda *_, **__: real(["sleep", "60"]))
    with selectors.DefaultSelector() as selector:
        one = watch.SupervisorHandle(str(tmp_path), selector, lambda _: None, take=lambda _: None, changed=lambda: None)
        for longest_s in (30, 60, 120):  # its successor, twice as long: else a slow machine would never have one
            one.due = 0.0
            one.tick(time.monotonic(), wanted=True)
            one.tick(time.monotonic() + longest_s - 5, wanted=False)
            assert one.pid is not None
            one.tick(time.monotonic() + longest_s + 1, wanted=False)
            assert one.pid is None


async def test_a_keeper_that_dies_while_the_command_is_unloaded_is_named_as_the_reason(tmp_path):
    ours, theirs = socket.socketpair()
    told = asyncio.Event()
    one = KeeperHandle(theirs.detach(), lambda _: None, told.set, tmp_path)
    one.open()
    ours.sendall(b'{"t":"child","state":"unloaded","pid":null}\n')
    await asyncio.wait_for(told.wait(), 5)
    assert one.child().state == "unloaded"
    told.clear()
    ours.close()
    await asyncio.wait_for(told.wait(), 5)
    _, decision = decide(job_state(), inputs(child=one.child()))
    assert decision.state == "lost" and "run it again" in drawn(decision)


@pytest.mark.parametrize("order", [messages.FallBack(True), messages.Retry(True)])
def test_a_resume_that_fails_goes_on_from_the_newest_checkpoint_that_is_there(tmp_path, order):
    one, good = bare(tmp_path), tmp_path / "checkpoint-30"
    good.mkdir()
    (tmp_path / "resumed.json").write_text('{"step": 40}')
    listed = [{"path": str(tmp_path / "gone"), "step": 39}, {"path": str(good), "step": 30}]
    pointer = tmp_path / "resume.json.checkpoint"
    pointer.write_text(json.dumps({"framework": "x", "path": "bad", "step": 40, "earlier": listed}))
    one.apply_order(order)
    one.trial.started(resumed=True)
    one.child_ended(1)
    assert one.facts().state == "unloaded" and one.facts().fell_back == "exit code 1" and not one.exit
    assert json.loads(pointer.read_text()) == {"framework": "x", "path": str(good), "step": 30, "earlier": []}
    assert (
        resume.start_of(
            {"argv": [], "job_dir": "", "socket": "", "job": "", "log": ""},
            {},
            one.marker,
            json.loads((tmp_path / "resumed.json").read_text()),
            trying=False,
        )[1]["CARBONTUI_START_STEP"]
        == "30"
    )
    one.trial.started(resumed=True)
    one.child_ended(1)  # nothing is left to go on from
    if isinstance(order, messages.Retry):
        assert one.facts().state == "waiting" and one.trial.anew, "a rehearsal begins again, ten minutes at most"
    else:
        assert one.exit["code"] == 1, "hours of work are not done twice without a person's word"


def test_an_unloaded_job_is_not_started_before_its_moment(tmp_path):
    held = bare(tmp_path)
    (tmp_path / "resume.json").write_text('{"step": 3, "not_before": "2026-01-01T00:00:01.750Z"}')
    assert resume.not_before(held.marker) == 1767225601.75
    (tmp_path / "resume.json").write_text('{"step": 3, "not_before": null}')
    assert resume.not_before(held.marker) == 0.0, "at once"
    (tmp_path / "resume.json").unlink()
    assert resume.not_before(held.marker) is None


@pytest.mark.parametrize(
    "line",
    [b"", b"[]", b"{", b'{"t":"hold","until":"soon"}', b'{"t":"hold","until":NaN}', b'{"t":"freeze"}', b'{"t":"fly"}']
    + [b'{"t":"freeze","lease_s":-1}', b'{"t":"freeze","lease_s":true}', b"[" * 100_000],
)
def test_what_is_no_order_is_not_obeyed(line):
    assert messages.decode_order(line) is None


def test_orders_and_facts_of_another_version_are_read_by_name():
    assert messages.decode_order(b'{"t":"stop","now":true,"gently":1}') == messages.Stop(True)
    assert messages.decode_order(b'{"t":"hold"}') == messages.Hold(None)
    assert messages.decode_child(b'{"t":"child","state":"running","pid":7,"mood":3}') == messages.ChildFacts(
        "running", 7
    )
    facts = messages.ChildFacts("unloaded", starts=2, exit={"code": 0})
    assert messages.decode_child(messages.encode(facts)) == facts


def test_a_name_with_escape_codes_steers_no_terminal_from_the_log(capfd):
    job_files.log("ends odd\x1b[2J\u202ename\nforged")
    assert capfd.readouterr().err.endswith("keeper: ends odd?[2J?name?forged\n")
