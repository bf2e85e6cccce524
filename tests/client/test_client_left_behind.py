"""What a framework's loop leaves behind when it is unloaded: two checkpoints, and where else one could go on from."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from carbontui.job.keeper import resume

SCRIPT = """
import os, sys
from carbontui.client import api
from carbontui.client.checkpoint.identity import in_job_directory
from carbontui.client.frameworks.base import Loop, left_behind
left_behind("own")
own = sys.argv[1]
loop = Loop()
loop.begin()
now = loop.began_at
loop.began_at -= 10.0 if len(sys.argv) == 2 else 3600.0
def at(name, age_s):
    path = os.path.join(own, name)
    open(path, "w").close()
    os.utime(path, (now - age_s,) * 2)
    return path
before = at("before-it-began", 50.0)
step = 0
def save():
    path = in_job_directory(f"state-{step}")
    open(path, "w").close()
    return path
others = lambda: [(at("older", 5.0), 3), (at("newer", 1.0), 4), (at("an-hour-ago", 1800.0), 1), (before, 2)]
loop.saves_with(save, "own", others)
for step in map(int, os.environ.get("SAVES", "5 6 7").split()):
    api.gate.savers[0]()
"""


def left(tmp_path, *args, **env):
    own, job = tmp_path / "own", tmp_path / "job"
    own.mkdir(exist_ok=True)
    job.mkdir(exist_ok=True)
    env = {**os.environ, "CARBONTUI_MARKER": str(job / "resume.json"), **env}
    subprocess.run([sys.executable, "-c", SCRIPT, str(own), *args], env=env, check=True, timeout=60)
    return own, job, json.loads((job / "resume.json.checkpoint").read_text())


def ours(job, pointer):
    """The pointer's own of the job's directory, and what lies there."""
    named = [one["path"] for one in (pointer, *pointer["earlier"]) if one["path"].startswith(str(job))]
    lies = sorted(path.name for path in job.glob("state-*"))
    return [path.rpartition("/")[2] for path in named], lies


def test_the_one_before_is_kept_and_taken_away_once_nothing_points_to_it(tmp_path):
    _, job, pointer = left(tmp_path)
    assert ours(job, pointer) == (["state-7", "state-6"], ["state-6", "state-7"])


def test_the_one_before_is_what_this_process_has_written_or_gone_on_from(tmp_path):
    left(tmp_path, SAVES="5")
    _, job, pointer = left(tmp_path, SAVES="8", CARBONTUI_RESUME="1")
    assert ours(job, pointer) == (["state-8", "state-5"], ["state-5", "state-8"])
    # one that began anew knows of no other, whose work it does not go on with
    _, job, pointer = left(tmp_path, SAVES="3")
    assert ours(job, pointer) == (["state-3"], ["state-3"])
    # what cannot be resumed from is given up by the keeper, and does not come back
    left(tmp_path, SAVES="4 6")
    (tmp_path / "done").mkdir()
    assert resume.earlier(str(job / "resume.json"), str(tmp_path / "done" / "r.json")) == str(job / "state-4")
    _, job, pointer = left(tmp_path, SAVES="9", CARBONTUI_RESUME="1")
    assert ours(job, pointer)[0] == ["state-9", "state-4"]


def test_the_script_s_own_are_named_newest_first_and_none_of_another_run(tmp_path):
    own, _, pointer = left(tmp_path)
    assert [(one["path"], one["step"]) for one in pointer["earlier"] if "state-6" not in one["path"]] == [
        (str(own / "newer"), 4),
        (str(own / "older"), 3),
    ]


def test_of_a_long_run_ten_minutes_at_most_are_done_twice(tmp_path):
    own, _, pointer = left(tmp_path, "long")
    assert [one["path"] for one in pointer["earlier"] if "state-" not in one["path"]] == [
        str(own / name) for name in ("newer", "older", "before-it-began")
    ]
