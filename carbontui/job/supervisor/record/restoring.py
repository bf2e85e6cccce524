"""A supervisor takes the account over: from one before it at this machine, or at the one that the job has left."""

import contextlib
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from carbontui import protocol
from carbontui.account import accounts, elapsed
from carbontui.account.elapsed import EXCLUDED, SWITCHING, TimeSpent
from carbontui.job.supervisor.record.accounting import HOST, PRICE, Accounting, BookedRow, CarriedOver
from carbontui.job.supervisor.record.place_totals import PlaceTotals
from carbontui.power.metering.meter import Meter

PATTERN = "last-count-*.jsonl"


class LastCounts:
    """Each file may be read repeatedly, and is removed once its content is in the journal."""

    def __init__(self, directory: Path) -> None:
        self._dir = directory
        self._read: dict[Path, int] = {}
        """Files already read, with their modification time (mtime, ns)."""

    def read(self) -> list[tuple[protocol.Hello, protocol.RankReport]]:
        """Their contents, oldest first. Files without usable content are left for `forget`."""
        found: list[tuple[int, protocol.Hello, protocol.RankReport]] = []
        for path in self._dir.glob(PATTERN):
            with contextlib.suppress(OSError):
                written_ns = self._read[path] = path.stat().st_mtime_ns
                with contextlib.suppress(protocol.BadMessage, ValueError):
                    hello, obs = map(protocol.decode_from_peer, path.read_bytes()[: 2 * protocol.LINE_MAX].splitlines())
                    if isinstance(hello, protocol.Hello) and isinstance(obs, protocol.RankReport):
                        found.append((written_ns, hello, obs))
        return [(hello, obs) for _, hello, obs in sorted(found, key=lambda row: row[0])]

    def counted(self) -> dict[Path, int]:
        """The files read so far: what is to be forgotten once their content is in the journal."""
        return dict(self._read)

    def forget(self, counted: dict[Path, int]) -> None:
        """Remove files whose content is in the journal. A file rewritten meanwhile stays."""
        for path, written_ns in counted.items():
            with contextlib.suppress(OSError):
                if path.stat().st_mtime_ns == written_ns:
                    path.unlink()
            self._read.pop(path, None)


def restore(book: Accounting) -> bool:
    """Continue where a predecessor stopped: the boards' energy counters fill the gap, unless the scheduler has
    restarted the job, or it has moved: in that gap boards and machine belonged to others. Returns whether it moved."""
    kept = book.journal.recall("books")
    if not kept:
        return False
    told = book.journal.recall("accounts") or {}
    book.place_totals = place_totals = PlaceTotals.restored(kept, book.options.dir)
    ledger = book.ledger
    if place_totals.arrived:  # as it was counted there
        ledger.pue = float(told.get("pue", ledger.pue))
        ledger.boundary, ledger.gives_back = told.get("boundary", ledger.boundary), False
    rows = book.journal.energy_rows()
    here = [row for row in rows if row[0] >= place_totals.since_s or row[3] in EXCLUDED]
    ledger.restore(kept["ledger"], here, time.time())
    book.held_s = float(kept.get("held_s", 0.0))
    # the first supervisor that keeps it takes the time before for one at full speed
    book.elapsed = elapsed.restored(kept.get("lived"), TimeSpent(book.clock.at_wall(time.time())))
    # nothing before its start was the job's: decades of slots would be booked for a damaged time
    book.elapsed.until_s = max(book.elapsed.until_s, book.clock.at_wall(book.options.created_s))
    gco2_g, energy_cost = kept.get("before", (0.0, 0.0))
    book.carried_over = CarriedOver(gco2_g, energy_cost, kept.get("run_now_before_g", 0.0))
    _grid(book)
    if place_totals.arrived:
        _arrive(book, told, max((row[1] for row in rows), default=-math.inf))
    elif kept.get("attempt", book.options.attempt) != book.options.attempt:
        book.first_gap = "queue"
    else:
        with contextlib.suppress(ValueError):  # it begins anew
            book.meter = Meter.from_dict(kept["meter"], book.boot_id)
    return book.first_gap == "move"


def _grid(book: Accounting) -> None:
    """The rows of the journal; where a place begins inside a bin, the bin has the later one's value."""
    rows, since_s = book.journal.grid_rows(), book.place_totals.since_s
    for table, priced in ((book.intensity, False), (book.price, True)):
        spans = [row[:3] for row in rows if (row[4] == PRICE) is priced]
        table.update_all([(at, min(dur, since_s - at), value) for at, dur, value in spans if at < since_s])
        table.update_all([span for span in spans if span[0] >= since_s])
    here = [row for row in rows if row[4] != PRICE and row[0] >= since_s]
    book.booked = {row[0]: BookedRow(row[1], row[2], row[3], row[5]) for row in here}


def _book_way(book: Accounting, idle_w: float | None) -> None:
    """Nobody metered the machine that was left while the job was copied from it: it idled."""
    since_s, next_one = book.elapsed.until_s, book.place_totals.known[len(book.place_totals.left) + 1]
    seconds = book.clock.at_wall(next_one.since) - since_s
    if idle_w and seconds > 0 and book.ledger.counted(SWITCHING) == "whole":
        book.place_totals.moving = True
        book.add(HOST, since_s, since_s + seconds, idle_w * seconds, "model", SWITCHING, time.time(), gpu=False)
        book.place_totals.moving = False


def _arrive(book: Accounting, basis: Mapping[str, Any], booked_s: float) -> None:
    """The job has come to this machine: what it used before stays as it was booked there, up to `booked_s`; `basis` was
    kept with it."""
    _book_way(book, basis.get("idle_w"))
    book.write(everything=True)
    baseline = accounts.kept({**basis, "lever_acted": True}) if basis else None  # what the move took is no part of it
    nowcast, place_totals = basis.get("nowcast_g"), book.place_totals
    at_s = max(book.clock.at_wall(place_totals.known[-1].since), book.elapsed.until_s, booked_s)
    sums = book.totals(start_s=float(basis.get("start_s", 0.0)), run_now=baseline, nowcast=nowcast, gpus=0)
    place_totals.leave(at_s, sums.places[-1], place_totals.moves(book.intensity, nowcast, book.ledger.pue), basis)
    book.carried_over = CarriedOver(sums.gco2_g, None if sums.cost is None else sums.cost.value, sums.run_now_g)
    book.elapsed.begin_run_now_again()
    book.ledger.boundary, book.ledger.gives_back = book.options.boundary, book.options.gives_back
    book.ledger.leave(book.options.pue)
    book.intensity.clear()
    book.price.clear()
    _grid(book)
    book.first_gap = "move"
    book.keep()
