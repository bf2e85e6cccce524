"""Writes the finished job that every later version must read: python tests/golden/make_job.py (as root, once a format).

The demo: a replayed day on a simulated board, with caps and pauses.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path

HERE = Path(__file__).parent / "job"
PLACE = Path(tempfile.gettempdir()) / "carbontui-golden"


def cli(*words: str) -> str:
    env = {"PATH": os.environ["PATH"], "CARBONTUI_HOME": str(PLACE), "CARBONTUI_OFFLINE": "1", "HOME": str(PLACE)}
    env["CARBONTUI_LEASE_DIR"] = str(PLACE / "leases")
    program = ["unshare", "--uts", "sh", "-c", 'hostname box; exec "$@"', "sh", sys.executable, "-m", "carbontui.cli"]
    done = subprocess.run([*program, *words], env=env, capture_output=True, text=True, check=True, cwd="/")
    return done.stdout


def main() -> None:
    shutil.rmtree(PLACE, ignore_errors=True)
    job = cli("demo", "--seconds", "20", "--detach").strip()
    cli("log", "-f", job)
    while json.loads(cli("status", "--json", job))["state"] != "done":
        pass
    shutil.rmtree(HERE, ignore_errors=True)
    target = HERE / job
    target.mkdir(parents=True)
    for name in ("job.json", "spec.json", "exit.json", "snapshot.json", "run.log", "orders.log"):
        if (source := PLACE / "jobs" / job / name).exists():
            text = source.read_text().replace(sys.executable, "/usr/bin/python3")
            text = text.replace(str(Path(__file__).parents[2]), "/opt")
            if name == "job.json":
                text = json.dumps({**json.loads(text), "machine": "0" * 32, "boot": "0" * 32})
            (target / name).write_text(text)
    with closing(sqlite3.connect(PLACE / "jobs" / job / "journal.db")) as db:
        db.execute("pragma journal_mode=delete")
        db.execute("vacuum into ?", (str(target / "journal.db"),))
    (HERE / "report.json").write_text(cli("report", "--json", job))
    shutil.rmtree(PLACE)


if __name__ == "__main__":
    main()
