"""The meter's promises: labelled, never negative, nothing lost that a counter kept."""

from __future__ import annotations

import itertools
import pickle
import random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from carbontui.power.messages import Sample
from carbontui.power.metering.meter import BELIEVABLE, DEFAULT_MAX_W, Meter

WALL = 1.9e9


def at(t: float, *, mj: int | None = None, w: float | None = None, uuid: str = "GPU-a", **more: object) -> Sample:
    energy = None if mj is None else mj * 1000
    return Sample(
        uuid=uuid,
        mono_s=t,
        wall_s=WALL + t,
        energy_uj=energy,
        power_w=w,
        **{"kind": "avg1s", "max_w": 700.0, **more},  # type: ignore[arg-type]
    )


def test_first_sample_counts_nothing_then_the_counter_does() -> None:
    meter = Meter()
    assert meter.add(at(10, mj=5_000_000, w=300)) == ()
    (increment,) = meter.add(at(11, mj=5_310_000, w=300))
    assert (increment.joules, increment.method) == (310.0, "integrated"), "not believed yet, and yet the better figure"
    assert (increment.t0_s, increment.t1_s) == (WALL + 10, WALL + 11)


def test_a_counter_is_believed_once_it_has_agreed_with_the_power_for_a_minute() -> None:
    meter = Meter()
    for second in range(71):
        made = meter.add(at(second, mj=310_000 * second, w=300))
    assert [each.method for each in made] == ["counter"]
    assert meter.by_method() == {"integrated": pytest.approx(59 * 310.0), "counter": pytest.approx(11 * 310.0)}


@pytest.mark.parametrize("second_mj", [0, 9_000_000], ids=["reset", "absurd jump"])
def test_a_counter_that_cannot_be_believed_starts_an_epoch_and_power_fills_in(second_mj: int) -> None:
    meter = Meter()
    meter.add(at(0, mj=1_000_000, w=400))
    (increment,) = meter.add(at(1, mj=second_mj, w=400))
    assert (increment.joules, increment.method) == (400.0, "integrated")
    (increment,) = meter.add(at(2, mj=second_mj + 410_000, w=400))
    assert increment.joules == (400.0 if second_mj else 410.0), "what jumps ahead is not believed; what begins again is"


@pytest.mark.parametrize("unit", [1.0, 37.0], ids=["joules", "something"])
@pytest.mark.parametrize("step_s", [0.1, 1.0, 3.0])
def test_a_counter_of_another_unit_is_found_out_and_its_joules_made_up_for(unit: float, step_s: float) -> None:
    """It counts 400 W as `unit` mJ per J: plausible at every look, and wrong by orders of magnitude."""
    meter, looks = Meter(), round(60 / step_s)
    for i in range(looks + 1):
        meter.add(at(i * step_s, mj=round(400 * i * step_s * unit), w=400))
    assert meter.joules() == pytest.approx(24_000, rel=0.03)
    assert sum(meter.by_method()[how] for how in meter.by_method().keys() & {"integrated", "late"}) > 23_000


def test_readings_seconds_apart_do_not_condemn_a_counter_that_is_right() -> None:
    """The load changes every few seconds, and the agent that reads it is killed again and again."""
    for seed in range(30):
        dice, meter = random.Random(seed), Meter()
        watts = [w for _ in range(250) for w in [dice.choice((120, 300, 630))] * dice.randrange(5, 80)]
        joules = list(itertools.accumulate((w / 10 for w in watts), initial=0.0))  # ten a second
        now = began = 10
        while now < len(watts):
            meter.add(at(now / 10, mj=round(joules[now] * 1000), w=joules[now] - joules[now - 10]))
            last, now = now, now + (5 if dice.random() < 0.8 else dice.randrange(10, 120))
        assert meter.joules() == pytest.approx(joules[last] - joules[began], rel=1e-6), seed


def test_a_counter_that_momentary_readings_contradict_is_called_unmetered() -> None:
    meter = Meter()
    for i in range(1201):
        meter.add(at(i / 10, mj=round(100_000 * i / 10), w=650, kind="instant"))
    assert meter.joules() == pytest.approx(12000), "a part-time sensor may overstate bursts as much"
    assert meter.by_method()["unmetered"] == pytest.approx(6000, abs=20)


def test_a_gap_is_exact_with_the_counter_and_marked_without() -> None:
    meter = Meter()
    meter.add(at(0, mj=0, w=100))
    (increment,) = meter.add(at(600, mj=60_000_000, w=300))
    assert (increment.joules, increment.method) == (60_000.0, "gap"), "a counter not checked yet is no proof"
    bare = Meter()
    bare.add(at(0, w=100))
    (increment,) = bare.add(at(600, w=300))
    assert (increment.joules, increment.method) == (60_000.0, "gap")


def test_a_lost_board_keeps_its_joules_and_its_absence_is_not_filled_in() -> None:
    meter = Meter()
    meter.add(at(0, mj=0, w=100))
    meter.add(at(1, mj=100_000, w=100))
    meter.add(at(2, lost=True))
    assert meter.joules() == 100.0
    assert meter.add(at(3600, mj=5_000, w=100)) == ()
    assert meter.joules() == 100.0, "its counter began again"


def test_a_board_that_comes_back_with_its_counter_is_counted_through() -> None:
    meter = Meter()
    meter.add(at(0, mj=0, w=100))
    meter.add(at(1, lost=True))
    assert meter.carry_on(["GPU-a"], 20.0, WALL + 20) == (), "while it is away nothing is guessed"
    (increment,) = meter.add(at(60, mj=9_000_000, w=100))
    assert increment.joules == 9000.0


def test_a_failed_look_is_bridged_by_the_next_good_one() -> None:
    meter = Meter()
    meter.add(at(0, mj=0, w=100))
    assert meter.add(at(1, errors=(("energy_uj", 999),))) == ()
    (increment,) = meter.add(at(2, mj=200_000, w=100))
    assert increment.joules == 200.0


def test_a_counter_that_stands_still_while_power_is_drawn_is_no_counter() -> None:
    meter = Meter()
    for t in range(31):
        meter.add(at(float(t), mj=7, w=200))
    assert meter.joules() == pytest.approx(30 * 200, rel=0.01)
    assert set(meter.by_method()) == {"integrated"}


def test_a_slow_counter_loses_nothing() -> None:
    meter = Meter()
    for tenth in range(101):
        meter.add(at(tenth / 10, mj=(tenth // 10) * 200_000, w=200, kind="instant"))
    assert meter.joules() == 2000.0


def test_estimates_are_labelled_model() -> None:
    meter = Meter()
    meter.add(at(0, uuid="cpu", w=40, how="estimated", kind="model"))
    (increment,) = meter.add(at(1, uuid="cpu", w=50, how="estimated", kind="model"))
    assert (increment.joules, increment.method) == (50.0, "model")


def test_a_stepped_wall_clock_places_the_energy_where_time_was_measured() -> None:
    meter = Meter()
    meter.add(at(0, mj=0, w=100))
    stepped = msgspec.structs.replace(at(1, mj=100_000, w=100), wall_s=WALL + 5000)
    (increment,) = meter.add(stepped)
    assert (increment.t0_s, increment.t1_s) == (WALL + 4999, WALL + 5000)


def test_a_restarted_supervisor_loses_nothing_the_counter_kept() -> None:
    meter = Meter()
    meter.add(at(0, mj=0, w=100))
    meter.add(at(1, mj=100_000, w=100))
    data = msgspec.json.decode(msgspec.json.encode(meter.to_dict("boot-1")))
    back = Meter.from_dict(data, "boot-1")
    (increment,) = back.add(at(61, mj=6_100_000, w=100))
    assert increment.joules == 6000.0 and back.joules() == 6100.0
    rebooted = Meter.from_dict(data, "boot-2")
    assert rebooted.add(at(5, mj=50_000, w=100)) == () and rebooted.joules() == 100.0


def test_a_meter_holds_no_more_after_an_hour_than_after_a_minute() -> None:
    meter, sizes = Meter(), {}
    for t in range(3601):
        meter.add(at(float(t), mj=t * 100_000, w=100))
        sizes[t] = len(pickle.dumps(meter))
    assert sizes[3600] <= sizes[60] + 16  # longer integers


LOOK = st.tuples(
    st.floats(-2, 40),
    st.one_of(st.none(), st.integers(0, 2**62)),
    st.one_of(st.none(), st.floats(0, 900)),
    st.booleans(),
)


@given(st.lists(LOOK, max_size=40))
@settings(max_examples=150, deadline=None)
def test_joules_are_never_negative_nor_beyond_belief(looks: list[tuple[float, int | None, float | None, bool]]) -> None:
    meter, t, last = Meter(), 100.0, 0.0
    for step, mj, watts, lost in looks:
        t += step
        for increment in meter.add(at(t, mj=mj, w=watts, lost=lost, max_w=None)):
            span = increment.t1_s - increment.t0_s
            assert increment.joules >= 0 and span > 0
            assert increment.joules <= BELIEVABLE * DEFAULT_MAX_W * (span + 0.25) + 1e-3
        assert meter.joules() >= last
        last = meter.joules()


@given(st.lists(st.tuples(st.floats(0.05, 30), st.floats(0, 699)), min_size=1, max_size=40), st.data())
@settings(max_examples=100, deadline=None)
def test_a_sound_counter_is_counted_to_the_last_joule_whatever_was_missed(
    parts: list[tuple[float, float]], data: st.DataObject
) -> None:
    meter, t, joules = Meter(), 0.0, 0.0
    meter.add(at(t, mj=0, w=0.5, kind="instant"))
    for seconds, watts in parts:
        t, joules = t + seconds, joules + seconds * watts
        if data.draw(st.booleans()):
            meter.add(at(t, mj=int(joules * 1000), w=watts, kind="instant"))
    meter.add(at(t + 1, mj=int(joules * 1000) + 1, w=0.5, kind="instant"))
    assert meter.joules() == pytest.approx(joules, abs=0.01)


@pytest.mark.parametrize("seen_s", [(0.0,), (0.0, 1.0), (0.0, 1.0, 9.0)])
def test_a_meter_is_taken_up_whatever_its_counter_was_just_compared_with(seen_s: tuple[float, ...]) -> None:
    meter = Meter()
    for t in seen_s:
        meter.add(at(t, mj=int(300_000 * t), w=300))
    back = Meter.from_dict(msgspec.json.decode(msgspec.json.encode(meter.to_dict("boot"))), "boot")
    assert sum(one.joules for one in back.add(at(15.0, mj=4_500_000, w=300))) == 300 * (15 - seen_s[-1])


def test_a_job_that_ends_while_its_driver_hangs_is_counted_to_the_end() -> None:
    meter = Meter()
    for t in (0.0, 1.0):
        meter.add(at(t, mj=int(300_000 * t), w=300))
        meter.add(at(t, mj=int(100_000 * t), w=100, uuid="GPU-b"))
    assert meter.carry_on(["GPU-a"], 2.0, WALL + 2) == (), "its last second was read"
    (gap,) = meter.carry_on(["GPU-a", "GPU-c"], 5.0, WALL + 5)
    assert (gap.uuid, gap.joules, gap.method) == ("GPU-a", 1200.0, "gap")
    (gap,) = meter.carry_on(["GPU-a", "GPU-c"], 21.0, WALL + 21)
    assert (gap.uuid, gap.joules, gap.method) == ("GPU-a", 4800.0, "gap")
    assert meter.joules("GPU-b") == 100.0, "a board the job has left is not its own"
