"""The recipe for jobs that were not submitted by carbontui, on a real Slurm with its lua plugin."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path

import pytest
from cluster import Cluster, missing
from house import until
from test_slurm_submit import grid, shown

pytestmark = [pytest.mark.xdist_group("slurm"), pytest.mark.timeout(180)]
RECIPE = Path(__file__).parents[2] / "examples/slurm/job_submit.lua"


@pytest.fixture
def filtering():
    """A cluster whose controller runs the recipe."""
    if why := missing():
        pytest.skip(why)
    if not list(Path("/usr/lib").glob("*/slurm-wlm/job_submit_lua.so")):
        pytest.skip("this Slurm has no lua plugin")
    made = Cluster(conf="JobSubmitPlugins=lua\n")
    shutil.copy(RECIPE, made.dir / "job_submit.lua")
    try:
        made.start()
        yield made
    finally:
        made.end()


def test_jobs_of_plain_sbatch_join_the_fleet_and_others_are_left_alone(filtering, house, tmp_path):
    clean = grid(tmp_path / "grid.csv", [400] * 9 + [100] * 8 + [400] * 80)
    house.env |= filtering.env | {"CARBONTUI_HOME": house.env["CARBONTUI_HOME"]}
    told = lambda job: shown(filtering, job)  # noqa: E731
    job = filtering.submit("sleep 1\n", "--time=30")
    mine = filtering.submit("sleep 1\n", "--time=30", "--begin=now+3hours")
    endless = filtering.submit("sleep 1\n")
    comment = filtering.run("squeue", "-h", "-j", job, "-o", "%k").strip()
    assert json.loads(comment.removeprefix("carbontui:"))["work_s"] == 1800
    until(lambda: filtering.state(endless) == "COMPLETED", 60, "one without a limit, as ever")
    before = told(mine)["StartTime"]

    def planned() -> list[str]:
        line = house.cli(
            "fleet", "--cap", "1kW", "--node-w", "500", "--grid", clean, "--slot", "15m", "--once", "--json"
        )
        return [one["job"] for one in json.loads(line.stdout)["jobs"]]

    assert until(lambda: planned() == [job], 60, "its place in a plan")
    begin = time.mktime(time.strptime(told(job)["StartTime"], "%Y-%m-%dT%H:%M:%S"))
    # its deadline (a limit of 30 min, twice, after half an hour) is before the clean hours: it begins in time for it
    assert begin <= time.time() + 1920 + 1800 + 60 and told(mine)["StartTime"] == before
    filtering.run("scancel", job, mine)
