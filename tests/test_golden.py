"""What 0.1.0 wrote is read ever after: a finished job with its journal, and the lease of a power limit."""

from __future__ import annotations

import contextlib
import json
import shutil
import sqlite3
from pathlib import Path

import msgspec
import pytest

from carbontui.job.files import places
from carbontui.job.terms.spec import Options
from carbontui.power.limit.leases import LeaseRecord

GOLDEN = Path(__file__).parent / "golden"
JOBS = {path.parent.parent.name: path.parent for path in sorted(GOLDEN.glob("job*/*/journal.db"))}
"""Of each format, the oldest first."""
*_, NEWEST = JOBS


@pytest.fixture(params=JOBS)
def kept(house, request):
    """A house with such a job, and its folder."""
    house.golden = JOBS[request.param]
    shutil.copytree(house.golden, house.home / "jobs" / house.golden.name)
    return house


def test_the_report_of_a_job_of_every_format_is_what_it_was(kept):
    then = json.loads((kept.golden.parent / "report.json").read_text())
    now = json.loads(kept.cli("report", "--json", kept.golden.name, check=True).stdout)
    assert then.keys() <= now.keys(), "fields may come, none may go"
    told = (
        "gco2_g",
        "energy_gpu_kwh",
        "energy_wall_kwh",
        "run_now_g",
        "avoided_g",
        "account",
        "split",
        "by_state",
        "steps",
    )
    for name in ("energy_wall_lo_kwh", "energy_wall_hi_kwh"):
        if name not in then["account"]["so_far"]:
            assert now["account"]["so_far"].pop(name) is None, "nobody knew a band"
    for name in told:
        if name in then:
            assert now[name] == then[name], name


@pytest.mark.parametrize("words", [("report",), ("receipt",), ("report", "--explain"), ("status",)])
def test_every_look_at_a_job_of_every_format_still_works(kept, words):
    done = kept.cli(*words, kept.golden.name, check=True)
    assert done.stdout and "Traceback" not in done.stderr
    assert kept.golden.name in kept.cli("ls", "--all", check=True).stdout


def test_the_lease_of_a_limit_of_0_1_0_names_what_to_restore():
    lease = msgspec.json.decode((GOLDEN / "lease.json").read_bytes(), type=LeaseRecord)
    assert (lease.before_mw, lease.ours_mw, lease.pidns) == (700_000, (450_000, 410_000), 4026531836)
    assert "700" in lease.fix and "nvidia-smi" in lease.fix


def test_a_format_does_not_change_without_a_golden_file(house):
    """A field that came or went: python tests/golden/make_job.py adds a job of today's formats."""
    job = house.start(steps=5)
    job.until_over()
    folder = JOBS[NEWEST]
    assert json.loads((folder / "spec.json").read_text()).keys() == set(Options.__struct_fields__)
    assert json.loads((folder.parent / "lease.json").read_text()).keys() == set(LeaseRecord.__struct_fields__)
    assert shape(folder / "journal.db") == shape(job.dir / "journal.db")
    known = places.read(folder.parent)
    assert (known.token, known.moved_to, known.places[0].host) == (2, "u@b", "b")
    written = json.loads((folder.parent / places.NAME).read_text())
    places.write(house.root, places.Places(1, True, False, places=(places.Stay(),)))
    today = json.loads((house.root / places.NAME).read_text())
    assert written.keys() == today.keys() and written["places"][0].keys() == today["places"][0].keys()


def shape(path):
    """Tables, indices and triggers of a journal, and the fields of what it holds of the job's state."""
    with contextlib.closing(sqlite3.connect(path)) as db:
        made = {sql for (sql,) in db.execute("select sql from sqlite_master where sql not null")}
        state = {key: json.loads(value) for key, value in db.execute("select key, value from state")}
    return made, sorted(state["accounts"].keys() - {"driver", "idle_w", "nowcast_g"}), sorted(state["progress"])


LACKS = "run_now_s"


def test_a_journal_that_lacks_a_field_is_named_as_older_not_as_damaged(kept):
    with contextlib.closing(sqlite3.connect(kept.home / "jobs" / kept.golden.name / "journal.db")) as db:
        (text,) = db.execute("select value from state where key = 'accounts'").fetchone()
        left = {key: value for key, value in json.loads(text).items() if key != LACKS}
        db.execute("update state set value = ? where key = 'accounts'", (json.dumps(left),))
        db.commit()
    done = kept.cli("report", kept.golden.name)
    older = f"journal.db was written by an older carbontui, which had no '{LACKS}'; report it with that version"
    assert (done.returncode, done.stderr) == (3, f"carbontui: job {kept.golden.name}: {older}\n")
