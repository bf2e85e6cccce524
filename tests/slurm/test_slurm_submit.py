"""`carbontui submit` on a real Slurm: begin, comment, arrays, and what becomes of a bad one."""

from __future__ import annotations

import json
import os
import time

import pytest

pytestmark = [pytest.mark.xdist_group("slurm"), pytest.mark.timeout(180)]


def grid(path, quarters) -> str:
    start = time.time() // 900 * 900
    stamp = lambda at: time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))  # noqa: E731
    rows = [f"{stamp(start + 900 * i)},{value}" for i, value in enumerate(quarters)]
    path.write_text("time_utc,carbon_g_per_kwh\n" + "\n".join(rows) + "\n")
    return str(path)


def shown(cluster, job: str) -> dict[str, str]:
    words = cluster.run("scontrol", "-o", "show", "job", job).split()
    return {word.partition("=")[0]: word.partition("=")[2] for word in words}


def test_a_script_begins_in_its_clean_hours_with_its_plan_as_comment(cluster, house, tmp_path):
    if cluster.kind != "linuxproc":
        pytest.skip("the same with any process tracking")
    script = tmp_path / "job.sh"
    script.write_text('#!/bin/bash\n#SBATCH --output=/dev/null\necho "$CARBONTUI_BUDGET" > ' + f"{tmp_path}/budget\n")
    clean = grid(tmp_path / "grid.csv", [400] * 9 + [100] * 8 + [400] * 40)
    house.env |= cluster.env | {"CARBONTUI_HOME": house.env["CARBONTUI_HOME"]}
    asked = ("submit", "--grid", clean, "--work", "1h", "--budget", "6x")

    done = house.cli(*asked, "--", "--array=1-3", str(script), check=True)
    job = done.stdout.split()[3]
    assert "75 % less CO2" in done.stdout and "--strict" in done.stdout
    told = shown(cluster, job)
    begin = time.mktime(time.strptime(told["StartTime"], "%Y-%m-%dT%H:%M:%S"))
    first_clean = time.time() // 900 * 900 + 9 * 900
    assert first_clean - 2 <= begin <= first_clean + 4 * 900 + 2
    assert (told["JobState"], told["Deadline"], told["ArrayTaskId"]) == ("PENDING", "N/A", "1-3")
    comment = cluster.run("squeue", "-h", "-j", job, "-o", "%k").splitlines()[0]
    noted = json.loads(comment.removeprefix("carbontui:"))
    assert (noted["mean_g_per_kwh"], noted["now_g_per_kwh"]) == (100.0, 400.0)
    cluster.run("scancel", job)

    strict = house.cli(*asked, "--strict", "--json", "--", "--time=70", str(script), check=True)
    job = json.loads(strict.stdout)["job"]
    assert shown(cluster, job)["Deadline"] != "N/A"
    cluster.run("scancel", job)

    # no slack: at once, and the script is told its deadline
    now = house.cli("submit", "--grid", clean, "--work", "1h", "--budget", "1x", "--", str(script), check=True)
    assert "begins as soon as it can: no slack is left" in now.stdout
    due = time.monotonic() + 30
    while not (tmp_path / "budget").exists() and time.monotonic() < due:
        time.sleep(0.2)
    assert (tmp_path / "budget").read_text().strip().endswith("Z")

    refused = house.cli(*asked, "--", "--partition=none", str(script))
    assert refused.returncode == 1 and "sbatch: " in refused.stderr and "partition" in refused.stderr
    assert len(refused.stderr.strip().splitlines()) == 1


def test_without_slurm_submit_says_so_and_a_dry_run_prints_the_command(house, tmp_path):
    clean = grid(tmp_path / "grid.csv", [400] * 9 + [100] * 40)
    house.env["PATH"] = str(tmp_path)
    (house.root / "job.sh").write_text("#!/bin/sh\n")
    done = house.cli("submit", "--grid", clean, "--work", "1h", "--", "job.sh")
    assert done.returncode == 1 and "sbatch: not found" in done.stderr
    done = house.cli("submit", "--grid", clean, "--work", "1h", "--budget", "6x", "--dry-run", "--", "job.sh")
    assert done.returncode == 0 and done.stdout.startswith("sbatch --parsable --begin=now+")
    assert house.cli("submit", "--work", "1h").returncode == 2
    assert house.cli("submit", "--work", "0h", "--grid", clean, "--", "x").returncode == 2
    assert os.linesep not in done.stderr
