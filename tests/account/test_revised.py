"""What a source says otherwise of hours that are over is booked anew, live and afterwards, and said."""

import contextlib
import json
import math
import sqlite3
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from states import door, job_state, spec

from carbontui import cli
from carbontui.account.accounts import BIN_S, RunNow, revision, to_kept
from carbontui.grid.feed import Feed
from carbontui.grid.types import Row
from carbontui.job.files import journal, store
from carbontui.job.files.journal import Journal
from carbontui.job.supervisor.record.accounting import Accounting
from carbontui.job.supervisor.record.restoring import restore
from carbontui.job.supervisor.shell.grid import GridReader
from carbontui.job.terms.clock import Clock

for beside in ("tests/grid", "tests/report", "examples"):
    sys.path.append(str(Path(__file__).parents[2] / beside))

import audit  # noqa: E402
import runs  # noqa: E402
from grid_site import Answer, served, site  # noqa: E402

__all__ = ["site"]
HOUR = 3600.0


def charts(value, until_s):
    """Energy-Charts' answer: `value` of each quarter that is over by `until_s`, a forecast of twelve hours after it."""

    def respond(request):
        times = [until_s // 900 * 900 + 900 * k for k in range(-192, 48)]
        over = [at + 900 <= until_s for at in times]
        return Answer(
            json.dumps({
                "unix_seconds": times,
                "co2eq": [value(at) if past else None for at, past in zip(times, over, strict=True)],
                "co2eq_forecast": [None if past else 400.0 for past in over],
            }).encode()
        )  # fmt: skip

    return respond


async def test_a_live_account_follows_its_source_and_a_stranger_finds_the_same(site, tmp_path):
    now = {"s": time.time() // 900 * 900 + 60}
    feed = Feed("DE", settings=site.settings(), now=lambda: now["s"], cache=tmp_path / "cache", http=site.http())
    job = job_state(spec=spec(dir=str(tmp_path), created_s=now["s"] - 2 * HOUR))
    account = Accounting(job.spec, Clock(), Journal(tmp_path / "j.db"), "boot")
    reader = GridReader(door(job), feed, account, worker=None, ports=None)
    account.ledger.add("GPU-1", now["s"] - 2 * HOUR, now["s"] - 900, 3.6e6, "counter", "running", 0.0, gpu=True)

    def emitted():
        reader.observe(now["s"])
        known = {"start_s": now["s"] - 2 * HOUR, "run_now": RunNow(HOUR, 1000.0), "nowcast": 400.0, "gpus": 1}
        return account.totals(**known)

    site.respond = charts(lambda at: 312.0, now["s"])
    await feed.refresh()
    assert emitted().gco2_g == pytest.approx(312.0) and reader.revised == ""
    site.respond = charts(lambda at: 298.0, now["s"] + 1800)
    now["s"] += 1800  # the window of the source is over: it is asked again, a day back
    await feed.refresh()
    found = emitted()
    assert found.gco2_g == pytest.approx(298.0)
    assert "312 → 298 g/kWh" in reader.revised and "Energy-Charts: −14" in reader.revised
    account.write(everything=True)
    facts = {"start_s": now["s"] - 1800 - 2 * HOUR, "pue": job.spec.pue, **to_kept(RunNow(HOUR, 1000.0))}
    account.journal.keep("accounts", facts)
    account.journal.commit()
    again = audit.audit(tmp_path / "j.db")
    assert found.gco2_g == pytest.approx(again["gco2_g"], rel=1e-3)
    with journal.read(tmp_path / "j.db") as db:
        (told,) = db.execute("select data from event where kind='revised'").fetchall()
        assert {row["source"] for row in db.execute("select source from grid")} == {"Energy-Charts"}
    assert json.loads(told["data"])["gco2_g"] == pytest.approx(-14.0)


def test_a_forecast_that_comes_true_otherwise_is_no_revision(tmp_path):
    account = Accounting(spec(dir=str(tmp_path)), Clock(), Journal(tmp_path / "j.db"), "boot")
    for value, kind in ((300.0, "forecast"), (250.0, "estimated")):
        account.realised([Row(0.0, 900.0, value, kind)], "average_direct", "a source")
    assert account.revision is None and account.intensity[0.0] == 250.0
    account.realised([Row(0.0, 900.0, 200.0)], "average_direct", "another source")
    assert account.revision is None
    account.keep()
    account.journal.commit()
    heir = Accounting(spec(dir=str(tmp_path)), Clock(), Journal(tmp_path / "j.db"), "boot")
    restore(heir)
    heir.realised([Row(0.0, 900.0, 100.0)], "average_direct", "another source")
    assert heir.revision is not None and heir.revision.before_g_per_kwh == 200.0


def carbontui(home, monkeypatch, url, *words):
    monkeypatch.setenv("CARBONTUI_HOME", str(home))
    monkeypatch.setenv("CARBONTUI_GRID_URLS", f"energy-charts={url}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "cache"))
    monkeypatch.delenv("CARBONTUI_OFFLINE", raising=False)
    return CliRunner().invoke(cli.cli, list(words))


def test_the_account_of_a_job_that_is_over_is_booked_anew_when_asked(tmp_path, monkeypatch):
    """A day of values that were forecasts at its end, and what came in: 20 % less."""
    job = runs.make(tmp_path, kind="forecast", source="Energy-Charts")
    before = job.status()

    def respond(request):
        start = int(runs.START_S)
        times = [start + 900 * k for k in range(60)]
        known = [0.8 * runs.grams(at) for at in times]
        return Answer(json.dumps({"unix_seconds": times, "co2eq": known, "co2eq_forecast": [None] * 60}).encode())

    with served(respond) as url:
        done = carbontui(tmp_path, monkeypatch, url, "report", job.id, "--revise", "--json")
        assert done.exit_code == 0, done.output
        again = carbontui(tmp_path, monkeypatch, url, "report", job.id, "--revise")
        assert "nothing has changed" in again.output
    after = store.load(job.dir).status()
    told, _ = json.JSONDecoder().raw_decode(done.output, done.output.index("{"))  # click 8.1 mixes stderr in
    assert after.gco2_g == pytest.approx(0.8 * before.gco2_g, rel=1e-6) == told["gco2_g"]
    assert after.avoided_g == pytest.approx(0.8 * before.avoided_g, rel=1e-6)
    found = audit.audit(job.dir / "journal.db")
    assert after.gco2_g == pytest.approx(found["gco2_g"], rel=1e-3)
    assert "revised with Energy-Charts" in done.output


def test_an_account_stays_as_it_was_where_the_source_does_not_answer(tmp_path, monkeypatch):
    job = runs.make(tmp_path, source="Energy-Charts")
    with served(lambda request: Answer(b"", 500)) as url:
        done = carbontui(tmp_path, monkeypatch, url, "report", job.id, "--revise")
    assert done.exit_code == 1 and "its account stays as it was" in done.output and "Traceback" not in done.output
    assert store.load(job.dir).status() == job.status()
    other = runs.make(tmp_path, job="bcdefg", source="typical days")
    assert (
        "typical days" in carbontui(tmp_path, monkeypatch, "http://127.0.0.1:9", "report", other.id, "--revise").output
    )


def test_a_journal_of_a_newer_version_is_left_alone(tmp_path, monkeypatch):
    job = runs.make(tmp_path, source="Energy-Charts")
    with contextlib.closing(sqlite3.connect(job.dir / "journal.db")) as db:
        db.execute("pragma user_version = 9")
    done = carbontui(tmp_path, monkeypatch, "http://127.0.0.1:9", "report", job.id, "--revise")
    assert done.exit_code == 1 and "schema 9, newer" in done.output


bins = st.dictionaries(st.integers(0, 40).map(lambda k: k * BIN_S), st.floats(1, 900), min_size=1)


@given(bins, bins, bins)
def test_the_grams_of_a_revision_are_what_the_sum_changes_by(before, after, joules):
    found = revision(before, before, {**before, **after}, joules, "a source")
    total = math.fsum(joules.get(at, 0.0) / 3.6e6 * (after.get(at, value) - value) for at, value in before.items())
    if found is not None:
        assert found.gco2_g == pytest.approx(total, abs=1e-9)
    else:
        assert abs(total) < 0.005
