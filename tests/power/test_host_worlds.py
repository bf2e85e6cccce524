"""Forty machines drawn by seed, with meters that are right, absent or wrong: what is booked against the true draw."""

from __future__ import annotations

import random
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from test_host_and_simulated import zone
from test_supply import hwmon

from carbontui.account.accounts import band, of_sum
from carbontui.job.supervisor.core.planning.machine import HOST_OF_LIMIT
from carbontui.power.metering.meter import Meter
from carbontui.power.metering.rapl import Host
from carbontui.power.metering.supply import Supply
from carbontui.power.metering.witness import Parts

KINDS = ("meter", "chassis", "unknown", "short", "still", "mirrored", "one of eight", "stolen", "bare", "amd")
BELIEVED = {"meter", "still", "mirrored", "amd"}
"""Worlds in which a supply's meter is right and attributable; elsewhere the default stands."""
LIMIT_W, SECONDS = 700.0, 130


class Booked(NamedTuple):
    kind: str
    true_j: float
    by_how: dict[str, float]
    measured: bool

    @property
    def joules(self) -> float:
        return sum(self.by_how.values())

    @property
    def error(self) -> float:
        return self.joules / self.true_j - 1

    @property
    def around(self) -> tuple[float, float]:
        return band(self.joules, {how: part / self.joules for how, part in self.by_how.items()})


def world(seed: int, root: Path) -> Booked:
    dice, kind = random.Random(seed), KINDS[seed % len(KINDS)]
    mine = 1 if kind == "one of eight" else dice.choice([1, 2, 4, 8])
    gain = dice.gauss(1.0, 0.02)  # of the boards' sensors
    rapl = kind not in ("stolen", "bare", "still")
    cpu_w = dice.uniform(60, 120) * (1 + mine / 4) if rapl or kind == "still" else 1.0
    beside_w = mine * LIMIT_W * dice.uniform(0.33, 0.47)
    folder = root / str(seed)
    (folder / "pci").mkdir(parents=True)
    for board in range(8 if kind == "one of eight" else mine):
        (at := folder / "pci" / str(board)).mkdir()
        (at / "vendor").write_text("0x1002" if kind == "amd" else "0x10de")
        (at / "class").write_text("0x120000" if kind == "amd" else "0x030200")
    names = ["package-0", "package-1"] if kind == "mirrored" else ["package-0"]
    zones = [zone(folder, str(i), name, 5_000_000) for i, name in enumerate(names if rapl or kind == "still" else [])]
    metered = kind not in ("bare", "stolen")
    meter = hwmon(folder, "power_meter", power1_average="1") / "power1_average" if metered else None
    stat = folder / "stat"
    stat.write_text("")
    host, supply, joules = Host(folder, stat), Supply(folder, folder / "pci"), Meter()
    parts, by_how, true_j = Parts(mine * LIMIT_W, mine, 64), {"counter": 0.0}, 0.0
    own_w, at_uj, beside = mine * 500.0, 5_000_000.0, False
    for second in range(SECONDS):
        own_w = mine * dice.uniform(450, 650)
        node_w = own_w + cpu_w + beside_w
        shown_w = {"chassis": 6 * node_w + 20000, "unknown": 4294967.295, "short": 0.4 * node_w}.get(kind, node_w)
        if kind == "one of eight":
            shown_w = 8 * 550.0 + 600.0 + 2000.0
        if meter is not None:
            meter.write_text(str(round(1e6 * shown_w * (1 + dice.gauss(0, 0.005)))))
        at_uj += 0.0 if kind == "still" else 1e6 * cpu_w
        for path in zones:
            path.write_text(str(round(at_uj)))
        if second % 10 == 0:
            stat.write_text("".join(f"cpu{i} {2 * second} 0 0 {3 * second} 0 0 0 {5 * second}\n" for i in range(8)))
        samples, reading = host.sample(10.0 + second, 1e9 + second)
        for sample in samples:
            joules.add(sample)
        reading = supply.beside(reading, host.whole_w, own_w * gain, parts, mine, 10.0 + second)
        beside = reading.beside_w is not None
        by_how["counter"] += own_w * gain
        rest_w = HOST_OF_LIMIT * mine * LIMIT_W if reading.beside_w is None else reading.beside_w
        how = "integrated" if beside else "default"
        by_how[how] = by_how.get(how, 0.0) + rest_w
        true_j += own_w + cpu_w + beside_w
    for how, part in joules.by_method("cpu").items():
        by_how[how] = by_how.get(how, 0.0) + part
    return Booked(kind, true_j, by_how, beside)


@pytest.fixture(scope="module")
def booked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Booked]]:
    root = tmp_path_factory.mktemp("worlds")
    yield [world(seed, root) for seed in range(40)]


def test_forty_machines_are_booked_within_a_tenth_and_their_bands_cover(booked: list[Booked]) -> None:
    assert {(one.kind, round(one.error, 3)) for one in booked if abs(one.error) > 0.1} == set()
    assert sum(one.around[0] <= one.true_j <= one.around[1] for one in booked) >= 36
    halves = {known: [w.around[1] / w.joules - 1 for w in booked if w.measured is known] for known in (True, False)}
    assert statistics.median(halves[True]) <= 0.08 and statistics.median(halves[False]) <= 0.12


def test_nothing_is_called_measured_that_was_not(booked: list[Booked]) -> None:
    assert {one.kind for one in booked if one.measured} == BELIEVED
    for one in booked:
        assert one.measured or of_sum({how: part / one.joules for how, part in one.by_how.items()}) == "estimated"
