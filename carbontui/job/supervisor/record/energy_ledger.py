"""The energy ledger: every joule of the job, merged into journal rows and binned for the accounts.

A row never crosses a change of state, a bin of the accounts, or ten seconds of wall time, so that an independent reader
of the journal arrives at the same grams.
"""

import contextlib
import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from carbontui import units
from carbontui.account import accounts
from carbontui.account.boundary import IDLE, Counted, Kind, counted, place_of, without_device
from carbontui.account.elapsed import EXCLUDED
from carbontui.power.messages import Sample
from carbontui.system import untrusted

FILE = "first-count.json"
AVERAGE_S, UNREAD_S = 1.0, 15.0
NEAR_S = 60.0
"""A count older than this is from another start or a slow driver: its interval would be a guess."""


class _Row(msgspec.Struct, array_like=True):
    uuid: str
    mono_s: float
    wall_s: float
    energy_mj: int | None
    power_mw: int | None


class FirstCounts:
    """The file is read when a board's first sample arrives; by then it exists or never will."""

    def __init__(self, directory: Path, created_s: float = 0.0) -> None:
        self._path, self._created_s = directory / FILE, created_s

    @cached_property
    def _rows(self) -> dict[str, _Row]:
        with contextlib.suppress(OSError, ValueError):
            return {row.uuid: row for row in untrusted.decode(self._path.read_bytes(), list[_Row])}
        return {}

    def before(self, sample: Sample) -> list[Sample]:
        """What is known of this board before its first `sample`, earliest first: its count at the command's start, or
        the second that a 1 s average covers and, without a counter, what it drew in the mean since that start."""
        row, found = self._rows.pop(sample.uuid, None), []
        since_s = 0.0 if row is None else sample.mono_s - row.mono_s
        if row is not None and row.energy_mj is not None and sample.energy_uj is not None:
            return [_earlier(sample, since_s, None, row.energy_mj * 1000)] if 0 < since_s < NEAR_S else []
        if sample.kind == "avg1s" and sample.wall_s - self._created_s >= AVERAGE_S:
            found = [_earlier(sample, AVERAGE_S, sample.power_w)]
        if row is not None and sample.energy_uj is None and AVERAGE_S * len(found) < since_s < UNREAD_S:
            mean_w = sample.power_w if row.power_mw is None else row.power_mw / 1000
            found.insert(0, _earlier(sample, since_s, mean_w))
        return found


def _earlier(sample: Sample, by_s: float, power_w: float | None, energy_uj: int | None = None) -> Sample:
    times = {"mono_s": sample.mono_s - by_s, "wall_s": sample.wall_s - by_s}
    return msgspec.structs.replace(sample, energy_uj=energy_uj, power_w=power_w, **times)


ROW_WALL_S = 10.0


@dataclass
class _Open:
    t0: float
    t1: float
    joules: float
    how: str
    state: str
    wall_s: float


@dataclass
class EnergyLedger:
    """Joules by device and bin. `gpu_j` is what the boards drew, `rest_j` CPU and host; PUE is applied on reading."""

    pue: float = 1.0
    boundary: Kind = "given-back"
    gives_back: bool = False
    gpu_j: float = 0.0
    rest_j: float = 0.0
    idle_doubt_j: float = 0.0
    """By how much the joules may be wrong that are nobody's."""
    by_how: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    gpu_by_how: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    """Joules of the boards only, by how they were metered."""
    by_board: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    bins: accounts.Bins = field(default_factory=accounts.Bins)
    apart: dict[str, accounts.Bins] = field(default_factory=lambda: defaultdict(accounts.Bins))
    """Joules that the account excludes, by reason: rows are booked with it as their state."""
    rows: list[tuple[float, float, str, float, str, str]] = field(default_factory=list)
    _open: dict[str, _Open] = field(default_factory=dict)

    def add(
        self, device: str, t0: float, t1: float, joules: float, how: str, state: str, wall_s: float, *, gpu: bool
    ) -> None:
        """Book `joules` of `device` over [t0, t1) of the job's clock, where they count."""
        bins = self._bins_of(state)
        if bins is None:
            return
        if bins is self.bins:
            if gpu:
                self.gpu_j += joules
                self.gpu_by_how[how] += joules
                self.by_board[device] += joules
            else:
                self.rest_j += joules
            if gpu or joules > 0:  # what is nobody's was not metered less
                self.by_how[how] += joules
        for start, share in accounts.split(t0, t1):
            bins[start] += joules * share
            a, b = max(t0, start), min(t1, start + accounts.BIN_S)
            self._row(device, a, b, joules * share, how, state, wall_s)

    def take_back(self, device: str, t0: float, joules: float, how: str, state: str) -> None:
        """Subtract one journal row of a board that turned out not to be the job's, or of its idle watts."""
        self.by_board.pop(device, None)
        bins, idle = self._bins_of(state), without_device(device) == IDLE
        if bins is self.bins:
            if idle:
                self.rest_j -= joules
            else:
                self.gpu_j = max(0.0, self.gpu_j - joules)
                for table in (self.by_how, self.gpu_by_how):
                    table[how] = max(0.0, table[how] - joules)
        if bins is not None:
            bins[t0 // accounts.BIN_S * accounts.BIN_S] -= joules

    def counted(self, state: str) -> Counted:
        """What counts of the watts drawn in `state`."""
        return counted(self.boundary, place_of(state), gives_back=self.gives_back)

    def _bins_of(self, state: str) -> accounts.Bins | None:
        """Where joules booked in `state` belong; None: nowhere."""
        if state in EXCLUDED:
            return self.apart[state]
        return None if self.counted(state) == "nothing" else self.bins

    def _row(self, device: str, t0: float, t1: float, joules: float, how: str, state: str, wall_s: float) -> None:
        held = self._open.get(device)
        if held is not None:
            same = (held.how, held.state) == (how, state) and abs(held.t1 - t0) < 1e-6
            same_bin = held.t0 // accounts.BIN_S == t0 // accounts.BIN_S
            if same and same_bin and wall_s - held.wall_s < ROW_WALL_S:
                held.t1, held.joules = t1, held.joules + joules
                return
            self._shut(device, held)
        self._open[device] = _Open(t0, t1, joules, how, state, wall_s)

    def _shut(self, device: str, row: _Open) -> None:
        self.rows.append((row.t0, row.t1, device, row.joules, row.how, row.state))

    def drain(self, *, everything: bool = False) -> list[tuple[float, float, str, float, str, str]]:
        """Closed rows for the journal; with `everything`, the open ones too."""
        if everything:
            for device, held in self._open.items():
                self._shut(device, held)
            self._open.clear()
        rows, self.rows = self.rows, []
        return rows

    @property
    def first_s(self) -> float:
        """Start of the first bin that holds joules; infinite before any."""
        return min(self.bins, default=math.inf)

    @property
    def gpu_kwh(self) -> float:
        return units.joules_to_kwh(self.gpu_j)

    @property
    def wall_kwh(self) -> float:
        return units.joules_to_kwh((self.gpu_j + self.rest_j) * self.pue)

    def to_dict(self) -> dict[str, Any]:
        """What the journal's rows do not contain yet: totals and the open rows."""
        held = {device: [row.t0, row.t1, row.joules, row.how, row.state] for device, row in self._open.items()}
        hows = {"by_how": dict(self.by_how), "gpu_by_how": dict(self.gpu_by_how), "by_board": dict(self.by_board)}
        return {"gpu_j": self.gpu_j, "rest_j": self.rest_j, "idle_doubt_j": self.idle_doubt_j, **hows, "open": held}

    def forget(self) -> None:
        """Keep only the totals: rows and bins have been summed up elsewhere."""
        self.bins.clear()
        self.apart.clear()
        self._open.clear()
        self.rows.clear()

    def leave(self, pue: float) -> None:
        """Keep only the totals at the wall, and go on at a machine with this PUE: what was booked so far is summed up
        elsewhere. Rows that are still open must have been drained."""
        self.rest_j = (self.gpu_j + self.rest_j) * self.pue / pue - self.gpu_j
        self.pue = pue
        self.bins.clear()

    def restore(self, kept: dict[str, Any], rows: Iterable[tuple[float, float, float, str]], wall_s: float) -> None:
        """Continue from what a predecessor kept and from the journal's rows (t0, t1, joules, state)."""
        self.gpu_j, self.rest_j = float(kept["gpu_j"]), float(kept["rest_j"])
        self.idle_doubt_j = float(kept.get("idle_doubt_j", 0.0))
        self.by_how.update(kept["by_how"])
        self.gpu_by_how.update(kept.get("gpu_by_how", {}))
        self.by_board.update(kept.get("by_board", {}))
        for device, (t0, t1, joules, how, state) in kept["open"].items():
            self._open[device] = _Open(t0, t1, joules, how, state, wall_s)
        still_open = [(row.t0, row.t1, row.joules, row.state) for row in self._open.values()]
        for t0, _, joules, state in [*rows, *still_open]:
            if (bins := self._bins_of(state)) is not None:
                bins[t0 // accounts.BIN_S * accounts.BIN_S] += joules
