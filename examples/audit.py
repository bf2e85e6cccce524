"""Recompute a job's energy and emissions from its journal: SQLite and arithmetic, nothing of carbontui's.

    python audit.py JOURNAL > account.json       # JOURNAL: jobs/<id>/journal.db in carbontui's state directory

Prints kWh at the wall and gCO2, in all and for each slot of five minutes. Exit code 1, with one line, where the rows do
not give what the supervisor reported, or are not those that it sealed (`sealed`: it left in peace).

How it is counted. Each row of `energy` is what one device drew over [t0, t1), in joules; what a machine that is on
anyway draws idle stands there as negative joules of the device "idle". Tries and calibrations are left out, and so is
waiting for the start, unless the machine was held for the job. A slot's joules times the PUE are its energy; that times
the slot's mean intensity of `grid` are its grams. Where no intensity is known the one of the last moment stands in, or
else the mean of the job's. A job that has moved is counted at each machine by that machine's PUE, boundary and grid.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import sys
from datetime import datetime, timezone
from itertools import chain
from math import fsum, inf
from pathlib import Path

SLOT_S, J_PER_KWH = 300.0, 3.6e6
APART = ("try", "estimate", "calibration")
WITHIN, FINEST = 1e-5, {"energy_wall_kwh": 1e-9, "gco2_g": 1e-6}
SEALED = (
    "select * from energy order by rowid",
    "select * from grid order by start, signal",
    "select * from state where key in ('accounts', 'books') order by key",
)


class Altered(Exception):
    """The journal contradicts itself; the text says how."""


def state(db, key):
    row = db.execute("select value from state where key = ?", (key,)).fetchone()
    return json.loads(row[0]) if row else None


def digest_of(db, queries):
    digest = hashlib.sha256()
    for row in chain.from_iterable(map(db.execute, queries)):
        digest.update(repr(row).encode("utf-8", "replace"))
    return digest.hexdigest()


def check_rows(db):
    """The seal is kept with each commit, at the end over the rows of energy too; their sums are kept all along."""
    seal, whole = state(db, "seal"), digest_of(db, SEALED)
    if seal not in (None, whole, digest_of(db, SEALED[1:])):
        raise Altered("its rows are not those that the supervisor sealed")
    written = "select cast(t0 / 600 as integer) * 600 as start, joules, abs(joules) as size from energy"
    parts = f"{written} union all select start, -joules, 0 from energy_10min"
    for start, off, size in db.execute(f"select start, sum(joules), sum(size) from ({parts}) group by 1"):
        if abs(off) > 1e-7 + 1e-9 * size:
            raise Altered(f"its rows of energy from {clock(start)} on are not those that were written")
    return seal == whole


def places(books, accounts):
    """[(since, until, what was kept for the account)] of the machines that the job was on."""
    found, since = [], -inf
    for _, _, until, *_, basis in books.get("left", ()):
        if basis:
            found.append((since, until, basis))
        since = until
    return [*found, (since, inf, accounts)]


def intensities(grid, since, until):
    """Mean g/kWh by slot; where rows overlap, the one that begins later holds."""
    sums, following = {}, inf
    for start, seconds, value in sorted((row for row in grid if since <= row[0] < until), reverse=True):
        end, following = min(start + seconds, following, until), start
        at = start // SLOT_S * SLOT_S
        while at < end and end - start > 1e-6:
            overlap = min(end, at + SLOT_S) - max(start, at)
            mass, weight = sums.get(at, (0.0, 0.0))
            sums[at] = mass + value * overlap, weight + overlap
            at += SLOT_S
    return {at: mass / weight for at, (mass, weight) in sums.items() if weight > 0}


def place_slots(rows, grid, since, until, basis):
    """{slot: (kWh, grams or None)} at one machine."""
    waits = basis.get("boundary") == "held" or basis.get("count_idle")
    kwh = {}
    for t0, joules, what in rows:
        if since <= t0 < until and what not in APART and (waits or what != "waiting"):
            at = t0 // SLOT_S * SLOT_S
            kwh[at] = kwh.get(at, 0.0) + joules * basis["pue"] / J_PER_KWH
    known, otherwise = intensities(grid, since, until), basis.get("nowcast_g")
    weights = [(amount, known[at]) for at, amount in kwh.items() if at in known]
    if otherwise is None and (total := fsum(amount for amount, _ in weights)):
        otherwise = fsum(amount * value for amount, value in weights) / total
    values = {at: known.get(at, otherwise) for at in kwh}
    return {at: (kwh[at], None if values[at] is None else kwh[at] * values[at]) for at in sorted(kwh)}


def audit(path):
    """The account as a dict. Raises Altered, sqlite3.Error, and ValueError where there is none."""
    db = sqlite3.connect(f"{Path(path).resolve().as_uri()}?mode=ro", uri=True, isolation_level=None)
    db.execute("begin")  # all of it as of one moment
    sealed, accounts, books = check_rows(db), state(db, "accounts"), state(db, "books") or {}
    if not accounts:
        raise ValueError("no account is kept in it")
    rows = db.execute("select t0, joules, state from energy").fetchall()
    # of a live job: what is in no row yet
    rows += [(row[0], row[2], row[4]) for row in books.get("ledger", {}).get("open", {}).values()]
    grid = db.execute("select start, dur, value from grid where signal != 'price'").fetchall()
    slots = {}
    for since, until, basis in places(books, accounts):
        for at, (kwh, grams) in place_slots(rows, grid, since, until, basis).items():
            before = slots.get(at, (0.0, 0.0))
            slots[at] = before[0] + kwh, None if None in (grams, before[1]) else before[1] + grams
    totals = {
        "energy_wall_kwh": fsum(kwh for kwh, _ in slots.values()),
        "gco2_g": fsum(grams) if (grams := [g for _, g in slots.values()]) and None not in grams else None,
    }
    if lost := state(db, "missing"):
        print(f"{path}: recomputed from what is left: {lost}", file=sys.stderr)
    for name, found in () if lost else totals.items():
        reported = accounts.get(name)
        if found is not None and reported is not None and abs(found - reported) > WITHIN * abs(reported) + FINEST[name]:
            raise Altered(f"its rows give {name} = {found:.9g}, and {reported:.9g} was reported")
    return {**totals, "boundary": accounts.get("boundary"), "pue": accounts["pue"], "sealed": sealed, "slots": slots}


def clock(at_s):
    return datetime.fromtimestamp(at_s, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def main(path):
    try:
        found = audit(path)
    except (Altered, sqlite3.Error, ValueError, KeyError, TypeError) as error:
        sys.exit(f"{path}: {error}")
    lines = [f'  "{name}": {json.dumps(value)},' for name, value in found.items() if name != "slots"]
    slots = [{"start": clock(at), "kwh": kwh, "g": grams} for at, (kwh, grams) in found["slots"].items()]
    print("\n".join(["{", *lines, '  "slots": [', ",\n".join(f"    {json.dumps(slot)}" for slot in slots), "  ]", "}"]))


if __name__ == "__main__":
    main(sys.argv[1]) if len(sys.argv) == 2 else sys.exit(__doc__.splitlines()[2].strip())
