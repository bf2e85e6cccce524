"""A counter that lies costs no joules, and is not called a counter."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import wrong_counters
from nvml_machine import machine_with  # noqa: F401
from test_bad_readings import Bench, bench  # noqa: F401

from carbontui.power.agent.boards import slices_share
from carbontui.power.backends.base import DeviceInfo


@pytest.mark.parametrize("seed", range(20))
def test_wrong_counters_are_found_out_and_their_joules_made_up_for(seed: int) -> None:
    found = wrong_counters.case(seed)
    assert abs(found.error) < 0.03
    assert found.counter <= 0.0, "the interval in which it stopped is taken back whole"


@pytest.mark.parametrize("lost", [1, 2], ids=["its handle stays", "its handle is gone"])
def test_a_board_lost_over_a_driver_reload_is_found_within_five_seconds(
    bench: Callable[..., Bench],
    lost: int,
) -> None:
    job = bench(2)
    job.seconds(5)
    job.sim.set("lost", lost, device=1)
    job.seconds(3)
    job.sim.driver(reload=True)
    job.seconds(20)
    assert job.reports[-1].readings.devices[1].lost
    job.sim.set("reset_board", 1, device=1)
    job.seconds(5)
    again = job.reports[-1].readings
    assert len(again.devices) == 2 and not again.devices[1].lost and not again.absent
    assert again.devices[1].power_w


def test_a_job_on_a_slice_is_booked_its_part_of_the_board(bench: Callable[..., Bench]) -> None:
    job = bench(mig=1)
    job.seconds(3)
    assert job.reading.share == 0.5, "the first of two slices of one size"


def test_slices_are_weighed_by_their_size_and_add_up() -> None:
    sizes = {"MIG-a1": 4, "MIG-b2": 2, "MIG-c3": 1}
    board = DeviceInfo(
        uuid="GPU-x", name="H100", index=0, mig=True, mig_uuids=tuple(sizes), mig_sizes=tuple(sizes.values())
    )
    assert [slices_share((name,), board) for name in sizes] == [4 / 7, 2 / 7, 1 / 7]
    assert slices_share(("GPU-b2", "MIG-c3"), board) == 3 / 7, "CUDA names a slice as if it were a board"
    assert slices_share(("GPU-x",), board) == 4 / 7, "CUDA takes the first"
