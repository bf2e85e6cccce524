"""What a job has used so far: nothing is said to be saved where nothing was held back."""

from dataclasses import replace

import pytest
from msgspec import structs
from states import FULL, board, inputs, job_state

from carbontui import units
from carbontui.job.files.journal import Journal
from carbontui.job.supervisor.core.planning import expected_end
from carbontui.job.supervisor.core.planning.course import course
from carbontui.job.supervisor.core.state.decision import Decision
from carbontui.job.supervisor.core.state.measured import Mean, Measured
from carbontui.job.supervisor.core.state.progress import Progress
from carbontui.job.supervisor.record.accounting import Accounting
from carbontui.job.supervisor.record.restoring import restore
from carbontui.job.supervisor.record.so_far import baseline, booked_as, of_the_job, totals_so_far
from carbontui.job.terms.clock import Clock, Standstills
from carbontui.power.messages import Sample
from carbontui.protocol import Why, statement

RUNNING = Decision("running", Why("plan", statement("plan_full", until_s=None)), FULL)


def elapsed(tmp_path, *parts, measured=True, **fields):
    """The job, its inputs and its accounting after `parts`: (state, seconds, watts)."""
    known = {"full_w": {"GPU-a": Mean(600.0, 50)}} if measured else {}
    work = Progress(work_s=9000.0, plain_done_s=600.0)
    job = job_state(progress=work, measured=Measured(**known), decision=RUNNING, **fields)
    account = Accounting(job.spec, Clock(), Journal(tmp_path / "j.db"), "boot")
    account.intensity.update_all([(job.start_s - 3600.0, 90_000.0, 300.0)])
    at = job.start_s
    for state, seconds, watts in parts:
        for _ in range(seconds):
            account.ledger.add("GPU-a", at, at + 1, watts, "counter", state, 0.0, gpu=True)
            account.elapsed.drew(watts, state, gpu=True)
            at += 1
            account.pass_time(at, 1.0, state, work_s=0.5 if state == "throttled" else 1.0)
    return job, inputs(at, boards=(board(),)), account


def totals(tmp_path, *parts, **fields):
    job, seen, account = elapsed(tmp_path, *parts, **fields)
    return totals_so_far(account, job, seen)


def test_without_a_lever_there_is_no_run_now_and_no_saving(tmp_path):
    found = totals(tmp_path, ("starting", 30, 90.0), ("running", 300, 200.0), measured=False)
    assert (found.run_now_g, found.avoided_g) == (None, 0.0) and found.gco2_g > 0


def test_a_pause_saves_nothing_on_an_even_grid_and_costs_what_it_drew(tmp_path):
    found = totals(tmp_path, ("starting", 30, 90.0), ("running", 300, 200.0), ("paused", 100, 90.0))
    assert found.avoided_g == pytest.approx(-units.joules_to_kwh(9000.0) * 300.0, rel=1e-6)
    assert found.run_now_g == pytest.approx(found.gco2_g + found.avoided_g)


def test_run_now_of_a_replay_goes_by_its_steps_whatever_states_they_were_seen_in(tmp_path):
    """Two looks are minutes of it apart: a pause is seen late, and the steps before it with it."""
    job, seen, account = elapsed(tmp_path, ("throttled", 200, 250.0), ("paused", 100, 90.0))
    account.elapsed.steps_done, start_s = 50, job.start_s
    clock = Clock(2000.0, start_s, start_s, Standstills())
    job = replace(job, clock=clock, progress=structs.replace(job.progress, given_rate=0.5))
    assert (found := baseline(account, job, seen)) is not None and found.acted
    assert (found.seconds, found.watts) == (100.0, 600.0)


def test_work_under_a_cap_needs_the_watts_at_full_speed(tmp_path):
    parts = ("running", 300, 600.0), ("throttled", 200, 250.0)
    found = totals(tmp_path / "a", *parts)
    # a hundred seconds of work at 600 W, done in two hundred at 250 W
    assert found.avoided_g == pytest.approx(units.joules_to_kwh(10_000.0) * 300.0, rel=1e-6)
    unknown = totals(tmp_path / "b", *parts, measured=False)
    assert (unknown.run_now_g, unknown.avoided_g) == (None, None)


def test_a_calibration_is_told_beside_the_account_and_is_in_nothing_of_it(tmp_path):
    plain = totals(tmp_path / "a", ("running", 300, 600.0))
    found = totals(tmp_path / "b", ("running", 200, 600.0), ("calibration", 60, 300.0), ("running", 100, 600.0))
    assert (found.wall_kwh, found.gpu_kwh, found.elapsed_s) == (plain.wall_kwh, plain.gpu_kwh, plain.elapsed_s)
    assert found.gco2_g == pytest.approx(plain.gco2_g) and found.avoided_g == 0.0
    (apart,) = found.excluded
    assert (apart.reason, apart.elapsed_s) == ("calibration", 60.0)
    assert apart.energy_wall_kwh == pytest.approx(units.joules_to_kwh(18_000.0), abs=1e-9)
    assert apart.gco2_g == pytest.approx(apart.energy_wall_kwh * 300.0, rel=1e-4)
    assert found.coverage.metered_s + found.coverage.gap_s + apart.elapsed_s == found.coverage.lived_s == 360.0


def test_so_far_and_ahead_are_the_whole_to_the_printed_digit(tmp_path):
    job, seen, account = elapsed(tmp_path, ("running", 301, 613.7), ("paused", 97, 91.3), ("calibration", 7, 333.3))
    from dataclasses import replace

    job = replace(job, totals=totals_so_far(account, job, seen))
    told, end = expected_end.statement(job, seen, course(job, seen))
    for name, digits in (("elapsed_s", 3), ("energy_gpu_kwh", 9), ("energy_wall_kwh", 9), ("gco2_g", 6),
                         ("run_now_g", 6), ("avoided_g", 6)):  # fmt: skip
        used, more, whole = (getattr(part, name) for part in (told.so_far, told.ahead, told.whole))
        assert round(used + more, digits) == whole, name
    for name in ("energy_wall_kwh", "gco2_g", "run_now_g", "avoided_g"):
        assert getattr(told.whole, name) == getattr(end, name)
    assert told.ahead.energy_gpu_kwh == pytest.approx(told.ahead.energy_wall_kwh) and told.ahead.gco2_g > 0


def test_the_host_is_charged_for_a_time_without_a_supervisor_and_the_gap_is_named(tmp_path):
    """Forty seconds between two of them: nobody looked, and the machine ran on."""
    given = job_state().spec

    def heir():
        account = Accounting(given, Clock(), Journal(tmp_path / "j.db"), "boot")
        restore(account)
        return account

    first, at = heir(), given.created_s
    for second in range(1, 11):
        first.pass_time(at + second, 1.0, "running", host_w=1000.0)
    first.write(everything=True)
    first.keep()
    first.journal.commit()
    second = heir()
    second.pass_time(at + 50.0, 1.0, "running", host_w=1000.0)
    assert second.ledger.wall_kwh * units.J_PER_KWH == pytest.approx(50_000.0)
    assert second.elapsed.gaps == {"no_supervisor": pytest.approx(40.0)} and second.elapsed.by_state == {
        "running": 10.0
    }
    assert second.held_s == pytest.approx(50.0), "the boards were rented meanwhile"


def test_what_a_board_draws_after_the_end_is_not_the_jobs() -> None:
    def sample(wall_s: float) -> Sample:
        return Sample(uuid="GPU-a", mono_s=wall_s, wall_s=wall_s, energy_uj=5_000_000_000, power_w=70.0)

    late, soon = of_the_job([sample(1010.0), sample(1001.0)], 1000.0)
    assert (late.energy_uj, soon.energy_uj) == (5_000_000_000 - 700_000_000, 5_000_000_000)
    (living,) = of_the_job([sample(1010.0)], None)
    assert living.energy_uj == 5_000_000_000


def test_a_supervisors_first_seconds_are_no_start_of_a_command_that_waits():
    starting = job_state(decision=Decision("starting", Why("plan", statement("plan_full", until_s=None)), FULL))
    seen = inputs(starting.start_s)
    for child, booked in (("waiting", "waiting"), ("running", "starting")):
        assert booked_as(starting, replace(seen, child=replace(seen.child, state=child))) == booked
