"""Distributed jobs under real torchrun with gloo: every rank at the same step, or nobody stops."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

from ddp_job import DDP, agree
from later import needs

pytestmark = needs("torch")


def torchrun(launch, tmp_path, supervisor, *args, world=2, **extra):
    script = tmp_path / "ddp.py"
    script.write_text(DDP)
    argv = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(world), str(script)]
    before = len(supervisor.ranks)
    process = launch(argv, *args, **extra)
    supervisor.wait(
        lambda: len(supervisor.live()) == world and len(supervisor.ranks) == before + world, 60, "all ranks"
    )
    return process


def held_twice_at_one_step(supervisor, ahead):
    """One rank made steps by itself: the first try shows it, the next one holds all at one step of the training."""
    for _ in range(2):  # and again: what was learned is kept
        supervisor.pause(2)
        supervisor.wait(
            lambda: (
                (one := supervisor.last(0)).state == (two := supervisor.last(1)).state == "paused"
                and one.step - two.step == ahead
            ),
            60,
            "both held at one step of the training",
        )
        supervisor.want("run")
        supervisor.wait(lambda: supervisor.last(0).state == supervisor.last(1).state == "running")


def states(target):
    return [json.loads(Path(f"{target}.{rank}").read_text()) for rank in (0, 1)]


def test_unload_leaves_together_or_not_at_all(supervisor, launch, finish, tmp_path):
    """Every rank saves, exits 0, the marker says where; a rank that cannot save keeps everybody. All the same where
    rank 1 has counted three steps more."""
    target, marker = str(tmp_path / "state"), tmp_path / "marker.json"
    (tmp_path / "state.fail1").touch()
    process = torchrun(launch, tmp_path, supervisor, "100000", "0.005", target, ALONE="1")
    held_twice_at_one_step(supervisor, -3)
    gen = supervisor.want("unload")
    supervisor.wait(lambda: all(supervisor.acked(gen, r) for r in (0, 1)), 60, "held instead")
    supervisor.wait(lambda: {supervisor.last(r).state for r in (0, 1)} == {"paused"})
    assert not marker.exists()
    (tmp_path / "state.fail1").unlink()
    gen = supervisor.want("unload", not_before="2030-01-01T00:00:00.000Z")
    supervisor.wait(lambda: all(supervisor.acked(gen, r) for r in (0, 1)), 60, "leaving")
    supervisor.want("run")
    assert "no room" in finish(process)
    told = json.loads(marker.read_text())
    assert told["not_before"] == "2030-01-01T00:00:00.000Z"
    assert states(target) == [{"done": told["step"]}] * 2


def test_a_signal_that_would_end_it_finds_all_ranks_saving_at_one_step(supervisor, launch, tmp_path):
    """Here rank 0 has counted three steps more."""
    target = str(tmp_path / "state")
    process = torchrun(launch, tmp_path, supervisor, "100000", "0.005", target, ALONE="0")
    held_twice_at_one_step(supervisor, 3)
    os.killpg(process.pid, signal.SIGTERM)  # torchrun; it passes TERM on to its ranks, whose sessions are their own
    print(process.communicate(timeout=60)[0])
    told = json.loads((tmp_path / "marker.json").read_text())
    assert states(target) == [{"done": told["step"] - 3}] * 2


def test_two_agents_stop_at_the_same_step_and_go_on_without_a_supervisor(supervisor, launch, finish, tmp_path):
    """Two torchrun agents, as on two hosts, to which proposals come late; 100 rounds of it in tests/soak."""
    agree(supervisor, launch, finish, tmp_path, agents=2, per_agent=1, rounds=3, adverse=True, orphaned=True)
