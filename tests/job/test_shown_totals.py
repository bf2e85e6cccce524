"""Totals never fall in front of a user: not while a supervisor is replaced, nor until its successor has caught up."""

from __future__ import annotations

import contextlib
import os
import signal
import time

import pytest

from carbontui import protocol
from carbontui.job.files import shown_totals
from carbontui.job.files.shown_totals import ShownTotals

NAMES = shown_totals.NAMES


def used(gpu: float, wall: float, grams: float | None) -> protocol.Status:
    def amounts(times):
        grams_g = None if grams is None else times * grams
        return protocol.Amounts(
            elapsed_s=times,
            steps=1,
            energy_gpu_kwh=times * gpu,
            energy_wall_kwh=times * wall,
            gco2_g=grams_g,
            run_now_g=None if grams_g is None else grams_g + 1.0,
        )

    return protocol.Status(
        job="j",
        name="j",
        host="h",
        measured_at="2026-01-01T00:00:00Z",
        state="running",
        reason=protocol.Reason("plan", ""),
        energy_gpu_kwh=gpu,
        energy_wall_kwh=wall,
        gco2_g=grams,
        account=protocol.Account(so_far=amounts(1.0), ahead=amounts(1.0), whole=amounts(2.0)),
    )


def totals(status: protocol.Status) -> tuple[float | None, ...]:
    return tuple(getattr(status, name) for name in NAMES)


def test_a_successor_holds_the_last_totals_until_it_has_caught_up(tmp_path) -> None:
    place = shown_totals.place(tmp_path / "job.sock")
    first = ShownTotals(place)
    assert totals(first.shown(used(1.0, 2.0, 3.0), 100.0)) == (1.0, 2.0, 3.0)
    first.close(over=False)
    second = ShownTotals(place)
    held = second.shown(used(0.5, 1.5, None), 1.0)
    assert totals(held) == (1.0, 2.0, 3.0) and held.account is not None
    so_far, ahead, whole = held.account.so_far, held.account.ahead, held.account.whole
    assert whole.energy_wall_kwh == so_far.energy_wall_kwh + 1.5 and ahead.energy_wall_kwh == 1.5
    assert totals(second.shown(used(1.5, 2.5, 3.5), 2.0)) == (1.5, 2.5, 3.5)
    # from here on a revised value may lower the grams
    assert totals(second.shown(used(1.5, 2.5, 3.0), 3.0)) == (1.5, 2.5, 3.0)
    second.close(over=True)
    assert not place.exists()


def test_grams_held_for_a_successor_leave_what_was_avoided_as_it_is(tmp_path) -> None:
    place = shown_totals.place(tmp_path / "job.sock")
    ShownTotals(place).shown(used(1.0, 2.0, 3.0), 100.0)
    held = ShownTotals(place).shown(used(0.5, 1.5, 1.0), 1.0)
    assert held.account is not None
    for amounts in (held.account.so_far, held.account.whole):
        assert amounts.run_now_g - amounts.gco2_g == 1.0
    assert held.run_now_g == 4.0


def test_a_successor_that_never_catches_up_shows_its_own_in_the_end(tmp_path) -> None:
    place = shown_totals.place(tmp_path / "job.sock")
    ShownTotals(place).shown(used(1.0, 2.0, 3.0), 100.0)
    assert totals(ShownTotals(place).shown(used(0.5, 1.5, 1.0), 61.0)) == (0.5, 1.5, 1.0)


@pytest.mark.parametrize("content", [b"", b"x" * 23, b"x" * 24, b"\xff" * 30, b"\x00" * 7 + b"\xf0" + b"\x00" * 16])
def test_a_damaged_file_of_totals_is_left_aside(tmp_path, content) -> None:
    place = shown_totals.place(tmp_path / "job.sock")
    place.write_bytes(content)
    assert totals(ShownTotals(place).shown(used(0.5, 1.5, 1.0), 1.0)) == (0.5, 1.5, 1.0)


def test_no_total_falls_while_the_supervisor_is_killed_and_replaced(house) -> None:
    (house.home).mkdir(parents=True, exist_ok=True)
    (house.home / "config.toml").write_text('host_w = 1000.0\nboundary = "given-back"\n')
    job = house.start("--intensity", "300")
    job.until_connected()
    most: dict[str, float] = {}
    for _ in range(2):
        pid = job.pids()["supervisor"]
        due, killed = time.monotonic() + 60.0, False
        seen_s = most.get("energy_wall_kwh", 0.0)
        while time.monotonic() < due:
            told = job.status()
            for name in NAMES:
                if told.get(name) is not None:
                    assert told[name] >= most.get(name, 0.0) - 1e-9, name
                    most[name] = told[name]
            grown = most["energy_wall_kwh"] > seen_s + 0.0008  # about three seconds
            if not killed and grown:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                killed, seen_s = True, most["energy_wall_kwh"]
            elif killed and grown and told["pids"]["supervisor"] not in (None, pid):
                break
        else:
            raise AssertionError("no successor has booked on")
    job.let_end()
    job.until_over()
