"""Moves under loss, delay, kills and unequal settings, by the very rules of keeper, supervisor and verbs."""

from __future__ import annotations

import pytest
from simulation import World

from carbontui.extensions.moves import lease

EACH = 250


def test_a_machine_that_answers_too_late_gets_no_lease_of_the_next():
    assert World(4015257).judged() == ""


@pytest.mark.parametrize("first", range(0, 8 * EACH, EACH))
def test_never_two_live_and_never_none_beyond_the_promised_time(first):
    assert {seed: why for seed in range(first, first + EACH) if (why := World(seed).judged())} == {}


def test_a_rule_of_life_that_waits_for_ever_is_found(monkeypatch):
    monkeypatch.setattr(lease, "PATIENCE_LEASES", 30)
    monkeypatch.setattr(World, "bound_s", 1500.0)
    assert any("none lives" in World(seed).judged() for seed in range(EACH))
