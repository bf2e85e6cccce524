"""Rebooks the account of a finished job with the grid source's present values of its hours.

While a job runs, its supervisor does that. When it ends, values of its last hours are often forecasts or estimates,
and a source may revise them for days.
"""

import asyncio
import math
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from carbontui import paths, protocol
from carbontui.account import accounts
from carbontui.account.accounts import BIN_S
from carbontui.grid.feed import Feed
from carbontui.grid.http import NoData
from carbontui.grid.types import Row
from carbontui.job.files import journal, store
from carbontui.job.supervisor.core.planning.expected_end import rounded_g
from carbontui.job.supervisor.core.state.job import Totals
from carbontui.job.supervisor.record import restoring
from carbontui.job.supervisor.record.accounting import PRICE, REVISED_MOST_S, Accounting
from carbontui.job.terms.clock import Clock
from carbontui.job.terms.spec import Options
from carbontui.system import proc
from carbontui.text import figures

ASKED_MOST_S = 60.0
SAME = 1e-3
"""The journal's sums and the reported figures must agree within this share, or nothing is changed."""


class Rebooked(NamedTuple):
    """The changes: hours of the job with a revised value, their means in gCO2/kWh, and the grams before and after."""

    source: str
    hours: float
    before_g_per_kwh: float
    after_g_per_kwh: float
    gco2_g: tuple[float | None, float | None]
    avoided_g: tuple[float | None, float | None]

    @property
    def words(self) -> str:
        if not self.hours:
            return f"{self.source} still reports the booked values: nothing has changed"
        values = f"{self.before_g_per_kwh:.0f} -> {self.after_g_per_kwh:.0f} g/kWh over {self.hours:.3g} h"
        grams = [
            f"{name} {figures.grams(old)} -> {figures.grams(new)}"
            for name, (old, new) in (("emitted", self.gco2_g), ("avoided", self.avoided_g))
            if old is not None and new is not None
        ]
        return f"revised with {self.source}: {values}; {', '.join(grams)}"


async def rebook(job: store.Job, options: Options, feed: Feed) -> Rebooked:
    """Query the source of a finished job again, and update journal and snapshot. Nothing is changed if it does not
    answer. Raises GridError, OSError, ValueError."""
    with journal.read(job.dir / "journal.db") as db:
        schema = db.execute("pragma user_version").fetchone()[0]
        if schema > journal.SCHEMA_VERSION:
            raise NoData(f"its journal has schema {schema}, newer than this carbontui ({journal.SCHEMA_VERSION})")
        query = "select start, start + dur, signal, source from grid where signal != ? order by start"
        booked = [tuple(row) for row in db.execute(query, (PRICE,))]
    if not booked:
        raise NoData("no value of the grid was booked for it")
    *_, end_s, signal, source = booked[-1]
    # hours booked from another source or signal stay: the two are not mixed
    first_s = min(start for start, _, *of in booked if of == [signal, source])
    since_s = max(first_s, end_s - REVISED_MOST_S)
    try:
        said = await asyncio.wait_for(feed.again(source, since_s, min(end_s, time.time())), ASKED_MOST_S)
    except asyncio.TimeoutError:
        raise NoData(f"{source} did not answer within {ASKED_MOST_S:.0f} s") from None
    if not said:
        raise NoData(f"{source} has no values of its hours")
    book = journal.Journal(job.dir / "journal.db")
    try:
        return _booked(job, Accounting(options, Clock(), book, proc.boot_id()), said, signal, source)
    finally:
        book.close()


def _booked(job: store.Job, account: Accounting, rows: Sequence[Row], signal: str, source: str) -> Rebooked:
    book = account.journal
    told = book.recall("accounts")
    if not told or not book.recall("books"):
        raise NoData("its account was never stored")
    restoring.restore(account)
    old = (told.get("gco2_g"), told.get("avoided_g"))
    emitted_g = _totals(account, told).gco2_g or 0.0
    if old[0] is not None and not math.isclose(emitted_g, old[0], rel_tol=SAME, abs_tol=1e-3):
        raise NoData("its journal does not add up to the reported account")
    before = dict(account.intensity)
    account.realised(rows, signal, source)
    changed = [at for at, value in account.intensity.items() if before.get(at, value) != value]
    sums = _totals(account, told)
    new = (sums.gco2_g, sums.avoided_g) if account.intensity != before else old
    if new != old:
        grams = {"gco2_g": rounded_g(sums.gco2_g), "avoided_g": rounded_g(sums.avoided_g)}
        run_now_g = None if sums.run_now_g is None else (grams["gco2_g"] or 0.0) + (grams["avoided_g"] or 0.0)
        used = {**grams, "run_now_g": rounded_g(run_now_g)}
        known = told.get("account")
        revised = {"account": {**known, "so_far": {**known["so_far"], **used}}} if known else {}
        excluded = msgspec.to_builtins(sums.excluded)
        book.keep("accounts", {**told, "gco2_g": new[0], "avoided_g": new[1], **revised, "excluded": excluded})
    if not book.commit():
        raise OSError(book.fault)
    if new != old:
        _tell(job, {**grams, **revised, "excluded": excluded})
    hours = len(changed) * BIN_S / 3600.0
    means = [sum(table[at] for at in changed) / max(1, len(changed)) for table in (before, account.intensity)]
    return Rebooked(source, hours, means[0], means[1], (old[0], new[0]), (old[1], new[1]))


def _totals(account: Accounting, data: dict[str, Any]) -> Totals:
    """The account anew, with run-now as it was kept at the job's end."""
    return account.totals(
        start_s=float(data["start_s"]), run_now=accounts.kept(data), nowcast=data.get("nowcast_g"), gpus=0
    )


def _tell(job: store.Job, changes: dict[str, Any]) -> None:
    """Make the snapshot agree with the journal."""
    last = store.snapshot(job.dir)
    if last is None:
        return
    told = msgspec.convert({**msgspec.to_builtins(last), **changes}, protocol.Status)
    paths.write_whole(job.dir / "snapshot.json", msgspec.json.encode(told))
