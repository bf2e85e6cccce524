"""A journal that a disk has damaged while its writer has it open."""

import contextlib
import sqlite3


def spoil(book, table):
    """The root page of a table becomes unreadable, and what its writer remembers of it is no longer the newest."""
    with contextlib.closing(sqlite3.connect(book.path, isolation_level=None)) as db:
        db.execute("create table another (value)")
        db.execute("drop table another")
        db.execute("pragma wal_checkpoint(truncate)")
        page = db.execute("select rootpage from sqlite_master where name=?", (table,)).fetchone()[0]
        size = db.execute("pragma page_size").fetchone()[0]
    with book.path.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\xff" * size)
