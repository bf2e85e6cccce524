"""Adds facts to a running job's comment in Slurm, for `carbontui fleet`; a job's owner may edit it at any time."""

from __future__ import annotations

import json
from collections.abc import Mapping

from carbontui import units
from carbontui.cluster import slurm
from carbontui.cluster.queue import MARK

NOBODYS = frozenset({"", "(null)", "N/A"})


def add(job: str, facts: Mapping[str, object]) -> None:
    """Add these facts to the comment. Raises SlurmError, also for a comment that is not ours, which is left
    unchanged."""
    comment = slurm.ask("squeue", "--noheader", f"--jobs={job}", "--format=%k").strip()
    noted: object = {}
    if comment not in NOBODYS:
        try:
            noted = json.loads(comment.removeprefix(MARK)) if comment.startswith(MARK) else None
        except ValueError:
            noted = None
    if not isinstance(noted, dict):
        raise slurm.SlurmError(f"the comment of job {job} is not carbontui's: {units.printable(comment)[:80]}")
    told = json.dumps({**noted, **facts}, separators=(",", ":"))
    slurm.ask("scontrol", "update", f"JobId={job}", f"Comment={MARK}{told}")
