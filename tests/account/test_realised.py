"""What the grid turned out to be is what the account holds: at the end of a job, on fine rows, for a later reader."""

import asyncio
import json
import os
import socket
import time

import pytest

from carbontui import units
from carbontui.account import accounts
from carbontui.account.accounts import RunNow
from carbontui.grid.types import Row
from carbontui.job.files import journal
from carbontui.job.files.journal import Journal
from carbontui.job.supervisor.loop import Supervisor
from carbontui.job.supervisor.record.accounting import Accounting
from carbontui.job.supervisor.record.restoring import restore
from carbontui.job.terms import spec as options
from carbontui.job.terms.clock import Clock


def grid_file(path, start_s, value, rows=200):
    lines = [f"{units.iso(start_s + 900 * k)},{value}" for k in range(rows)]
    path.write_text("\n".join(["time_utc,carbon_g_per_kwh", *lines]) + "\n")


def account_of(tmp_path, name="j.db"):
    spec = options.Options(job="t", name="t", dir="", argv=(), cwd="", log="", socket="", created_s=0.0)
    return Accounting(spec, Clock(), Journal(tmp_path / name), "boot")


async def test_a_job_that_ends_within_a_row_of_its_grid_file_is_booked_at_that_row(tmp_path, monkeypatch):
    """Typical days of Germany, which stand in while the row is not over, say about 380 g/kWh; the file says 200."""
    monkeypatch.setenv("CARBONTUI_HOME", str(tmp_path / "home"))
    now = time.time()
    grid_file(tmp_path / "grid.csv", now // 900 * 900 - 90_000, 200)
    where = {"dir": str(tmp_path), "cwd": str(tmp_path), "log": str(tmp_path / "run.log"), "argv": ("true",)}
    asked = {"zone": "DE", "work_s": 3600.0, "grid": str(tmp_path / "grid.csv"), "created_s": now - 60}
    spec = options.Options(job="t", name="t", socket=str(tmp_path / "run" / "s"), **where, **asked)
    ours, theirs = socket.socketpair()
    job = Supervisor(spec, theirs.detach())
    ours.sendall(json.dumps({"t": "child", "state": "running", "pid": os.getpid(), "starts": 1}).encode() + b"\n")
    job.keeper.open()
    assert not await job.tick()
    job.accounting.ledger.add("GPU-1", now, now + 2, 3.6e6, "counter", "running", now, gpu=True)
    ours.sendall(json.dumps({"t": "child", "state": "exited", "exit": {"code": 0}, "starts": 1}).encode() + b"\n")
    while job.door.state.decision.state not in ("done", "failed"):
        await asyncio.sleep(0)
        await job.tick()
    await job.shutdown()
    ours.close()
    with journal.read(tmp_path / "journal.db") as db:
        said = json.loads(db.execute("select value from state where key='accounts'").fetchone()[0])
    assert said["gco2_g"] == pytest.approx(said["energy_wall_kwh"] * 200.0) and said["energy_wall_kwh"] >= 1.0


def test_rows_finer_than_a_bin_count_at_their_mean(tmp_path):
    account = account_of(tmp_path)
    account.realised([Row(60.0 * k, 60.0, 100.0 * k) for k in range(5)], "average_direct", "a file")
    assert account.intensity[0.0] == pytest.approx(200.0)
    assert accounts.mean_per_bin([(150.0, 300.0, 400.0)]) == {0.0: 400.0, 300.0: 400.0}


def test_run_now_has_worked_through_hours_in_which_the_job_waited(tmp_path):
    account = account_of(tmp_path)
    account.realised([Row(0.0, 3600.0, 500.0), Row(3600.0, 3600.0, 100.0)], "average_direct", "a file")
    account.ledger.add("GPU-1", 3600.0, 4200.0, 6e5, "counter", "running", 0.0, gpu=True)
    known = {"start_s": 0.0, "run_now": RunNow(600.0, 1000.0), "nowcast": None, "gpus": 1}
    assert account.totals(**known).run_now_past_g is None
    more = {"rest": (4200.0, 10_000.0, 1000.0)}
    assert account.totals(**known, **more).run_now_past_g == pytest.approx(500.0 + 100.0 / 6)
    account.realised([Row(0.0, 3600.0, 400.0), Row(3600.0, 3600.0, 100.0)], "average_direct", "a file, revised")
    assert account.totals(**known, **more).run_now_past_g == pytest.approx(400.0 + 100.0 / 6)


def test_a_successor_holds_what_came_last_when_coarse_values_replace_fine_ones(tmp_path):
    account = account_of(tmp_path)
    account.realised([Row(900.0 * k, 900.0, 300.0, "forecast") for k in range(4)], "average_direct", "a forecast")
    account.realised([Row(0.0, 3600.0, 200.0)], "average_direct", "hourly values")
    account.keep()
    account.journal.commit()
    heir = account_of(tmp_path)
    restore(heir)
    assert dict(heir.intensity) == dict(account.intensity) and set(heir.intensity.values()) == {200.0}
    with journal.read(tmp_path / "j.db") as db:
        assert [tuple(row) for row in db.execute("select start, dur, value, kind from grid")] == [
            (0, 3600, 200, "actual")
        ]


def test_a_value_that_comes_in_as_it_was_forecast_is_told_as_realised(tmp_path):
    account = account_of(tmp_path)
    for kind in ("forecast", "actual"):
        account.realised([Row(0.0, 3600.0, 200.0, kind)], "average_direct", "a source")
    account.journal.commit()
    with journal.read(tmp_path / "j.db") as db:
        assert [row["kind"] for row in db.execute("select kind from grid")] == ["actual"]
