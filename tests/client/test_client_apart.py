"""Ranks that cannot agree say so and train on; what agreement costs the training's process with the store."""

from __future__ import annotations

import resource
import threading

import pytest

from carbontui.client.pausing import ranks, store
from carbontui.client.pausing.gate import Gate
from carbontui.client.pausing.ranks import Ranks
from carbontui.client.pausing.store import Lost


def never():
    raise Lost("no torch")


def test_ranks_without_a_store_are_told_of_and_never_held(capfd, monkeypatch):
    monkeypatch.setattr(ranks, "ALONE_TRIES", 1)
    gate, told = Gate(), threading.Event()
    gate.on_change = told.set
    made = Ranks(gate, 0, 2, lambda: None, never)
    made.start()
    assert told.wait(10) and gate.facts["cannot_hold"] == "apart"
    made.stop()
    assert "these ranks cannot be held together: they share no torch.distributed store" in capfd.readouterr().err


def test_where_connections_would_take_the_trainings_descriptors_none_is_opened(capfd, monkeypatch):
    monkeypatch.setattr(ranks, "descriptors_suffice", lambda rank, world: False)
    opened, gate, told = [], Gate(), threading.Event()
    gate.on_change = told.set
    made = Ranks(gate, 0, 700, lambda: None, lambda: opened.append(1))
    made.start()
    assert told.wait(10) and gate.facts["cannot_hold"] == "descriptors" and not opened
    made.stop()
    assert "700 ranks need more descriptors than `ulimit -n` leaves the training" in capfd.readouterr().err


@pytest.mark.parametrize(("most", "world", "enough"), [(1024, 330, True), (1024, 512, False), (100, 24, False)])
def test_what_the_training_may_still_open_is_left_to_it(monkeypatch, most, world, enough):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (most, most))
    monkeypatch.setattr(store.os, "listdir", lambda _: ["fd"] * 30)
    assert store.descriptors_suffice(1, world) is enough


def test_polls_of_many_ranks_together_do_not_grow_with_their_number():
    rates = [world / Ranks(Gate(), 1, world, lambda: None, never).nap_most_s for world in (64, 256, 1024)]
    assert rates == pytest.approx([rates[0]] * 3)
