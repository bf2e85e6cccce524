"""Files and sockets that are closed to a user or belong to another one: refused in one line that names them."""

from __future__ import annotations

import os
import shutil
import socket
from pathlib import Path

import pytest
from house import ordinary_user

from carbontui import link, paths
from carbontui.commands import doctor
from carbontui.grid import recorded
from carbontui.job.files import journal, store
from carbontui.job.life import launch


def test_a_state_directory_that_may_not_be_written_is_named_and_left_alone(
    ordinary_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = ordinary_folder / "home"
    monkeypatch.setenv("CARBONTUI_HOME", str(home))
    launch.claim("train.py", ())
    shutil.rmtree(home / "jobs")
    closed = rf"{home} cannot be used \(Permission denied\); set CARBONTUI_HOME"
    home.chmod(0o500)
    with ordinary_user(), pytest.raises(launch.LaunchError, match=closed):
        launch.claim("train.py", ())
    assert list(home.iterdir()) == []


def test_a_state_directory_without_room_is_refused_before_anything_is_started(
    ordinary_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = ordinary_folder / "home"
    monkeypatch.setenv("CARBONTUI_HOME", str(home))
    monkeypatch.setattr(launch, "ROOM_B", 1e18)
    with pytest.raises(launch.LaunchError, match=rf"{home} has \d+ MB free, .*; set CARBONTUI_HOME"):
        launch.claim("train.py", ())
    assert list(home.iterdir()) == []
    assert doctor.state_findings()[0].verdict == "missing"


def test_the_journal_of_a_job_that_is_over_is_read_where_nothing_may_be_written(ordinary_folder: Path) -> None:
    with ordinary_user():
        book = journal.Journal(ordinary_folder / "journal.db")
        book.keep("accounts", {"done_s": 1.0})
        book.close()
    ordinary_folder.chmod(0o500)
    with ordinary_user(), journal.read(book.path) as db:
        assert db.execute("select count(*) from state where key = 'accounts'").fetchone()[0] == 1


def test_a_grid_file_that_may_not_be_read_is_named(ordinary_folder: Path) -> None:
    file = ordinary_folder / "grid.csv"
    file.write_text("time_utc,value\n2030-01-01T00:00:00Z,300\n2030-01-01T01:00:00Z,310\n")
    assert recorded.load(file).rows
    file.chmod(0)
    with ordinary_user(), pytest.raises(ValueError, match=rf"{file}.*Permission denied"):
        recorded.load(file)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a folder that belongs to somebody else")
def test_a_folder_that_somebody_else_owns_is_not_used_for_sockets(ordinary_folder: Path) -> None:
    with pytest.raises(PermissionError, match="belongs to uid 65534, not to you"):
        paths.private_dir(ordinary_folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can serve a socket as somebody else")
def test_a_socket_that_somebody_else_serves_is_refused_before_anything_is_sent(ordinary_folder: Path) -> None:
    path = ordinary_folder / "job.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as theirs:
        with ordinary_user():
            theirs.bind(str(path))
            theirs.listen()
        with pytest.raises(link.NotOurs, match="served by uid 65534"):
            link.version(path)
        connection, _ = theirs.accept()
        with connection:
            assert connection.recv(1) == b""


def test_a_job_that_is_only_claimed_names_where_it_will_answer_and_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CARBONTUI_HOME", str(tmp_path))
    home = launch.claim("train.py", ())
    job = store.load(Path(home["dir"]))
    assert job is not None and (str(job.socket), str(job.log)) == (home["socket"], home["log"]) and job.live
