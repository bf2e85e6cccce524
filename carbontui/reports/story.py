"""One job's run as a frozen value, built from its journal alone: the content of every report format.

Read-only, also beside a live supervisor. Times are epoch seconds of the job's clock (a replay's runs faster).
"""

import contextlib
import json
import math
import sqlite3
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from carbontui import __version__, protocol, units
from carbontui.account import accounts
from carbontui.account.accounts import RunNow
from carbontui.account.boundary import waits_count, without_device
from carbontui.account.compare import Embodied, embodied
from carbontui.account.elapsed import EXCLUDED, as_booked
from carbontui.account.split import EnergyBin, Split, StateSpan
from carbontui.job.files import journal, store
from carbontui.job.terms import spec
from carbontui.job.terms.spec import Options
from carbontui.reports import parts, places
from carbontui.reports.parts import Chart, EpochPart, Part, draw, summed
from carbontui.reports.places import GridRow, uncertainty

STEP_ROWS = 4000
"""Most step reports read: enough to place a month's work to within ten minutes."""
DECISIONS = 400
"""Most decisions kept; of more, the first and the last."""
JOURNAL_MOST_B = 64 << 20
"""A live job's journal above this size is not read at every look: that takes a second. `report` reads any size."""


class NoStory(LookupError):
    """The journal holds no run to report; the text says why, in one line."""


@dataclass(frozen=True, slots=True)
class PastDecision:
    """A decision by the plan or a user: its reason code and text."""

    at_s: float
    kind: str
    state: str
    code: str
    text: str


class FirstForecast(NamedTuple):
    """What the first plan expected of the whole job: when it would be done, grams and their 80 % band."""

    at_s: float
    finish_s: float
    gco2_g: float
    band_g: tuple[float, float] | None


@dataclass(frozen=True, slots=True)
class RunStory:
    """All figures of a run. Grams and `split` are None where no intensity or no watts at full speed are known."""

    status: protocol.Status
    options: Options
    start_s: float
    end_s: float
    done_s: float
    full_wall_w: float | None
    host_w: float
    """What counts besides boards, CPU and memory."""
    run_now: RunNow | None
    """None where it is not known."""
    account: protocol.Account
    excluded: tuple[protocol.Excluded, ...]
    gaps: tuple[Part, ...]
    energy_gpu_kwh: float
    energy_wall_kwh: float
    gco2_g: float | None
    avoided_g: float | None
    split: Split | None
    by_state: tuple[Part, ...]
    by_device: tuple[Part, ...]
    by_kind: dict[str, float]
    """kWh at the wall of boards, memory, and all else, without what idles anyway."""
    driver: str
    """Of its boards: 'nvml 580.82.07'; '' where none was read."""
    how: tuple[tuple[str, float], ...]
    """How the joules were metered, as shares, largest first."""
    grid_kinds: tuple[tuple[str, float], ...]
    """Share of the energy whose intensity is actual, estimated or forecast (or unknown), largest first."""
    sources: tuple[str, ...]
    spans: tuple[StateSpan, ...]
    decisions: tuple[PastDecision, ...]
    left_out: int
    plans: int
    worst_gap: float | None
    chart: Chart
    epochs: tuple[EpochPart, ...] = ()
    days: tuple[Part, ...] = ()
    """Of a run of more than two parts."""
    revisions: tuple[str, ...] = ()
    """Later corrections by grid sources to values already booked, as text."""
    held_s: float | None = None
    """For how long the job has held its boards."""
    revised_g: float = 0.0
    """Their total effect on the emitted grams."""
    first: FirstForecast | None = None
    version: str = ""
    notes: tuple[str, ...] = ()

    @property
    def over(self) -> bool:
        return self.status.state not in protocol.LIVE_STATES

    @property
    def unmetered(self) -> bool:
        """Whether it is over without metered energy: its consumption is unknown, not 0."""
        return self.over and not self.how and self.energy_wall_kwh <= 0 and not self.excluded

    @property
    def elapsed_s(self) -> float:
        return max(0.0, self.end_s - self.start_s)

    @property
    def embodied(self) -> Embodied | None:
        """What making its boards emitted, no part of its grams; None where it is not known."""
        names = [gpu.name for gpu in self.status.gpus]
        return embodied(names, self.options.embodied, self.held_s) if self.held_s else None

    @property
    def intensity_mean(self) -> float | None:
        """gCO2/kWh, weighted by energy."""
        return None if self.gco2_g is None or self.energy_wall_kwh <= 0 else self.gco2_g / self.energy_wall_kwh

    @property
    def run_now_g(self) -> float | None:
        """None where it is not known, or where no lever acted."""
        return self.account.so_far.run_now_g


def build(job: store.Job, *, status: protocol.Status | None = None, version: str = __version__) -> RunStory:
    """The story of a job; `status` where it is alive and was just asked. Raises NoStory."""
    try:
        options = spec.load(job.dir)
    except (OSError, ValueError) as error:
        raise NoStory(f"job {job.id}: spec.json cannot be read ({error})") from None
    try:
        with journal.read(job.dir / "journal.db") as db:
            found, most = db.execute("pragma user_version").fetchone()[0], journal.SCHEMA_VERSION
            if found > most:
                raise NoStory(f"job {job.id}: its journal has schema {found}, newer than this carbontui ({most})")
            return _read(db, options, status or job.status(), version)
    except FileNotFoundError:
        raise NoStory(f"job {job.id} has no journal yet: no journal.db in {job.dir}") from None
    except sqlite3.DatabaseError as error:
        raise NoStory(f"job {job.id}: journal.db: {journal.why_not(error)}") from None
    except KeyError as error:
        why = f"an older carbontui, which had no {error}; report it with that version"
        raise NoStory(f"job {job.id}: journal.db was written by {why}") from None
    except (ArithmeticError, AttributeError, IndexError, RecursionError, TypeError, ValueError) as error:
        raise NoStory(f"job {job.id}: journal.db holds values that no job can have ({error!s:.120})") from None


def at_observation(job: store.Job, status: protocol.Status) -> RunStory | None:
    """Its story, for a look at what each lever avoided; None where that is unknown, another host's, or takes too
    long."""
    if status.avoided_g is None or job.foreign:
        return None
    with contextlib.suppress(NoStory, OSError):
        if status.state not in protocol.LIVE_STATES or (job.dir / "journal.db").stat().st_size <= JOURNAL_MOST_B:
            return build(job, status=status)
    return None


def _read(db: sqlite3.Connection, options: Options, status: protocol.Status, version: str) -> RunStory:
    said = _state(db, "accounts")
    if not said:
        raise NoStory(f"job {options.job} has nothing to report yet: no energy was metered ({status.reason.text})")
    books = _state(db, "books")
    at_each = places.of_books(said, books)
    rows = places.energy(db, at_each, books, options.pue)
    counted = [row for row in rows if row.state not in EXCLUDED and (waits_count(said) or row.state != "waiting")]
    rows_of_grid = _grid(db)
    bins = accounts.mean_per_bin([row[:3] for row in rows_of_grid])
    grams_of = places.grams_per_kwh(at_each, rows_of_grid)
    start_s, done_s = float(said["start_s"]), float(said["done_s"])
    spans, decisions, plans, worst_gap, end_s = _events(db, start_s, float(units.from_iso(status.measured_at)))
    elapsed = books.get("lived") or {}
    if status.state not in protocol.LIVE_STATES and status.exit is not None and status.exit.at is not None:
        end_s = units.from_iso(status.exit.at)
    elif elapsed:
        end_s = float(elapsed["until_s"])
    spans = [StateSpan(span.start_s, min(span.end_s, end_s), span.state) for span in spans if span.start_s <= end_s]
    cells = parts.cells(counted, options.pue)
    run_now = places.run_now(at_each)
    acted = run_now is not None and run_now.acted
    steps, before = _steps(db), int(said.get("earlier") or 0)
    found: Split | None = None
    if grams_of is not None and run_now is not None and acted and said.get("avoided_g") is not None:
        found = places.split(
            at_each, cells, spans, [(at, step - before) for at, step, _ in steps], grams_of,
            _parked_w(db, status, options, said),
            uncertainty(db, status, rows_of_grid, _state(db, "progress"), status.step or 0),
        )  # fmt: skip
    ends = [*decisions[: DECISIONS // 2], *decisions[-DECISIONS // 2 :]]
    shown = tuple(decisions if len(decisions) <= DECISIONS else ends)
    revisions = _revisions(db)
    energy_kwh, gco2_g = float(said["energy_wall_kwh"]), said.get("gco2_g")
    return RunStory(
        status=status,
        options=options,
        start_s=start_s,
        end_s=end_s,
        done_s=done_s,
        full_wall_w=said.get("full_wall_w"),
        host_w=float(said.get("host_w") or options.host_w or 0.0),
        run_now=run_now,
        account=msgspec.convert(said["account"], protocol.Account),
        excluded=msgspec.convert(said.get("excluded") or (), tuple[protocol.Excluded, ...]),
        gaps=tuple(Part(reason, float(seconds), 0.0, None) for reason, seconds in elapsed.get("gaps", {}).items()),
        energy_gpu_kwh=float(said["energy_gpu_kwh"]),
        energy_wall_kwh=energy_kwh,
        gco2_g=gco2_g,
        avoided_g=said.get("avoided_g"),
        split=found,
        by_state=parts.by_name(
            [(cell.state, cell.bin_s, cell.joules) for cell in cells],
            elapsed.get("by_state") or summed((span.state, span.end_s - span.start_s) for span in spans),
            grams_of,
        ),
        by_device=parts.by_name(
            [(without_device(row.device), row.bin_s, row.joules * options.pue) for row in counted],
            summed((without_device(row.device), row.seconds) for row in counted),
            grams_of,
        ),
        by_kind=summed((parts.kind_of(row.device), units.joules_to_kwh(row.joules * options.pue)) for row in counted),
        driver=str(said.get("driver") or ""),
        how=_shares([(row.how, row.joules) for row in counted if row.joules > 0]),
        grid_kinds=_grid_kinds(cells, rows_of_grid),
        sources=tuple(dict.fromkeys(str(row.source) for row in rows_of_grid)),
        spans=tuple(spans),
        decisions=shown,
        left_out=len(decisions) - len(shown),
        plans=plans,
        worst_gap=worst_gap,
        chart=draw(counted, options.pue, bins, grams_of, steps, start_s, end_s, at_each if acted else ()),
        epochs=parts.by_epoch(
            parts.begins(db),
            cells,
            grams_of,
            steps,
            start_s=start_s,
            end_s=end_s,
            steps=status.step or 0,
            kwh=energy_kwh,
            gco2_g=gco2_g,
        ),
        days=parts.by_day(cells, spans, grams_of),
        held_s=books.get("held_s"),
        revisions=tuple(text for text, _ in revisions),
        revised_g=math.fsum(grams for _, grams in revisions),
        first=_first_said(db),
        version=version,
        notes=tuple(_state(db, "missing").values()),
    )


def _grid(db: sqlite3.Connection) -> list[GridRow]:
    rows = db.execute(
        "select start, dur, value, kind, source from grid"
        f" where signal != 'price' and {journal.GRID_SOUND} order by start"
    )
    return [GridRow(*row) for row in rows]


def _grid_kinds(cells: list[EnergyBin], rows: list[GridRow]) -> tuple[tuple[str, float], ...]:
    of: dict[float, str] = {}
    for row in rows:
        for at, _ in accounts.split(row.start_s, row.start_s + row.dur_s):
            of[at] = row.kind
    return _shares([(of.get(accounts.bin_of(cell.bin_s), "unknown"), cell.joules) for cell in cells])


def _shares(weights: list[tuple[str, float]]) -> tuple[tuple[str, float], ...]:
    sums = summed(weights)
    total = sum(sums.values())
    return tuple(sorted(((n, w / total) for n, w in sums.items() if w > 0), key=lambda p: -p[1])) if total > 0 else ()


def _events(
    db: sqlite3.Connection, start_s: float, now_s: float
) -> tuple[list[StateSpan], list[PastDecision], int, float | None, float]:
    """Spans of states, decisions, plans made, the widest gap of a certificate, and when it ended: by the journal, else
    `now_s` (its status may say that it is over a moment before the journal does)."""
    spans: list[StateSpan] = []
    decisions: list[PastDecision] = []
    plans, worst = 0, None
    state, since, last = "starting", start_s, start_s
    over = False
    for at, kind, text in db.execute(f"select at, kind, data from event where {journal.AT_SOUND} order by rowid"):
        try:
            facts = json.loads(text)
        except ValueError:
            continue
        if kind == "state":
            spans.append(StateSpan(since, max(since, at), state))
            state, since = as_booked(str(facts.get("state", state)), str(facts.get("reason"))), at
            over = state not in protocol.LIVE_STATES
            # a limit is set a moment after the training resumes: the decision was the cap
            capped = state == "running" and facts.get("level_kind") == "cap"
            decided = "throttled" if capped else state
            why = str(facts.get("reason", "")), str(facts.get("text", ""))
            decisions.append(PastDecision(at, "state", decided, *why))
        elif kind == "plan":
            plans += 1
            gap = facts.get("gap")
            worst = gap if worst is None else max(worst, gap or 0.0)
        elif kind in ("override", "budget", "stop", "override_over"):
            said = " ".join(str(facts[key]) for key in ("mode", "verb", "value_w", "budget") if facts.get(key))
            decisions.append(PastDecision(at, kind, state, "person", f"{kind.replace('_', ' ')} {said}".strip()))
        if not over or kind in ("state", "end"):
            last = max(last, at)
    if not over:
        spans.append(StateSpan(since, max(since, now_s), state))
        last = max(last, now_s)
    return spans, decisions, plans, worst, last


def _first_said(db: sqlite3.Connection) -> FirstForecast | None:
    """What the first plan that knew its whole said."""
    rows = db.execute(f"select at, data from event where kind='plan' and {journal.AT_SOUND} order by rowid limit 20")
    for at, text in rows:
        with contextlib.suppress(ValueError, KeyError, TypeError):
            facts = json.loads(text)
            band = (float(facts["whole_lo_g"]), float(facts["whole_hi_g"])) if facts.get("whole_lo_g") else None
            return FirstForecast(float(at), units.from_iso(str(facts["finish"])), float(facts["whole_g"]), band)
    return None


def _revisions(db: sqlite3.Connection) -> list[tuple[str, float]]:
    """(text, grams) of every revision booked."""
    found = []
    for (text,) in db.execute("select data from event where kind='revised' order by rowid"):
        with contextlib.suppress(ValueError, KeyError, TypeError):
            facts = json.loads(text)
            found.append((units.printable(str(facts["text"])), float(facts["gco2_g"])))
    return found


def _steps(db: sqlite3.Connection) -> list[tuple[float, float, float | None]]:
    """(at, steps done, loss) of at most STEP_ROWS reports, evenly apart, and the last."""
    last = db.execute("select max(rowid) from steps").fetchone()[0] or 0
    every = max(1, -(-last // STEP_ROWS))
    wanted = [*range(1, last, every), last] if last else []
    found: list[tuple[float, float, float | None]] = []
    for index in wanted:
        row = db.execute(f"select at, step, loss from steps where rowid=? and {journal.AT_SOUND}", (index,)).fetchone()
        if row is not None:
            found.append((row[0], float(row[1]), row[2]))
    return found


def _parked_w(db: sqlite3.Connection, status: protocol.Status, options: Options, facts: dict[str, Any]) -> float | None:
    """Watts that count at the wall while parked; None until every board's parked watts were measured."""
    if "parked_wall_w" in facts:
        kept_w: float | None = facts["parked_wall_w"]
        return kept_w
    learned = _state(db, "learned")
    boards = [mean[0] for mean in (learned.get("parked_w") or {}).values() if mean and mean[0] is not None]
    if not boards or len(boards) < len(status.gpus):
        return None
    rest = (learned.get("rest_parked_w") or [None])[0] or 0.0
    return (math.fsum(boards) + float(rest) + (options.host_w or 0.0)) * options.pue


def _state(db: sqlite3.Connection, key: str) -> dict[str, Any]:
    row = db.execute("select value from state where key=?", (key,)).fetchone()
    try:
        found = json.loads(row[0]) if row else {}
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {"text": found} if found else {}
