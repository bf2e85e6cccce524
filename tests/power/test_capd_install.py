"""The administrator's verb: what it would install, what it refuses to run as root, what it tells."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from nvml_machine import machine_with  # noqa: F401
from test_capd import UUID, ask, service  # noqa: F401

from carbontui.cli import cli
from carbontui.power.capd import install


def test_what_is_installed_is_isolated_and_may_do_little() -> None:
    shown = CliRunner().invoke(cli, ["capd", "install", "--print"]).output
    assert "ListenStream=/run/carbontui/capd.sock" in shown and "SocketMode=0666" in shown
    assert f"ExecStart={sys.executable} -I -m carbontui.power.capd" in shown
    for line in ("NoNewPrivileges=yes", "ProtectSystem=strict", "ProtectHome=yes", "RestrictAddressFamilies=AF_UNIX"):
        assert line in shown


@pytest.mark.skipif(os.geteuid() != 0, reason="a file of root is needed")
@pytest.mark.parametrize("mode", [0o777, 0o775])
def test_code_that_somebody_else_can_change_is_not_run_as_root(tmp_path: Path, mode: int) -> None:
    folder = tmp_path / "lib"
    folder.mkdir()
    module = folder / "capd.py"
    module.write_text("")
    assert install.writable_by_others([module]) is None
    folder.chmod(mode)
    assert install.writable_by_others([module]) == folder
    folder.chmod(0o755)
    os.chown(module, 65534, 65534)
    assert install.writable_by_others([module]) == module


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
def test_systemd_finds_nothing_wrong_with_the_units(tmp_path: Path) -> None:
    for name, text in install.units().items():
        (tmp_path / name).write_text(text)
    told = subprocess.run(["systemd-analyze", "verify", *tmp_path.iterdir()], capture_output=True, text=True)
    assert (told.returncode, told.stderr) == (0, "")
    line = shlex.join(install.command())
    assert f"ExecStart={line}\n" in (tmp_path / "carbontui-capd.service").read_text(), "the line for an init as well"
