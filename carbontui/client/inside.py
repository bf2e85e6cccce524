"""A job around a script that runs already, begun from inside it: `with carbontui.job(total=...)`.

For notebooks and scripts started without `carbontui run`. The job's keeper stands beside this process, not above it: it
can hold it at a step and account for it, but not start it again, so nothing is unloaded. Under `carbontui run`, and
inside another such job, all of this does nothing but to report the total.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from typing import Any, Dict, List, Optional

from carbontui.client import api, device, marker, process

BEGIN_S = 60.0
"""The longest wait for the job to begin; then the script goes on without one."""
CLOSED_S = 10.0
"""The longest wait for its account to be closed."""
NAMES = ("CARBONTUI_SOCKET", "CARBONTUI_JOB")
FIGURES = ("measured_at", "state", "energy_gpu_kwh", "energy_wall_kwh", "gco2_g", "avoided_g", "cost", "currency")


class ScriptJob:
    """The job of a part of this script, from `begin` to `end`. `options` are those of `carbontui run`, by their names;
    `words` as well, as on the command line.

    A job that cannot be begun is said on stderr, and the script goes on without one; wrong options raise ValueError.
    """

    def __init__(self, total: Optional[int] = None, *words: str, **options: Any) -> None:
        if total is not None and int(total) < 1:
            raise ValueError(f"total={total} is no number of steps")
        self.total, self.words = total, [*words, *_words(options)]
        self.id = ""
        """Empty where none was begun."""
        self.quiet = False
        """Its end is shown otherwise."""
        self._place: Dict[str, str] = {}
        self._before: Dict[str, Optional[str]] = {}

    def __enter__(self) -> ScriptJob:
        self.begin()
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self.end(failed=kind is not None and getattr(error, "code", 1) not in (None, 0))

    def begin(self) -> None:
        """Begin the job, unless there is one, and wait until it answers. Raises ValueError for wrong options."""
        self.end(failed=True)  # what raised in between
        if not os.environ.get(NAMES[0]):
            if why := self._ask():
                _say(f"this part of the script has no job: {why}")
                return
            self.id, self._before = self._place["job"], {name: os.environ.get(name) for name in NAMES}
            os.environ.update(zip(NAMES, (self._place["socket"], self.id)))
            atexit.register(self.end)
            try:
                from carbontui.client.sitecustomize import follow

                follow()  # type: ignore[no-untyped-call]
                process.join()
            except Exception as error:  # of another version, or no thread may be started
                _say(f"job {self.id} cannot be steered: {error!r}")
        api.report(total=self.total)

    def _ask(self) -> str:
        """Have the job made; why it is not, '' if it is."""
        if process.rank_of_world()[1] > 1:
            return "its ranks are held together under carbontui run alone"
        asked = [sys.executable, "-m", "carbontui.cli", "begin", str(os.getpid()), *self.words]
        try:
            done = subprocess.run(asked, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=BEGIN_S)
            if done.returncode == 2:
                raise ValueError(done.stderr.strip().rpartition("\n")[2])
            self._place = json.loads(done.stdout)
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
        except json.JSONDecodeError:
            return done.stderr.strip().rpartition("\n")[2] or f"it ended with {done.returncode}"
        return ""

    def end(self, *, failed: bool = False) -> None:
        """End it, once, and wait until its account is closed: `carbontui.metrics()` is that of the whole then."""
        if not self._place:
            return
        place, self._place = self._place, {}
        atexit.unregister(self.end)
        due = time.monotonic() + CLOSED_S
        while not api.gate.connected and time.monotonic() < due:  # the part may be shorter than its monitor's start
            time.sleep(0.05)
        with contextlib.suppress(Exception):
            process.leave()
        for name in self._before:
            os.environ.pop(name, None)
        os.environ.update((name, value) for name, value in self._before.items() if value is not None)
        body = {"start_time": device.start_time(), "code": int(failed), "lives": True}
        with contextlib.suppress(OSError):
            path = os.path.join(place["dir"], f"ended-{os.getpid()}.json")
            marker.write_atomic(path, json.dumps(body).encode(), durable=False)
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as keeper:
                keeper.connect(place["keeper"])
        api.gate.figures = _account(place["dir"])
        if not self.quiet:
            _say(f"job {self.id} has ended; look with: carbontui report {self.id}")


def _account(directory: str) -> Dict[str, Any]:
    """The figures of the closed account, as metrics() has them; empty where it is not closed in time."""
    due = time.monotonic() + CLOSED_S
    while time.monotonic() < due:
        with contextlib.suppress(OSError, ValueError, AttributeError):
            with open(os.path.join(directory, "snapshot.json"), encoding="utf-8") as file:
                final = json.load(file)
            if final.get("exit") is not None:
                cost = final.get("cost") or {}
                final.update(cost=cost.get("value"), currency=cost.get("currency"))
                return {name: final[name] for name in FIGURES if final.get(name) is not None}
        time.sleep(0.05)
    return {}


def _words(options: Dict[str, Any]) -> List[str]:
    """As on the command line: budget="2x", no_cap=True."""
    words: List[str] = []
    for name, value in options.items():
        if value is not None and value is not False:
            words += ["--" + name.replace("_", "-"), *([] if value is True else [str(value)])]
    return words


def _say(text: str) -> None:
    with contextlib.suppress(Exception):  # no stderr
        sys.stderr.write(f"carbontui: {text}\n")
