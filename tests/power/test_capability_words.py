"""The capability table on every fault of the simulated driver: one of five words, for what the row is about."""

from __future__ import annotations

import fcntl
from collections.abc import Callable
from pathlib import Path

import pytest
from nvml_machine import machine_with  # noqa: F401

from carbontui.power.agent import view
from carbontui.power.agent.core import Agent
from carbontui.power.backends.nvml import NvmlBackend
from carbontui.power.limit.leases import LeaseStore
from carbontui.power.messages import Report, Wish
from carbontui.power.metering.rapl import Host

WORDS = {"supported", "no permission", "not supported", "no effect", "lost"}


class Bench:
    """One agent on one simulated board, as doctor has it."""

    def __init__(self, sim, tmp_path: Path, *, probing: bool = True) -> None:
        self.sim, self.told = sim, []
        self.store = LeaseStore(tmp_path / "leases")
        kind = {"monitor": True, "probing": True} if probing else {}
        clock = lambda: sim.get("clock_s")  # noqa: E731
        self.agent = Agent(self.told.append, NvmlBackend(), Host(), self.store, "job", clock=clock, **kind)
        self.agent.open()
        self.wish(Wish(gen=1))

    def wish(self, wish: Wish) -> None:
        self.agent.wish(wish)
        self.agent.sample()

    def words(self) -> dict[str, str]:
        readings = [message.readings for message in self.told if isinstance(message, Report)][-1]
        return {r.aspect: view.SAYS[r.support] for r in view.table(readings) if r.device != "host"}


@pytest.mark.parametrize(
    ("faults", "aspect", "word"),
    [
        ({}, "power limit", "supported"),
        ({}, "clock lock", "supported"),
        ({"permission": 2}, "power limit", "no permission"),
        ({"permission": 2}, "clock lock", "no permission"),
        ({"has_limit": 0}, "power limit", "not supported"),
        ({"has_fields": 0, "has_counter": 0}, "energy counter", "not supported"),
        ({"has_fields": 0, "has_counter": 0, "has_power": 0}, "power", "not supported"),
        ({"mig": 1}, "power limit", "not supported"),
        ({"lost": 1}, "any", "lost"),
    ],
)
def test_each_fault_has_its_word(machine_with: Callable, tmp_path: Path, faults, aspect, word) -> None:
    sim = machine_with(frozen=True)
    for key, value in faults.items():
        sim.set(key, value)
    words = Bench(sim, tmp_path).words()
    assert words[aspect] == word and set(words.values()) <= WORDS


def test_a_limit_that_another_job_holds_is_no_unknown_and_a_board_lost_later_is_lost(
    machine_with: Callable, tmp_path: Path
) -> None:
    sim = machine_with(frozen=True)
    store = LeaseStore(tmp_path / "leases")
    uuid = "GPU-51a00000-7c1d-4e55-9d3a-000000000000"
    held = store.lock(uuid)
    assert held is not None
    bench = Bench(sim, tmp_path)
    assert bench.words()["power limit"] == "supported"
    fcntl.flock(held, fcntl.LOCK_UN)
    sim.set("lost", 1)
    sim.advance(2)
    bench.agent.sample()
    assert set(bench.words().values()) == {"lost"}


def test_where_no_lease_can_be_kept_nothing_may_be_set(machine_with: Callable, tmp_path: Path) -> None:
    (tmp_path / "leases").write_text("in the way")
    words = Bench(machine_with(frozen=True), tmp_path).words()
    assert words["power limit"] == "no permission" and set(words.values()) <= WORDS


def test_a_limit_without_effect_is_called_that_while_clocks_stand_in(machine_with: Callable, tmp_path: Path) -> None:
    sim = machine_with(frozen=True)
    sim.set("limit_works", 0)
    sim.load(1.0)
    sim.advance(5)
    bench = Bench(sim, tmp_path, probing=False)
    for _second in range(12):
        bench.wish(Wish(gen=2, limit_w=400.0))
        sim.advance(1)
        bench.agent.sample()
        bench.agent.tick()
        if sim.get("locked_mhz"):
            break
    assert sim.get("locked_mhz"), "clocks stand in"
    sim.advance(1)
    bench.agent.sample()
    words = bench.words()
    assert words["power limit"] == "no effect" and words["clock lock"] == "supported"
