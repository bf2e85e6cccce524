"""A cluster for each way in which Slurm follows the processes of a job."""

from __future__ import annotations

import pytest
from cluster import Cluster, missing


@pytest.fixture(scope="session", params=["linuxproc", "pgid"])
def cluster(request):
    if why := missing():
        pytest.skip(why)
    made = Cluster(request.param)
    try:
        made.start()
        yield made
    finally:
        made.end()
