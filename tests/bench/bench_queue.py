"""The queue page with 10,000 jobs in a real squeue: how long a look takes, and what the terminal is sent.

python tests/bench/bench_queue.py [jobs]      # results/queue.json; as root
"""

from __future__ import annotations

import contextlib
import json
import os
import pty
import select
import statistics
import struct
import sys
import tempfile
import time
from fcntl import ioctl
from pathlib import Path
from termios import TIOCSWINSZ

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent / "slurm")]

from cluster import Cluster, missing

from carbontui import units
from carbontui.extensions.fleet import queue_problem as fleet
from carbontui.extensions.fleet.queue_problem import Assumed
from carbontui.tui.model.lists import QueueList
from carbontui.tui.widgets.site_chart import SiteChart
from carbontui.tui.widgets.tables import QueueTable

QUIET_S, LOOKS = 25.0, 9


def sent(command: list[str], env: dict[str, str]) -> tuple[int, int, int]:
    """Bytes of opening the page, of 25 s of looking on, and of a key down."""
    pid, fd = pty.fork()
    if pid == 0:
        os.execvpe(command[0], command, env)
    ioctl(fd, TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))

    def read(seconds: float) -> int:
        count, due = 0, time.monotonic() + seconds
        while (left := due - time.monotonic()) > 0:
            if select.select([fd], [], [], left)[0]:
                count += len(os.read(fd, 65536))
        return count

    opened = read(20.0)
    quiet = read(QUIET_S)
    os.write(fd, b"j")
    moved = read(2.0)
    os.write(fd, b"q")
    with contextlib.suppress(OSError):  # it is gone
        read(5.0)
    os.close(fd)
    os.waitpid(pid, 0)
    return opened, quiet, moved


def main() -> None:
    jobs = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    if why := missing():
        sys.exit(f"skipped: {why}")
    cluster = Cluster(conf="MaxJobCount=20000\n")
    try:
        cluster.start()
        note = json.dumps({"deadline": units.iso(time.time() + 40_000), "work_s": 3600, "watts": 2800.0})
        for _ in range(jobs // 1000):
            cluster.submit("sleep 1\n", "--array=0-999", "--begin=now+2hours", f"--comment=carbontui:{note}")
        os.environ.update(cluster.env)
        home = tempfile.mkdtemp(prefix="ct-home-")
        os.environ["CARBONTUI_HOME"] = home
        from carbontui.commands.support.queue_watch import QueueWatch

        took, drew = [], []
        table, chart, listed = QueueTable(), SiteChart(), QueueList()
        with QueueWatch([fleet.parse("2MW")], None, None, Assumed(0.0, 0.0)) as watch:
            for _ in range(LOOKS):
                began = time.perf_counter()
                seen = watch.look()
                took.append(time.perf_counter() - began)
                began = time.perf_counter()
                listed = listed.looked(seen)
                table.listed, chart.seen = listed, seen
                table.draw(120, 28)
                chart.draw(120, 10)
                drew.append(time.perf_counter() - began)
        env = {**os.environ, "TERM": "xterm-256color", "CARBONTUI_HOME": home}
        page = [sys.executable, "-m", "carbontui.cli", "fleet", "--look", "--cap", "2MW"]
        opened, quiet, moved = sent(page, env)
        found = {
            "machine": "2 shared vCPU, Linux",
            "date": "2026-11-22",
            "jobs_in_squeue": len(seen.jobs),
            "look_s": {"median": round(statistics.median(took), 3), "max": round(max(took), 3)},
            "draw_s": {"median": round(statistics.median(drew), 4), "max": round(max(drew), 4)},
            "bytes_120x40": {"opening": opened, "looking_on_per_s": round(quiet / QUIET_S, 1), "key_down": moved},
            "load_average": [round(value, 1) for value in os.getloadavg()],
        }
        (HERE / "results" / "queue.json").write_text(json.dumps(found, indent=2) + "\n")
        print(json.dumps(found, indent=2))
    finally:
        cluster.end()


if __name__ == "__main__":
    main()
