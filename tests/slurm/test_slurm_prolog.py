"""A site's power limit by prolog and epilog on a real slurmd, with capd below it, on a simulated driver."""

from __future__ import annotations

import os
import stat
import sys
import tempfile
from pathlib import Path

import pytest
from cluster import Cluster, missing
from house import House, until

sys.path.insert(0, str(Path(__file__).parents[1] / "power"))
sys.path.insert(0, str(Path(__file__).parents[1] / "nvmlsim"))
from nvmlsim import Sim, built
from test_capd import Service

from carbontui import link, protocol
from carbontui.job.files import store

pytestmark = [pytest.mark.xdist_group("slurm"), pytest.mark.timeout(200)]

EXAMPLES = Path(__file__).parents[2] / "examples" / "slurm"
SMI = """\
#!{python}
# nvidia-smi of a simulated driver: -i, -pl, --query-gpu=index and power.default_limit
import argparse, pynvml
parser = argparse.ArgumentParser()
parser.add_argument("-i"), parser.add_argument("-pl", type=float)
parser.add_argument("--query-gpu"), parser.add_argument("--format")
asked = parser.parse_args()
pynvml.nvmlInit()
for index in map(int, asked.i.split(",")) if asked.i else range(pynvml.nvmlDeviceGetCount()):
    board = pynvml.nvmlDeviceGetHandleByIndex(index)
    if asked.pl is not None:
        pynvml.nvmlDeviceSetPowerManagementLimit(board, int(asked.pl * 1000))
    elif asked.query_gpu == "index":
        print(index)
    else:
        print(pynvml.nvmlDeviceGetPowerManagementDefaultLimit(board) / 1000)
"""
TRAIN = """\
import time, carbontui
while True:
    time.sleep(0.02)
    carbontui.step()
"""


def hook(name: str, root: Path) -> Path:
    """A script of the examples as an administrator would install it, on this machine's simulated driver."""
    path = root / name
    text = (EXAMPLES / name).read_text().replace("nvidia-smi", str(root / "smi"))
    path.write_text(text.replace("/etc/carbontui/gpu-limit", str(root / "gpu-limit")))
    path.chmod(0o755)
    return path


@pytest.fixture
def site():
    if why := missing():
        pytest.skip(why)
    library = built()
    if library is None:
        pytest.skip("no C compiler (cc): the simulated NVML cannot be built")
    with tempfile.TemporaryDirectory(prefix="ct-", dir="/var/tmp") as folder:
        root = Path(folder)
        sim = Sim(library, root / "nvml.state", 2, frozen=False)
        sim.set("permission", 3)
        (root / "smi.py").write_text(SMI.format(python=sys.executable))
        told = " ".join(f"{name}={value}" for name, value in {**sim.env(), "NVMLSIM_ADMIN": "1"}.items())
        (root / "smi").write_text(f'#!/bin/sh\nexec env {told} {sys.executable} {root}/smi.py "$@"\n')
        (root / "smi").chmod(stat.S_IRWXU)
        (root / "gpu-limit").write_text("400\n")
        hooks = f"Prolog={hook('prolog.sh', root)}\nEpilog={hook('epilog.sh', root)}\nPrologFlags=Alloc\n"
        cluster, house = Cluster(conf=hooks), House(root, None)
        with pytest.MonkeyPatch.context() as patch:
            for name, value in sim.env().items():
                patch.setenv(name, value)
            capd = Service(sim, root)
        try:
            cluster.start()
            yield cluster, house, sim, capd
        finally:
            capd.kill()
            cluster.end()
            house.end()


def test_the_prolog_limits_a_job_through_capd_and_the_epilog_gives_all_back(site):
    cluster, house, sim, capd = site
    limits = lambda: tuple(sim.get("limit_mw", board) / 1000 for board in (0, 1))  # noqa: E731
    (house.root / "train.py").write_text(TRAIN)
    env = {**house.env, **sim.env(), "CARBONTUI_CAPD": str(capd.socket)}
    line = f"{sys.executable} -m carbontui.cli run --work 10h -- {sys.executable} {house.root}/train.py\n"
    job = cluster.submit(line, env=env)
    record = until(lambda: next(house.home.glob("jobs/*/job.json"), None), 60, "the job's directory")
    assert limits() == (400.0, 400.0)

    def status() -> protocol.Status | None:
        try:
            return link.ask(store.load(record.parent).socket, protocol.StatusAsk(1)).status
        except (link.LinkError, AttributeError):
            return None

    first = until(lambda: (s := status()) and s.clients == 1 and s.gpus and s, 60, "the training")
    assert first.gpus[0].limit_w == 400.0
    for board in (0, 1):
        sim.process(store.load(record.parent).pids["child"][0], level=1.0, device=board)
    link.ask(store.load(record.parent).socket, protocol.Cmd(1, "cap", {"value_w": 300.0}), 10.0)
    until(lambda: limits() == (300.0, 300.0), 20, "the job's own limit, below the site's")
    cluster.run("scancel", job)
    until(lambda: limits() == (700.0, 700.0), 60, "the driver's default")
    until(lambda: cluster.state(job) == "CANCELLED", 30, "the end")
    nodes = cluster.run("sinfo", "-h", "-o", "%T").split()
    assert "drained" not in nodes and "draining" not in nodes
    assert os.access(EXAMPLES / "prolog.sh", os.X_OK) and os.access(EXAMPLES / "epilog.sh", os.X_OK)
