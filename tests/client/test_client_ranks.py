"""Distributed jobs under real torchrun with gloo: every rank at the same step, or nobody stops."""

from __future__ import annotations

import json
import re
import sys

import pytest
from ddp_job import DDP, agree

pytest.importorskip("torch")


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


def test_unload_leaves_together_or_not_at_all(supervisor, launch, finish, tmp_path):
    """Every rank saves, exits 0, the marker says where; a rank that cannot save keeps everybody."""
    target, marker = str(tmp_path / "state"), tmp_path / "marker.json"
    (tmp_path / "state.fail1").touch()
    process = torchrun(launch, tmp_path, supervisor, "100000", "0.005", target)
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
    states = [json.loads((tmp_path / f"state.{r}").read_text()) for r in (0, 1)]
    assert states == [{"done": told["step"]}] * 2


def test_two_agents_stop_at_the_same_step_and_go_on_without_a_supervisor(supervisor, launch, finish, tmp_path):
    """Two torchrun agents, as on two hosts, to which proposals come late; 100 rounds of it in tests/soak."""
    agree(supervisor, launch, finish, tmp_path, agents=2, per_agent=1, rounds=3, adverse=True, orphaned=True)


@pytest.mark.parametrize("alone", ["0", "1"])
def test_ranks_that_count_differently_are_held_all_the_same(supervisor, launch, finish, tmp_path, alone):
    """One made three steps by itself; the first try shows it, the next one holds all at one step of the training."""
    process = torchrun(launch, tmp_path, supervisor, "100000", "0.005", ALONE=alone)
    ahead = 3 if alone == "0" else -3
    for _ in range(2):  # and again: what was learned is kept
        supervisor.pause(2)
        supervisor.wait(
            lambda: (
                (one := supervisor.last(0)).state == (two := supervisor.last(1)).state == "paused"
                and one.step - two.step == ahead
            ),
            15,
            "both held at one step of the training",
        )
        supervisor.want("run")
        supervisor.wait(lambda: supervisor.last(0).state == supervisor.last(1).state == "running")
    (tmp_path / "enough").touch()
    supervisor.want("run")
    out = finish(process, timeout_s=100)
    done = re.findall(r"rank \d done (\d+)", out)
    assert len(done) == 2 and len(set(done)) == 1
