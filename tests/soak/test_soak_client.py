"""The training side under long disturbance. The short forms of these are in tests/client."""

from __future__ import annotations

import pytest
from ddp_job import agree
from disturbed import disturb
from kill_checkpoint import kills
from later import needs

pytestmark = needs("torch")


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_120_kills_of_the_supervisor_and_5_unloads(supervisor, launch, finish, tmp_path):
    disturb(supervisor, launch, finish, tmp_path, steps=14_000, unloads=5, pauses=4, kills=20)


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_200_kills_while_saving(tmp_path):
    assert kills(tmp_path, 200, seed=7) == 200


@pytest.mark.soak
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("agents", "per_agent", "adverse"), [(1, 2, False), (1, 4, False), (2, 1, True), (2, 2, True)])
def test_100_distributed_pauses(supervisor, launch, finish, tmp_path, agents, per_agent, adverse):
    aborted = agree(
        supervisor, launch, finish, tmp_path, agents=agents, per_agent=per_agent, rounds=100, adverse=adverse
    )
    print(f"{agents} x {per_agent}, adverse {adverse}: {aborted} proposals aborted")
