"""The ranks of a node share one connection to the store: served by whoever is there, let go when it ends."""

from __future__ import annotations

import json
import socket
import threading

import pytest
from test_client_abort import PREFIX, Memory

from carbontui.client.pausing import node, store
from carbontui.client.pausing.gate import Gate
from carbontui.client.pausing.ranks import Ranks, Store
from carbontui.client.pausing.store import Lost


@pytest.fixture
def memory() -> Memory:
    return Memory()


@pytest.fixture
def opener(memory, monkeypatch):
    """Opens a connection; counts them."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        monkeypatch.setenv("MASTER_PORT", str(free.getsockname()[1]))
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    monkeypatch.setattr(node, "PATIENCE_S", 0.2)

    def one(timeout_s: float = 30.0) -> Store:
        one.opened += 1
        return Store(memory, PREFIX)

    one.opened = 0
    return one


def test_many_ranks_of_a_node_wait_and_speak_over_one_connection(opener, memory, monkeypatch):
    monkeypatch.setenv("LOCAL_RANK", "0")
    _, hub = node.joined(8, opener)
    monkeypatch.setenv("LOCAL_RANK", "1")
    stores = [node.joined(rank, opener)[0] for rank in range(9, 16)]
    assert opener.opened == 1 and all(isinstance(one, node.NodeStore) for one in stores)
    got: list[str] = []
    waits = [threading.Thread(target=lambda one=one: got.append(one.take("prop/0"))) for one in stores]
    for one in waits:
        one.start()
    memory.set(f"{PREFIX}prop/0", "now")
    for one in waits:
        one.join(30)
    assert got == ["now"] * 7
    stores[0].set("a", "1")
    assert (
        stores[1].get("a") == "1" and stores[1].get("b") is None and stores[2].has("a") and not stores[2].has("a", "b")
    )
    assert stores[3].first("c", "mine") == "mine" and stores[4].first("c", "theirs") == "mine"
    assert stores[5].wait_for("never", 0.05) is None
    stores[6].forget("a")
    assert not stores[0].has("a")
    # what wakes one rank leaves the others alone; without the hub all of them are let go
    ended = []

    def wait() -> None:
        try:
            stores[0].take("later")
        except Lost:
            ended.append(True)

    waiting = threading.Thread(target=wait)
    waiting.start()
    stores[0].wake(opener, "later", waiting.is_alive)
    waiting.join(30)
    assert ended and stores[1].get("c") == "mine"
    hub.stop(opener)
    with pytest.raises(Lost):
        stores[1].get("c")


def test_without_the_nodes_first_rank_another_serves_and_rank_0_asks_alone(opener):
    first, hub = node.joined(3, opener)
    assert hub is not None and isinstance(first, node.NodeStore)
    assert node.joined(4, opener)[1] is None and opener.opened == 1
    alone, other = node.joined(0, opener)
    assert isinstance(alone, Store) and other is None
    hub.stop(opener)


def test_where_no_address_tells_two_trainings_apart_each_rank_has_its_own(opener, monkeypatch):
    monkeypatch.delenv("MASTER_ADDR")
    assert [type(node.joined(rank, opener)[0]) for rank in (0, 1, 2)] == [Store] * 3


def test_another_users_socket_is_not_spoken_to(opener, monkeypatch):
    monkeypatch.setattr(node, "ours", lambda connection: False)
    taken = socket.socket(socket.AF_UNIX)
    taken.bind(node.name_of_socket())
    taken.listen()
    assert isinstance(node.joined(1, opener)[0], Store)
    taken.close()


def test_a_name_that_was_taken_just_now_is_knocked_at_until_it_listens(opener, monkeypatch):
    with socket.socket(socket.AF_UNIX) as taken:
        taken.bind(node.name_of_socket())
        monkeypatch.setattr(node, "PATIENCE_S", 0.0)
        monkeypatch.setattr(node, "LISTENS_S", 60.0)
        monkeypatch.setattr(node.time, "sleep", lambda _: taken.listen())
        assert isinstance(node.joined(1, opener)[0], node.NodeStore) and opener.opened == 0


def test_a_process_that_ends_after_its_store_is_not_kept_by_it(memory):
    """Whoever waits there has lost it by then, or is about to."""
    tried, waits = [], iter([True, True, False])

    def gone(timeout_s):
        tried.append(timeout_s)
        raise Lost

    Store(memory, PREFIX).wake(gone, "later", lambda: next(waits))
    assert tried == [store.WAKE_S] * 2


def test_ranks_behind_a_hub_vote_arrive_and_go_on(opener, memory, monkeypatch):
    monkeypatch.setattr(node, "PATIENCE_S", 60.0)  # a busy machine must not keep a rank from its hub
    monkeypatch.setattr(node, "first_here", lambda rank: rank == 1)
    made = [Ranks(Gate(), rank, 4, lambda: None, opener) for rank in (1, 2, 3)]
    for one in made:
        one.start()
    for rank in (1, 2, 3):
        memory.set(f"{PREFIX}prop/0/{rank}", json.dumps({"at": 5, "kind": "hold", "not_before": None}))
    assert [memory.await_key(f"vote/0/{rank}") for rank in (1, 2, 3)] == ["yes"] * 3
    memory.set(f"{PREFIX}dec/0", "commit")
    for one in made:
        with one.gate.cond:
            assert one.gate.cond.wait_for(lambda one=one: (o := one.barrier.order) and o.state == "commit", 30)
    memory.set(f"{PREFIX}run/0", "go")
    for one in made:
        with one.gate.cond:
            assert one.gate.cond.wait_for(lambda one=one: one.barrier.order is None, 30)
    assert opener.opened == 1
    for one in made:
        one.stop()


@pytest.mark.parametrize(("here", "enough"), [("64", True), ("512", False)])
def test_512_ranks_on_8_nodes_leave_the_training_its_descriptors(monkeypatch, here, enough):
    monkeypatch.setattr(store.resource, "getrlimit", lambda _: (1024, 1024))
    monkeypatch.setattr(store.os, "listdir", lambda _: ["fd"] * 30)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", here)
    assert store.descriptors_suffice(1, 512) is enough
