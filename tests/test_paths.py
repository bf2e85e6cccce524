"""Where sockets lie: never in a folder that somebody else has made."""

import os
import pwd
import shutil
import tempfile
from pathlib import Path

import pytest
from click.testing import CliRunner
from house import ordinary_user

from carbontui import cli, paths
from carbontui.commands.restart import install
from carbontui.job.life import launch, restart
from carbontui.job.terms import spec


@pytest.fixture
def alone(monkeypatch):
    """No runtime directory, and a /tmp of our own, with a path short enough for a socket."""
    shared = Path(tempfile.mkdtemp(prefix="ct-"))
    shared.chmod(0o1777)
    real = paths.Path
    monkeypatch.setattr(paths, "Path", lambda *parts: shared if parts == ("/tmp",) else real(*parts))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setenv("CARBONTUI_HOME", "/h")
    yield shared
    shutil.rmtree(shared)


def test_the_shared_folder_is_used_where_it_is_ours_or_can_be(alone):
    expected = alone / f"carbontui-{os.getuid()}"
    assert paths.socket_dir() == expected
    expected.mkdir()
    assert paths.socket_dir() == expected


def test_a_folder_that_another_has_made_in_advance_is_not_used(alone, monkeypatch, tmp_path):
    taken = alone / f"carbontui-{os.getuid()}"
    taken.symlink_to(tmp_path)
    assert paths.socket_dir().name in ("sockets", "run")
    monkeypatch.setenv("CARBONTUI_HOME", "/" + "d" * 90)
    assert paths.socket_dir().name == "run", "the state directory's path is too long for a socket"


@pytest.mark.skipif(os.geteuid() != 0, reason="making a folder of another user needs root")
def test_a_folder_of_another_user_is_not_used(alone):
    with ordinary_user():
        taken = alone / f"carbontui-{os.getuid()}"
    taken.mkdir()
    os.chown(taken, 1, 1)
    with ordinary_user():
        assert paths.socket_dir() != taken


def test_a_folder_that_everybody_shares_stays_open_to_everybody(alone):
    with pytest.raises(PermissionError, match="shared by everybody"):
        paths.private_dir(alone)
    assert alone.stat().st_mode & 0o7777 == 0o1777


def test_a_job_whose_socket_has_no_place_is_refused_before_anything_starts(tmp_path):
    (tmp_path / "file").write_text("")
    options = spec.Options(
        job="j", name="n", dir=str(tmp_path / "d"), argv=("true",), cwd="/", log="l", created_s=0.0,
        socket=str(tmp_path / "file" / "s.sock"),
    )  # fmt: skip
    with pytest.raises(launch.LaunchError, match="no place for its socket"):
        launch.start(options)
    assert not (tmp_path / "d").exists()


@pytest.mark.parametrize("home", [None, "~/state"])
def test_a_user_without_a_home_directory_is_told_what_to_set(monkeypatch, home):
    def nobody(uid):
        raise KeyError(uid)

    monkeypatch.setattr(pwd, "getpwuid", nobody)
    for name in ("HOME", "CARBONTUI_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    if home:
        monkeypatch.setenv("CARBONTUI_HOME", home)
    for place in (paths.state_dir, paths.config_file, paths.cache_dir):
        with pytest.raises(FileNotFoundError, match="set HOME or CARBONTUI_HOME"):
            place()
    for asked in (["--install"], ["--uninstall"]):
        refused = CliRunner().invoke(cli.cli, ["doctor", *asked]).exception
        assert isinstance(refused, FileNotFoundError) and "set HOME" in str(refused)


def test_a_unit_that_cannot_be_written_is_refused_and_leaves_nothing(ordinary_folder, monkeypatch):
    (ordinary_folder / "systemctl").write_text("#!/bin/sh\n")
    (ordinary_folder / "systemctl").chmod(0o755)
    monkeypatch.setenv("PATH", str(ordinary_folder))
    # the checkout may lie where only root may look
    monkeypatch.setattr(restart, "UNIT", Path(shutil.copy(restart.UNIT, ordinary_folder)))
    unit = restart.place({"HOME": str(ordinary_folder)})
    monkeypatch.setenv("XDG_CONFIG_HOME", str(ordinary_folder / ".config"))
    ordinary_folder.chmod(0o555)
    with ordinary_user(), pytest.raises(PermissionError) as refused:
        install()
    assert refused.value.filename == str(ordinary_folder / ".config")
    # a disk that is full when it is written
    unit.parent.mkdir(parents=True)
    unit.symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left"):
        install()
    assert not unit.is_symlink()
