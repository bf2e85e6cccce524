"""What a training is going to take: an interval that holds, a drift that is said, no fixed cost multiplied."""

import math
import os
import random
import statistics
import subprocess
import sys
import time
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from later import Later
from states import NOW_S, board, inputs, job_state, shown

from carbontui.account.estimate import BLOCKS_MOST, Blocks
from carbontui.client import prediction as estimate
from carbontui.commands.status import report
from carbontui.job.supervisor.core.state import progress
from carbontui.job.supervisor.core.state.measured import Mean, Measured
from carbontui.system import proc
from carbontui.text import account as account_words

special = Later("scipy.special")


def noisy(dice, count, deviation=0.1, rho=0.0):
    times, now = [], dice.gauss(0, 1)
    for _ in range(count):
        times.append(1.0 + deviation * now)
        now = rho * now + math.sqrt(1 - rho * rho) * dice.gauss(0, 1)
    return times


@pytest.mark.parametrize(("seen", "rho"), [(10, 0.0), (100, 0.0), (400, 0.5), (1000, 0.9)])
def test_nineteen_of_twenty_intervals_hold(seen, rho):
    dice, held = random.Random(11), 0
    for _ in range(200):
        times = noisy(dice, seen + 1000, rho=rho)
        found = estimate.remaining(times[:seen], 1000)
        held += found.lo <= sum(times[seen:]) <= found.hi
    assert 0.90 <= held / 200 <= 0.99


def test_the_quantile_is_students():
    for degrees in (1, 2, 3, 4, 9, 18, 19, 39):
        assert estimate.t_quantile(0.95, degrees) == pytest.approx(special.stdtrit(degrees, 0.975), abs=1e-6)


def test_the_interval_shrinks_with_what_was_seen():
    def width(seen):
        found = [estimate.remaining(noisy(random.Random(seed), 400)[:seen], 1000) for seed in range(20)]
        return statistics.fmean(p.hi - p.lo for p in found)

    assert width(10) > 1.5 * width(40) > 2 * width(400)


def test_slow_first_steps_are_no_sample_of_the_rest():
    times = [9.0, 3.0, *noisy(random.Random(5), 60, 0.02)]
    found = estimate.remaining(times, 100)
    assert found.warmup == 2 and found.value == pytest.approx(100, rel=0.02)
    assert estimate.warmup(noisy(random.Random(6), 100)) == 0


def test_a_drift_is_said_and_followed():
    dice = random.Random(8)
    times = [t * (1 + 0.2 * k / 99) for k, t in enumerate(noisy(dice, 100, 0.02))]
    found = estimate.remaining(times, 100)
    assert found.drifting and found.drift == pytest.approx(0.18, abs=0.03)
    assert found.value > 100 * statistics.fmean(times)
    said = sum(estimate.remaining(noisy(dice, 100), 100).drifting for _ in range(300))
    assert said / 300 <= 0.06


def test_too_little_is_said_to_be_nothing_and_nonsense_is_refused():
    assert estimate.remaining([1.0] * 4, 10) is None and Blocks().whole(100) is None
    found = estimate.remaining([1.0] * 5, 10)
    assert (found.lo, found.value, found.hi) == (10, 10, 10) and not found.drifting
    for bad in (math.nan, -1.0, math.inf):
        with pytest.raises(ValueError, match="finite"):
            estimate.remaining([1.0] * 5 + [bad], 10)


@given(st.lists(st.tuples(st.integers(1, 5000), st.floats(0.001, 100.0)), min_size=1, max_size=60))
def test_blocks_lose_no_step_and_no_second_whatever_their_size(reports):
    blocks = Blocks()
    for steps, seconds in reports:
        before = (len(blocks.times) * blocks.size + blocks.open_steps, sum(blocks.times) + blocks.open_s)
        larger = blocks.plus(steps, seconds)
        assert len(larger.times) * larger.size + larger.open_steps == pytest.approx(before[0] + steps)
        assert sum(larger.times) + larger.open_s == pytest.approx(before[1] + seconds)
        assert len(larger.times) <= BLOCKS_MOST and larger.size >= steps
        blocks = larger


def test_one_timing_of_many_steps_is_one_sample():
    assert Blocks().plus(500, 5.0).whole(1000) is None, "500 steps timed at once are not 500 that never vary"
    blocks = Blocks()
    for k in range(8):
        blocks = blocks.plus(64, 1.0 + 0.1 * (k % 2))
    found = blocks.whole(1024)
    assert len(blocks.times) == 8 and found.hi > found.lo


def running(steps_total=5000, **fields):
    blocks = Blocks()
    dice = random.Random(4)
    for _ in range(60):
        blocks = blocks.plus(20, 10.0 * dice.gauss(1, 0.03))
    known_rate = {"ref_steps": 1200, "ref_time_s": 600.0, "ref_wall_s": 600.0}
    work = progress.Progress(steps_total=steps_total, step=1200, blocks=blocks, **known_rate)
    known = Measured(full_w={"GPU-a": Mean(600.0, 9)}, rest_w=Mean(100.0, 9))
    return job_state(progress=work, measured=known, **fields)


def told(state):
    return shown(state, inputs(NOW_S, boards=(board(),)))


def test_a_running_job_tells_its_whole_work_with_an_interval_and_its_source():
    one = told(running())
    found = one.estimate
    assert found.work_lo_s < 2500 < found.work_hi_s and found.work_hi_s / found.work_lo_s < 1.05
    assert found.energy_wall_kwh == pytest.approx(found.work_s * 700 / 3.6e6)
    assert one.provenance["estimate"].how == "estimated" and "95 %" in one.provenance["estimate"].source
    (row,) = (row for row in report(one) if row.startswith("whole work"))
    assert "at full speed (" in row and "Wh (" in row
    assert told(running(steps_total=None)).estimate is None
    assert "drifting" in account_words.estimate(msgspec.structs.replace(found, drifting=True, drift=0.1))


def test_timings_survive_a_respawn_and_begin_anew_with_the_next_training():
    work = running().progress
    again = progress.restored(progress.Progress(), msgspec.to_builtins(work))
    assert again.blocks == work.blocks
    other = progress.with_process(msgspec.structs.replace(work, processes=("a",)), "b", set(), fresh=True)
    assert other.blocks == Blocks()


def test_a_training_that_waits_for_cores_has_a_wider_estimate():
    """Three quarters of its time it waits: alone the rest would take a quarter, beside twice as many 7/4 of it."""
    seen = Blocks()
    for _ in range(50):
        seen = seen.plus(1, 1.0)
    alone, beside = seen.whole(200), seen.whole(200, 0.75)
    assert alone.value == beside.value == pytest.approx(200)
    assert beside.lo == pytest.approx(50 + 150 / 4, rel=0.01) and beside.hi == pytest.approx(50 + 150 * 7 / 4, rel=0.01)
    assert alone.hi - alone.lo < 1e-6


def test_the_share_of_waiting_is_that_of_the_time_flat_out_and_is_said():
    work = progress.begun(job_state().spec)
    for second in range(1, 61):
        work = progress.with_step(work, second, 0, None)
        work = progress.ran(work, 1.0, 1.0, 1.0, reference=True, core_wait_s=0.5)
    assert work.core_wait == pytest.approx(0.5)
    for second in range(61, 66):  # under a cap nothing is learned of it
        work = progress.ran(progress.with_step(work, second, 0, None), 1, 1, 1, reference=False, core_wait_s=1.0)
    assert work.core_wait == pytest.approx(0.5)
    state = running()
    busy = told(replace(state, progress=msgspec.structs.replace(state.progress, core_wait=0.5)))
    assert busy.estimate.core_wait == 0.5 and busy.estimate.work_hi_s > 1.2 * told(state).estimate.work_hi_s
    assert "waited 50 % of the time for a core" in "\n".join(report(busy))
    assert "for a core" not in "\n".join(report(told(state)))


def test_the_kernel_tells_how_long_a_process_waited_for_its_core():
    """Two that compute, bound to one core: each waits about half of the time."""
    core = min(os.sched_getaffinity(0))
    spin = f"import os\nos.sched_setaffinity(0, {{{core}}})\nwhile True: pass"
    both = [subprocess.Popen([sys.executable, "-c", spin]) for _ in range(2)]
    try:
        due = time.monotonic() + 20
        told = [proc.open_core_wait(one.pid) for one in both]
        while min(map(proc.core_wait_s, told)) < 0.1:
            assert time.monotonic() < due
            time.sleep(0.02)
    finally:
        for one in both:
            one.kill()
            one.wait()
    assert [proc.core_wait_s(one) for one in told] == [None, None]
    assert proc.open_core_wait(2**30) is None
