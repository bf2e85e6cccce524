"""Machines of one's own: each an sshd with host name, home, state, sockets and leases of its own; and a training that
says where it runs, and whether it is alone."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from house import House, sweep, until
from sshd import WHY_NOT, Sshd, client

WHY = WHY_NOT or ("" if os.geteuid() == 0 else "namespaces are made as root")
SOCKETS = f"/tmp/carbontui-{os.getuid()}"
LEASE_S = 120

ALONE = """\
import fcntl, json, os, socket, sys, time
import carbontui
total, pause, common = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
lock = os.open(common + ".lock", os.O_RDWR | os.O_CREAT)
marks = open(common + ".marks", "a", buffering=1)
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    marks.write(f"TWO {socket.gethostname()} {time.time()}\\n")
"""
"""How each training of a move begins: it writes a mark where another one trains."""
TRAIN = (
    ALONE
    + """\
if os.path.exists("broken"):
    print("it is broken here", flush=True)
    sys.exit(3)
state = {"step": 0, "weights": 1}
if os.path.exists("state.json"):
    state = json.load(open("state.json"))
carbontui.report(total=total)

@carbontui.on_checkpoint
def save():
    with open("state.part", "w") as file:
        json.dump(state, file)
    os.replace("state.part", "state.json")

while state["step"] < total:
    if os.path.exists(common + ".end"):
        break
    time.sleep(pause)
    state["step"] += 1
    state["weights"] = (state["weights"] * 6364136223846793005 + state["step"]) % 2**64
    marks.write(f"{socket.gethostname()} {state['step']} {state['weights']} {time.time()}\\n")
    carbontui.step()
"""
)


def weights(step: int) -> int:
    """Those of an undisturbed run after that many steps."""
    value = 1
    for number in range(1, step + 1):
        value = (value * 6364136223846793005 + number) % 2**64
    return value


class Machine:
    """One sshd, and what is below its home."""

    def __init__(self, name: str, root: Path, intensity: int, disk_mb: int = 0) -> None:
        self.name, self.root = name, root / name
        self.home, self.state = self.root / "home", self.root / "state"
        for folder in (self.root, self.home, self.home / "run"):
            folder.mkdir()
        self.disk = self.home / "run" if disk_mb else None
        if self.disk:  # a small disk of its own, which can be full
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={disk_mb}m", "tmpfs", self.disk], check=True)
        base = House(self.root, None).env
        self.env = {
            "CARBONTUI_HOME": str(self.state),
            "CARBONTUI_LEASE_DIR": base["CARBONTUI_LEASE_DIR"],
            "CARBONTUI_OFFLINE": "1",
            "CARBONTUI_INTENSITY": str(intensity),
            "CARBONTUI_ZONE": {"n1": "DE", "n2": "SE-SE3"}.get(name, "FR"),
            "CARBONTUI_LEASE_S": str(LEASE_S + 30 * (name == "n2")),  # each lets the job go by its own
            "HOME": str(self.home),
            "PATH": f"{root}/bin:{Path(sys.executable).parent}:{os.environ['PATH']}",
        }
        ready = self.root / "ready"
        apart = f"hostname {name} && mkdir -p {SOCKETS} && mount -t tmpfs -o mode=700 tmpfs {SOCKETS} && touch {ready}"
        # the namespaces outlive an sshd: a line that is cut is no reboot
        self.kernel = subprocess.Popen(["unshare", "--mount", "--uts", "sh", "-c", f"{apart} && exec sleep 1d"])
        until(ready.exists, 10, "the namespaces")
        self.sshd = Sshd(self.root, self.env, ("nsenter", "--target", str(self.kernel.pid), "--mount", "--uts"))

    def sh(self, *words: object, cwd: Path | None = None, timeout: float = 120.0) -> subprocess.CompletedProcess[str]:
        """A command there, as its user would run it."""
        line = shlex.join(map(str, words))
        return subprocess.run(
            [self.sshd.ssh, "x", f"cd {shlex.quote(str(cwd or self.home))} && {line}"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
        )

    def cli(self, *words: object, **more: object) -> subprocess.CompletedProcess[str]:
        return self.sh(sys.executable, "-m", "carbontui.cli", *words, **more)

    def status(self, job: str) -> dict[str, object]:
        done = self.cli("status", "--json", job)
        with contextlib.suppress(ValueError):
            return json.loads(done.stdout)
        return {}

    def record(self, job: str, name: str) -> dict[str, object]:
        with contextlib.suppress(OSError, ValueError):
            return json.loads((self.state / "jobs" / job / name).read_text())
        return {}

    def pid(self, job: str, role: str) -> int | None:
        entry = (self.record(job, "job.json").get("pids") or {}).get(role)
        return entry[0] if entry else None

    def kill(self, job: str, *roles: str) -> None:
        for role in roles:
            if pid := self.pid(job, role):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def die(self) -> None:
        """As by a power failure: nothing of it is left, nothing answers."""
        self.sshd.stop()
        while sweep(f"CARBONTUI_HOME={self.state}"):
            pass

    def scrap(self) -> None:
        self.die()
        self.kernel.kill()
        self.kernel.wait()
        if self.disk:
            subprocess.run(["umount", "-l", self.disk], check=False)

    def boot(self) -> None:
        if self.sshd.process is None:
            self.sshd.start()


class Machines:
    """`n1`, `n2`, ... that know each other by name, and one job's marks, which all of them write."""

    def __init__(self, root: Path, count: int, disk_mb: int) -> None:
        self.root = root
        self.all = [Machine(f"n{number}", root, 500 // number, disk_mb) for number in range(1, count + 1)]
        client(root / "bin", {machine.name: machine.sshd for machine in self.all})
        (root / "bin" / "carbontui").write_text(f'#!/bin/sh\nexec {sys.executable} -m carbontui.cli "$@"\n')
        (root / "bin" / "carbontui").chmod(0o755)
        self.common = root / "common"

    def start(self, *options: object, steps: int = 100_000, pause: float = 0.02, script: str = TRAIN) -> str:
        """The training in ~/run of the first machine; the job's id."""
        run = self.all[0].home / "run"
        (run / "train.py").write_text(script)
        (run / "data").write_bytes(os.urandom(1 << 18))
        train = (sys.executable, "train.py", steps, pause, self.common)
        done = self.all[0].cli("run", "--detach", "--name", "t", *options, "--", *train, cwd=run)
        assert done.returncode == 0, done.stderr
        job = done.stdout.strip()
        self.until_steps(5)
        return job

    def marks(self) -> list[list[str]]:
        """Host, step, weights, time of every step of any copy; TWO, host, time of one that was not alone."""
        with contextlib.suppress(OSError):
            return [line.split() for line in Path(f"{self.common}.marks").read_text().splitlines()]
        return []

    def until_steps(self, more: int = 5, on: str = "", timeout: float = 120.0) -> None:
        goal = len(self.marks()) + more
        until(
            lambda: len(m := self.marks()) >= goal and (not on or m[-1][0] == on),
            timeout,
            f"{more} more steps {f'on {on}' if on else ''}",
        )

    def check(self) -> None:
        """Never two copies, and every step's weights those of an undisturbed run."""
        marks = self.marks()
        assert not [one for one in marks if one[0] == "TWO"], "two copies"
        known = {}
        for host, step, value, _ in marks:
            assert known.setdefault(int(step), int(value)) == int(value), f"step {step} on {host}"
        last = max(known)
        assert known[last] == weights(last)

    def end(self) -> None:
        for machine in self.all:
            machine.scrap()


@contextlib.contextmanager
def machines(count: int = 2, disk_mb: int = 0):
    with tempfile.TemporaryDirectory(prefix="ct-", dir="/var/tmp") as root:
        made = Machines(Path(root), count, disk_mb)
        try:
            yield made
        finally:
            made.end()
