"""On a real NVIDIA GPU: what is read, the counter against integrated power, watts with a model parked in memory."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from gpu_machine import MARKS, Load, collect, metered, note

pytestmark = MARKS


async def test_every_field_reads_or_says_why(tmp_path: Path) -> None:
    _, reading = await collect(tmp_path, 2)
    assert reading.power_w is not None and 2 < reading.power_w < 2000
    for field in ("limit_w", "memory_used_b", "util", "temp_c", "sm_mhz"):
        assert getattr(reading, field) is not None or reading.why[field]
    assert reading.caps["limit"].support != "yes", "a monitor does not even ask"


@pytest.mark.parametrize("load", [(1.0, 1.0), (0.075, 0.25), (0.5, 1.7)], ids=["steady", "bursty", "slow bursts"])
async def test_counter_against_integrated_power(tmp_path: Path, load: tuple[float, float]) -> None:
    with Load(*load):
        await asyncio.sleep(3)
        samples, reading = await collect(tmp_path, 20, fast=True)
    if reading.caps["energy"].support != "yes":
        pytest.skip(f"this board: {reading.caps['energy'].why}")
    by_counter, how = metered(samples)
    by_power, _ = metered(samples, counter=False)
    mark = f"{load[0]:g}of{load[1]:g}s"
    note(**{f"counter_w_{mark}": by_counter, f"integrated_w_{mark}": by_power})
    assert how == {"counter"}
    # an instant reading of a part-time sensor may meet bursts in a few fixed phases
    assert by_power == pytest.approx(by_counter, rel=0.10 if reading.power_kind == "avg1s" else 0.3)


async def test_a_parked_model_draws_more_than_a_bare_board_and_far_less_than_kernels(tmp_path: Path) -> None:
    async def watts(busy_s: float, model_gib: float) -> tuple[float, int]:
        with Load(busy_s, 1.0 if busy_s else 1e6, model_gib):
            await asyncio.sleep(5)
            samples, reading = await collect(tmp_path, 10)
        return metered(samples)[0], reading.memory_used_b or 0

    await asyncio.sleep(10)  # the last test's board cools and lowers its clocks
    samples, reading = await collect(tmp_path, 10)
    bare, before_b = metered(samples)[0], reading.memory_used_b or 0
    room_gib = ((reading.memory_total_b or 0) - before_b) / 2**30
    model_gib = min(16.0, 0.5 * room_gib)
    small, _ = await watts(0.0, 0.0)
    parked, held_b = await watts(0.0, model_gib)
    busy, _ = await watts(1.0, 0.0)
    note(bare_w=bare, context_w=small, parked_w=parked, parked_gib=model_gib, busy_w=busy)
    assert held_b - before_b >= 0.95 * model_gib * 2**30, "the model lies in the memory of the board"
    assert bare - 3 <= parked < 0.5 * busy
    assert parked == pytest.approx(small, abs=max(10.0, 0.1 * small)), "a context costs watts, the model does not"
