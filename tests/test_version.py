"""What tells two builds apart: the commit, in a checkout, wheel and source distribution; none in a copy without git."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from carbontui.client import version

GIT = ("git", "-c", "user.name=n", "-c", "user.email=e")
ASKED = "import sys; sys.path.insert(0, sys.argv[1]); from carbontui.client import version; print(version.full())"


@pytest.fixture
def copy(tmp_path):
    """The part of the package that knows its version, in a folder without git."""
    (tmp_path / "carbontui/client").mkdir(parents=True)
    for name in ("__init__.py", "client/__init__.py", "client/version.py"):
        shutil.copy(Path(version.__file__).parents[1] / name, tmp_path / "carbontui" / name)
    return tmp_path


def said(folder):
    words = [sys.executable, "-S", "-c", ASKED, str(folder)]
    return subprocess.run(words, capture_output=True, text=True, check=True, cwd="/").stdout.strip()


def test_a_checkout_names_its_commit_and_a_release_does_not(copy):
    assert said(copy) == version.__version__

    def git(*words):
        return subprocess.run([*GIT, "-C", copy, *words], capture_output=True, text=True, check=True).stdout.strip()

    git("init")
    git("add", "-A")
    git("commit", "-m", "one")
    assert said(copy) == f"{version.__version__}+g{git('rev-parse', '--short=7', 'HEAD')}"
    git("tag", f"v{version.__version__}")
    assert said(copy) == version.__version__
    git("commit", "--allow-empty", "-m", "two")
    assert said(copy) == f"{version.__version__}+g{git('rev-parse', '--short=7', 'HEAD')}"


def test_an_installed_build_and_a_source_distribution_say_what_they_were_built_as(copy):
    info = copy / "carbontui-0.1.0+gabcdef0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: carbontui\nVersion: 0.1.0+gabcdef0\n")
    assert said(copy) == "0.1.0+gabcdef0"
    (copy / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: carbontui\nVersion: 0.1.0+g1234567\n\nVersion: 9\n")
    assert said(copy) == "0.1.0+g1234567"


def test_the_command_line_says_it(house):
    assert house.cli("--version", check=True).stdout == f"carbontui, version {version.full()}\n"
