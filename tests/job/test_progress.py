"""How much is done and left, in reference-speed seconds."""

import socket

import msgspec
import pytest
from msgspec import to_builtins
from msgspec.structs import replace
from states import rank

from carbontui.job.supervisor.core.state.progress import (
    Progress,
    ran,
    rested,
    restored,
    with_process,
    with_start,
    with_step,
)
from carbontui.job.supervisor.shell.sensors import alive


def run(progress, seconds, rate, *, reference=True, speed=1.0):
    for _ in range(int(seconds)):
        progress = with_step(progress, progress.step - progress.base + rate, 0, None)
        progress = ran(progress, 1.0, 1.0, speed, reference=reference)
    return progress


def test_work_is_unknown_until_told_or_measured():
    progress = Progress(steps_total=1000)
    assert progress.total_s is None and progress.left_s is None
    progress = run(progress, 10, 5)
    assert progress.total_s == pytest.approx(200.0) and progress.left_s == pytest.approx(190.0)


def test_measured_steps_replace_a_persons_estimate_but_not_the_budget():
    progress = Progress(work_s=100.0, steps_total=1000)
    progress = run(progress, 10, 5)
    assert progress.total_s == 100.0 and progress.left_s == pytest.approx(190.0)


def test_without_steps_time_at_a_levels_speed_is_what_counts():
    progress = Progress(work_s=3600.0)
    progress = ran(progress, 600.0, 600.0, 1.0, reference=True)
    progress = ran(progress, 600.0, 600.0, 0.5, reference=False)
    assert progress.done_s == pytest.approx(900.0) and progress.left_s == pytest.approx(2700.0)


def test_steps_under_a_cap_do_not_teach_the_reference():
    progress = Progress(steps_total=1000)
    progress = run(progress, 10, 10)
    progress = run(progress, 20, 5, reference=False, speed=0.5)
    assert progress.ref_rate == pytest.approx(10.0) and progress.done_s == pytest.approx(20.0)


def test_steps_count_on_after_an_unload_and_never_twice():
    progress = Progress()
    progress = with_start(progress, 1)
    progress = with_step(progress, 40, 0, 100)
    assert (progress.step, progress.fresh_steps) == (40, 40)
    progress = with_step(progress, 40, 0, 100)
    assert (progress.step, progress.fresh_steps) == (40, 40)
    progress = with_start(progress, 2)
    progress = with_step(progress, 3, 0, None)
    assert progress.step == 43
    progress = with_step(progress, 5, 40, None)
    assert (progress.step, progress.fresh_steps) == (45, 45)


def test_a_successor_knows_what_was_known():
    progress = Progress(steps_total=1000)
    progress = run(progress, 10, 5)
    other = restored(Progress(), to_builtins(progress))
    assert (other.left_s, other.done_s, other.ref_rate) == (progress.left_s, progress.done_s, progress.ref_rate)
    # steps made while nobody watched are done, and teach nothing
    later = ran(with_step(other, 500, 0, None), 1.0, 1.0, 1.0, reference=True)
    assert later.ref_rate == progress.ref_rate and later.left_s == pytest.approx(100.0)


def replayed(progress, windows, *, hour_s=3600.0):
    """Windows of full-speed running at 60 steps an hour of the job's clock, which is a second here, with pauses
    between.

    Steps are reported once in ten ticks and at the pause, as a rank reports them. Yields the steps really made at each
    tick, and what is known.
    """
    made = 0.0
    for _ in range(windows):
        for tick in range(25):
            made += 6
            told = tick % 10 == 4 or tick == 24
            progress = with_step(progress, int(made), 0, None) if told else progress
            progress = ran(progress, hour_s / 10, 0.1, 1.0, reference=tick not in (0, 1, 2))
            yield made, progress
        progress = rested(progress)


def test_work_between_two_reports_counts_as_done():
    begun = Progress(work_s=86400.0, steps_total=1440, given_rate=60 / 3600.0)
    for made, progress in replayed(begun, 4):
        assert progress.left_s == pytest.approx((1440 - made) * 60.0, abs=60.0)


def test_the_reference_rate_is_of_whole_spans_between_reports():
    begun = Progress(work_s=86400.0, steps_total=1440)
    *_, (_, progress) = replayed(begun, 4)
    assert progress.ref_wall_s >= 3.0 and progress.ref_rate == pytest.approx(60 / 3600.0, rel=1e-6)


def test_a_stall_earns_no_more_than_one_step():
    progress = Progress(steps_total=100)
    progress = run(progress, 20, 1)
    left = progress.left_s
    for _ in range(600):
        progress = ran(progress, 1.0, 1.0, 1.0, reference=True)
    assert left - 1.0 / progress.ref_rate <= progress.left_s <= left
    progress = rested(progress)
    assert progress.left_s == left


def test_a_step_of_many_minutes_is_partly_done():
    progress = Progress(steps_total=100)
    for second in range(1, 18001):
        progress = ran(with_step(progress, second // 600, 0, None), 1.0, 1.0, 1.0, reference=True)
    assert progress.ref_rate == pytest.approx(1 / 600)
    for _ in range(300):
        progress = ran(progress, 1.0, 1.0, 1.0, reference=True)
    assert progress.left_s == pytest.approx(70 * 600.0 - 300.0)


def test_trainings_that_a_command_runs_in_turn_add_up():
    progress, alive = Progress(), {"a"}
    progress = with_process(progress, "a", alive, fresh=True)
    progress = with_step(progress, 60, 0, 60)
    assert (progress.step, progress.steps_total) == (60, 60)
    alive = {"b"}
    progress = with_process(progress, "b", alive, fresh=True)
    progress = with_step(progress, 1, 0, None)
    assert (progress.step, progress.steps_total) == (61, None)  # nobody has said yet how long the second is
    progress = with_step(progress, 10, 0, 40)
    assert (progress.step, progress.steps_total) == (70, 100)
    progress = with_start(progress, 1)
    progress = with_start(progress, 2)  # unloaded, and resumed from its own tenth step
    progress = with_process(progress, "c", {"c"}, fresh=False)
    progress = with_step(progress, 5, 10, 40)
    assert progress.step == 75


def test_trainings_side_by_side_and_launcher_restarts_do_not_add_up():
    progress = Progress(steps_total=100)
    for process in ("a", "b"):
        progress = with_process(progress, process, {"a", "b"}, fresh=True)
        progress = with_step(progress, 50, 0, 70)
    progress = with_process(progress, "again", {"again"}, fresh=False)
    progress = with_step(progress, 20, 0, None)
    assert (progress.step, progress.steps_total) == (50, 100)  # a person's --steps stands


def test_a_script_may_correct_its_total():
    progress = Progress()
    progress = with_process(progress, "a", {"a"}, fresh=True)
    for total in (100, 250, 80):
        progress = with_step(progress, 10, 0, total)
        assert progress.steps_total == total


@pytest.mark.parametrize(
    "field, value",
    [
        ("plain_done_s", 1e15),
        ("plain_done_s", -1.0),
        ("ref_time_s", 1e15),
        ("ref_time_s", -1.0),
        ("ref_steps", -5.0),
        ("given_rate", 0),
        ("step", -1),
        ("work_s", 1e15),
        ("blocks", {"size": 0}),
        ("blocks", {"size": 4, "times": [-1.0]}),
    ],
)
def test_work_that_no_job_has_is_not_taken_over(field, value):
    with pytest.raises(msgspec.ValidationError):
        restored(Progress(), to_builtins(run(Progress(), 10, 5)) | {field: value})


def test_the_steps_of_another_jobs_checkpoint_are_no_work_of_this_one():
    progress = with_start(Progress(), 1)
    progress = with_step(progress, 0, 9000, 10000)
    for made in range(5, 55, 5):
        progress = ran(with_step(progress, made, 9000, 10000), 1.0, 1.0, 1.0, reference=True)
    assert (progress.step, progress.steps_total, progress.earlier) == (9050, 10000, 9000)
    assert progress.ref_rate == pytest.approx(5.0)
    assert (progress.done_s, progress.total_s) == (pytest.approx(10.0), pytest.approx(200.0))
    assert progress.left_s == pytest.approx(190.0)


def test_a_count_beyond_reason_is_no_work_of_ten_thousand_years():
    progress = run(Progress(), 10, 5)
    later = replace(progress, step=2**53)
    assert later.done_s == progress.plain_done_s


def test_a_training_faster_under_a_cap_than_before_has_another_reference():
    progress = Progress(steps_total=2000)
    for second in range(1, 101):
        progress = ran(with_step(progress, second, 0, None), 1.0, 1.0, 1.0, reference=True)
    assert progress.ref_rate == pytest.approx(1.0)
    slower = faster = progress
    for second in range(1, 101):
        slower = ran(with_step(slower, 100 + second * 9 // 10, 0, None), 1.0, 1.0, 0.9, reference=False, capped=True)
        faster = ran(with_step(faster, 100 + 2 * second, 0, None), 1.0, 1.0, 0.9, reference=False, capped=True)
    assert slower.ref_rate == pytest.approx(1.0)
    assert faster.ref_rate == pytest.approx(2.0, rel=0.06)
    assert faster.left_s == pytest.approx(1700 / 2.0, rel=0.06)
    for second in range(1, 101):  # what is timed at full speed stands above it
        faster = ran(with_step(faster, 300 + second, 0, None), 1.0, 1.0, 1.0, reference=True)
    assert faster.ref_rate == pytest.approx(1.0)


def test_a_budget_is_a_multiple_of_what_a_person_has_said_whatever_the_steps_say():
    progress = Progress(work_s=8 * 3600.0, steps_total=4 * 3600)
    for second in range(1, 101):
        progress = ran(with_step(progress, second, 0, None), 1.0, 1.0, 1.0, reference=True)
    assert progress.total_s == 8 * 3600.0, "budgets are multiples of the person's word"


@pytest.mark.parametrize(
    "kept", ["", "x", "host 1", "host one two", f"{socket.gethostname()} {'9' * 5000} 1", "\udcff 1 2"]
)
def test_a_kept_process_that_is_none_counts_as_gone(kept):
    newcomer = rank(process="host 7 8")
    assert alive([kept], (newcomer,)) == frozenset()
