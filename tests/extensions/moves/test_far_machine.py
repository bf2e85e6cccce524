"""A far machine, or a working folder, that says and holds what it should not: one line each, nothing opened, nothing
waited for, and no other job touched."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from pathlib import Path

import msgspec
import pytest
from house import House

from carbontui.client.checkpoint import identity
from carbontui.extensions.moves import helper, receiving
from carbontui.extensions.moves.moving import NotMoved, Transfer
from carbontui.job.files import launch_file, places, store
from carbontui.job.files.places import Places
from carbontui.system import ssh

GOLDEN = Path(__file__).parents[2] / "golden" / "job"
GOOD = {"home": "/h", "cwd": "/h/run", "staging": "/h/s", "free_b": 10**12, "copy_b": 0, "changed": []}
DEEP, HUGE = "[" * 50_000, "x" * (17 << 20)


def but(**fields):
    return json.dumps({**GOOD, **fields})


NAMES = [
    "/etc/shadow",
    "../../../etc/shadow",
    "pipe/../../x",
    "link/shadow",
    "a\0b",
    "\x1b[2J",
    "other",
    "",
    ".",
    "..",
    "a" * 9999,
]
CHECKS = {
    **{f"name {index}": but(changed=[[name, "0" * 64]]) for index, name in enumerate(NAMES)},
    "a pipe": but(changed=[["pipe", "0" * 64]]),
    "a device": but(changed=[["device", "0" * 64]]),
    "out of the folder": but(changed=[["link", "0" * 64]]),
    **{f"without {name}": json.dumps({**GOOD, name: None}) for name in GOOD if name != "changed"},
    **{f"{name} {kind}": but(**{name: value}) for name in ("cwd", "free_b", "changed")
       for kind, value in (("null", None), ("list", [1]), ("object", {"a": 1}), ("true", True))},
    "large": but(free_b=10**400), "infinite": '{"free_b": Infinity}', "nan": but(copy_b=float("nan")),
    "a number": "7", "a list": "[]", "nothing": "", "text": "Welcome!\n\x1b]0;owned\x07", "half": but()[:-5],
    "deep": DEEP, "deep inside": '{"x": ' + DEEP, "long": HUGE, "two lines": but() + "\n" + but(),
    "escapes": but(changed=[["a\x1b[31m\r\n\u202e", None]]),
    "triples": but(changed=[["x", None, 1]]), "a digest that is none": but(changed=[["x", 5]]),
}  # fmt: skip


@pytest.fixture
def transfer(tmp_path, monkeypatch):
    """A job that could move, with a pipe, a device and a link in its working folder; `answers` is what ssh prints."""
    monkeypatch.setenv("CARBONTUI_HOME", str(tmp_path / "state"))
    shutil.copytree(GOLDEN, tmp_path / "state" / "jobs")
    run = tmp_path / "run"
    run.mkdir()
    (run / "x").write_text("mine")
    os.mkfifo(run / "pipe")
    (run / "link").symlink_to("/etc")
    fake = tmp_path / "ssh"
    fake.write_text(f"#!/bin/sh\ncat > /dev/null; cat {tmp_path}/answer; [ -e {tmp_path}/hang ] && sleep 100\nexit 0\n")
    fake.chmod(0o755)
    monkeypatch.setattr(ssh, "ANSWER_S", 1.0)
    monkeypatch.setattr(ssh, "PASSWORD_S", 0.0)
    monkeypatch.setattr(Transfer, "why_not", lambda self: "")
    monkeypatch.setattr(launch_file, "load", lambda _: {"environment": {}})
    job = store.named("2qgafz")
    with ssh.SshHost("far", ssh=str(fake)) as host:
        made = Transfer(job, host, 600.0, lambda *_: None)
        made.options = msgspec.structs.replace(made.options, cwd=str(run))
        yield made


def test_a_right_answer_is_taken(transfer, tmp_path):
    (tmp_path / "answer").write_text(but(later={"of": "a newer version"}))
    transfer.check()
    assert "far:/h/run" in transfer.said()


@pytest.mark.parametrize("what", CHECKS)
def test_an_answer_of_a_hostile_machine_is_one_line(transfer, tmp_path, monkeypatch, what):
    opened = []
    monkeypatch.setattr(identity, "checksum", lambda path: opened.append(path) or "1" * 64)
    (tmp_path / "answer").write_text(CHECKS[what])
    with pytest.raises(NotMoved) as error:
        transfer.check()
    said = str(error.value)
    assert said.isprintable() and len(said) < 600 and "stays" in said
    assert set(opened) <= {f"{transfer.options.cwd}/x"}


def test_an_answer_that_never_ends_is_given_up(transfer, tmp_path):
    (tmp_path / "answer").write_text(but())
    (tmp_path / "hang").touch()
    with pytest.raises(NotMoved, match="has not answered for 3 s"):
        transfer.check()


def test_a_place_without_a_zone_has_the_intensity_that_its_machine_names(transfer):
    named = msgspec.structs.replace(transfer.options, zone=None, intensity_g_per_kwh=250.0)
    assert receiving.zone_of(named) == "250 g/kWh"
    assert receiving.zone_of(msgspec.structs.replace(named, zone="DE")) == "DE"


def test_a_pipe_where_a_file_is_to_go_is_named_and_not_opened(tmp_path):
    os.mkfifo(tmp_path / "train.py")
    _, changed = receiving.compare(str(tmp_path), [("train.py", 0, 1)], been=False)
    assert changed == (("train.py", None),)


HOLDS = [
    "7", "[]", "{}", "", "Welcome!", DEEP, '{"ready": 1}', '{"ready": true, "leave": "yes"}', '{"ready": true}\n7',
    '{"ready": true}\n{"ok": 1}', '{"ready": true}\n{"ok": true, "over": 5}',
    '{"ready": true}\n{"ok": true, "own": "no"}', '{"ready": true}\n{"error": {"a": 1}}', '{"ready": true}\n' + DEEP,
    '{"ready": true}\n{"ok": true, "lives": null}', '{"ready": true}\n{"error": "\\u001b[2J"}', "x" * 300_000,
    '{"ready": true}\n{"back": 1, "ok": true}', '{"ready": true}\n{"ok": true, "left": {}}',
]  # fmt: skip


async def heard(folder):
    """A helper after its first conversation."""
    watcher = helper.Helper(str(folder), lambda permit: None)
    watcher.tick(0.0)
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    await asyncio.gather(*tasks)
    return watcher


@pytest.mark.parametrize("said", HOLDS, ids=range(len(HOLDS)))
def test_a_keeper_takes_nothing_but_what_a_holder_may_say(tmp_path, monkeypatch, said):
    (tmp_path / "said").write_text(said + "\n")
    call = ("sh", "-c", f"cat {tmp_path}/said")
    known = Places(1, holder=False, leased=True, peer="far", call=call).leased_for(100, places.now())
    places.write(tmp_path, known)
    log = []
    monkeypatch.setattr(helper, "log", log.append)
    watcher = asyncio.run(heard(tmp_path))
    assert watcher.permit.ended is None and not watcher.places.holder and watcher.places.token == 1
    assert all(len(line) < 300 for line in log)


def test_an_end_is_kept_as_far_as_it_is_one(tmp_path):
    over = {"code": "zero", "signal": 10**30, "stopped": [], "moved": {"x": 1}, "at": -1, "more": "x" * 1000}
    (tmp_path / "said").write_text('{"ready": true}\n' + json.dumps({"ok": True, "over": over}) + "\n")
    places.write(
        tmp_path,
        Places(1, holder=False, leased=True, peer="far", call=("cat", f"{tmp_path}/said")).leased_for(9, places.now()),
    )
    assert asyncio.run(heard(tmp_path)).permit.ended == {"moved": "far", "unloaded": False}


BAD = ["", "7", "[]", DEEP, '{"code": "zero"}', '{"token": {}, "holder": 1, "leased": []}', "\0" * 100, '{"at": 1e999}']


def test_what_is_damaged_in_one_job_breaks_no_list_of_all(tmp_path):
    house = House(tmp_path, None)
    jobs = house.home / "jobs"
    shutil.copytree(GOLDEN, jobs)
    (jobs / "report.json").unlink()
    whole = "2qgafz"
    for number, (name, text) in enumerate(
        (name, text)
        for name in ("exit.json", "places.json", "orders.log", "snapshot.json", "spec.json", "job.json")
        for text in (*BAD, None)
    ):
        folder = jobs / f"bad{number}"
        shutil.copytree(jobs / whole, folder)
        record = json.loads((folder / "job.json").read_text())
        (folder / "job.json").write_text(json.dumps({**record, "job": folder.name}))
        (folder / name).unlink(missing_ok=True)
        if text is None:
            os.mkfifo(folder / name)
        else:
            (folder / name).write_text(text)
    huge = jobs / "bad0" / "exit.json"
    with huge.open("wb") as file:
        file.truncate(1 << 40)
    for words in (["ls"], ["ls", "--all"], ["status", whole], ["report", whole], ["line"]):
        done = house.cli(*words, timeout=60)
        assert done.returncode == 0 and "Traceback" not in done.stderr, (words, done.stderr[-500:])
    assert whole in house.cli("ls", "--all", "--json").stdout
