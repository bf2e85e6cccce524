"""What a supervisor hands over to its successor, in the journal's `state` table."""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from carbontui import protocol, units
from carbontui.account.accounts import RunNow, to_kept
from carbontui.job.files import store
from carbontui.job.files.journal import Journal
from carbontui.job.supervisor.core.planning import expected_end, machine
from carbontui.job.supervisor.core.planning.course import course
from carbontui.job.supervisor.core.state import allowances, boards, forbidden, plan, progress
from carbontui.job.supervisor.core.state.decision import Desired
from carbontui.job.supervisor.core.state.inputs import Inputs
from carbontui.job.supervisor.core.state.job import JobState
from carbontui.job.supervisor.core.state.measured import Measured
from carbontui.job.supervisor.core.state.override import Overrides
from carbontui.job.supervisor.core.state.plan import Worth
from carbontui.job.supervisor.core.state.unloading import Tried, Unloading
from carbontui.job.supervisor.record import restoring
from carbontui.job.supervisor.record.accounting import Accounting
from carbontui.job.supervisor.record.disk import Recorder
from carbontui.job.supervisor.record.so_far import baseline
from carbontui.job.terms import budget as budgets
from carbontui.job.terms.budget import Budget
from carbontui.job.terms.spec import NUMBER_MOST
from carbontui.protocol import Statement, statement
from carbontui.text.statements import words

_Result = TypeVar("_Result", Unloading, Tried)
Confined = Callable[[str], AbstractContextManager[bool | None]]
"""Returns a block in which an exception ends the block and nothing else; `part` is a code of `text/log.py`'s PARTS."""


DOUBT_FROM = 3
SETTINGS = ("overrides", "forbidden", "budget", "allowances")
"""What people have set: never overwritten by a default because it could not be read."""
WHOLE = {"overrides": "override", "forbidden": "forbidden", "budget": "budget", "progress": "progress"}
WHOLE |= {"worth": "worth", "learned": "measured", "control": "asked", "unloading": "unloading", "tried": "tried"}
"""Fields of the state that are kept as they are, by key of the journal."""
OF_THE_MACHINE = ("plan", "learned", "boards", "control")
"""Measured, planned and asked for one machine: at another one they begin anew."""
OF_THE_SPEED = ("ref_steps", "ref_time_s", "ref_wall_s", "span_s", "capped", "blocks", "core_wait")
"""Of the progress."""
READ_TRIES = 3
READ_AGAIN_S = 1.0
IN_DOUBT = ("plan", "learned", "boards", "budget", "control", "progress", "forbidden", "overrides")
"""Settings dropped one by one after repeated deaths, in this order: first what can be rebuilt, user commands last."""


@dataclass(eq=False)
class Handover:
    """Restores what a predecessor stored and stores what a successor needs."""

    journal: Journal
    accounting: Accounting
    recorder: Recorder
    confined: Confined
    directory: Path
    missing: str = ""
    """What was lost with a damaged or removed journal; '' when nothing was."""

    left_out: tuple[str, ...] = ()
    """The settings that could not be read, by part: defaults are in force, and the journal keeps what it has."""

    # --- taking over ---

    def restore(self, state: JobState, now_s: float, mono_s: float, silent_deaths: int = 0) -> JobState:
        """Take over from a predecessor, if there was one; unreadable parts start afresh.

        After `silent_deaths` of predecessors in a row, stored settings are dropped one after another.
        """
        doubted = IN_DOUBT[: max(0, silent_deaths - DOUBT_FROM + 1)]
        for _ in range(READ_TRIES):
            if not (why := self.journal.unreadable()):
                break
            time.sleep(READ_AGAIN_S)
        unread = list(SETTINGS) if why else []

        def kept_as(kind: type[Any]) -> Callable[[Any], Any]:
            return lambda kept: msgspec.convert(kept or {}, kind)

        # by key of the journal: the part that a fault is reported as, and the value of its field of the state
        restorers: dict[str, tuple[str, Callable[[Any], Any]]] = {
            "progress": ("stored_progress", lambda kept: progress.restored(state.progress, kept)),
            "worth": ("stored_budget", kept_as(Worth)),
            "learned": ("stored_measurements", kept_as(Measured)),
            "overrides": ("stored_override", kept_as(Overrides)),
            "forbidden": ("stored_hours", lambda kept: forbidden.restored(kept, now_s)),
            "control": ("stored_state", lambda kept: replace(kept_as(Desired)(kept), asked_mono_s=mono_s)),
            "boards": ("stored_boards", lambda kept: boards.restored(kept, mono_s)),
            "budget": (
                "stored_budget",
                lambda kept: budgets.restored(kept, state.start_s, now_s) if kept else state.budget,
            ),
            "unloading": ("stored_unload", lambda kept: _worded(kept_as(Unloading)(kept))),
            "tried": ("stored_try", lambda kept: _worded(kept_as(Tried)(kept))),
            "allowances": ("stored_allowances", lambda kept: allowances.restored(state.allowances, kept)),
            "plan": ("stored_plan", plan.restored),
        }
        moved = False
        with self.confined("stored_account"):
            moved = restoring.restore(self.accounting)
        for key, (part, restored) in restorers.items():
            if moved and key in OF_THE_MACHINE:
                continue
            if key in doubted:
                self.recorder.say(words(statement("stored_left_out", deaths=silent_deaths, part=part), now_s))
                self.recorder.event("left_out", part=key)
                unread.append(key)
                continue
            before = state
            with self.confined(part):
                state = replace(state, **{WHOLE.get(key, key): restored(_checked(self.journal.recall(key)))})
            if state is before:
                unread.append(key)
        self.left_out = tuple(restorers[key][0] for key in unread if key in SETTINGS)
        for key in unread:
            if key in SETTINGS:
                self.journal.leave(key, _kept(state, key))
        with self.confined("stored_account"):
            state = self._replace_lost(state)
        return elsewhere(state) if moved else state

    def _replace_lost(self, state: JobState) -> JobState:
        """If an account had begun and the journal has none of it (it was damaged, or removed by hand), start from the
        last snapshot, and report the consequences."""
        self.missing = str(self.journal.recall("missing", ""))
        last = store.snapshot(self.directory)
        account_known, work_known = bool(self.journal.recall("books")), bool(self.journal.recall("progress"))
        lost = last is not None and bool(last.energy_wall_kwh) and not account_known
        if self.journal.aside is None and not lost:
            return state
        if last is None:
            self.accounting.carry(None, None, 0)
            self._tell(statement("lost_unknown", energy_too=not account_known))
            return state
        if not account_known:
            self.accounting.begin_from(last.energy_gpu_kwh, last.energy_wall_kwh)
        self.accounting.carry(last.gco2_g, last.cost.value if last.cost else None, len(last.gpus))
        if not work_known:
            state = _from_snapshot(state, last)
        self._tell(statement("lost_continues", at=last.measured_at, measured_again=not work_known))
        return state

    def replace_rows(self, state: JobState, gpus: int) -> None:
        """The journal was found damaged while the job runs: only its rows are lost, and their sums continue."""
        if self.journal.aside is None or self.journal.aside.name in self.missing:
            return
        cost = state.totals.cost
        self.accounting.carry(state.totals.gco2_g, cost.value if cost else None, gpus)
        self._tell(statement("lost_rows"))

    def _tell(self, begins: Statement) -> None:
        """Report, now and in every later status, that the journal was lost and the consequences."""
        aside = self.journal.aside
        name = None if aside is None else aside.name
        self.missing = words(statement("journal_lost", aside=name, begins=begins), 0.0)
        self.recorder.say(words(statement("journal_lost_logged", missing=self.missing), 0.0))
        self.recorder.event("journal_lost", aside=name, text=self.missing)
        self.journal.keep("missing", self.missing)

    # --- leaving ---

    def keep(self, state: JobState, inputs: Inputs, account: protocol.Account | None = None) -> None:
        """Write to the journal, with what an independent reader needs to check the accounts. `account`: as the status
        of this tick has it, computed here where there is none."""
        self.accounting.write()
        self.accounting.keep()
        keep = self.journal.keep
        for key in (*WHOLE, "allowances"):
            keep(key, _kept(state, key))
        keep("boards", boards.to_kept(state.boards, state.asked.limit_w, inputs.limits.left))
        run_now = baseline(self.accounting, state, inputs)
        if account is None:
            account, _ = expected_end.statement(state, inputs, course(state, inputs))
        keep("accounts", basis(state, inputs, run_now, self.accounting.carried_over.gco2_g, account))


def elsewhere(state: JobState) -> JobState:
    """At another machine: the deadline stays, speed is measured anew, and is taken for that of the machine before until
    then. Work given as time there is so many steps here."""
    deadline_s, work, rate = state.budget_deadline_s, state.progress, state.progress.ref_rate
    if deadline_s is not None:
        state = replace(state, budget=replace(state.budget, kind="deadline", value=deadline_s))
    if rate is None:
        return state
    steps = work.steps_total
    if steps is None and work.work_s is not None:
        steps = work.earlier + round(work.work_s * rate)
    anew: dict[str, Any] = {name: getattr(progress.Progress(), name) for name in OF_THE_SPEED}
    return replace(
        state, progress=msgspec.structs.replace(work, work_s=None, steps_total=steps, given_rate=rate, **anew)
    )


def _kept(state: JobState, key: str) -> object:
    """A part of the state as the journal keeps it."""
    return allowances.to_kept(state.allowances) if key == "allowances" else getattr(state, WHOLE[key])


def _checked(kept: Any) -> Any:
    """The stored value, if every number in it is plausible for a job and every text can be sent. Raises
    ValueError."""
    if isinstance(kept, str):
        kept.encode()
    if isinstance(kept, dict):
        _checked(list(kept))
    if isinstance(kept, float | int) and not abs(kept) <= NUMBER_MOST:
        raise ValueError(f"{kept:g} is not a plausible number for a job")
    for inner in kept.values() if isinstance(kept, dict) else kept if isinstance(kept, list) else ():
        _checked(inner)
    return kept


def _worded(kept: _Result) -> _Result:
    """The same, if its result can be put into words: it may be of another version. Raises KeyError or TypeError."""
    if kept.result is not None:
        words(kept.result, 0.0)
    return kept


def basis(
    state: JobState, inputs: Inputs, run_now: RunNow | None, before_g: float | None, account: protocol.Account
) -> dict[str, object]:
    """What an independent reader needs besides energy and grid rows to arrive at the same avoided grams, and the
    account as it is told."""
    return {
        **to_kept(run_now),
        "account": msgspec.to_builtins(account),
        "excluded": msgspec.to_builtins(state.totals.excluded),
        "coverage": msgspec.to_builtins(state.totals.coverage),
        "start_s": state.start_s,
        "done_s": state.progress.done_s,
        "earlier": state.progress.earlier,
        "full_wall_w": machine.full_wall_w(state, inputs),
        "pue": state.spec.pue,
        "energy_wall_kwh": state.totals.wall_kwh,
        "energy_gpu_kwh": state.totals.gpu_kwh,
        "gco2_g": state.totals.gco2_g,
        "avoided_g": state.totals.avoided_g,
        "before_g": before_g,
        "nowcast_g": state.outlook.value_at(inputs.now_s) if state.outlook else None,
        "boundary": state.spec.boundary,
        "count_idle": state.spec.boundary == "held",
        "parked_wall_w": machine.parked_wall_w(state, inputs),
        "host_w": machine.host(state, inputs).watts,
        "idle_w": machine.idle_total_w(state, inputs),
        "driver": " ".join(dict.fromkeys((inputs.readings.backend, inputs.readings.driver))) if inputs.devices else "",
    }


def _from_snapshot(state: JobState, last: protocol.Status) -> JobState:
    """Steps, override and budget as last reported."""
    work = msgspec.structs.replace(
        state.progress, step=last.step, steps_total=state.progress.steps_total or last.steps_total
    )
    state = replace(state, progress=work)
    if held := last.override:
        until = units.from_iso(held.until) if held.until else None
        state = replace(state, override=Overrides(held, last.override_gen, until))
    if last.budget and last.budget.deadline:
        state = replace(state, budget=Budget("deadline", units.from_iso(last.budget.deadline), "as last reported"))
    return state
