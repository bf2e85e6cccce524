"""A house of its own for every test that starts real processes: state, sockets and leases in temporary directories."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import msgspec

from carbontui import link, protocol
from carbontui.commands.support import talk
from carbontui.job.files import store

SCRIPT = """\
import os, sys, time
import carbontui
total, pause, code = int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
done = open(sys.argv[4], "a", buffering=1)
for i in range(total):
    if os.path.exists(sys.argv[4] + ".end"):
        break
    time.sleep(pause)
    done.write(f"{i + 1} {time.monotonic()}\\n")
    carbontui.step()
print("finished", flush=True)
sys.exit(code)
"""


def until(predicate, timeout=60.0, what="the condition", every=0.02):
    """Poll until true; the value. A clear failure names what was waited for. Where it starts a process, seldom."""
    due = time.monotonic() + timeout
    while time.monotonic() < due:
        value = predicate()
        if value:
            return value
        time.sleep(every)
    raise AssertionError(f"{what} did not come about within {timeout} s")


NOBODY = 65534


@contextlib.contextmanager
def ordinary_user():
    """Runs as a user whom permissions stop: as root, as uid 65534. What is needed inside must be loaded before, for the
    interpreter itself may lie where only root may look."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


def sweep(mark: str) -> list[int]:
    """Kill every process with `mark` (NAME=value) in its environment, whatever session or parent it has by now.

    torchrun's ranks have sessions of their own: neither the death of torchrun nor a signal to its group reaches them.
    """
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if int(entry.name) != os.getpid() and os.fsencode(mark) in (entry / "environ").read_bytes().split(b"\0"):
                os.kill(int(entry.name), signal.SIGKILL)
                found.append(int(entry.name))
    return found


class House:
    """Runs the real command line in a private state directory."""

    prefix = ()
    """What the command line is started by."""
    python = sys.executable
    """What runs the script."""

    def __init__(self, root: Path, runtime: Path | None) -> None:
        self.root = root
        self.home = root / "home"
        self.module = "carbontui"
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("CARBONTUI_")}
        self.env |= {
            "CARBONTUI_HOME": str(self.home),
            "CARBONTUI_LEASE_DIR": str(root / "leases"),
            "CARBONTUI_OFFLINE": "1",
        }
        self.env.pop("XDG_RUNTIME_DIR", None)
        if runtime is not None:
            self.env["XDG_RUNTIME_DIR"] = str(runtime)
        self.script = root / "train.py"
        self.script.write_text(SCRIPT)

    def cli(self, *args, timeout=60.0, check=False, **kwargs):
        """`carbontui ARGS`; the finished process with text output."""
        command = [*self.prefix, sys.executable, "-m", self.module, *map(str, args)]
        done = subprocess.run(
            command,
            env=self.env,
            cwd=kwargs.pop("cwd", self.root),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
            **kwargs,
        )
        if check:
            assert done.returncode == 0, done.stderr + done.stdout
        return done

    def start(self, *options, steps=100_000, pause=0.01, code=0, name="t"):
        """Start the stock script detached; its Job. It ends after `steps`, or when `let_end` is called."""
        marks = self.root / f"{name}.steps"
        command = [self.python, self.script, steps, pause, code, marks]
        done = self.cli("run", "--detach", "--name", name, *options, "--", *command, check=True)
        return Job(self, done.stdout.strip(), marks)

    def dirty_now(self):
        """Options under which any plan waits: a recorded grid, dirty for ten more hours and clean for a day then,
        and a machine that is given back meanwhile, whatever others have it draw."""
        now = time.time() // 900 * 900
        clock = lambda at: time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))  # noqa: E731
        rows = [f"{clock(now + 900 * k)},{700 if k < 40 else 50}\n" for k in range(-96, 192)]
        (self.root / "grid.csv").write_text("time_utc,carbon_g_per_kwh\n" + "".join(rows))
        return "--zone", "DE", "--grid", self.root / "grid.csv", "--boundary", "given-back"

    def end(self):
        """Kill what is left of every job started here, by pid."""
        for record in self.home.glob("jobs/*/job.json"):
            with contextlib.suppress(ValueError, OSError):
                pids = json.loads(record.read_text())["pids"]
                for role in ("keeper", "supervisor", "child"):
                    if pids.get(role):
                        with contextlib.suppress(ProcessLookupError, PermissionError):
                            os.killpg(pids[role][0], signal.SIGKILL)
        sweep(f"CARBONTUI_HOME={self.home}")


class Job:
    """One detached job of a House."""

    def __init__(self, house: House, job_id: str, marks: Path) -> None:
        self.house, self.id, self.marks = house, job_id, marks
        self.dir = house.home / "jobs" / job_id

    def status(self):
        """What `carbontui status --json` prints, without the third of a second a new process takes to say it."""
        found = store.load(self.dir)
        return json.loads(msgspec.json.encode(talk.live_status(found))) if found else {}

    def tell(self, verb):
        """A verb's answer, without the third of a second a new process takes to ask."""
        return talk.ask(store.load(self.dir), protocol.Cmd(1, verb, {}), protocol.Result).text

    def served(self):
        """The status as a supervisor gives it now; None while none answers. `status` would fall back on the files."""
        try:
            return link.ask(store.load(self.dir).socket, protocol.StatusAsk(1)).status
        except link.LinkError:
            return None

    def until_connected(self, timeout=60.0):
        """Until a supervisor that answers is in touch with the training."""
        return until(lambda: (s := self.served()) and s.clients and s, timeout, "the training's connection")

    def snapshot(self):
        try:
            return json.loads((self.dir / "snapshot.json").read_text())
        except (OSError, ValueError):
            return {}

    def pids(self):
        record = json.loads((self.dir / "job.json").read_text())["pids"]
        return {role: entry[0] if entry else None for role, entry in record.items()}

    def steps(self):
        """Steps the script itself has counted."""
        try:
            return len(self.marks.read_text().splitlines())
        except OSError:
            return 0

    def gaps(self):
        """Seconds between consecutive steps, as the script saw them."""
        times = [float(line.split()[1]) for line in self.marks.read_text().splitlines()]
        return [b - a for a, b in zip(times, times[1:], strict=False)]

    def let_end(self):
        """Let the script end in its own way at its next step."""
        Path(f"{self.marks}.end").touch()

    def until_over(self, timeout=60.0):
        """Until supervisor and keeper have left, too: nobody writes to the job's files any more."""
        until(lambda: not store.load(self.dir).live, timeout, "the keeper's leaving")

    def until_steps(self, more=5, timeout=60.0):
        goal = self.steps() + more
        until(lambda: self.steps() >= goal, timeout, f"step {goal}")

    def until_state(self, *states, timeout=60.0):
        return until(lambda: (s := self.status()).get("state") in states and s, timeout, f"state {states}")

    def until_exit(self, timeout=60.0):
        until(lambda: (self.dir / "exit.json").exists(), timeout, "exit.json")
        return json.loads((self.dir / "exit.json").read_text())

    def connect(self, role="viewer", **fields):
        """A raw connection to job.sock, hello said and welcome read."""
        path = json.loads((self.dir / "job.json").read_text())["socket"]
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(10)
        connection.connect(path)
        hello = {"t": "hello", "v": 1, "version": "0", "role": role, "pid": os.getpid(), **fields}
        connection.sendall(json.dumps(hello).encode() + b"\n")
        lines = connection.makefile("rb")
        assert json.loads(lines.readline())["t"] == "welcome"
        return connection, lines
