"""examples/audit.py: whoever has a journal recomputes its account, and sees that a row was altered."""

import json
import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
import runs
from click.testing import CliRunner

from carbontui import cli
from carbontui.account.boundary import KINDS
from carbontui.job.files.journal import Journal

AUDIT = Path(__file__).parents[2] / "examples" / "audit.py"
SHORT = (
    ("waiting", 70, 30.0, 0.0),
    ("try", 60, 600.0, 1.0),
    ("running", 999, 650.0, 1.0),
    ("paused", 400, 90.0, 0.0),
)


def audited(folder):
    return subprocess.run([sys.executable, "-I", AUDIT, folder / "journal.db"], capture_output=True, text=True)


@pytest.mark.parametrize("boundary", KINDS)
@pytest.mark.parametrize("phases", [runs.DAY, SHORT])
def test_a_stranger_recomputes_what_the_report_says(tmp_path, boundary, phases):
    job = runs.make(tmp_path, boundary=boundary, phases=phases, gpus=2, wander=0.1)
    done = CliRunner().invoke(cli.cli, ["report", job.id, "--json"], env={"CARBONTUI_HOME": str(tmp_path)})
    found, told = json.loads(audited(job.dir).stdout), json.loads(done.stdout)
    for name, part in (("energy_wall_kwh", "kwh"), ("gco2_g", "g")):
        assert found[name] == pytest.approx(told[name], rel=1e-6) == pytest.approx(sum(s[part] for s in found["slots"]))
    assert found["sealed"] and found["boundary"] == boundary
    assert told["avoided_g"] == pytest.approx(told["split"]["avoided_g"], rel=1e-3)


@pytest.mark.parametrize(
    "alter",
    [
        "update energy set joules = joules * 1.0001 where rowid = 99",
        "update energy set state = 'try' where rowid = 99",
        "update grid set value = value + 0.01 where start = (select max(start) from grid)",
        "update state set value = replace(value, '\"given-back\"', '\"held\"') where key = 'accounts'",
    ],
)
def test_a_journal_altered_in_one_row_is_refused_in_one_line(tmp_path, alter):
    job = runs.make(tmp_path)
    with closing(sqlite3.connect(job.dir / "journal.db")) as db, db:
        assert db.execute(alter).rowcount == 1
    done = audited(job.dir)
    assert done.returncode == 1 and done.stdout == "" and re.fullmatch(r".*sealed\n", done.stderr)


def test_a_journal_that_is_written_on_is_sealed_anew_and_a_live_one_is_not(tmp_path):
    job = runs.make(tmp_path)
    book = Journal(job.dir / "journal.db")
    book.event(0.0, 0.0, "supervisor")
    book.commit()
    assert json.loads(audited(job.dir).stdout)["sealed"] is False
    for alter, words in (
        ("update energy set joules = joules * 1.000001 where rowid = 99", "are not those that were written"),
        ("delete from energy where t0 < (select min(t0) + 1200 from energy)", "are not those that were written"),
        ("update grid set value = value + 0.01 where start = (select max(start) from grid)", "sealed"),
        ("update state set value = replace(value, '\"given-back\"', '\"held\"') where key = 'accounts'", "sealed"),
    ):
        with closing(sqlite3.connect(book.path)) as live, closing(sqlite3.connect(tmp_path / "journal.db")) as db, db:
            live.backup(db)
            db.execute("drop trigger energy_removed")
            assert db.execute(alter).rowcount
        assert words in audited(tmp_path).stderr
    book.close()
    (job.dir / "journal.db").write_text("no journal")
    assert audited(job.dir).stderr.endswith("file is not a database\n")
