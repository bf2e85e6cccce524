"""What a framework's loop leaves behind when it is unloaded: one checkpoint, and where else one could go on from."""

from __future__ import annotations

import json
import os
import subprocess
import sys

SCRIPT = """
import os, sys, time
from carbontui.client import api
from carbontui.client.frameworks.base import Loop, in_job_directory
own = sys.argv[1]
def at(name, age_s):
    path = os.path.join(own, name)
    open(path, "w").close()
    os.utime(path, (time.time() - age_s,) * 2)
    return path
before = at("before-it-began", 5.0)
loop = Loop()
loop.begin()
loop.began_at -= 1.0 if len(sys.argv) == 2 else 3600.0
step = 0
def save():
    path = in_job_directory(f"state-{step}")
    open(path, "w").close()
    return path
others = lambda: [(at("older", 0.5), 3), (at("newer", 0.1), 4), (at("an-hour-ago", 1800.0), 1), (before, 2)]
loop.saves_with(save, "own", others)
for step in (5, 6):
    api.gate.savers[0]()
"""


def left(tmp_path, *args):
    own, job = tmp_path / "own", tmp_path / "job"
    own.mkdir()
    job.mkdir()
    env = {**os.environ, "CARBONTUI_MARKER": str(job / "resume.json")}
    subprocess.run([sys.executable, "-c", SCRIPT, str(own), *args], env=env, check=True, timeout=60)
    return own, job, json.loads((job / "resume.json.checkpoint").read_text())


def test_the_one_before_is_taken_away_once_nothing_points_to_it(tmp_path):
    _, job, pointer = left(tmp_path)
    assert pointer["path"] == str(job / "state-6")
    assert sorted(path.name for path in job.iterdir()) == ["resume.json.checkpoint", "state-6"]


def test_the_script_s_own_are_named_newest_first_and_none_that_is_old_or_another_run_s(tmp_path):
    own, _, pointer = left(tmp_path)
    assert pointer["earlier"] == [{"path": str(own / "newer"), "step": 4}, {"path": str(own / "older"), "step": 3}]


def test_of_a_long_run_ten_minutes_at_most_are_done_twice(tmp_path):
    own, _, pointer = left(tmp_path, "long")
    assert [one["path"] for one in pointer["earlier"]] == [
        str(own / name) for name in ("newer", "older", "before-it-began")
    ]
