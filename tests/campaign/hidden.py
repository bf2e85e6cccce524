"""Every verb on a job whose processes cannot be seen: right, or refused with the reason."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field

from house import House, Job, until
from kills import simulated_boards

from carbontui.system import proc

NAMESPACE = ("unshare", "-p", "-f", "--mount-proc")
HOSTNAME = ("unshare", "-u", "sh", "-c", 'hostname other; exec "$@"', "sh")
WAYS: dict[str, tuple[str, ...]] = {"namespace": NAMESPACE, "hostname": HOSTNAME, "damaged": ()}
LIE = re.compile(r"is over|\blost\b|doctor --(mend|repair)")
"""What nobody may say of a job that lives, nor of its cap."""
ATTACHED_S = 4.0


@dataclass
class Found:
    """What the verbs have answered."""

    tried: int = 0
    faults: list[str] = field(default_factory=list)


def possible() -> bool:
    """Whether this user may make a pid namespace."""
    return subprocess.run([*NAMESPACE, "true"], capture_output=True, check=False).returncode == 0


def run(house: House, found: Found) -> None:
    """Each verb in each way, on a job under a cap: stop and rm last."""
    sim = simulated_boards(house, 1)
    for way, prefix in WAYS.items():
        job = house.start("--intensity", "300", "--work", "10h", "--budget", "20h", name=way)
        job.tell("boost")
        job.until_connected()
        if sim is not None:
            sim.process(job.pids()["child"], level=0.9)
            until(lambda job=job: house.cli("cap", "300W", job.id).returncode == 0, what="the cap", every=0.5)
        child = job.pids()["child"]
        house.prefix = prefix
        for verb, right in _verbs(job):
            _ask(house, job, way, verb, right, found)
        if proc.start_time(child) is not None:
            found.faults.append(f"{way}, stop: the training lives on")
        house.prefix = ()


def _verbs(job: Job) -> list[tuple[tuple[str, ...], Callable[[int, str], bool]]]:
    """Each verb, and whether its exit code and text are right."""
    live = ("running", "throttled", "waiting", "paused", "pausing", "starting")

    def lists(code: int, text: str) -> bool:
        return code == 0 and job.id in text

    return [
        (("ls",), lists),
        (("ls", "--json"), lambda code, text: any(s["state"] in live for s in json.loads(text) if s["job"] == job.id)),
        (("status", job.id), lists),
        (("status", "--json", job.id), lambda code, text: json.loads(text)["state"] in live),
        (("line",), lambda code, text: code == 0 and text != ""),
        (("log", job.id), lambda code, text: code == 0),
        (("pause", job.id), lambda code, text: code == 0 and "paus" in text),
        (("resume", job.id), lambda code, text: code == 0),
        (("boost", job.id), lambda code, text: code == 0 and "full speed" in text),
        (("budget", "30h", job.id), lambda code, text: code == 0 and "30h" in text),
        (("attach", "--readonly", job.id), lambda code, text: "boost" in text),
        (("doctor",), lambda code, text: "-pl" not in text),
        (("rm", job.id), lambda code, text: code == 2 and "is running" in text),
        (("restart", job.id), lambda code, text: code == 1 and "is running" in text),
        (("stop", "--yes", "--now", job.id), lambda code, text: code == 0 and "stopped" in text),
        (("rm", job.id), lambda code, text: code == 0 and "forgot" in text),
    ]


def _ask(
    house: House, job: Job, way: str, verb: tuple[str, ...], right: Callable[[int, str], bool], found: Found
) -> None:
    if way == "damaged" and (job.dir / "job.json").exists():
        (job.dir / "job.json").write_text("{")
    found.tried += 1
    limit = ("timeout", "-s", "INT", str(ATTACHED_S)) if verb[0] == "attach" else ()
    house.prefix, kept = (*house.prefix, *limit), house.prefix
    done = house.cli(*verb)
    house.prefix = kept
    text = done.stdout if "--json" in verb else done.stdout + done.stderr
    with contextlib.suppress(ValueError):
        if right(done.returncode, text) and not LIE.search(text):
            return
    found.faults.append(f"{way}, {' '.join(verb)}: exit {done.returncode}: {text.strip()[:300]}")
