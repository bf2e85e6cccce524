"""The package that a training has loaded is upgraded, or removed, while it runs: the training and its job go on."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from house import House, Job, until

import carbontui

SCRIPT = """
import os, sys, time
import carbontui
print(carbontui.__file__, flush=True)
steps = 0
while not os.path.exists(sys.argv[1]):
    time.sleep(0.01)
    carbontui.step()
    steps += 1
carbontui.report(loss=1.0, total=steps)
print(steps)
"""


def removed(package: Path) -> None:
    package.rename(package.with_name("gone"))


def replaced(package: Path) -> None:
    for file in package.rglob("*.py"):
        file.write_text("raise RuntimeError('of another version')")


@pytest.mark.parametrize("changed", [removed, replaced])
def test_a_training_goes_on_and_is_paused_while_its_carbontui_is(
    changed: Callable[[Path], None], house: House, tmp_path: Path
) -> None:
    package = tmp_path / "site" / "carbontui"
    shutil.copytree(Path(carbontui.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    over, script = tmp_path / "over", tmp_path / "train.py"
    script.write_text(SCRIPT)
    words = [sys.executable, "-m", "carbontui", "run", "--", house.python, str(script), str(over)]
    env = house.env | {"PYTHONPATH": str(package.parent)}
    kept = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "cwd": tmp_path}
    with subprocess.Popen(words, env=env, text=True, **kept) as front:  # type: ignore[call-overload]
        try:
            (spec,) = until(lambda: [*house.home.glob("jobs/*/spec.json")])
            job = Job(house, spec.parent.name, tmp_path)
            job.until_connected()
            changed(package)
            assert job.tell("pause").startswith("paused at step")
            job.tell("resume")
        finally:
            over.touch()
        out, err = front.communicate(timeout=60)
    first, steps = out.split()
    assert first == str(package / "__init__.py"), "the environment's own copy comes before the hook's"
    assert front.returncode == 0 and "Traceback" not in err
    assert job.status()["step"] == int(steps)
