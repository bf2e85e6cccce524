"""A cluster for each way in which Slurm follows the processes of a job, one of a newer Slurm, and one of two nodes."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

import pytest
from cluster import Cluster, Trixie, missing, no_trixie
from house import House


@pytest.fixture(scope="session")
def trixie():
    """The folder of the commands of Slurm 24.11."""
    if why := no_trixie():
        pytest.skip(why)
    try:
        made = Trixie()
    except (OSError, subprocess.SubprocessError) as error:
        pytest.skip(f"Slurm 24.11 cannot be had here: {error}")
    yield made.path
    made.end()


@pytest.fixture(scope="session", params=["linuxproc", "pgid", "24.11"])
def cluster(request):
    if why := missing():
        pytest.skip(why)
    newer = request.param == "24.11"
    kind, commands = ("linuxproc", request.getfixturevalue("trixie")) if newer else (request.param, None)
    made = Cluster(kind, gpus=4, commands=commands)
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
