"""Files that others wrote, or a disk damaged: whatever is in them, who reads one goes on without it."""

import json
import sqlite3

import pytest

from carbontui.job.files import launch_file, store
from carbontui.job.files.journal import Journal
from carbontui.job.supervisor.record.energy_ledger import FirstCounts
from carbontui.job.terms import spec
from carbontui.power.curves import files
from carbontui.power.limit.leases import LeaseStore
from carbontui.power.messages import Sample
from carbontui.system import untrusted

DEEP = b'{"more":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
DAMAGED = {
    "nested without end": DEEP,
    "bytes that are no text": b'{"job":"\xff","uuid":"\xff","fingerprint":"\xff"}',
    "an infinite number": b'{"measured_s":1e999}',
    "no file of ours": b"\x00",
    "empty": b"",
}


@pytest.fixture(params=DAMAGED.values(), ids=DAMAGED.keys())
def damaged(request):
    return request.param


def test_damage_is_one_kind_of_error(damaged):
    with pytest.raises(ValueError):
        untrusted.decode(damaged, store.protocol.Status)


def test_a_job_is_listed_whatever_its_snapshot_holds(tmp_path, damaged):
    (tmp_path / "snapshot.json").write_bytes(damaged)
    record = {"job": "a", "name": "a", "host": "h", "boot": "b", "socket": "s", "log": "l", "started": 1, "argv": []}
    (tmp_path / "job.json").write_text(json.dumps(record))
    assert store.load(tmp_path).status().state in ("starting", "lost")


def test_what_a_job_left_is_done_without_where_it_cannot_be_read(tmp_path, damaged):
    for name in ("spec.json", launch_file.FILE, "first-count.json", "job.json"):
        (tmp_path / name).write_bytes(damaged)
    with pytest.raises(ValueError):
        spec.load(tmp_path)
    assert launch_file.load(tmp_path) is None
    assert store.load(tmp_path) is None
    sample = Sample(uuid="GPU-a", mono_s=1.0, wall_s=1.0, energy_uj=1)
    assert FirstCounts(tmp_path).before(sample) == []


def test_a_value_nested_without_end_is_forgotten(tmp_path):
    book = Journal(tmp_path / "journal.db")
    book.keep("plan", 1)
    book.commit()
    with sqlite3.connect(book.path) as db:
        db.execute("update state set value=?", (DEEP.decode(),))
    assert book.recall("plan", "nothing") == "nothing"
    book.close()


def test_damaged_leases_and_curves_count_as_none(tmp_path, damaged):
    for name in ("GPU-a.json", "GPU-a.low"):
        (tmp_path / name).write_bytes(damaged)
    leases = LeaseStore(tmp_path)
    assert leases.read("GPU-a") is None and leases.damaged("GPU-a") and leases.low() == []
    assert files.of_script("m", tmp_path) is None
    with pytest.raises(ValueError):
        files.read(tmp_path / "GPU-a.json")


@pytest.mark.parametrize(
    "changed",
    [
        {"socket": ""},
        {"socket": "x" * 200},
        {"socket": "s"},
        {"job": "\ud800"},
        {"dir": "x" * 10**6},
        {"created_s": 1e300},
        {"name": "\ud800"},
        {"zone": "\ud800"},
        {"dir": "\ud800"},
        {"pue": 1e300},
    ],
)
def test_a_start_whose_own_file_holds_what_cannot_be_is_refused_when_it_is_read(tmp_path, changed):
    good = {"job": "a", "name": "a", "dir": str(tmp_path), "argv": ["true"], "cwd": "/", "log": "l", "socket": "/s"}
    good["created_s"] = 1.8e9
    (tmp_path / "spec.json").write_text(json.dumps(good))
    assert spec.load(tmp_path).job == "a"
    (tmp_path / "spec.json").write_text(json.dumps(good | changed))
    with pytest.raises(ValueError):
        spec.load(tmp_path)
