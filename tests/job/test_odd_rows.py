"""A journal whose rows nobody has meant, or that another program holds: one line, and no walk without an end."""

import asyncio
import contextlib
import json
import sqlite3

import pytest
import states

from carbontui import protocol, units
from carbontui.account import accounts
from carbontui.job.files import history, store
from carbontui.job.files.history import events as read_events
from carbontui.job.files.journal import Journal
from carbontui.job.supervisor.loop import Supervisor
from carbontui.job.terms import spec
from carbontui.reports import formats, story

ROWS = {
    "energy": ("t0", "t1", "device", "joules", "how", "state"),
    "grid": ("start", "dur", "value", "kind", "signal", "source"),
    "steps": ("at", "step", "loss"),
    "event": ("at", "kind", "data"),
}
ODD = (1e300, -1e300, float("inf"), 2**62, "", "x", b"\xff\x00", "[" * 100_000)
RECORD = {"job": "t", "name": "t", "host": "h", "boot": "b", "socket": "s", "log": "l", "started": 1, "argv": []}


@pytest.mark.timeout(120)
@pytest.mark.parametrize("table", ROWS)
def test_a_row_that_no_supervisor_has_written_holds_up_neither_a_start_nor_a_report(tmp_path, table):
    book = Journal(tmp_path / "journal.db")
    spec.save(states.spec(dir=str(tmp_path)))
    now = states.NOW_S
    kept = {"start_s": now, "done_s": 60.0, "energy_wall_kwh": 0.1, "energy_gpu_kwh": 0.1, "gco2_g": 3.0}
    names = {"job": "t", "name": "t", "host": "h", "state": "done"}
    status = protocol.Status(**names, measured_at=units.iso(now + 900), reason=protocol.Reason("done", ""))
    (tmp_path / "job.json").write_text(json.dumps(RECORD))
    job = store.load(tmp_path)
    for column in ROWS[table]:
        for odd in ODD:
            with sqlite3.connect(book.path) as db:
                for name in ROWS:
                    db.execute(f"delete from {name}")
            book.energy(now, now + 10, "GPU-a", 100.0, "counter", "running")
            book.grid([(now, 900.0, 300.0, "actual", "average_direct", "a test")])
            book.steps(now + 5, 9, 1.0, 0.5, "full")
            book.event(now, now, "state", state="running", text="", reason="")
            book.keep("accounts", kept)
            book.commit()
            with sqlite3.connect(book.path) as db:
                db.execute(f"update {table} set {column} = ?", (odd,))
            sum(dur for _, dur, *_ in book.grid_rows()), sum(row[2] for row in book.energy_rows())
            accounts.mean_per_bin([row[:3] for row in book.grid_rows()])
            with contextlib.suppress(story.NoStory):
                formats.html(story.build(job, status=status))
            with contextlib.suppress(history.HistoryError):
                history.whole(book.path, status, 60)
            with contextlib.suppress(history.HistoryError):
                read_events(book.path, 0.0, 9, True)
    book.close()


def test_a_locked_journal_names_its_repair(tmp_path):
    Journal(tmp_path / "journal.db").close()
    spec.save(states.spec(dir=str(tmp_path)))
    with contextlib.closing(sqlite3.connect(tmp_path / "journal.db", isolation_level=None)) as other:
        other.execute("pragma locking_mode=exclusive")
        other.execute("begin exclusive")
        (tmp_path / "job.json").write_text(json.dumps(RECORD))
        with pytest.raises(story.NoStory, match="another program holds a lock on it"):
            story.build(store.load(tmp_path))


@pytest.mark.parametrize("name", ["\ud800", "x\udcff"])
def test_a_kept_text_that_cannot_be_sent_is_left_out(tmp_path, monkeypatch, name):
    monkeypatch.setenv("CARBONTUI_HOME", str(tmp_path))
    monkeypatch.setenv("CARBONTUI_OFFLINE", "1")
    spec.save(states.spec(dir=str(tmp_path), socket=str(tmp_path / "s")))
    book = Journal(tmp_path / "journal.db")
    book.keep("overrides", {"current": {"mode": "boost", "value_w": None, "until": None, "by": name}, "gen": 1})
    book.commit()
    book.close()

    async def restored():
        one = Supervisor(spec.load(tmp_path), None)
        one.take_over(one.keeping.read()[1])
        one.journal.close()
        return one.door.state.override

    assert asyncio.run(restored()).current is None
