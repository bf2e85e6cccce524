"""What 0.1.0 wrote is read ever after: a finished job with its journal, and the lease of a power limit."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import msgspec
import pytest

from carbontui.power.limit.leases import LeaseRecord

GOLDEN = Path(__file__).parent / "golden"
(JOB,) = (GOLDEN / "job").glob("*/journal.db")
JOB_ID = JOB.parent.name


@pytest.fixture
def kept(house):
    shutil.copytree(JOB.parent, house.home / "jobs" / JOB_ID)
    return house


def test_the_report_of_a_job_of_0_1_0_is_what_it_was(kept):
    then = json.loads((GOLDEN / "job" / "report.json").read_text())
    now = json.loads(kept.cli("report", "--json", JOB_ID, check=True).stdout)
    assert then.keys() <= now.keys(), "fields may come, none may go"
    told = (
        "gco2_g",
        "energy_gpu_kwh",
        "energy_wall_kwh",
        "run_now_g",
        "avoided_g",
        "account",
        "split",
        "by_state",
        "steps",
    )
    for name in ("energy_wall_lo_kwh", "energy_wall_hi_kwh"):
        assert now["account"]["so_far"].pop(name) is None, "nobody knew a band"
    for name in told:
        if name in then:
            assert now[name] == then[name], name


@pytest.mark.parametrize("words", [("report",), ("report", "--receipt"), ("report", "--explain"), ("status",)])
def test_every_look_at_a_job_of_0_1_0_still_works(kept, words):
    done = kept.cli(*words, JOB_ID, check=True)
    assert done.stdout and "Traceback" not in done.stderr
    assert JOB_ID in kept.cli("ls", "--all", check=True).stdout


def test_the_lease_of_a_limit_of_0_1_0_names_what_to_restore():
    lease = msgspec.json.decode((GOLDEN / "lease.json").read_bytes(), type=LeaseRecord)
    assert (lease.before_mw, lease.ours_mw, lease.pidns) == (700_000, (450_000, 410_000), 4026531836)
    assert "700" in lease.fix and "nvidia-smi" in lease.fix
