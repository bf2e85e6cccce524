"""`carbontui estimate`: a training is started, looked at, told of and stopped."""

import json
import subprocess
import sys

import pytest

from carbontui import protocol
from carbontui.account.estimate import of_steps
from carbontui.commands import estimate

SHORTER = """\
from carbontui import cli
from carbontui.commands import estimate
estimate.LONGEST_S = 30.0
cli.main()
"""
NOW = "2026-11-22T12:00:00.000Z"
SCRIPT = """\
import os, time
import carbontui
print("trial", os.environ.get("CARBONTUI_ESTIMATE"), flush=True)
for i in range(900):
    time.sleep(0.04)
    carbontui.step()
"""


@pytest.mark.long
def test_a_trial_tells_time_and_energy_and_the_script_knows_that_it_is_one(house):
    script = house.root / "t.py"
    script.write_text(SCRIPT)
    tried = house.cli("estimate", "--yes", "--json", "--steps", "1000", "--", sys.executable, str(script), timeout=200)
    assert tried.returncode == 0, tried.stderr
    trial_lines = json.loads(tried.stdout)
    found = trial_lines["estimate"]
    assert found["work_lo_s"] <= found["work_s"] <= found["work_hi_s"] and 35 < found["work_s"] < 400
    assert "trial 1" in house.cli("log", trial_lines["job"]).stdout
    assert json.loads(house.cli("status", trial_lines["job"], "--json").stdout)["state"] in ("done", "stopped")


def test_nobody_is_started_unasked_and_what_shows_no_step_says_why(house):
    refused = house.cli("estimate", "--", sys.executable, "-c", "print(1)")
    assert refused.returncode == 2 and "--yes" in refused.stderr
    assert not list((house.home / "jobs").glob("*")), "a directory is a job that is listed as lost"
    silent = house.cli("estimate", "--yes", "--", sys.executable, "-c", "import time; time.sleep(1)")
    assert silent.returncode == 3 and "no estimate" in silent.stderr and "Traceback" not in silent.stderr


@pytest.mark.long
def test_without_a_total_a_thousand_steps_and_an_hour_are_told(house):
    script = house.root / "t.py"
    script.write_text(SCRIPT.replace("for i in range(900)", "import itertools\nfor i in itertools.count()"))
    command = [sys.executable, "-c", SHORTER, "estimate", "--yes", "--json", "--", sys.executable, script]
    tried = subprocess.run(command, env=house.env, cwd=house.root, capture_output=True, timeout=200, check=True)
    trial_lines = json.loads(tried.stdout)
    thousand, hour = trial_lines["estimate"]["per_1000_steps"], trial_lines["estimate"]["per_hour"]
    assert trial_lines["steps_total"] is None and 38 < thousand["s"] < 400 and hour["s"] == pytest.approx(3600)
    assert thousand["kwh"] / thousand["s"] == pytest.approx(hour["kwh"] / 3600, rel=1e-3)


def test_a_total_that_may_be_one_epochs_is_asked_about():
    reason = protocol.Reason("plan", "")
    pace = protocol.UnitEstimate(s=20.0, s_lo=19.0, s_hi=21.0, steps=1000.0, kwh=0.5)
    status = protocol.Status(
        job="j", name="t.py", host="h", measured_at=NOW, state="running", reason=reason, per_1000_steps=pace,
        per_hour=of_steps(pace, 180_000), guess=protocol.Guess(500, "tqdm(total=)"),
    )  # fmt: skip
    lines = estimate.trial_lines(status)
    assert any("500 steps by tqdm(total=): is that the whole run, or one epoch?" in line for line in lines)
    assert any(line.startswith("per 1,000") and "500 Wh" in line for line in lines)
    assert any("180,000 steps" in line for line in lines)


def test_a_known_total_is_said_with_its_source():
    came = protocol.Provenance("estimated", "guessed from tqdm(total=)", None)
    found = protocol.Estimate(work_s=360.0, work_lo_s=300.0, work_hi_s=420.0)
    reason = protocol.Reason("plan", "at full speed by the plan")
    known = {"job": "k7q2mz", "name": "t.py", "host": "h", "measured_at": NOW, "state": "running", "reason": reason}
    status = protocol.Status(**known, steps_total=4000, estimate=found, provenance={"steps_total": came})
    (row,) = [row for row in estimate.trial_lines(status) if row.startswith("work")]
    assert row.split(maxsplit=1)[1] == "4,000 steps, guessed from tqdm(total=); say --steps N where it is another"
