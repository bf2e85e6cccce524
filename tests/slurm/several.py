"""A training on several nodes of a real Slurm, under carbontui; every rank writes down each step it ends."""

from __future__ import annotations

import os
import sqlite3
import sys
from pathlib import Path

from cluster import SOCKETS, Cluster, free_port
from house import House, sweep, until

from carbontui import link, protocol
from carbontui.job.files import store

TRAIN = """\
import os, sys, time, torch
import torch.distributed as dist
os.environ["RANK"], os.environ["WORLD_SIZE"] = os.environ["SLURM_PROCID"], os.environ["SLURM_NTASKS"]
os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", sys.argv[2]
torch.set_num_threads(1)
dist.init_process_group("gloo")
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
marks = open(f"{sys.argv[1]}.{dist.get_rank()}", "a", buffering=1)
step, end = 0, torch.zeros(1)
while True:
    loss = model(torch.randn(8, 4)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
    if dist.get_rank() == 0:
        end.fill_(os.path.exists(sys.argv[1] + ".end"))
    dist.broadcast(end, 0)
    time.sleep(0.02)
    step += 1
    marks.write(f"{step} {time.monotonic()}\\n")
    optimizer.step()
    if end.item():
        break
dist.barrier()
dist.destroy_process_group()
"""


class Several:
    """One sbatch job with a rank on each node of the cluster."""

    def __init__(
        self, cluster: Cluster, house: House, *options: str, script: str = TRAIN, command: str = "", run: str = ""
    ) -> None:
        """`script` is written to ranks.py, `command` starts it on each node; `run`: more options of carbontui's."""
        self.cluster, self.house = cluster, house
        self.root = house.root
        (self.root / "ranks.py").write_text(script)
        for mark in self.root.glob("marks.*"):
            mark.unlink()
        self.mark = f"CARBONTUI_TEST={self.root}"
        command = command or f"{sys.executable} {self.root}/ranks.py {self.root}/marks {free_port()}"
        line = f"{sys.executable} -m carbontui.cli run --work 10h {run} -- srun --overlap {command}\n"
        nodes = len(cluster.names)
        env = {**house.env, "CARBONTUI_TEST": str(self.root), "GLOO_SOCKET_IFNAME": "lo"}
        before = set(self._dirs())
        self.id = cluster.submit(line, f"--nodes={nodes}", "--ntasks-per-node=1", "--export=ALL", *options, env=env)
        self.dir = until(lambda: next(iter(set(self._dirs()) - before), None), 60, "the job's directory")

    def _dirs(self) -> list[Path]:
        return [record.parent for record in (self.house.home / "jobs").glob("*/job.json")]

    def served(self) -> protocol.Status | None:
        """The status as the supervisor gives it now; None while none answers."""
        try:
            return link.ask(store.load(self.dir).socket, protocol.StatusAsk(1)).status
        except (link.LinkError, AttributeError):
            return None

    def until_all(self, timeout: float = 120.0) -> protocol.Status:
        nodes = len(self.cluster.names)
        return until(lambda: (s := self.served()) and s.clients == nodes and s, timeout, "all ranks")

    def tell(self, verb: str) -> str:
        return link.ask(store.load(self.dir).socket, protocol.Cmd(1, verb, {}), 10.0).text

    def steps(self) -> list[int]:
        """Steps that each rank has ended."""
        return [len(path.read_bytes().splitlines()) for path in sorted(self.root.glob("marks.[0-9]*"))]

    def gaps(self, rank: int = 0) -> list[tuple[float, float]]:
        """(monotonic time, seconds) between consecutive steps of a rank."""
        times = [float(line.split()[1]) for line in (self.root / f"marks.{rank}").read_text().splitlines()]
        return [(a, b - a) for a, b in zip(times, times[1:], strict=False)]

    def pid(self, role: str) -> int:
        return store.load(self.dir).pids[role][0]

    def node_agents(self, name: str) -> list[int]:
        """Pids of our agents on a node."""
        found = []
        for pid in self.cluster.processes_of(name):
            try:
                if b"carbontui.nodes.node" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    found.append(pid)
            except OSError:
                pass
        return found

    def left_over(self) -> list[int]:
        """Processes of the job that are still there."""
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                if os.fsencode(self.mark) in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except OSError:
                pass
        return found

    def let_end(self) -> None:
        (self.root / "marks.end").touch()

    def until_over(self, timeout: float = 60.0) -> str:
        over = until(
            lambda: (s := self.cluster.state(self.id)) not in ("RUNNING", "COMPLETING", "PENDING") and s,
            timeout,
            "the end of the job",
        )
        until(lambda: not self.left_over(), 30, "the end of all its processes")
        return over

    def counted_s(self) -> dict[str, tuple[float, float]]:
        """Of each metered device: seconds counted, and seconds between its first and last row."""
        rows = sqlite3.connect(self.dir / "journal.db").execute("select device, t0, t1 from energy").fetchall()
        found: dict[str, list[tuple[float, float]]] = {}
        for device, t0, t1 in rows:
            found.setdefault(device, []).append((t0, t1))
        return {
            device: (sum(b - a for a, b in spans), max(b for _, b in spans) - min(a for a, _ in spans))
            for device, spans in found.items()
        }

    def end(self) -> None:
        self.cluster.run("scancel", self.id, check=False)
        sweep(self.mark)


__all__ = ["SOCKETS", "Several"]
