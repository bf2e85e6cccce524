"""One job on two nodes of a real Slurm: both stop at one step, and what falls silent is said."""

from __future__ import annotations

import os
import signal

import pytest
from house import until
from several import Several

pytestmark = [pytest.mark.xdist_group("slurm"), pytest.mark.timeout(400)]


@pytest.fixture
def job(two_nodes):
    made = Several(*two_nodes)
    made.until_all()
    yield made
    made.end()


def test_two_nodes_stop_at_one_step_whatever_of_ours_dies_and_a_lost_node_is_said(job):
    assert "paused at step" in job.tell("pause") or until(lambda: job.served().state == "paused", 10)
    held = job.steps()
    assert held[0] == held[1] > 0
    # until the job's part of its machines is known, its watts are not
    status = until(lambda: (s := job.served()) and s.power_w is not None and s, 20, "the watts of both nodes")
    assert {"n1", "n2"} >= {gpu.node for gpu in status.gpus}

    # a supervisor that is killed while they stand: its successor takes the pause over, no step in between
    before = job.pid("supervisor")
    os.kill(before, signal.SIGKILL)
    until(lambda: job.pid("supervisor") != before and (s := job.served()) and s.clients == 2, 14, "a successor")
    assert job.served().state == "paused" and job.steps() == held

    # the agent of the other node is killed: another comes
    # while it starts a process of its own, that one looks like a second agent
    (agent,) = until(lambda: len(now := job.node_agents("n2")) == 1 and now, 15, "its agent")
    job.cluster.signal([agent], signal.SIGKILL)
    until(lambda: (now := job.node_agents("n2")) and now != [agent], 15, "another agent")
    until(lambda: job.served().clients == 2, 10, "both ranks")
    assert job.steps() == held
    job.tell("resume")
    until(lambda: min(job.steps()) > max(held) + 5, 10, "steps on both nodes")

    # the other node falls silent: said, and the sum of watts is not shown without it
    frozen = job.cluster.freeze("n2")
    status = until(lambda: (s := job.served()) and "silent: n2" in s.reason.text and s, 10, "word of the silent node")
    assert status.power_w is None and status.provenance["power_w"].source == "unknown: n2"
    assert any("silent: n2" in notice for notice in status.notices)
    assert "silent: n2" in job.tell("pause")
    job.tell("resume")
    job.cluster.signal(frozen, signal.SIGCONT)
    until(lambda: (s := job.served()) and "silent" not in s.reason.text and s.clients == 2, 60, "the node's return")

    job.cluster.run("scancel", job.id)
    job.until_over()
    assert job.left_over() == []
    counted = job.counted_s()
    assert {"cpu", "cpu@n2"} <= set(counted)
