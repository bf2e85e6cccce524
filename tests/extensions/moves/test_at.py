"""`run --at`: a training starts on the machine whose grid emits least for it, as if it were started there by hand."""

from __future__ import annotations

import json
import re
import sys
import time

import pytest
from machines import TRAIN, WHY, machines, weights

from carbontui import units

pytestmark = [pytest.mark.skipif(bool(WHY), reason=WHY), pytest.mark.long, pytest.mark.timeout(400)]
WORK_H = 3


BY_DAYS = ("env", "-u", "CARBONTUI_INTENSITY")
"""By the typical days of its zone."""


def starts(machine, hours):
    """Grams per kWh of the work by its start there, within these hours and a minute apart: (grams, when)."""
    done = machine.sh(*BY_DAYS, sys.executable, "-m", "carbontui.cli", "grid", "--json")
    grid = json.loads(done.stdout)["outlook"]
    begin, step, mean = units.from_iso(grid["start"]), grid["step_s"], grid["mean"]
    now = time.time()

    def at(second):
        return mean[min(len(mean) - 1, max(0, int((second - begin) // step)))]

    every = range(-10, int((hours - WORK_H) * 60) + 1)  # it was said some minutes ago
    sums = [(sum(at(now + 60 * (start + m)) for m in range(WORK_H * 60)), start) for start in every]
    return [(grams / (WORK_H * 60), now + 60 * start) for grams, start in sums]


def test_it_starts_where_the_least_is_emitted_and_files_are_as_by_hand():
    with machines(3) as all:
        n1, n2, n3 = all.all
        run = n1.home / "run"
        (run / "train.py").write_text(TRAIN)
        (run / "data").write_bytes(b"x" * 1000)
        train = ("--name", "t", "--budget", f"{WORK_H * 3}h", "--work", f"{WORK_H}h", "--no-cap", "--detach", "--")
        train += (sys.executable, "train.py", 100_000, 0.02, all.common)
        n3.sshd.stop()

        by_days = " ".join([*BY_DAYS, "carbontui"])
        at = [*BY_DAYS, sys.executable, "-m", "carbontui.cli", "run", "--there", by_days, "--at", "here,n2,n3"]
        done = n1.sh(*at, *train, cwd=run, timeout=100)
        assert done.returncode == 0, done.stderr
        host, _, job = done.stdout.strip().partition(":")
        here, there = starts(n1, WORK_H * 3), starts(n2, WORK_H * 3)
        assert host == "n2" and min(there) < min(here)
        said = re.search(r"starts on n2 \(SE-SE3, from (?:\w{3} )?(\S+)", done.stderr)
        assert said and "n3" in done.stderr, done.stderr
        # waiting that saves next to nothing is not worth it (`--patience`), at which hour is the day's
        (grams,) = {g for g, when in there if time.strftime("%H:%M", time.localtime(when)) == said[1]} or {
            min(there)[0]
        }
        assert grams <= 1.05 * min(there)[0], (said[1], grams, min(there))
        n2.cli("boost", job)
        all.until_steps(5, on="n2")
        assert (n2.home / "run" / "data").read_bytes() == b"x" * 1000
        assert json.loads(n1.cli("ls", "--json", "--all").stdout) == [], "nothing of it is left here"
        marks = all.marks()
        assert {one[0] for one in marks} == {"n2"} and int(marks[-1][2]) == weights(int(marks[-1][1]))
        assert n2.status(job)["places"] == [] and n2.record(job, "places.json") == {}, "nothing migrates"
        n2.cli("stop", "--now", "--yes", job)

        (n2.home / "run" / "broken").touch()  # it ends there at once, at any hour, and goes on here
        at_once = ["1x" if word == f"{WORK_H * 3}h" else word for word in train]
        done = n1.cli("run", "--at", "n2,here", *at_once, cwd=run, timeout=100)
        assert done.returncode == 0 and "n2 before its first step: the command ended with exit code 3" in done.stderr
        assert "starts here (DE" in done.stderr
        all.until_steps(5, on="n1")
        wrong = n1.cli("run", "--at", "n2,here", "--zone", "DE", *train, cwd=run)
        assert wrong.returncode == 2 and wrong.stderr.endswith("each machine has its own; leave out --zone\n")
