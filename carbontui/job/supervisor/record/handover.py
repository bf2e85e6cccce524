"""What a supervisor leaves to its successor, in the journal's `state` table."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from carbontui import protocol, units
from carbontui.job import budget, store
from carbontui.job.supervisor.core import control
from carbontui.job.supervisor.core import override as overrides

if TYPE_CHECKING:
    from carbontui.job.supervisor.loop import Supervisor


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
    with confined("the boards it named"):
        job.hands.restore(recall("boards"))
    with confined("the kept budget"):
        if text := recall("budget"):
            job.budget = budget.restored(text, job.start_s, job.clock.now())
    with confined("the kept plan"):
        job.planner.restore(recall("plan"))
    with confined("the kept account"):
        job.missing = recall("missing", "")
        last = store.snapshot(job.dir)
        # an account that has begun and a journal that knows of none: it was lost, and perhaps removed by hand
        books_known, state_known = bool(recall("books")), bool(recall("progress"))
        if job.journal.aside is not None or (last is not None and last.energy_wall_kwh and not books_known):
            _tell(job, _go_on(job, last, books_known=books_known, state_known=state_known))


def _go_on(job: Supervisor, last: protocol.Status | None, *, books_known: bool, state_known: bool) -> str:
    """Begin from the last snapshot what the journal no longer knows; what that means for the account."""
    if last is None:
        job.books.carry(None, None, 0)
        energy = "" if books_known else "energy is counted anew from now on, "
        return f"{energy}CO2, cost and what was avoided are not known"
    if not books_known:
        ledger = job.books.ledger
        ledger.gpu_j = last.energy_gpu_kwh * units.J_PER_KWH
        ledger.rest_j = max(0.0, last.energy_wall_kwh * units.J_PER_KWH / ledger.pue - ledger.gpu_j)
        ledger.by_how["snapshot"] = ledger.gpu_j + ledger.rest_j
        ledger.gpu_by_how["snapshot"] = ledger.gpu_j
    job.books.carry(last.gco2_g, last.cost.value if last.cost else None, len(last.gpus))
    begins = f"the account goes on from what was told at {last.measured_at}"
    if state_known:
        return begins
    job.progress.step, job.progress.steps_total = last.step, job.progress.steps_total or last.steps_total
    if held := last.override:
        job.overrides = overrides.Overrides(held, last.override_gen, units.from_iso(held.until) if held.until else None)
    if last.budget and last.budget.deadline:
        job.budget = budget.Budget("deadline", units.from_iso(last.budget.deadline), "as last told")
    return f"{begins}; watts and latencies are learned anew"


def mend(job: Supervisor) -> None:
    """The journal was found damaged while the job runs: all is known but the rows, whose sums go on."""
    cost = job.sums.cost
    job.books.carry(job.sums.gco2_g, cost.value if cost else None, len(job.devices))
    _tell(job, "the account goes on; CO2 and cost of before are no longer revised with the grid's values")


def _tell(job: Supervisor, begins: str) -> None:
    """Say, now and in every status to come, that the journal was lost and what that means."""
    aside = job.journal.aside
    what = "journal.db was gone" if aside is None else f"journal.db was damaged and is now {aside.name}"
    job.missing = f"{what}: {begins}"
    job.log(f"{job.missing}; curves and events of before are not in the new journal")
    job.event("journal_lost", aside=None if aside is None else aside.name, text=job.missing)
    job.journal.keep("missing", job.missing)
    keep(job)
    job.journal.commit()


def keep(job: Supervisor) -> None:
    """Into the journal, with what an independent reader needs to check the accounts."""
    job.books.write()
    job.books.keep()
    job.journal.keep("progress", job.progress.to_dict())
    job.journal.keep("learned", job.learned.to_dict())
    job.journal.keep("overrides", job.overrides.to_dict())
    job.journal.keep("control", {f: getattr(job.control, f) for f in job.control.__dataclass_fields__})
    job.journal.keep("budget", {"kind": job.budget.kind, "value": job.budget.value, "text": job.budget.text})
    job.journal.keep("boards", job.hands.to_dict())
    job.journal.keep("accounts", job.senses.accounts_basis())
