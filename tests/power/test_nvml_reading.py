"""What one look at a simulated board gives: power named for what it is, each field with its own outcome."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from nvml_machine import machine_with  # noqa: F401

from carbontui.power.agent.boards import boards_of, visible
from carbontui.power.backends.base import DeviceError, measure_caps
from carbontui.power.backends.nvml import NvmlBackend


def opened() -> NvmlBackend:
    backend = NvmlBackend()
    backend.open()
    return backend


@pytest.mark.parametrize(
    ("name", "arch", "average", "instant", "kind"),
    [
        ("NVIDIA H100 80GB HBM3", 9, 1, 1, "avg1s"),
        ("NVIDIA A100-SXM4-80GB", 7, 0, 1, "instant"),
        ("NVIDIA A100-SXM4-80GB", 7, 0, 0, "instant"),
        ("NVIDIA GeForce RTX 3090", 7, 0, 0, "avg1s"),
        ("Tesla V100-SXM2-16GB", 5, 0, 0, "instant"),
    ],
)
def test_power_is_named_for_what_it_is(machine_with: Callable, name, arch, average, instant, kind) -> None:
    sim = machine_with(frozen=True)
    sim.name(name)
    for key, value in {"arch": arch, "has_average": average, "has_instant": instant}.items():
        sim.set(key, value)
    backend = opened()
    assert backend.sample(backend.devices()[0].uuid).kind == kind


def test_values_of_a_busy_board(machine_with: Callable) -> None:
    sim = machine_with(frozen=True)
    sim.load(1.0)
    sim.advance(3)
    backend = opened()
    look = backend.sample(backend.devices()[0].uuid)
    assert look.power_w == pytest.approx(680, abs=1)
    assert (look.limit_mw, look.util, look.errors, look.lost) == (700_000, 1.0, (), False)
    assert look.memory_used_b == 30 * 2**30


def test_a_missing_field_is_none_with_its_code_and_the_rest_is_there(machine_with: Callable) -> None:
    sim = machine_with(frozen=True)
    sim.set("has_counter", 0)
    sim.fault("nvmlDeviceGetTemperature", 999)
    backend = opened()
    look = backend.sample(backend.devices()[0].uuid)
    assert look.energy_uj is None and look.temp_c is None
    assert dict(look.errors) == {"energy_uj": 3, "temp_c": 999}
    assert look.power_w is not None
    assert measure_caps(look)["energy"].support == "not_supported"


def test_grace_reads_the_module_and_says_so(machine_with: Callable) -> None:
    sim = machine_with(frozen=True)
    sim.set("module_scope", 1)
    backend = opened()
    look = backend.sample(backend.devices()[0].uuid)
    assert look.kind == "module" and look.power_w == pytest.approx(70, abs=1)


def test_one_lost_board_does_not_take_the_other(machine_with: Callable) -> None:
    sim = machine_with(2, frozen=True)
    backend = opened()
    first, second = (info.uuid for info in backend.devices())
    sim.set("lost", 1, device=0)
    assert backend.sample(first).lost
    assert not backend.sample(second).lost and backend.sample(second).power_w is not None


@pytest.mark.parametrize(("code", "words"), [(18, "reboot"), (9, "not loaded")])
def test_a_driver_that_does_not_open_says_why(machine_with: Callable, code: int, words: str) -> None:
    machine_with(frozen=True).fault("nvmlInitWithFlags", code)
    with pytest.raises(DeviceError, match=words):
        opened()


def test_every_name_of_a_board(machine_with: Callable) -> None:
    sim = machine_with(3, frozen=True)
    sim.set("mig", 1, device=2)
    infos = opened().devices()
    first, second, third = (info.uuid for info in infos)
    assert infos[2].mig and not infos[0].mig
    assert boards_of((first[4:], "GPU-51a00001", infos[2].mig_uuids[1]), infos) == (first, second, third)
    assert boards_of((f"MIG-{third}/1/0", "GPU-51a0", "nonsense", ""), infos) == (third,)
    assert visible(None, infos) == ((first, second, third), True)
    assert visible("1,0", infos) == ((second, first), False)
    assert visible("1,0", infos, "PCI_BUS_ID") == ((second, first), True)
    assert visible("2,0,1", infos) == ((third, first, second), True), "all of them, in whatever order"
    assert visible("0", infos[1:]) == ((second,), False), "with a board gone numbers are a guess"
    assert boards_of((f"GPU-{infos[2].mig_uuids[1].removeprefix('MIG-')}",), infos) == (third,)
    assert visible(second, infos) == ((second,), True)
    assert visible(f"{second},-1,{first}", infos)[0] == (second,)
    assert visible("", infos)[0] == ()
    assert visible(f"{first},{first}", infos)[0] == ()
