"""What the job teaches about itself, and what a successor reads of it."""

import msgspec
import pytest

from carbontui.job.supervisor.core.state import measured
from carbontui.job.supervisor.core.state.measured import MEMORY, Mean, Measured


def test_a_mean_is_plain_at_first_and_forgets_slowly_later():
    mean = Mean().plus(10.0).plus(20.0)
    assert mean == Mean(15.0, 2)
    for _ in range(5 * MEMORY):
        mean = mean.plus(100.0)
    assert mean.samples == MEMORY and mean.value > 99.0


def test_what_was_known_is_not_written_into():
    known = Measured(full_w={"GPU-a": Mean(100.0, 1)})
    after = measured.with_watts(known, "full", [("GPU-a", 200.0), ("GPU-b", 50.0)])
    assert known.full_w == {"GPU-a": Mean(100.0, 1)}
    assert after.full_w == {"GPU-a": Mean(150.0, 2), "GPU-b": Mean(50.0, 1)}


def test_boards_nobody_measured_count_as_the_default_and_no_boards_as_nothing():
    assert measured.total_w(Measured(), "full", ("a", "b"), 300.0) == (600.0, False)
    assert measured.total_w(Measured(), "full", (), 300.0) == (0.0, False)


def test_what_a_successor_reads_is_what_was_measured():
    known = Measured(full_w={"GPU-a": Mean(600.0, 9)}, pause_s=Mean(2.5, 3), rest_parked_w=Mean(30.0, 4))
    assert msgspec.convert(msgspec.json.decode(msgspec.json.encode(known)), Measured) == known


def test_a_predecessor_that_measured_less_is_understood():
    assert msgspec.convert({"full_w": {"GPU-a": [600.0, 9]}}, Measured).full_w["GPU-a"].value == 600.0


@pytest.mark.parametrize("kept", [{"full_w": []}, {"pause_s": "soon"}, {"full_w": {"GPU-a": {"value": 3}}}, 7])
def test_what_was_kept_in_another_shape_is_refused(kept):
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(kept, Measured)
