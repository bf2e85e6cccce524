"""RAPL and its labelled estimate on a made-up sysfs; the simulated GPU; the capability table."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from carbontui.power.agent import view
from carbontui.power.backends import simulated
from carbontui.power.backends.simulated import SimulatedBackend, SimulatedSpec
from carbontui.power.messages import Capability, HostReading, Reading, Readings
from carbontui.power.metering.meter import Meter
from carbontui.power.metering.rapl import Host

RANGE = 262_143_328_850


def zone(root: Path, number: str, name: str, uj: int) -> Path:
    path = root / f"intel-rapl:{number}"
    path.mkdir(parents=True)
    (path / "name").write_text(name + "\n")
    (path / "max_energy_range_uj").write_text(f"{RANGE}\n")
    (path / "energy_uj").write_text(f"{uj}\n")
    return path / "energy_uj"


def test_rapl_adds_packages_counts_dram_once_skips_psys_and_wraps(tmp_path: Path) -> None:
    first = zone(tmp_path, "0", "package-0", RANGE - 5_000_000)
    second = zone(tmp_path, "1", "package-1", 1_000_000)
    dram = zone(tmp_path, "0:0", "dram", 0)
    zone(tmp_path, "2", "psys", 123)
    host, meter = Host(tmp_path), Meter()
    for sample in host.sample(10.0, 1e9)[0]:
        meter.add(sample)
    first.write_text("45000000")
    second.write_text("51000000")
    dram.write_text("20000000")
    samples, reading = host.sample(11.0, 1e9 + 1)
    for sample in samples:
        meter.add(sample)
    assert (reading.cpu_w, reading.dram_w, reading.how) == (100.0, 20.0, "measured")
    assert (meter.joules("cpu"), meter.joules("dram")) == (100.0, 20.0)
    assert set(meter.by_method()) == {"counter"}


def test_without_rapl_an_estimate_that_says_so(tmp_path: Path) -> None:
    stat = tmp_path / "stat"
    stat.write_text("cpu  0 0 0 0\n" + "".join(f"cpu{i} 100 0 0 900 0 0 0 0\n" for i in range(256)))
    host = Host(tmp_path / "none", stat)
    stat.write_text("cpu  0 0 0 0\n" + "".join(f"cpu{i} 200 0 0 900 0 0 0 0\n" for i in range(256)))
    samples, reading = host.sample(1.0, 1e9)
    assert reading.how == "estimated" and "4 W per thread" in reading.source
    assert reading.caps["cpu"].support == "not_supported"
    assert {sample.how for sample in samples} == {"estimated"}
    cores = len(os.sched_getaffinity(0) & set(range(256)))
    assert reading.cpu_w == pytest.approx(4.0 * cores)


@pytest.mark.parametrize("silent", [0, 1])
def test_a_zone_that_stops_answering_turns_the_sum_into_an_estimate(tmp_path: Path, silent: int) -> None:
    zones = [zone(tmp_path, "0", "package-0", 0), zone(tmp_path, "1", "package-1", 0)]
    host = Host(tmp_path)
    host.sample(0.0, 1e9)
    zones[silent].unlink()
    _, reading = host.sample(1.0, 1e9 + 1)
    assert reading.how == "estimated"


def test_a_counter_that_a_sleeping_machine_set_back_is_no_quarter_megawatt(tmp_path: Path) -> None:
    package = zone(tmp_path, "0", "package-0", 50_000_000_000)
    host, meter = Host(tmp_path), Meter()
    shown = []
    for second, uj in enumerate((0, 100, 200, -50_000, -49_900, -49_800)):
        package.write_text(str(50_000_000_000 + uj * 1_000_000))
        samples, reading = host.sample(10.0 + second, 1e9 + second)
        shown.append(reading.cpu_w)
        for sample in samples:
            meter.add(sample)
    assert shown[1:] == [pytest.approx(100.0)] * 5
    assert meter.joules("cpu") == pytest.approx(500.0)
    assert meter.by_method("cpu") == {"counter": pytest.approx(300.0), "integrated": pytest.approx(200.0)}


def test_packages_of_which_one_cannot_be_read_are_not_summed(tmp_path: Path) -> None:
    zone(tmp_path, "0", "package-0", 0)
    zone(tmp_path, "1", "package-1", 0).unlink()
    _, reading = Host(tmp_path).sample(1.0, 1e9)
    assert reading.how == "estimated"


def test_one_counter_under_two_names_counts_once(tmp_path: Path) -> None:
    zones = [zone(tmp_path, str(die), f"package-0-die-{die}", 7_000_000_000) for die in range(2)]
    host = Host(tmp_path)
    for second in range(1, 4):
        for die, path in enumerate(zones):
            path.write_text(str(7_000_000_000 + second * 68_000_000 + die * 20_000))  # read a moment later
        _, reading = host.sample(10.0 + second, 1e9 + second)
    assert (reading.cpu_w, reading.how) == (pytest.approx(68.0), "measured")
    assert [(one.what, one.verdict) for one in reading.witnesses if one.scope == "package"] == [
        ("RAPL package-0-die-0", "believed"),
        ("RAPL package-0-die-1", "refused"),
    ]


def test_a_counter_that_stands_still_is_estimated_from_its_first_second(tmp_path: Path) -> None:
    zone(tmp_path, "0", "package-0", 1_000_000)
    stat, host, meter = tmp_path / "stat", None, Meter()
    for second in range(12):
        stat.write_text("cpu 0 0 0 0\n" + "".join(f"cpu{i} {100 * second} 0 0 0 0 0 0 0\n" for i in range(256)))
        host = host or Host(tmp_path, stat)
        samples, reading = host.sample(10.0 + second, 1e9 + second)
        for sample in samples:
            meter.add(sample)
    cores = len(os.sched_getaffinity(0) & set(range(256)))
    assert reading.how == "estimated" and reading.cpu_w == pytest.approx(4.0 * cores)
    assert meter.by_method("cpu") == {"model": pytest.approx(4.0 * cores * 11)}
    assert "stands still" in next(one.why for one in reading.witnesses if one.verdict == "refused")


def test_stolen_time_is_not_busy(tmp_path: Path) -> None:
    stat = tmp_path / "stat"
    stat.write_text("".join(f"cpu{i} 0 0 0 0 0 0 0 0\n" for i in range(256)))
    host = Host(tmp_path / "none", stat)
    stat.write_text("".join(f"cpu{i} 0 0 0 50 0 0 0 50\n" for i in range(256)))
    cores = len(os.sched_getaffinity(0) & set(range(256)))
    assert host.sample(1.0, 1e9)[1].cpu_w == pytest.approx(0.4 * cores)


def test_the_simulated_board_is_parked_one_second_after_the_last_step() -> None:
    clock = [0.0]
    spec = SimulatedSpec()
    backend = SimulatedBackend(spec, lambda: clock[0])
    uuid = backend.devices()[0].uuid
    assert backend.sample(uuid).power_w == spec.idle_w and backend.sample(uuid).memory_used_b == 0
    backend.drive(1.0, 1.0)
    clock[0] += 60
    assert backend.sample(uuid).power_w == pytest.approx(680, rel=0.02)
    backend.drive(0.0, 1.0)
    clock[0] += 1
    assert backend.sample(uuid).power_w == pytest.approx(118, rel=0.02)
    backend.drive(1.0, 0.5)
    clock[0] += 3
    assert backend.sample(uuid).power_w == pytest.approx(118 + 0.5 * (680 - 118), rel=0.02)


@given(st.floats(200, 700), st.floats(200, 700))
@settings(max_examples=100, deadline=None)
def test_a_higher_limit_is_never_slower_and_the_limit_holds(a: float, b: float) -> None:
    spec = SimulatedSpec()
    low, high = sorted((a, b))
    assert spec.speed(low) <= spec.speed(high) + 1e-9
    assert spec.busy_w(low) <= max(low, spec.parked_w) + 1e-6
    middle = (low + high) / 2
    assert spec.speed(middle) >= (spec.speed(low) + spec.speed(high)) / 2 - 1e-6, "concave"


def test_the_energy_of_the_simulated_board_is_the_integral_of_its_power() -> None:
    spec = SimulatedSpec()
    state = simulated.structs.replace(simulated.fresh(spec), activity=1.0)
    joules = 0.0
    whole = simulated.advance(spec, state, 0.5)
    for _ in range(500):
        after = simulated.advance(spec, state, 0.001)
        joules += 0.001 * (state.power_w + after.power_w) / 2
        state = after
    assert whole.energy_uj / 1e6 == pytest.approx(joules, rel=0.001)


def test_the_table_says_why_and_what_mends_it() -> None:
    fix = "sudo something"
    gpu = Reading(
        uuid="GPU-1",
        name="H100",
        limit_w=700.0,
        caps={
            "energy": Capability("yes", "counter"),
            "power": Capability("yes", "1 s average"),
            "limit": Capability("no_permission", "only root", fix),
        },
        foreign_pids=(77,),
    )
    host = HostReading(source="load", caps={"cpu": Capability("no_permission", "root only", fix)})
    readings = Readings(devices=(gpu,), host=host)
    rows = view.table(readings)
    by_aspect = {row.aspect: row for row in rows}
    limit = by_aspect["power limit"]
    assert view.SAYS[limit.support] == "no permission"
    assert limit.why == "only root; left alone while other processes use it (pid 77)"
    assert limit.fix == fix and by_aspect["CPU packages"].fix == fix
    none = view.table(Readings(notices=("the NVIDIA driver is not loaded",)))
    assert none[0].support == "not_supported" and "not loaded" in none[0].why
