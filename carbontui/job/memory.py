"""What a supervisor leaves to its successor, in the journal's `state` table."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from carbontui.job import budget, control, overrides, store

if TYPE_CHECKING:
    from carbontui.job.supervisor import Supervisor


def restore(job: Supervisor) -> None:
    """Take over from a predecessor, if there was one; what cannot be read begins anew."""
    record = store.load(job.dir)
    if record is not None and not job.guard.guarded:
        job.guard.adopt(record.pids.get("child"))
    recall, confined = job.journal.recall, job.faults.confined
    with confined("the kept books"):
        job.books.restore()
    with confined("the kept progress"):
        job.progress.restore(recall("progress"))
    with confined("what was learned"):
        job.learned.restore(recall("learned"))
    with confined("the kept override"):
        job.overrides = overrides.Overrides.from_dict(recall("overrides"))
    with confined("the kept state"):
        job.control = control.restored(recall("control"), time.monotonic())
    with confined("the kept budget"):
        if text := recall("budget"):
            job.budget = budget.Budget(**text)
    with confined("the kept plan"):
        job.planner.restore(recall("plan"))


def keep(job: Supervisor) -> None:
    """Into the journal, with what an independent reader needs to check the accounts."""
    job.books.write()
    job.books.keep()
    job.journal.keep("progress", job.progress.to_dict())
    job.journal.keep("learned", job.learned.to_dict())
    job.journal.keep("overrides", job.overrides.to_dict())
    job.journal.keep("control", {f: getattr(job.control, f) for f in job.control.__dataclass_fields__})
    job.journal.keep("budget", {"kind": job.budget.kind, "value": job.budget.value, "text": job.budget.text})
    job.journal.keep("accounts", job.senses.accounts_basis())
