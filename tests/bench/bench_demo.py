"""The demo, as a newcomer runs it: whether it keeps its promise, and how soon its first picture stands. By hand:

    python tests/bench/bench_demo.py [--runs 20] [--busy 4] [--without PROGRAM] [--seconds 45]

Runs alternate: alone, beside `--busy` loops, and, where PROGRAM is the carbontui of an environment without PyTorch, by
it. A run is right if it ends by its deadline, inside the band that its first plan gave, on the receipt, with the
command that makes it yours. The time of the first picture is compared with that of a bare Textual program started right
before. Figures are kept in results/demo.json.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import pty
import re
import select
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import date
from pathlib import Path
from typing import Any

from bench_screen import BARE

RESULT = Path(__file__).parent / "results" / "demo.json"
WAIT_S = 400.0


def shown(command: list[str], marks: list[bytes], env: dict[str, str]) -> tuple[list[float], bytes]:
    """Seconds until each mark was on a terminal of 120x40, in order, and all that was sent; then `q`."""
    begun = time.monotonic()
    pid, master = pty.fork()
    if pid == 0:
        os.environ.update(env, TERM="xterm-256color", COLUMNS="120", LINES="40")
        os.execvp(command[0], command)
    sent, found = b"", []
    try:
        while len(found) < len(marks) and time.monotonic() - begun < WAIT_S:
            if select.select([master], [], [], 1.0)[0]:
                sent += os.read(master, 65536)
            while len(found) < len(marks) and marks[len(found)] in sent:
                found.append(time.monotonic() - begun)
        os.write(master, b"q")
        due = time.monotonic() + 20
        while time.monotonic() < due and os.waitpid(pid, os.WNOHANG) == (0, 0):
            if select.select([master], [], [], 0.2)[0]:
                sent += os.read(master, 65536)
    except OSError:  # it has left its terminal
        pass
    os.close(master)
    return found, sent


def one(program: str, seconds: float) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as home:
        env = {"CARBONTUI_HOME": home, "CARBONTUI_OFFLINE": "1"}
        bare, _ = shown([sys.executable, "-c", BARE], [b"RUNNING"], env)
        marks = [b"SIMULATED", b"now yours"]
        at, sent = shown([program, "demo", "--seconds", f"{seconds:g}"], marks, env)

        def asked(*words: str) -> str:
            place = {**os.environ, **env}
            return subprocess.run([program, *words], env=place, capture_output=True, text=True, check=True).stdout

        told, status = json.loads(asked("report", "--json")), json.loads(asked("status", "--json"))
        band = re.search(r"first said.*?\(([\d.]+) (k?g) to ([\d.]+) (k?g)\)", asked("report"))
    low, high = (float(band[i]) * (1000 if band[i + 1] == "kg" else 1) if band else float("nan") for i in (1, 3))
    grams = told["gco2_g"]
    in_time = status["state"] == "done" and told["ended_at"] <= status["budget"]["deadline"]
    return {
        "first_picture_s": at[0] if at else None,
        "bare_textual_s": bare[0] if bare else None,
        "took_s": at[1] if len(at) > 1 else None,
        "gco2_g": grams,
        "band_g": [low, high],
        "right": len(at) == 2 and in_time and low <= grams <= high and b"python train.py" in sent,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--busy", type=int, default=4)
    parser.add_argument("--without", default="")
    parser.add_argument("--seconds", type=float, default=45.0)
    asked = parser.parse_args()
    own = str(Path(sys.executable).with_name("carbontui"))
    runs = []
    for n in range(asked.runs):
        busy, program = n % 2 == 1, asked.without if asked.without and n % 4 == 0 else own
        loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(asked.busy if busy else 0)]
        try:
            load = os.getloadavg()[0]
            runs.append({"busy": busy, "torch": program == own, "load": load, **one(program, asked.seconds)})
        finally:
            for loop in loops:
                loop.kill()
                loop.wait()
        print(json.dumps(runs[-1]), flush=True)
    pictures = {
        name: statistics.median(r["first_picture_s"] / r["bare_textual_s"] for r in runs if r["torch"] is torch)
        for name, torch in (("with_torch", True), ("without_torch", False))
        if any(r["torch"] is torch and r["first_picture_s"] for r in runs)
    }
    told = {
        "date": date.today().isoformat(),
        "machine": f"{os.cpu_count()} shared cores, {platform.machine()}",
        "right": sum(r["right"] for r in runs),
        "of": len(runs),
        "first_picture_by_bare_textual": pictures,
        "runs": runs,
    }
    RESULT.write_text(json.dumps(told, indent=1) + "\n")
    print(json.dumps({name: told[name] for name in ("right", "of", "first_picture_by_bare_textual")}))


if __name__ == "__main__":
    main()
