"""Writes a finished job that every later version must read: python tests/golden/make_job.py (as root, once a format).
It gets a folder of its own, job-N; those of earlier formats stay. So do a lease and a places.json of today beside it.

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

from carbontui.job.files import places

HERE = Path(__file__).parent
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
    folder = HERE / f"job-{len(list(HERE.glob('job*/'))) + 1}"
    target = folder / job
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
    (folder / "report.json").write_text(cli("report", "--json", job))
    there = places.Stay("b", "DE", "0" * 32, 1.0, None, 5, 2.0, 30.0)
    places.write(folder, places.Places(2, False, True, 9.0, boot="0" * 32, peer="u@b", call=("x",), places=(there,)))
    told = {**json.loads((HERE / "lease.json").read_text()), "maker": "nvidia", "address": "", "clocks_mhz": None}
    (folder / "lease.json").write_text(json.dumps(told))
    shutil.rmtree(PLACE)


if __name__ == "__main__":
    main()
