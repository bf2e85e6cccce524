"""A waiting job's levels from `submit` to its start: stated, planned by the fleet, kept by `run` where it begins."""

from __future__ import annotations

import json
import time

import pytest
from click.testing import CliRunner

from carbontui import cli
from carbontui.commands.support.command import Failure
from carbontui.slurm import allocation, queue

CURVE = {
    "schema": "carbontui.curve/1", "gpu": "A", "gpus": 2, "fingerprint": "x", "measured_s": 1.0,
    "rate_steps_per_s": 5.0,
}  # fmt: skip


def point(cap_w, watts, speed):
    kind = "full" if cap_w is None else "cap"
    return {"kind": kind, "cap_w": cap_w, "power_w": watts, "power_se": 0.0, "speed": speed, "speed_se": 0.01}


def submitted(tmp_path, *options):
    grid = tmp_path / "grid.csv"
    rows = [f"{time.strftime('%Y-%m-%dT%H:00:00Z', time.gmtime(time.time() + 3600 * h))},300" for h in range(-1, 30)]
    grid.write_text("time_utc,carbon_g_per_kwh\n" + "\n".join(rows) + "\n")
    asked = ["submit", "--work", "2h", "--grid", str(grid), "--dry-run", "--json", *options, "--", str(grid)]
    return CliRunner().invoke(cli.cli, asked, standalone_mode=False)


def test_submit_states_the_levels_of_a_measured_curve_for_all_gpus_and_nodes(tmp_path):
    points = [point(300.0, 600.0, 0.8), point(None, 1000.0, 1.0)]
    (tmp_path / "curve.json").write_text(json.dumps({**CURVE, "points": points, "levels": points}))
    done = submitted(tmp_path, "--curve", str(tmp_path / "curve.json"), "--gpus", "4", "--host-w", "200W")
    told = json.loads(done.stdout)
    # the boards of other nodes differ by 4 %; a limit bounds what its boards draw
    assert told["watts"] == 2200.0 and told["levels"] == [[1400.0, 0.8, 300.0, 0.0335]]


def test_submit_states_public_levels_with_their_band_and_what_they_need(tmp_path):
    done = submitted(tmp_path, "--curve", "public", "--watts", "1300W", "--gpus", "2", "--host-w", "100W")
    levels = json.loads(done.stdout)["levels"]
    assert levels and all(
        watts < 1300 and 0.5 < speed < 1 and cap_w < 600 and se >= 0.01 for watts, speed, cap_w, se in levels
    )
    for options, said in (
        (["--curve", "public"], "public curves need --watts and --gpus"),
        (["--curve", "public", "--watts", "1kW", "--gpus", "2", "--host-w", "1kW"], "leaves nothing"),
        (["--curve", str(tmp_path / "none")], "No such file"),
    ):
        done = submitted(tmp_path, *options)
        assert isinstance(done.exception, Failure) and said in done.exception.message


@pytest.mark.parametrize(("comment", "cap_w"), [('carbontui:{"cap":250.0,"x":"a|b"}', 250.0), ("mine|own", None)])
def test_a_start_reads_its_cap_from_the_comment_of_its_job(tmp_path, monkeypatch, comment, cap_w):
    (tmp_path / "squeue").write_text(f"#!/bin/sh\necho '12|12|RUNNING|1:00:00|{comment}'\n")
    (tmp_path / "squeue").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    found = allocation.observe({"SLURM_JOB_ID": "12"})
    assert found is not None and found.cap_w == cap_w and found.ends_s is not None


def test_levels_edited_into_nonsense_leave_the_job_as_it_is():
    for levels in ("[[1]]", '[["a", 1]]', "[[1, 2, 3, 4, 5]]", "7", "[[100, 0.5, -1]]"):
        assert queue.asked(f'carbontui:{{"work_s": 60, "levels": {levels}}}').fault
