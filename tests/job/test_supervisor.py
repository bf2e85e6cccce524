"""The supervisor survives its own faults: whatever one part of a tick raises, the others go on and it is said."""

import asyncio
import contextlib
import json
import os
import socket
import sqlite3
import time
from dataclasses import replace

import pytest
import states
from click.testing import CliRunner
from damaged import spoil
from drawn import drawn

from carbontui import cli, protocol
from carbontui.job.files import journal
from carbontui.job.files.journal import Journal
from carbontui.job.supervisor.core.advance import Command, CurveMeasured, LastCount, RankChanged, Tick
from carbontui.job.supervisor.core.state.override import Overrides
from carbontui.job.supervisor.loop import Supervisor
from carbontui.job.supervisor.record.accounting import Accounting
from carbontui.job.supervisor.record.restoring import restore
from carbontui.job.supervisor.shell.agent import keep_starting
from carbontui.job.terms import spec as options
from carbontui.job.terms.clock import Clock
from carbontui.power.curves.curve import Curve, Point
from carbontui.power.messages import Reading, Readings, Sample
from carbontui.system import proc


@pytest.fixture
async def house_of_one(tmp_path, monkeypatch):
    """Starts supervisors of one job whose keeper's end is held by the test; its command is this process."""
    monkeypatch.setenv("CARBONTUI_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("CARBONTUI_OFFLINE", "1")
    spec = options.Options(
        job="t", name="t", dir=str(tmp_path), argv=("true",), cwd=str(tmp_path), log=str(tmp_path / "run.log"),
        socket=str(tmp_path / "run" / "s"), created_s=time.time(), zone="DE", work_s=3600.0,
    )  # fmt: skip
    started = []

    def start():
        ours, theirs = socket.socketpair()
        one = Supervisor(spec, theirs.detach())
        facts = {"t": "child", "state": "running", "pid": os.getpid(), "starts": 1}
        ours.sendall(json.dumps(facts).encode() + b"\n")
        one.keeper.open()
        started.append((one, ours))
        return one

    yield start
    for one, ours in started:
        await one.shutdown()
        ours.close()


@pytest.fixture
async def job(house_of_one):
    return house_of_one()


async def test_a_successor_knows_of_the_running_command_before_its_first_decision(job):
    assert not await job.tick()
    assert job.door.state.decision.state in ("starting", "running")


async def test_after_three_silent_deaths_stored_parts_are_left_out_one_by_one(house_of_one, monkeypatch, capfd):
    first = house_of_one()
    held = protocol.Override("boost", None, None, "me@tty")
    first.door.state = replace(first.door.state, override=Overrides(held, 7, None))
    await first.keeping.write(first.read_inputs())
    for deaths, kept in (("2", True), ("3", True), ("9", True), ("10", False)):
        monkeypatch.setenv("CARBONTUI_SILENT_DEATHS", deaths)
        capfd.readouterr()
        one = house_of_one()
        one.take_over(one.keeping.read()[1])
        said = capfd.readouterr().err
        assert (one.door.state.override.gen == 7) is kept, deaths
        assert ("without the stored plan" in said) is (deaths != "2")
        assert ("without the stored override" in said) is not kept
        await one.keeping.write(one.read_inputs())
    monkeypatch.setenv("CARBONTUI_SILENT_DEATHS", "0")
    heir = house_of_one()
    heir.take_over(heir.keeping.read()[1])
    assert heir.door.state.override.gen == 7, "left out is not overwritten"


async def test_a_broken_plan_neither_ends_the_supervisor_nor_is_acted_upon(job, monkeypatch):
    def broken(*_):
        raise IndexError("no such level")

    acted = []
    monkeypatch.setattr("carbontui.job.supervisor.core.advance.effects", lambda *_, **__: acted.append(1) or ())
    assert not await job.tick() and len(acted) == 1
    with monkeypatch.context() as patch:
        patch.setattr("carbontui.job.supervisor.core.planning.finish.planned", broken)
        assert not await job.tick() and not await job.tick()
        assert len(acted) == 1  # no lease is renewed on a decision that could not be made
        assert any("error in deciding (IndexError" in drawn(said) for said in job.faults.notices)
    assert not await job.tick()
    assert len(acted) == 2 and not job.faults.notices and job.requests.sections().status.notices is not None


EVENTS = {
    Tick: ("core.rules.control.decide", lambda seen: Tick(seen)),
    RankChanged: ("core.state.progress.with_step", lambda seen: RankChanged(states.rank(), seen)),
    LastCount: ("core.state.progress.with_process", lambda seen: LastCount(states.rank(), seen)),
    Command: ("core.state.override.apply", lambda seen: Command(protocol.Cmd(1, "boost"), "ada", seen)),
}
"""Where each kind of event can raise; the others only put a value into the state."""


@pytest.mark.parametrize("kind", EVENTS)
async def test_an_event_that_raises_changes_nothing_and_the_next_one_passes(job, monkeypatch, capfd, kind):
    def broken(*_args, **_kwargs):
        raise IndexError("no such level")

    assert not await job.tick()
    place, event = EVENTS[kind]
    seen = replace(job.read_inputs(), mono_s=time.monotonic() + protocol.RENEW_S)
    performed = []
    with monkeypatch.context() as patch:
        patch.setattr(f"carbontui.job.supervisor.{place}", broken)
        patch.setattr(job.actuators, "perform", performed.append)
        before = job.door.state
        capfd.readouterr()
        for _ in range(3):
            assert job.door.dispatch(event(seen)) is None
        assert job.door.state is before and performed == [], "no lease is renewed without a decision"
        assert capfd.readouterr().err.count("IndexError: no such level") == 1 and len(job.faults.notices) == 1
    job.door.dispatch(event(seen))
    assert job.door.state is not before and not job.faults.notices


async def test_a_broken_reading_or_outlook_leaves_the_rest_at_work(job, monkeypatch):
    def broken(*_args, **_kwargs):
        raise ValueError("a reading from elsewhere")

    monkeypatch.setattr(job.accounting, "meter_samples", broken)
    monkeypatch.setattr(job.grid, "observe", broken)
    monkeypatch.setattr(job.calibrator, "tick", broken)
    monkeypatch.setattr(job.actuators, "note", broken)
    monkeypatch.setattr(job.server, "show", broken)
    assert not await job.tick()
    assert job.requests.sections().status.state in ("starting", "running")
    assert {said.parts["part"] for said in job.faults.notices} >= {
        "metering",
        "grid",
        "calibration",
        "limits",
        "status",
    }
    assert any("error in the grid feed (ValueError" in drawn(said) for said in job.faults.notices)


async def test_what_a_predecessor_kept_in_another_shape_begins_anew(job):
    for key, value in {
        "books": {"ledger": 7},
        "learned": {"full_w": {"GPU-1": 5}},
        "plan": {"names": 3},
        "overrides": {"current": {"mood": "?"}, "gen": 1},
        "budget": {"wishes": 3},
        "control": {"mode": "pause", "gen": 12, "of_a_later_version": True},
    }.items():
        job.journal.keep(key, value)
    job.journal.commit()
    with sqlite3.connect(job.journal.path) as db:
        db.execute("insert or replace into state values ('progress', '{')")
    job.take_over(job.keeping.read()[1])
    state = job.door.state
    assert (state.asked.mode, state.asked.gen) == ("pause", 12)
    assert state.override.current is None and state.plan is None and state.progress.step == 0
    assert not await job.tick()


async def test_a_socket_that_cannot_be_bound_is_said_and_tried_again(job, tmp_path):
    (tmp_path / "run").write_text("in the way")
    await job.server.keep_open()
    assert "no new connections" in job.server.fault
    await job.tick()
    assert any("no new connections" in text for text in job.requests.sections().status.notices)
    (tmp_path / "run").unlink()
    await job.server.keep_open()
    assert job.server.fault == "" and (tmp_path / "run" / "s").exists()


async def test_a_clock_that_is_set_is_no_time_that_passed(job, monkeypatch):
    assert not await job.tick()
    done = job.door.state.progress.plain_done_s
    monkeypatch.setattr(Clock, "at_wall", lambda _self, wall: wall + 7200.0)
    assert not await job.tick()
    monkeypatch.setattr(Clock, "at_wall", lambda _self, wall: wall - 7200.0)
    assert not await job.tick()
    assert 0 <= job.door.state.progress.plain_done_s - done < 60
    job.journal.commit()
    with journal.read(job.journal.path) as db:
        rows = db.execute("select data from event where kind='clock' order by rowid").fetchall()
    assert [round(json.loads(row[0])["jump_s"], -2) for row in rows] == [7200, -14400]


def test_the_host_is_not_charged_for_a_clock_that_was_set(tmp_path):
    spec = options.Options(
        job="t", name="t", dir="", argv=(), cwd="", log="", socket="", created_s=999.0, boundary="held"
    )  # fmt: skip
    account = Accounting(spec, Clock(), Journal(tmp_path / "j.db"), "boot")
    for now in (1000.0, 1001.0, 4601.0, 4602.0, 1002.0, 1003.0):
        account.pass_time(now, 1.0, "running", host_w=100.0)
    assert account.ledger.rest_j == pytest.approx(600.0) and account.held_s == pytest.approx(6.0)
    assert account.elapsed.gaps == {"clock": pytest.approx(3599.0 - 3601.0)} and account.elapsed.lived_s == 4.0


async def test_an_agent_that_cannot_be_started_is_tried_again(job, monkeypatch):
    tries = []

    async def refuse():
        tries.append(1)
        if len(tries) < 3:
            raise BlockingIOError("no more processes")

    monkeypatch.setattr(job.agent, "start", refuse)
    monkeypatch.setattr("carbontui.job.supervisor.shell.agent.RETRY_S", 0.01)
    with contextlib.suppress(asyncio.TimeoutError):
        await asyncio.wait_for(keep_starting(job.agent, fast=False), 5)
    assert len(tries) == 3


async def test_a_curve_is_data_for_a_script_that_asks(job, tmp_path):
    home = tmp_path / "home" / "jobs" / "t"
    home.mkdir(parents=True)
    record = {"job": "t", "name": "t", "host": socket.gethostname(), "boot": proc.boot_id(), "started": time.time()}
    record |= {"socket": job.door.state.spec.socket, "log": job.door.state.spec.log, "argv": ["true"]}
    record |= {"pids": {"child": [os.getpid(), proc.start_time(os.getpid())]}}
    (home / "job.json").write_text(json.dumps(record))
    await job.server.keep_open()
    await job.tick()

    def asked(*options):
        return asyncio.to_thread(CliRunner().invoke, cli.cli, ["calibrate", *options], standalone_mode=False)

    assert (await asked("--json")).exception.code == 2
    assert (await asked("--show", "--json")).exception.code == 3
    full = Point(kind="full", cap_w=None, power_w=680.0, power_se=2.0, speed=1.0, speed_se=0.004)
    curve = Curve(
        gpu="H100", gpus=1, fingerprint="f", measured_s=1.0, rate_steps_per_s=99.0, points=(full,), parked_w=71.5
    )
    job.door.dispatch(CurveMeasured(curve))
    shown = json.loads((await asked("--show", "--json")).stdout)
    assert (shown["schema"], shown["parked_w"], shown["points"][0]["power_w"]) == ("carbontui.curve/1", 71.5, 680.0)
    assert "71.5 W" in (await asked("--show")).stdout


async def test_rows_lost_while_the_job_runs_are_carried_on_as_their_sum(job, tmp_path):
    began = job.door.state.start_s - 900.0
    job.accounting.ledger.add("g", began, began + 600.0, 3.6e6, "counter", "running", 0.0, gpu=True)
    await job.tick()
    await job.keeping.write(job.read_inputs())
    spoil(job.journal, "energy")
    job.accounting.ledger.add("g", began, began + 600.0, 3.6e6, "counter", "paused", 0.0, gpu=True)
    await job.tick()
    before = job.door.state.totals.gco2_g
    await job.keeping.write(job.read_inputs())
    await job.tick()
    assert before > 0 and job.door.state.totals.gco2_g == pytest.approx(before, rel=1e-6)
    assert "journal.db.corrupt-" in str(job.requests.sections().status.notices) and "the account continues" in str(
        job.requests.sections().status.notices
    )
    await job.keeping.write(job.read_inputs())
    successor = Accounting(job.door.state.spec, job.door.state.clock, Journal(tmp_path / "journal.db"), "boot")
    restore(successor)
    sums = successor.totals(start_s=began, run_now=None, nowcast=300.0, gpus=1)
    assert sums.gco2_g == pytest.approx(before, rel=1e-6)


async def test_without_journal_and_snapshot_nothing_is_made_up(tmp_path, house_of_one):
    (tmp_path / "journal.db").write_bytes(b"\xff" * 65536)
    job = house_of_one()
    job.take_over(job.keeping.read()[1])
    start = job.door.state.start_s
    job.accounting.ledger.add("g", start, start + 60.0, 3.6e6, "counter", "running", 0.0, gpu=True)
    await job.tick()
    told = job.requests.sections().status
    assert told.energy_gpu_kwh == pytest.approx(1.0)
    assert told.gco2_g is None and told.avoided_g is None
    assert "not known" in str(told.notices)


def _look(uuid: str, mono: float, joules: float) -> Sample:
    return Sample(uuid=uuid, mono_s=mono, wall_s=time.time(), energy_uj=round(joules * 1e6), power_w=100.0, max_w=700.0)


async def test_a_successor_counts_no_boards_that_the_training_never_named(job, house_of_one):
    """Until a rank names its boards all that are visible are counted: that is taken back, and never filled in."""
    mono = time.monotonic()

    def see(one, *watched: str) -> None:
        boards = tuple(Reading(uuid=u, name="H100", watched=u in watched, power_w=100.0) for u in ("GPU-a", "GPU-b"))
        one.agent.readings = Readings(mono_s=time.monotonic(), devices=boards)

    async def measure(one, at: float, *joules: float) -> None:
        looks = [_look(u, mono + at, j) for u, j in zip(("GPU-a", "GPU-b"), joules, strict=True)]
        one.agent.drain = lambda: [looks.pop(0) for _ in tuple(looks)]
        await one.tick()

    def name(one, *uuids: str) -> None:
        named = replace(one.door.state.boards, named=uuids, named_mono_s=mono - 3600.0)
        one.door.state = replace(one.door.state, boards=named)

    see(job, "GPU-a", "GPU-b")
    await measure(job, 0, 0.0, 0.0)
    await measure(job, 1, 100.0, 100.0)
    assert job.accounting.ledger.gpu_j == pytest.approx(200.0)
    name(job, "GPU-a")
    see(job, "GPU-a")
    await measure(job, 2, 200.0, 200.0)
    for _ in range(3):  # the rows are taken back by the disk's thread
        await job.disk.do(lambda: None)
    assert job.accounting.ledger.gpu_j == pytest.approx(200.0) == job.accounting.meter.joules("GPU-a")
    await job.keeping.write(job.read_inputs())
    successor, watched = house_of_one(), []
    successor.agent.watch = lambda boards, *_: watched.append(boards)
    successor.take_over(successor.keeping.read()[1])
    assert watched == [("GPU-a",)], "watched before any rank is back"
    see(successor, "GPU-a", "GPU-b")
    successor.agent.readings = Readings(mono_s=time.monotonic(), devices=successor.agent.readings.devices[:1])
    await measure(successor, 3, 300.0, 9000.0)
    assert successor.accounting.ledger.gpu_j == pytest.approx(300.0), "what the other drew meanwhile is not filled in"
    name(successor, "GPU-a")
    await successor.tick()
    assert successor.door.state.boards.own == {"GPU-a"}
    name(successor, "GPU-b")  # the rank of GPU-a is gone: what it drew stays the job's
    see(successor, "GPU-b")
    await measure(successor, 4, 400.0, 9100.0)
    assert successor.accounting.meter.joules("GPU-a") == pytest.approx(300.0)
    await measure(successor, 5, 500.0, 9200.0)
    assert successor.accounting.ledger.gpu_j == pytest.approx(400.0)
