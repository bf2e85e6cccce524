"""One job in a few words, for a status bar that polls every few seconds: from a Status as JSON, standard library only.

`carbontui line` is answered by this module if possible (`quickly`), before the command line is even loaded, and by the
verb of that name otherwise; both give the same text.
"""

import json
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from carbontui import paths, units
from carbontui.system import life, local_socket
from carbontui.text import figures

SHAPES = {
    "starting": "◌",
    "waiting": "○",
    "running": "▶",
    "throttled": "◐",
    "pausing": "◑",
    "paused": "‖",
    "unloaded": "△",
    "done": "✓",
    "failed": "✗",
    "stopped": "■",
    "lost": "?",
}
"""A symbol for each state of a job, also used on the screen: `tui.glyphs`."""
OVER = frozenset({"done", "failed", "stopped", "lost"})
_CHANGES = {"pause": "‖", "off": "‖", "unload": "△", "full": "▶"}
ANSWER_S = 1.0
LINE_MAX = 1 << 20


def words(status: Mapping[str, Any]) -> str:
    """'▶ 31% 246W ‖17:30 −9%': state, progress, watts, the next change and when, CO2 at the end against run-now."""
    state = status["state"]
    parts = [SHAPES[state]]
    if status.get("steps_total"):
        parts.append(_percent(min(1.0, status["step"] / status["steps_total"])))
    elif status.get("work_total_s"):
        parts.append(_percent(min(1.0, status["work_done_s"] / status["work_total_s"])))
    if state in OVER:
        return " ".join((*parts, state))
    if status.get("power_w") is not None:
        parts.append(figures.tight(figures.watts(status["power_w"])))
    upcoming = status.get("next")
    if upcoming is not None:
        when = figures.clock(units.from_iso(upcoming["at"]), units.from_iso(status["measured_at"]))
        parts.append(f"{_CHANGES.get(upcoming['level'], '◐')}{when}")
    end = status.get("at_end") or {}
    if end.get("avoided_g") is not None and end.get("run_now_g"):
        parts.append(figures.signed(-end["avoided_g"] / end["run_now_g"], _percent))
    return " ".join(parts)


def _percent(share: float) -> str:
    return figures.tight(figures.percent(share))


def quickly(arguments: list[str]) -> str | None:
    """What `carbontui line` prints for these arguments; None if only the verb itself can answer."""
    if arguments:
        return None
    try:
        live = _live()
        if not live:
            return ""
        more = f" +{len(live) - 1}" if len(live) > 1 else ""
        return words(asked(live[0])) + more
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def _live() -> list[str]:
    """Sockets of the live jobs of this machine, newest first."""
    found: list[tuple[float, str]] = []
    jobs = paths.jobs_dir()
    for name in os.listdir(jobs) if jobs.is_dir() else ():  # noqa: PTH208 - a Path for each is half the time
        if Path(jobs, name, "exit.json").exists():
            continue  # it has ended: of thousands of jobs only those that live are read
        try:
            record = json.loads(Path(jobs, name, "job.json").read_bytes())
        except (OSError, ValueError):
            if life.is_locked(Path(jobs, name, life.LOCK)):
                raise
            continue
        place, pids = life.HostIdentity.of(record), record.get("pids", {})
        sockets = (record["socket"], record.get("door"))
        if life.judge(Path(jobs, name), place, pids.values(), sockets, ended=False).state == "alive":
            found.append((-float(record["started"]), str(record["socket"])))
    return [path for _, path in sorted(found)]


def asked(path: str) -> dict[str, Any]:
    """The Status from the supervisor at a socket. Raises OSError or ValueError."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(ANSWER_S)
        sock.connect(path)
        if local_socket.peer_uid(sock) != os.getuid():
            raise PermissionError(path)
        hello = {"t": "hello", "v": 1, "version": "line", "role": "viewer", "pid": os.getpid()}
        sock.sendall(b"".join(json.dumps(said).encode() + b"\n" for said in (hello, {"t": "status", "id": 1})))
        with sock.makefile("rb") as lines:
            while text := lines.readline(LINE_MAX):
                said = json.loads(text)
                if said.get("t") == "status":
                    status: dict[str, Any] = said["status"]
                    return status
    raise ValueError("no status was told")
