import sqlite3

import pytest
from damaged import spoil

from carbontui.job.files import journal
from carbontui.job.files.journal import Journal


def test_rows_and_state_are_there_for_a_reader_and_a_successor(tmp_path):
    book = Journal(tmp_path / "journal.db")
    book.event(1.0, 2.0, "state", state="paused")
    book.energy(0.0, 5.0, "GPU-1", 1000.0, "counter", "running")
    book.keep("plan", {"levels": [1, 0]})
    assert book.commit()
    with journal.read(tmp_path / "journal.db") as db:
        assert db.execute("select joules from energy").fetchone()[0] == 1000.0
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        db.execute("select 1")
    book.close()
    assert Journal(tmp_path / "journal.db").recall("plan") == {"levels": [1, 0]}


def test_a_disk_that_fills_hurts_nobody_and_nothing_recent_is_lost(tmp_path, monkeypatch):
    opened, connect = [], sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *where, **how: opened.append(connect(*where, **how)) or opened[-1])
    book = Journal(tmp_path / "journal.db")
    opened[0].execute("pragma max_page_count=14")
    for index in range(3000):
        book.event(float(index), 0.0, "state", text="x" * 200)
    assert not book.commit()
    assert "full" in book.fault
    opened[0].execute("pragma max_page_count=100000")
    assert book.commit() and book.fault == ""
    with journal.read(book.path) as db:
        assert db.execute("select count(*) from event").fetchone()[0] == 3000


def test_a_journal_of_a_newer_version_is_left_alone(tmp_path):
    db = sqlite3.connect(tmp_path / "journal.db")
    db.execute("pragma user_version=99")
    db.close()
    book = Journal(tmp_path / "journal.db")
    book.event(0.0, 0.0, "state")
    assert not book.commit() and "newer" in book.fault


def test_reading_a_journal_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError):
        journal.read(tmp_path / "journal.db")


def test_a_file_that_is_no_database_is_set_aside_whole_and_a_new_one_begun(tmp_path):
    path = tmp_path / "journal.db"
    path.write_bytes(b"not a database at all" * 400)
    book = Journal(path, wall_s=lambda: 1e9)
    assert book.fault == "" and book.aside == tmp_path / "journal.db.corrupt-20010909T014640Z"
    assert book.aside.read_bytes().startswith(b"not a database")
    book.keep("plan", 1)
    assert book.commit() and book.recall("plan") == 1


def test_what_stands_still_is_not_written_again(tmp_path):
    book = Journal(tmp_path / "journal.db")
    book.keep("control", {"mode": "run"})
    assert book.commit()
    with journal.read(book.path) as db:
        written = db.execute("pragma data_version").fetchone()[0]
        book.keep("control", {"mode": "run"})
        assert book.commit() and db.execute("pragma data_version").fetchone()[0] == written
    book.keep("control", {"mode": "pause"})
    assert book.commit() and book.recall("control") == {"mode": "pause"}


def test_what_stands_still_is_kept_anew_where_the_file_was_damaged(tmp_path):
    book = Journal(tmp_path / "journal.db")
    book.keep("control", {"mode": "pause"})
    book.keep("budget", "x" * 9000)
    assert book.commit()
    spoil(book, "state")
    book.keep("progress", 1)
    assert book.commit() and book.aside is not None and book.recall("control") is None
    book.keep("control", {"mode": "pause"})
    assert book.commit() and book.recall("control") == {"mode": "pause"}


def test_a_name_that_holds_bytes_which_are_no_text_is_kept(tmp_path):
    book = Journal(tmp_path / "journal.db")
    book.keep("missing", "journal-\udcff.db")
    assert book.commit() and book.recall("missing") == "journal-\udcff.db"


def torn(path, table):
    """A journal whose `table` alone cannot be read."""
    book = Journal(path)
    book.keep("plan", [1, 0])
    book.grid([(0.0, 900.0, 300.0, "actual", "average", "s")])
    for index in range(500):
        book.energy(float(index), index + 1.0, "GPU-1", 1.0, "counter", "running")
    assert book.commit()
    spoil(book, table)
    book.close()


def test_what_can_be_read_of_a_damaged_file_is_in_the_new_one(tmp_path):
    torn(tmp_path / "journal.db", "energy")
    book = Journal(tmp_path / "journal.db")
    assert book.energy_rows() == [] and book.aside is not None
    assert book.recall("plan") == [1, 0] and len(book.grid_rows()) == 1


def test_damage_met_while_writing_loses_no_event_and_is_mended_once(tmp_path):
    torn(tmp_path / "journal.db", "event_kind")
    book = Journal(tmp_path / "journal.db")
    book.event(0.0, 0.0, "state", text="x")
    book.energy(0.0, 1.0, "GPU-1", 1.0, "counter", "running")
    assert book.commit() and book.aside is not None and book.fault == ""
    with journal.read(tmp_path / "journal.db") as db:
        assert db.execute("select count(*) from event").fetchone()[0] == 1
        assert db.execute("select count(*) from energy").fetchone()[0] == 0  # it is in the sums that are carried on
    book.close()
    (tmp_path / "journal.db").write_bytes(b"again" * 1000)
    book.event(1.0, 0.0, "state")
    assert not book.commit() and "not a database" in book.fault and len(list(tmp_path.glob("*.corrupt-*"))) == 1


def test_a_setting_that_could_not_be_read_is_not_overwritten_by_a_default(tmp_path):
    book = Journal(tmp_path / "journal.db")
    book.keep("budget", "30h")
    assert book.commit()
    heir = Journal(tmp_path / "journal.db")
    heir.leave("budget", "1x")
    heir.keep("budget", "1x")
    assert heir.commit() and heir.recall("budget") == "30h"
    heir.keep("budget", "40h")  # a person's word
    assert heir.commit() and heir.recall("budget") == "40h"


def test_without_locks_there_is_a_journal_all_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr(journal, "has_locks", lambda folder: False)
    book = Journal(tmp_path / "journal.db")
    book.event(1.0, 1.0, "state", text="x")
    assert book.commit() and not book.locked
    with journal.read(book.path) as db:
        assert db.execute("select count(*) from event").fetchone()[0] == 1
    book.close()


def test_a_fault_is_named_once(tmp_path):
    book = Journal(tmp_path / "no" / "journal.db")
    book.event(0.0, 0.0, "state")
    assert not book.commit() and book.fault.count("not written") == 1


def test_without_locks_a_reader_sees_no_half_of_a_commit(tmp_path, monkeypatch):
    monkeypatch.setattr(journal, "has_locks", lambda folder: False)
    kept, dead = tmp_path / "kept", tmp_path / "dead"
    for folder in (kept, dead):
        folder.mkdir()
    book = Journal(kept / "journal.db")
    for index in range(2000):
        book.event(float(index), 0.0, "state", text="x" * 500)
    book.commit()
    book.close()
    writer = sqlite3.connect(f"{(kept / 'journal.db').as_uri()}?vfs=unix-none", uri=True, isolation_level=None)
    writer.execute("pragma cache_size=2")  # pages are written before the commit
    writer.execute("begin")
    writer.execute("update event set wall = 1.0")
    sums = []
    for name in ("journal.db", "journal.db-journal"):
        (dead / name).write_bytes((kept / name).read_bytes())  # as a writer leaves them that is killed now
    for folder in (kept, dead):
        with journal.read(folder / "journal.db") as db:
            sums.append(db.execute("select count(*), sum(wall) from event").fetchone()[:])
    writer.execute("commit")
    writer.close()
    with journal.read(kept / "journal.db") as db:
        sums.append(db.execute("select count(*), sum(wall) from event").fetchone()[:])
    assert sums == [(2000, 0.0), (2000, 0.0), (2000, 2000.0)]
