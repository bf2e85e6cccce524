import sqlite3

import pytest

from carbontui.job import journal
from carbontui.job.journal import Journal


def test_rows_and_state_are_there_for_a_reader_and_a_successor(tmp_path):
    book = Journal(tmp_path / "journal.db")
    book.event(1.0, 2.0, "state", state="paused")
    book.energy(0.0, 5.0, "GPU-1", 1000.0, "counter", "running")
    book.keep("plan", {"levels": [1, 0]})
    assert book.commit()
    with journal.read(tmp_path / "journal.db") as db:
        assert db.execute("select joules from energy").fetchone()[0] == 1000.0
    book.close()
    assert Journal(tmp_path / "journal.db").recall("plan") == {"levels": [1, 0]}


def test_a_disk_that_fills_hurts_nobody_and_nothing_recent_is_lost(tmp_path, monkeypatch):
    book = Journal(tmp_path / "journal.db")
    book._db.execute("pragma max_page_count=14")
    for index in range(3000):
        book.event(float(index), 0.0, "state", text="x" * 200)
    assert not book.commit()
    assert "full" in book.fault
    book._db.execute("pragma max_page_count=100000")
    assert book.commit() and book.fault == ""
    assert book._db.execute("select count(*) from event").fetchone()[0] == 3000


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
