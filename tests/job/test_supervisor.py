"""The supervisor survives its own faults: whatever one part of a tick raises, the others go on and it is said."""

import asyncio
import contextlib
import json
import os
import socket
import time

import pytest
from click.testing import CliRunner

from carbontui import cli, proc
from carbontui.job import spec as options
from carbontui.job.clock import Clock
from carbontui.job.journal import Journal
from carbontui.job.supervisor.loop import Supervisor
from carbontui.job.supervisor.record import handover as memory
from carbontui.job.supervisor.record.accounting import Books
from carbontui.power.curve import Curve, Point
from carbontui.power.messages import Reading, Readings, Sample


@pytest.fixture
async def job(tmp_path, monkeypatch):
    """A supervisor whose keeper's end is held by the test; its command is this process."""
    monkeypatch.setenv("CARBONTUI_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("CARBONTUI_OFFLINE", "1")
    ours, theirs = socket.socketpair()
    spec = options.Options(
        job="t", name="t", dir=str(tmp_path), argv=("true",), cwd=str(tmp_path), log=str(tmp_path / "run.log"),
        socket=str(tmp_path / "run" / "s"), created_s=time.time(), zone="DE", work_s=3600.0,
    )  # fmt: skip
    one = Supervisor(spec, theirs.detach())
    ours.sendall(json.dumps({"t": "child", "state": "running", "pid": os.getpid(), "starts": 1}).encode() + b"\n")
    one.guard.open()
    yield one
    await one.leave()
    ours.close()


async def test_a_successor_knows_of_the_running_command_before_its_first_decision(job):
    assert not await job.tick()
    assert job.decision.state in ("starting", "running")


async def test_a_broken_plan_neither_ends_the_supervisor_nor_is_acted_upon(job, monkeypatch):
    def broken(_now):
        raise IndexError("no such level")

    acted = []
    monkeypatch.setattr(job.hands, "act", lambda *_: acted.append(1))
    assert not await job.tick() and len(acted) == 1
    with monkeypatch.context() as patch:
        patch.setattr(job.planner, "level_at", broken)
        assert not await job.tick() and not await job.tick()
        assert len(acted) == 1  # no lease is renewed on a decision that could not be made
        assert any("deciding is at fault (IndexError" in text for text in job.faults.notices)
    assert not await job.tick()
    assert len(acted) == 2 and not job.faults.notices and job.status.notices is not None


async def test_a_broken_reading_or_outlook_leaves_the_rest_at_work(job, monkeypatch):
    def broken(*_args, **_kwargs):
        raise ValueError("a reading from elsewhere")

    monkeypatch.setattr(job.books, "meter_samples", broken)
    monkeypatch.setattr(job.feed, "outlook", broken)
    monkeypatch.setattr(job.server, "show", broken)
    assert not await job.tick()
    assert job.status is not None and job.status.state in ("starting", "running")
    assert {text.split(" is at fault")[0] for text in job.faults.notices} >= {"metering", "the grid feed", "the status"}


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
    job.journal._pending.append(("insert or replace into state values ('progress', '{')", ()))
    job.journal.commit()
    memory.restore(job)
    assert (job.control.mode, job.control.gen) == ("pause", 12)
    assert job.overrides.current is None and job.planner.plan is None and job.progress.step == 0
    assert not await job.tick()


async def test_a_socket_that_cannot_be_bound_is_said_and_tried_again(job, tmp_path):
    (tmp_path / "run").write_text("in the way")
    await job.server.keep_open()
    assert "nobody new can connect" in job.server.fault
    await job.tick()
    assert any("nobody new can connect" in text for text in job.status.notices)
    (tmp_path / "run").unlink()
    await job.server.keep_open()
    assert job.server.fault == "" and (tmp_path / "run" / "s").exists()


async def test_a_clock_that_is_set_is_no_time_that_passed(job, monkeypatch):
    assert not await job.tick()
    before, done = time.time(), job.progress.plain_done_s
    monkeypatch.setattr(Clock, "now", lambda _self: before + 7200.0)
    assert not await job.tick()
    monkeypatch.setattr(Clock, "now", lambda _self: before - 7200.0)
    assert not await job.tick()
    assert 0 <= job.progress.plain_done_s - done < 60
    job.journal.commit()
    rows = job.journal._db.execute("select data from event where kind='clock' order by rowid").fetchall()
    assert [round(json.loads(row[0])["jump_s"], -2) for row in rows] == [7200, -14400]


def test_the_host_is_not_charged_for_a_clock_that_was_set(tmp_path):
    spec = options.Options(
        job="t", name="t", dir="", argv=(), cwd="", log="", socket="", created_s=0.0, host_w=100.0
    )  # fmt: skip
    books = Books(spec, Clock(), Journal(tmp_path / "j.db"), "boot")
    for now in (1000.0, 1001.0, 4601.0, 4602.0, 1002.0, 1003.0):
        books.host(now, 1.0, "running", held=True)
    assert books.ledger.rest_j == pytest.approx(400.0) and books.held_s == pytest.approx(4.0)


async def test_an_agent_that_cannot_be_started_is_tried_again(job, monkeypatch):
    tries = []

    async def refuse():
        tries.append(1)
        if len(tries) < 3:
            raise BlockingIOError("no more processes")

    monkeypatch.setattr(job.agent, "start", refuse)
    monkeypatch.setattr("carbontui.job.supervisor.loop.AGENT_RETRY_S", 0.01)
    with contextlib.suppress(asyncio.TimeoutError):
        await asyncio.wait_for(job._start_agent(), 5)
    assert len(tries) == 3


async def test_a_curve_is_data_for_a_script_that_asks(job, tmp_path):
    home = tmp_path / "home" / "jobs" / "t"
    home.mkdir(parents=True)
    record = {"job": "t", "name": "t", "host": socket.gethostname(), "boot": proc.boot_id(), "started": time.time()}
    record |= {"socket": job.options.socket, "log": job.options.log, "argv": ["true"]}
    record |= {"pids": {"child": [os.getpid(), proc.start_time(os.getpid())]}}
    (home / "job.json").write_text(json.dumps(record))
    await job.server.keep_open()
    await job.tick()

    def asked(*options):
        return asyncio.to_thread(CliRunner().invoke, cli.cli, ["calibrate", *options], standalone_mode=False)

    assert (await asked("--json")).exception.code == 2
    assert (await asked("--show", "--json")).exception.code == 3
    full = Point(kind="full", cap_w=None, power_w=680.0, power_se=2.0, speed=1.0, speed_se=0.004)
    job.trial.curve = Curve(
        gpu="H100", gpus=1, fingerprint="f", measured_s=1.0, rate_steps_per_s=99.0, points=(full,), parked_w=71.5
    )
    shown = json.loads((await asked("--show", "--json")).stdout)
    assert (shown["schema"], shown["parked_w"], shown["points"][0]["power_w"]) == ("carbontui.curve/1", 71.5, 680.0)
    assert "71.5 W" in (await asked("--show")).stdout


async def test_rows_lost_while_the_job_runs_are_carried_on_as_their_sum(job, tmp_path):
    began = job.start_s - 900.0
    job.books.ledger.add("g", began, began + 600.0, 3.6e6, "counter", "running", 0.0, gpu=True)
    await job.tick()
    await job.write()
    db = job.journal._db
    db.execute("pragma wal_checkpoint(truncate)")
    page = db.execute("select rootpage from sqlite_master where name='energy'").fetchone()[0]
    size = db.execute("pragma page_size").fetchone()[0]
    with (tmp_path / "journal.db").open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\xff" * size)
    db.execute("pragma shrink_memory")
    job.books.ledger.add("g", began, began + 600.0, 3.6e6, "counter", "paused", 0.0, gpu=True)
    await job.tick()
    before = job.sums.gco2_g
    await job.write()
    await job.tick()
    assert before > 0 and job.sums.gco2_g == pytest.approx(before, rel=1e-6)
    assert "journal.db.corrupt-" in str(job.status.notices) and "the account goes on" in str(job.status.notices)
    await job.write()
    successor = Books(job.options, job.clock, Journal(tmp_path / "journal.db"), "boot")
    successor.restore()
    sums = successor.sums(start_s=began, done_s=0.0, full_wall_w=None, nowcast=300.0, gpus=1)
    assert sums.gco2_g == pytest.approx(before, rel=1e-6)


async def test_without_journal_and_snapshot_nothing_is_made_up(job, tmp_path):
    job.journal.close()
    (tmp_path / "journal.db").write_bytes(b"\xff" * 65536)
    job.journal = job.books.journal = Journal(tmp_path / "journal.db")
    memory.restore(job)
    job.books.ledger.add("g", job.start_s, job.start_s + 60.0, 3.6e6, "counter", "running", 0.0, gpu=True)
    await job.tick()
    assert job.status.energy_gpu_kwh == pytest.approx(1.0)
    assert job.status.gco2_g is None and job.status.avoided_g is None
    assert "not known" in str(job.status.notices)


def _look(uuid: str, mono: float, joules: float) -> Sample:
    return Sample(uuid=uuid, mono_s=mono, wall_s=time.time(), energy_uj=round(joules * 1e6), power_w=100.0, max_w=700.0)


async def test_boards_that_the_training_never_named_are_neither_counted_nor_taken_for_its_own_by_a_successor(job):
    """Until a rank names its boards all that are visible are counted: that is taken back, and never filled in."""
    mono = time.monotonic()

    def see(*watched: str) -> None:
        boards = tuple(Reading(uuid=u, name="H100", watched=u in watched, power_w=100.0) for u in ("GPU-a", "GPU-b"))
        job.agent.readings = Readings(mono_s=time.monotonic(), devices=boards)

    def measure(at: float, *joules: float) -> None:
        job.agent._samples.extend(_look(u, mono + at, j) for u, j in zip(("GPU-a", "GPU-b"), joules, strict=True))
        job.senses.measure(job.clock.now(), 1.0, 1.0)

    see("GPU-a", "GPU-b")
    measure(0, 0.0, 0.0)
    measure(1, 100.0, 100.0)
    assert job.books.ledger.gpu_j == pytest.approx(200.0)
    job.hands._name(("GPU-a",), mono - 3600.0)
    see("GPU-a")
    measure(2, 200.0, 200.0)
    assert job.books.ledger.gpu_j == pytest.approx(200.0) == job.books.meter.joules("GPU-a")
    memory.keep(job)
    job.journal.commit()
    job.hands.named = None
    job.agent.watch(None)
    memory.restore(job)
    assert job.agent._wish.watch == ("GPU-a",), "watched before any rank is back"
    see("GPU-a", "GPU-b")
    measure(3, 300.0, 9000.0)
    assert job.books.ledger.gpu_j == pytest.approx(300.0), "what the other drew meanwhile is not filled in"
    assert job.hands.own == {"GPU-a"}
    job.hands._name(("GPU-b",), mono - 3600.0)  # the rank of GPU-a is gone: what it drew stays the job's
    see("GPU-b")
    measure(4, 400.0, 9100.0)
    assert job.books.meter.joules("GPU-a") == pytest.approx(300.0)
    assert job.books.ledger.gpu_j == pytest.approx(400.0)


async def test_a_board_that_is_gone_is_missed_only_if_it_was_the_jobs(job):
    mono = time.monotonic()
    for uuid in ("GPU-a", "GPU-b", "GPU-c"):
        job.books.meter.add(_look(uuid, mono, 0.0))
    boards = (Reading(uuid="GPU-a", name="H100", power_w=100.0),)
    job.agent.readings = Readings(mono_s=mono, devices=boards)
    assert job.unseen == {"GPU-b", "GPU-c"}, "nobody has said yet whose they are"
    job.hands._name(("GPU-a", "GPU-b"), mono)
    assert job.unseen == {"GPU-b"}
    assert job.teller.describe(job.clock.now()).power_w is None
    job.hands._name(("GPU-a",), mono - 3600.0)
    job.senses.disown()
    assert not job.unseen and job.books.metered_boards == {"GPU-a"}
