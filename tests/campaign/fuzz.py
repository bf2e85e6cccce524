"""Lines that no honest peer sends, at both ends of the wire."""

from __future__ import annotations

import contextlib
import json
import random
import socket
import statistics
import time
from dataclasses import dataclass, field

from house import Job

from carbontui.client.pausing import wire

NUMBERS = [0, -1, 1, 2**31, 2**53, 2**63 - 1, -(2**63), 2**64, 10**30, 1e300, -1e300, 1e-300, 1e999, True, None]
TEXTS = [
    "",
    "x",
    "3_0_0",
    "nan",
    "-inf",
    "\x1b[2J",
    "\u202e",
    "\ud800",
    "a" * 5000,
    "0001-01-01T00:00:00Z",
    "2300-01-01",
]
OTHER = [[], {}, [[]], {"a": {}}, [None] * 50]
KINDS = ["hello", "obs", "ack", "view", "cmd", "preview", "status", "log.read", "history", "jobs", "abilities", "want"]
VERBS = ["pause", "boost", "cap", "resume", "budget", "calibrate", "fly"]
FIELDS = [
    *("id", "verb", "args", "override_gen", "budget", "carbon_price", "offset", "max", "span", "buckets", "rate_hz"),
    *("step", "state", "want_gen", "rate", "loss", "epoch", "total", "devices", "calls", "start_step", "timed", "v"),
    *("metrics", "guess", "cannot_hold", "start_known", "saved_b", "data_order", "trial", "captured", "can_unload"),
]
ARGS = ["value_w", "until", "for_s", "budget", "show", "now"]


def value(dice: random.Random) -> object:
    return dice.choice(dice.choice([NUMBERS, TEXTS, OTHER]))


def rank(dice: random.Random) -> dict[str, object]:
    """Who says hello as a training process of the job."""
    return {
        "role": "rank",
        "rank": dice.randrange(9),
        "world": 9,
        "host": dice.choice(["x", "\x1b[2J", "a" * 300]),
        "start_time": 1,
    }


def message(dice: random.Random) -> bytes:
    """One line: an almost right message, garbage, or a cut-off one. Never a stop, and never a real override."""
    if dice.random() < 0.1:
        return dice.randbytes(dice.randrange(200)).replace(b"\n", b" ") + b"\n"
    said: dict[str, object] = {"t": dice.choice(KINDS)}
    if dice.random() < 0.5:  # what a training says, wrong in few of its fields
        said = {"t": "obs", "step": 1, "state": "running", "want_gen": 0}
    for name in dice.sample(FIELDS, dice.randrange(6)):
        said[name] = value(dice)
    if said["t"] == "cmd":
        said |= {"id": 1, "verb": dice.choice(VERBS), "args": {name: value(dice) for name in dice.sample(ARGS, 2)}}
        said["override_gen"] = 10**9  # never the one in force: every order is refused
    line = json.dumps(said).encode()
    return (line[: dice.randrange(len(line))] if dice.random() < 0.1 else line) + b"\n"


@dataclass
class Found:
    """What a fuzz has counted."""

    lines: int = 0
    client_lines: int = 0
    statuses_s: list[float] = field(default_factory=list)
    """How long each answer took, amid the flood."""
    faults: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    log_b: int = 0

    @property
    def median_status_s(self) -> float:
        return statistics.median(self.statuses_s)

    @property
    def slowest_status_s(self) -> float:
        return max(self.statuses_s)


def supervisor(job: Job, seconds: float, seed: int, found: Found) -> None:
    """Lines at job.sock for some time; the supervisor answers as ever, logs little and changes nothing."""
    dice = random.Random(seed)
    before, pid = told(job), job.status()["pids"]["supervisor"]
    logged = (job.dir / "carbontui.log").stat().st_size
    due = time.monotonic() + seconds
    while time.monotonic() < due:
        connection, _ = job.connect(**(rank(dice) if dice.random() < 0.5 else {}))
        with connection, contextlib.suppress(OSError):
            connection.settimeout(5)
            for _ in range(90):
                line = message(dice)
                connection.sendall(line)
                found.lines += 1
            connection.shutdown(socket.SHUT_RDWR)
        begun = time.monotonic()
        assert job.served() is not None
        found.statuses_s.append(time.monotonic() - begun)
    log = (job.dir / "carbontui.log").read_text(errors="replace")
    found.log_b = len(log) - logged
    found.faults += [line for line in log.splitlines() if "Traceback" in line or "error in" in line or "Error" in line]
    after = told(job)
    found.changed += [f"{name}: {before[name]} -> {after[name]}" for name in before if before[name] != after[name]]
    if job.status()["pids"]["supervisor"] != pid:
        found.faults.append("the supervisor was replaced")


def told(job: Job) -> dict[str, object]:
    """What a refused order must leave as it is."""
    status = job.status()
    kept = {name: status[name] for name in ("override", "override_gen", "name")}
    # the factor follows the total that a rank tells, which is no order
    return kept | {name: status["budget"][name] for name in ("start", "deadline")}


def client(seconds: float, seed: int, found: Found) -> None:
    """Lines of a hostile supervisor to the training's end: understood or refused, never anything else."""
    dice = random.Random(seed)
    due = time.monotonic() + seconds
    names = ("mode", "want_gen", "lease_s", "duty", "checkpoint", "not_before", "v")
    while time.monotonic() < due:
        for _ in range(200):
            said = {"t": dice.choice(["want", "welcome", "x"]), "mode": dice.choice(["run", "pause", "unload", 3])}
            said |= {name: value(dice) for name in dice.sample(names, 4)}
            line = json.dumps(said).encode() if dice.random() < 0.9 else dice.randbytes(100)
            found.client_lines += 1
            try:
                got = wire.decode(line)
            except wire.BadLine:
                continue
            except Exception as error:
                found.faults.append(f"client: {type(error).__name__} on {line[:80]!r}")
                continue
            if isinstance(got, wire.DesiredLine) and not 0 < got.lease_s <= wire.LEASE_MAX_S:
                found.faults.append(f"client: a lease of {got.lease_s}")
