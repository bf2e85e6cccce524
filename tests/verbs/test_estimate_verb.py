"""`carbontui estimate`: a training is started, looked at, told of and stopped."""

import json
import sys

SCRIPT = """\
import os, time
import carbontui
print("trial", os.environ.get("CARBONTUI_ESTIMATE"), flush=True)
for i in range(900):
    time.sleep(0.04)
    carbontui.step()
"""


def test_a_trial_tells_time_and_energy_and_the_script_knows_that_it_is_one(house):
    script = house.root / "t.py"
    script.write_text(SCRIPT)
    tried = house.cli("estimate", "--yes", "--json", "--steps", "1000", "--", sys.executable, str(script))
    assert tried.returncode == 0, tried.stderr
    told = json.loads(tried.stdout)
    found = told["estimate"]
    assert found["work_lo_s"] <= found["work_s"] <= found["work_hi_s"] and 35 < found["work_s"] < 80
    assert "trial 1" in house.cli("log", told["job"]).stdout
    assert json.loads(house.cli("status", told["job"], "--json").stdout)["state"] in ("done", "stopped")


def test_nobody_is_started_unasked_and_what_shows_no_step_says_why(house):
    refused = house.cli("estimate", "--", sys.executable, "-c", "print(1)")
    assert refused.returncode == 2 and "--yes" in refused.stderr
    assert not list((house.home / "jobs").glob("*")), "a directory is a job that is listed as lost"
    silent = house.cli("estimate", "--yes", "--", sys.executable, "-c", "import time; time.sleep(1)")
    assert silent.returncode == 3 and "no estimate" in silent.stderr and "Traceback" not in silent.stderr
