"""Extensions from outside: found by folder or entry point, switched, deleted; the core alone knows none of them."""

import ast
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import carbontui
from carbontui import cli, hooks

ROOT = Path(carbontui.__file__).parent
OWN = sorted(hooks.own())
ENTRY = """
[carbontui.extensions]
theirs = theirs:EXTENSION
broken = theirs:NOTHING
"""
THEIRS = """
import click
from carbontui.hooks import Extension, ExtensionCommand
print("theirs is read")

@click.command()
def hello():
    click.echo("hello")

EXTENSION = Extension("theirs", commands=(ExtensionCommand("hello", "Says hello.", "theirs:hello"),))
"""


@pytest.fixture
def theirs(tmp_path, monkeypatch):
    """An installed package of somebody else's with one extension that works and one that does not."""
    (tmp_path / "theirs.py").write_text(THEIRS)
    about = tmp_path / "theirs-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(ENTRY)
    return tmp_path


def carbontui_with(path, *words, **env):
    """The command line of a Python that has `path` among its packages."""
    code = f"import sys; sys.path.append({str(path)!r}); from carbontui.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, timeout=60, env={**env}, check=False
    )


def test_an_extension_of_others_is_read_for_its_command_and_by_doctor_alone(house, theirs):
    done = carbontui_with(theirs, "hello", **house.env)
    assert (done.returncode, done.stdout) == (0, "theirs is read\nhello\n"), done.stderr
    for words in (["--help"], ["--help", "--all"], ["line"], ["ls"], ["status"]):
        assert "theirs is read" not in carbontui_with(theirs, *words, **house.env).stdout, words
    found = carbontui_with(theirs, "doctor", "--json", **house.env).stdout.partition("theirs is read\n")[2]
    rows = [row["text"] for row in json.loads(found) if row["area"] == "extensions"]
    assert rows[0] == ", ".join([*OWN, "theirs"]) and "NOTHING" in rows[1]


@pytest.mark.parametrize("name", OWN)
def test_one_that_is_off_is_named_and_shown_in_no_help(house, name):
    house.env["CARBONTUI_EXTENSIONS"] = "none"
    for command in hooks.own()[name].commands:
        done = house.cli(command.name)
        assert done.returncode == 2 and f"extension {name}, off by CARBONTUI_EXTENSIONS" in done.stderr
        assert len(done.stderr.splitlines()) == 1
        assert f" {command.name} " not in house.cli("--help", "--all", check=True).stdout


def test_the_whole_help_shows_extensions_under_their_own_heading(house):
    text = house.cli("--help", "--all", check=True).stdout
    shown = text.partition("\nExtensions:\n")[2]
    named = {one.name: f"  {one.name} " in shown for _, one in hooks.commands(hooks.own().values())}
    assert [name for name, is_shown in named.items() if not is_shown] == ["receive"] * ("moves" in OWN)
    assert len([verb for verbs in (*cli.DAY.values(), *cli.MORE.values()) for verb in verbs]) <= 30


@pytest.mark.parametrize("gone", [*([name] for name in OWN), OWN], ids=" ".join)
def test_a_deleted_one_leaves_no_trace(tmp_path, house, gone):
    shutil.copytree(ROOT, tmp_path / "carbontui", ignore=shutil.ignore_patterns("__pycache__"))
    for name in gone:
        shutil.rmtree(tmp_path / "carbontui" / "extensions" / name)

    def run(*words):
        code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from carbontui.cli import main; main()"
        return subprocess.run(
            [sys.executable, "-c", code, *words], capture_output=True, text=True, env=house.env, timeout=60, check=False
        )

    helped = run("--help", "--all")
    assert helped.returncode == 0, helped.stderr
    assert ("\nExtensions:\n" in helped.stdout) == (gone != OWN)
    for name in gone:
        for command in hooks.own()[name].commands:
            done = run(command.name)
            assert done.returncode == 2 and f"no command '{command.name}'" in done.stderr
            assert f"  {command.name} " not in helped.stdout


def test_nothing_of_the_core_imports_an_extension():
    wrong = []
    for path in ROOT.rglob("*.py"):
        if "extensions" in path.relative_to(ROOT).parts:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
            if isinstance(node, ast.ImportFrom):
                names = [f"{node.module}.{name}" for name in names]
            wrong += [f"{path}: {name}" for name in names if name.startswith("carbontui.extensions")]
    assert wrong == []


def test_an_extension_imports_no_other():
    wrong = []
    for path in (ROOT / "extensions").rglob("*.py"):
        own = path.relative_to(ROOT / "extensions").parts[0]
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("carbontui.extensions."):
                wrong += [] if node.module.split(".")[2] == own else [f"{path} imports {node.module}"]
    assert wrong == []
