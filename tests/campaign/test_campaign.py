"""The campaign's short form: some faults of every kind. The long one is run by hand (campaign.py)."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import campaign

SEED = 7


@pytest.mark.timeout(180)
def test_deaths_and_hangs_of_every_role_cost_no_step_and_no_job():
    found, _ = campaign.killed(12.0, SEED)
    assert found.faults >= 5
    assert (found.wrong_steps, found.lost_jobs, found.wrong_exits, found.left_processes) == (0, 0, 0, 0)


@pytest.mark.timeout(120)
def test_hostile_lines_are_refused_and_change_nothing():
    found, _ = campaign.fuzzed(5.0, SEED)
    assert found.faults == [] and found.changed == [] and found.log_b < 100_000


@pytest.mark.timeout(120)
def test_a_supervisor_starts_with_any_extreme_in_what_is_stored(monkeypatch):
    monkeypatch.setenv("CARBONTUI_HOME", "/nowhere")  # put back after the campaign has set its own
    monkeypatch.setenv("CARBONTUI_OFFLINE", "1")
    found, _ = campaign.stretched(every=61)
    assert found.faults == {} and found.starts > 10
