"""The campaign's short form: some faults of every kind. The long one is run by hand (campaign.py)."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import alone
import campaign
import damaged_files
import energy

SEED = 7


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("name", "terminal"),
    [*((name, False) for name in alone.CONDITIONS), *((name, True) for name in [*alone.CONDITIONS][::3])],
)
def test_a_command_leaves_the_same_as_alone(name, terminal, house):
    assert alone.compared(house, name, terminal=terminal) == []


@pytest.mark.timeout(180)
def test_deaths_and_hangs_of_every_role_cost_no_step_and_no_job():
    found, _ = campaign.killed(12.0, SEED, faults=25)
    assert found.faults >= 8
    wrong = (found.wrong_steps, found.lost_jobs, found.wrong_exits, found.left_processes, found.left_limits)
    assert wrong == (0, 0, 0, 0, 0), found.notes


@pytest.mark.timeout(120)
def test_a_training_without_keeper_and_supervisor_is_taken_up_whole():
    found, _ = campaign.adopted(3, SEED)
    assert found.rounds == 3 and found.faults == []


@pytest.mark.timeout(180)
def test_every_verb_is_right_or_names_what_hides_the_job():
    found, _ = campaign.out_of_sight()
    if not found.tried:
        pytest.skip("no namespaces")
    assert found.tried >= 40 and found.faults == []


@pytest.mark.timeout(120)
def test_a_clock_that_is_set_by_ten_years_ends_no_wait_and_replaces_no_supervisor():
    found, _ = campaign.clocked()
    if not found.jumps:
        pytest.skip("no C compiler")
    assert found.faults == []


@pytest.mark.timeout(150)
def test_an_order_that_was_answered_outlives_the_supervisor_that_answered_it():
    found, _ = campaign.killed_after_answers(5, SEED)
    assert found.orders == found.stored == 5 and found.lost == []


@pytest.mark.timeout(150)
def test_orders_given_while_the_keeper_sleeps_are_in_force_when_it_wakes():
    found, _ = campaign.asleep(12.0)
    assert found.lost == [] and found.slowest_s < 5.0


@pytest.mark.timeout(240)
def test_a_slow_disk_kills_no_supervisor_and_changes_no_setting():
    found, _ = campaign.slow_disk(8.0, 20.0)
    if not found.orders:
        pytest.skip("no C compiler")
    assert found.faults == [] and found.noticed and found.slowest_answer_s < 5.0


@pytest.mark.timeout(120)
def test_without_posix_locks_there_is_a_journal_all_the_same():
    found, _ = campaign.no_locks()
    assert found.faults == []


@pytest.mark.timeout(120)
def test_hostile_answers_of_a_provider_hold_nobody_up():
    found, _ = campaign.provided(17)
    assert found.answers == 3 and found.faults == []


@pytest.mark.timeout(120)
def test_hostile_lines_are_refused_and_change_nothing():
    found, _ = campaign.fuzzed(5.0, SEED)
    assert found.faults == [] and found.changed == [] and found.log_b < 100_000


@pytest.mark.timeout(120)
def test_a_supervisor_starts_with_any_extreme_in_what_is_stored(monkeypatch):
    monkeypatch.setenv("CARBONTUI_HOME", "/nowhere")  # put back after the campaign has set its own
    monkeypatch.setenv("CARBONTUI_OFFLINE", "1")
    found, _ = campaign.stretched(SEED, every=301)
    assert found.faults == {} and found.starts > 10


@pytest.mark.timeout(180)
def test_a_file_that_cannot_be_written_is_named_and_costs_no_step_and_no_order():
    found, _ = campaign.broken_disk(10.0)
    assert found.faults == []


@pytest.mark.timeout(180)
def test_a_damaged_journal_is_named_by_every_verb_that_cannot_do_without(house):
    found = damaged_files.Found()
    job = house.start("--intensity", "300", steps=20)
    job.until_over()
    damaged_files.run(house, job.id, ("truncated", "a directory"), ("journal.db",), found)
    assert found.runs and not found.wrong


@pytest.mark.timeout(180)
def test_host_and_rent_are_booked_while_supervisors_are_killed(house):
    booked = energy.of_one(house, "supervisor", 20.0)
    assert all(0.98 <= part <= 1.02 for part in (booked.host, booked.rent)) and not booked.fallen


@pytest.mark.timeout(600)
def test_moves_that_are_cut_or_lose_a_machine_leave_one_copy_and_its_weights():
    moves = pytest.importorskip("moves")  # of the extension, which may be deleted
    if moves.WHY:
        pytest.skip(moves.WHY)
    found = moves.moved(3, SEED, ("cut copying", "keeper-there started", "dies-there handed"))
    assert (found.moves, found.two, found.wrong, found.faults) == (3, 0, 0, [])
    assert abs(found.account - 1) < 0.005
