"""On a slow machine the command may run before its supervisor answers: that is no failure of `run`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from house import Job, until

LATE = """
import runpy
from pathlib import Path
from carbontui import paths
from carbontui.job.life import launch

def late(options, **how):
    paths.private_dir(Path(options.socket).parent)
    Path(options.socket).mkdir()  # while that stands there, no supervisor can listen
    return start(options, **how)

start, launch.start, launch.READY_S = launch.start, late, 0.0
runpy.run_module("carbontui.cli", run_name="__main__")
"""


def late(house, *options):
    """`carbontui run` of the stock script, which ends with 7, whose supervisor cannot answer; and its job."""
    marks = house.root / "late.steps"
    command = [house.python, house.script, "100000", "0.01", "7", marks]
    process = subprocess.Popen(
        [sys.executable, "-c", LATE, "run", *options, "--", *command],
        env=house.env,
        cwd=house.root,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    record = until(lambda: next(house.home.glob("jobs/*/job.json"), None))
    return process, Job(house, record.parent.name, marks)


def answers(job):
    """From now on its supervisor can."""
    Path(json.loads((job.dir / "job.json").read_text())["socket"]).rmdir()
    job.until_connected()


def test_run_stays_in_front_of_a_training_whose_supervisor_is_late(house):
    process, job = late(house)
    with process:
        assert "no supervisor answers yet" in process.stderr.readline()
        job.until_steps()
        answers(job)
        job.tell("pause")
        job.until_state("paused")
        job.tell("resume")
        job.let_end()
        assert process.wait(60) == 7


def test_a_detached_start_whose_supervisor_is_late_prints_the_id(house):
    process, job = late(house, "--detach")
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out.strip()) == (0, job.id) and "no supervisor answers yet" in err
    answers(job)
    job.let_end()
    assert job.until_exit()["code"] == 7
