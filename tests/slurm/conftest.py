"""A cluster for each way in which Slurm follows the processes of a job, and one of two nodes."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from cluster import Cluster, missing
from house import House


@pytest.fixture(scope="session", params=["linuxproc", "pgid"])
def cluster(request):
    if why := missing():
        pytest.skip(why)
    made = Cluster(request.param, gpus=4)
    try:
        made.start()
        yield made
    finally:
        made.end()


@pytest.fixture
def two_nodes():
    """A cluster of two nodes and a home that both see."""
    if why := missing():
        pytest.skip(why)
    pytest.importorskip("torch")
    made = Cluster(nodes=2)
    with tempfile.TemporaryDirectory(prefix="ct-", dir="/var/tmp") as root:
        house = House(Path(root), None)
        try:
            made.start()
            yield made, house
        finally:
            made.end()
            house.end()
