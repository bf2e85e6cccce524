"""What the training environment gets to see, on every Python that is there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from carbontui.client import inject

ROOT = Path(__file__).parents[2]
PYENV = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
PYTHONS = sorted(
    str(p) for v in ("3.8", "3.9", "3.10", "3.12", "3.13", "3.14") for p in PYENV.glob(f"{v}.*/bin/python")
)

STEPS = """
import sys, time, carbontui
for i in range(60):
    time.sleep(0.01)
    carbontui.step()
bad = {"textual", "numpy", "msgspec", "click", "httpx", "platformdirs"} & set(sys.modules)
print("py", sys.version_info[:2], "bad", bad, "from", carbontui.__file__)
"""
UNTIL_TOLD = """
import os, sys, time, carbontui
done = 0
while not os.path.exists(sys.argv[1]):
    time.sleep(0.01)
    carbontui.step()
    done += 1
bad = {"textual", "numpy", "msgspec", "click", "httpx", "platformdirs"} & set(sys.modules)
print("steps", done, "bad", bad)
"""


def test_the_hook_directory_holds_the_client_alone(hook):
    names = {
        str(path.relative_to(hook)) for path in hook.rglob("*") if path.is_file() and "__pycache__" not in path.parts
    }
    named = ("__init__.py", "callbacks.py", "job/__init__.py", "train.py", "py.typed")
    root = {"sitecustomize.py", *(f"carbontui/{name}" for name in named)}
    assert root | {"carbontui/client/api.py"} <= names
    assert all(n.startswith("carbontui/client/") for n in names - root)
    assert "carbontui/client/inject.py" not in names


def test_the_environment_keeps_what_the_user_set(tmp_path):
    base = {"PYTHONPATH": "/a:/b", "COLUMNS": "200", "NO_COLOR": "1", "CARBONTUI_RESUME": "1", "HOME": "/h"}
    env = inject.environment(base, hook_dir=tmp_path, socket="/s", job="j", marker="/m")
    assert env["PYTHONPATH"] == f"{tmp_path}:/a:/b"
    assert (env["COLUMNS"], env["HOME"], env["CARBONTUI_SOCKET"], env["CARBONTUI_JOB"]) == ("200", "/h", "/s", "j")
    assert "FORCE_COLOR" not in env and "CARBONTUI_RESUME" not in env
    again = inject.environment(env, hook_dir=tmp_path, socket="/s", job="j", marker="/m", resume=True)
    assert again["PYTHONPATH"] == env["PYTHONPATH"] and again["CARBONTUI_RESUME"] == "1"


@pytest.mark.parametrize("given", [":src", "src:", "src::lib", ":", "", None])
def test_empty_entries_of_the_path_stay_the_current_folder(given, tmp_path, hook):
    base = {**os.environ, **({} if given is None else {"PYTHONPATH": given})}
    env = inject.environment(base, hook_dir=hook, socket="/s", job="j", marker="/m")
    argv = [sys.executable, "-c", "import sys; print([one for one in sys.path[1:] if one != sys.argv[1]])", str(hook)]
    alone, under = (subprocess.check_output(argv, env=one, cwd=tmp_path) for one in (base, env))
    assert under == alone


def test_a_script_sees_a_terminal_only_where_its_job_was_started_on_one(tmp_path):
    """Escape codes in the output file of a Slurm job, and lines of a width nobody has, are ours to keep out."""
    told = {"hook_dir": tmp_path, "socket": "/s", "job": "j", "marker": "/m"}
    plain = inject.environment({}, **told)
    assert not {"FORCE_COLOR", "TTY_COMPATIBLE", "COLUMNS"} & set(plain)
    assert plain["PYTHONUNBUFFERED"] == "1"
    assert inject.environment({"PYTHONUNBUFFERED": ""}, **told)["PYTHONUNBUFFERED"] == ""
    shown = inject.as_on_a_terminal({"HOME": "/h"}, 97, 40)
    assert (shown["FORCE_COLOR"], shown["COLUMNS"], shown["LINES"], shown["HOME"]) == ("1", "97", "40", "/h")
    assert "FORCE_COLOR" not in inject.as_on_a_terminal({"NO_COLOR": "1"}, 97, 40)
    assert inject.as_on_a_terminal({"COLUMNS": "200"}, 97, 40)["COLUMNS"] == "200"


OLD = sorted(str(p) for v in ("2.7", "3.6", "3.7") for p in PYENV.glob(f"{v}.*/bin/python"))


@pytest.mark.parametrize("python", OLD, ids=lambda p: Path(p).parents[1].name)
def test_a_helper_on_an_old_python_runs_as_if_nothing_were_there(python, supervisor, launch, finish, tmp_path):
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "sitecustomize.py").write_text("import sys; sys.theirs_ran = True\n")
    code = "import sys; print('%d %s' % (len(sys.meta_path), getattr(sys, 'theirs_ran', False)))"
    alone = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.split()[0]
    assert finish(launch([python, "-c", code], PYTHONPATH=str(theirs))) == f"{alone} True\n"
    assert finish(launch([python, "-c", code])) == f"{alone} False\n"
    script = """
import carbontui
@carbontui.on_checkpoint
def save():
    pass
carbontui.report(loss=1.0)
carbontui.step()
print("%s %s" % (carbontui.paused(), carbontui.level()))
"""
    assert finish(launch(script.strip(), python=python)) == "False None\n"
    assert supervisor.ranks == []


def test_a_job_started_from_within_another_has_nothing_of_it(tmp_path):
    """Two hooks in one process count every step twice, and the other's steps are not this one's."""
    outer = inject.environment({"PYTHONPATH": "/a"}, hook_dir="/outer", socket="/s", job="o", marker="/m", resume=True)
    outer["CARBONTUI_START_STEP"] = "40"
    env = inject.environment(outer, hook_dir=tmp_path, socket="/t", job="j", marker="/n")
    assert env["PYTHONPATH"] == f"{tmp_path}:/a" and env["CARBONTUI_HOOK"] == str(tmp_path)
    assert not {"CARBONTUI_START_STEP", "CARBONTUI_RESUME"} & set(env)


@pytest.mark.parametrize("python", [sys.executable, *PYTHONS], ids=lambda p: Path(p).parents[1].name)
def test_other_pythons_pause_too(python, supervisor, launch, finish, tmp_path):
    over = tmp_path / "over"
    process = launch(UNTIL_TOLD, str(over), python=python)
    supervisor.wait(lambda: supervisor.last())
    (held,) = supervisor.pause()
    supervisor.want("run")
    supervisor.wait(lambda: supervisor.last().step > held, what="a step after the pause")
    over.touch()
    out = finish(process)
    assert "bad set()" in out and supervisor.ranks[0].bad == []
    supervisor.wait(lambda: f"steps {supervisor.last().step} " in out, what="the goodbye with the last step")


def test_an_environment_without_any_package(supervisor, launch, finish, tmp_path):
    """A venv of its own that holds neither textual nor numpy, nor pip; its carbontui is the hook's copy."""
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    process = launch(STEPS, python=str(venv / "bin" / "python"), PYTHONPATH="")
    out = finish(process)
    assert "bad set()" in out and str(Path(os.environ.get("HOME", "/"))) not in out.split("from ")[1].replace(
        str(tmp_path), ""
    )
    assert supervisor.last().step == 60


def test_an_existing_sitecustomize_runs_too_and_path_order_is_kept(launch, finish, tmp_path, hook):
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "sitecustomize.py").write_text("import sys; sys.theirs_ran = True\n")
    process = launch(
        """
        import sys, sitecustomize
        assert sys.theirs_ran and "theirs" in sitecustomize.__file__
        assert type(sys.meta_path[0]).__name__ == "_Watch"
        print("last", sys.path[-1])
        """,
        PYTHONPATH=str(theirs),
    )
    assert f"last {hook}" in finish(process)


def test_a_broken_sitecustomize_of_theirs_breaks_nothing_of_ours(launch, finish, tmp_path):
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "sitecustomize.py").write_text("1 / 0\n")
    process = launch("import sys, carbontui; carbontui.step(); print('ok')", PYTHONPATH=str(theirs))
    assert "ok" in finish(process)


def test_a_command_of_the_tool_still_works_inside_a_job(launch, finish):
    """The tool's own package, where installed, is not hidden by the hook's copy of the client."""
    process = launch([sys.executable, "-c", "import carbontui.cli, carbontui; print(carbontui.__file__)"])
    assert str(ROOT / "carbontui" / "__init__.py") in finish(process)


def test_a_process_that_never_trains_imports_nothing_of_ours(launch, finish):
    process = launch("import sys, json; print([m for m in sys.modules if 'carbontui' in m], len(sys.meta_path))")
    assert finish(process).startswith("[]")


def test_client_sources_parse_on_39():
    import ast

    for path in [ROOT / "carbontui" / "__init__.py", *(ROOT / "carbontui" / "client").rglob("*.py")]:
        ast.parse(path.read_text(), feature_version=(3, 9))
