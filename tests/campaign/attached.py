"""A long training that prints 200 lines a second, its screen attached in a pty: what each process grows by.

python tests/campaign/attached.py [MINUTES] [FILE.csv]
"""

from __future__ import annotations

import fcntl
import os
import pty
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parent)]
from house import House, Job, until
from kills import simulated_boards

LINES_PER_S = 200
EVERY_S = 30.0
WARM_MIN = 10.0
ROLES = ("keeper", "supervisor", "agent", "worker", "screen")
TRAINING = """\
import sys, time
import carbontui
due = time.monotonic()
for i in range(10**9):
    print(f"step {i} loss {2.5 / (1 + i / 1000):.4f} lr 3.0e-04 tok/s 51234", flush=True)
    carbontui.step()
    due += 1 / float(sys.argv[1])
    time.sleep(max(0.0, due - time.monotonic()))
"""


def screen(house: House, job: str) -> subprocess.Popen[bytes]:
    """`attach` on a terminal of its own, whose output is read and left out."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 140, 0, 0))
    shown = subprocess.Popen(
        [sys.executable, "-m", "carbontui.cli", "attach", job],
        env=house.env | {"TERM": "xterm-256color"},
        cwd=house.root,
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
    )
    os.close(slave)

    def drain() -> None:
        while True:
            try:
                if not os.read(master, 65536):
                    return
            except OSError:
                return

    threading.Thread(target=drain, daemon=True).start()
    return shown


def pids(job: Job, shown: int) -> dict[str, int]:
    """Of each role; the worker is the supervisor's other child."""
    status = until(job.served, 90, "a supervisor")
    some = {"keeper": status.pids.keeper, "supervisor": status.pids.supervisor, "agent": status.pids.agent}
    children = Path(f"/proc/{some['supervisor']}/task/{some['supervisor']}/children").read_text().split()
    for child in map(int, children):
        if b"worker" in Path(f"/proc/{child}/cmdline").read_bytes():
            some["worker"] = child
    return {role: pid for role, pid in (some | {"screen": shown}).items() if pid}


def sizes(pid: int) -> tuple[int, int]:
    """(resident, proportional) kB of a process; (0, 0) where it is gone."""
    try:
        facts = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:])
    except OSError:
        return 0, 0
    return int(facts["Rss"].split()[0]), int(facts["Pss"].split()[0])


def run(house: House, minutes: float, to: Path) -> dict[str, tuple[int, int, int]]:
    """role -> (resident kB in the tenth minute, at the end, at most after the tenth minute)."""
    sim = simulated_boards(house, 1)
    house.script.write_text(TRAINING)
    command = [sys.executable, house.script, LINES_PER_S]
    known = ("--budget", "20h", "--work", "10h", "--zone", "DE")
    started = house.cli("run", "--detach", *known, "--", *command, check=True)
    job = Job(house, started.stdout.strip(), house.root / "none")
    job.tell("boost")  # the plan would have it wait
    until(lambda: job.pids()["child"], 60, "the training")
    if sim is not None:
        sim.process(job.pids()["child"], level=0.9)
    shown = screen(house, job.id)
    begun, warm, last, most = time.monotonic(), {}, {}, {}
    with to.open("w", buffering=1) as out:
        out.write("minute,role,pid,rss_kb,pss_kb\n")
        while (minute := (time.monotonic() - begun) / 60) < minutes + 0.05:
            for role, pid in pids(job, shown.pid).items():
                rss, pss = sizes(pid)
                out.write(f"{minute:.2f},{role},{pid},{rss},{pss}\n")
                last[role] = rss
                if minute >= min(WARM_MIN, minutes / 3):
                    warm.setdefault(role, rss)
                    most[role] = max(rss, most.get(role, 0))
            time.sleep(EVERY_S)
    shown.kill()
    shown.wait()
    return {role: (warm.get(role, 0), last[role], most.get(role, 0)) for role in ROLES if role in last}


def main() -> None:
    minutes = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    to = Path(sys.argv[2]) if len(sys.argv) > 2 else Path("attached.csv")
    root, runtime = Path(tempfile.mkdtemp(prefix="cta-")), Path(tempfile.mkdtemp(prefix="ct-"))
    house = House(root, runtime)
    try:
        for role, (warm, end, most) in run(house, minutes, to).items():
            print(f"{role}: {warm} kB in minute 10, {end} at the end ({end - warm:+d}), at most {most}", flush=True)
    finally:
        house.end()
        for folder in (root, runtime):
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
