"""Base class of sources that publish a fuel mix: a subclass says what to request and how to read a row.

`path` names the bodies, `read` parses one into megawatts by the operator's own names, and this class makes the rows:
names become fuels, fuels an intensity, stamps intervals. A new operator is one class (see latest.py, daily.py), an
entry in choose.py and an answer in its real form in tests/grid/operators.py.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from datetime import date, datetime, timedelta
from typing import ClassVar, NamedTuple
from zoneinfo import ZoneInfo

from carbontui.grid.http import BadAnswer, NoData, NotFound
from carbontui.grid.providers.base import Provider, steps
from carbontui.grid.types import DAY_S, HOUR_S, Answer, Mix, Signal

STRANGE_SHARE = 0.05
"""Largest share of generation under unknown names; with more, the mix is unknown."""


class Power(NamedTuple):
    """Output of one kind of plant in the interval that begins at start_s; None where it is not yet published. Of
    several readings in one interval (body and time), one counts."""

    start_s: float
    word: str
    megawatts: float | None
    reading: tuple[float, ...] = ()


class MixProvider(Provider):
    """One operator's published generation by fuel, turned into direct emissions per kWh generated."""

    signal: ClassVar[Signal] = "average_direct"
    foresees: ClassVar[bool] = False
    window_s: ClassVar[float] = 300.0
    reach_s: ClassVar[float] = DAY_S
    overlap_s: ClassVar[float] = 2 * HOUR_S
    limits: ClassVar[str] = "no forecast, imports not counted"
    zeros: ClassVar[bool] = True

    zones: ClassVar[Mapping[str, str]]
    """Our zone -> the operator's name for it."""
    path: ClassVar[str] = ""
    """What to request; a strftime pattern where there is a file for each local day or month."""
    fuels: ClassVar[Mapping[str, str | None]]
    """The operator's name -> a fuel of `fuels.FACTORS`; None for anything else: storage, exchanges, sums."""
    time_zone: ClassVar[str] = "UTC"
    step_s: ClassVar[float] = 300.0
    keeps_s: ClassVar[float | None] = None
    """How far back it has data; older stretches are not requested."""

    def path_of(self, zone: str) -> str:
        """`path`, where it depends on the zone."""
        return self.path

    def read(self, body: bytes, zone: str) -> Iterable[Power]:
        """The values of one body, in its order. A parsing exception becomes a BadAnswer."""
        raise NotImplementedError

    async def history(self, zone: str, start_s: float, end_s: float, now_s: float) -> Answer:
        if self.keeps_s is not None and end_s < now_s - self.keeps_s:
            raise NoData(f"{self.title} has no data that old")
        bodies = [body async for body in self.request(zone, start_s, end_s, now_s)]
        if not bodies:
            raise NoData(f"{self.title} has no data for these days")
        powers = (one._replace(reading=(n, *one.reading)) for n, b in enumerate(bodies) for one in self.read(b, zone))
        return self.series_of_mix(zone, self.mixes(powers), now_s)

    async def request(self, zone: str, start_s: float, end_s: float, now_s: float) -> AsyncIterator[bytes]:
        """The bodies that cover the stretch, each file once. A missing one is left out; raises NotFound when all are
        missing, or another GridError."""
        missing: NotFound | None = None
        found = False
        for file in dict.fromkeys(day.strftime(self.path_of(zone)) for day in self.days(start_s, end_s)):
            try:
                body = (await self.get(file)).body
            except NotFound as error:
                missing = error
                continue
            found = True
            yield body
        if missing and not found:
            raise missing

    def days(self, start_s: float, end_s: float) -> list[date]:
        """The operator's calendar days that overlap the stretch."""
        first, last = (datetime.fromtimestamp(at, tz=ZoneInfo(self.time_zone)).date() for at in (start_s, end_s - 1))
        return [first + timedelta(days=k) for k in range((last - first).days + 1)]

    def clock(self) -> LocalClock:
        """A reader of the operator's local stamps; a new one for each body."""
        return LocalClock(ZoneInfo(self.time_zone))

    def mixes(self, powers: Iterable[Power]) -> Iterator[Mix]:
        """The mix of each interval, by its most complete reading, of equal ones the last; an interval whose mix is
        incomplete is left out. Raises BadAnswer."""
        readings: dict[float, dict[tuple[float, ...], list[Power]]] = {}
        for power in powers:
            if math.isfinite(power.start_s):  # an hour that does not exist has no values
                readings.setdefault(power.start_s, {}).setdefault(power.reading, []).append(power)
        mine = {start_s: _fullest(readings[start_s]) for start_s in sorted(readings)}
        starts, words, known = list(mine), set[str](), False
        half = max(map(len, mine.values()), default=0) / 2
        for k, (start_s, length) in enumerate(zip(starts, steps(starts, self.step_s), strict=True)):
            mix, strange, here = dict[str, float](), 0.0, mine[start_s]
            for power in here:
                if power.megawatts is not None and power.word not in self.fuels:
                    words.add(power.word)
                    strange += max(0.0, power.megawatts)
                elif power.megawatts is not None and (fuel := self.fuels[power.word]) is not None:
                    mix[fuel] = mix.get(fuel, 0.0) + power.megawatts
            if strange > STRANGE_SHARE * (strange + sum(output for output in mix.values() if output > 0)):
                continue
            known = True
            # an interval with fewer entries than its neighbours, or less than half of the most, is still being written
            around = [len(mine[at]) for at in starts[max(0, k - 1) : k + 2] if at != start_s]
            whole = all(power.megawatts is not None for power in here)
            if whole and len(here) >= max(half, min(around, default=0)):
                yield Mix(start_s, length, mix)
        if words and not known:
            raise BadAnswer(f"{self.title} names unknown fuels: {', '.join(sorted(words))[:80]}")


def _fullest(readings: Mapping[tuple[float, ...], list[Power]]) -> list[Power]:
    known = {at: sum(power.megawatts is not None for power in powers) for at, powers in readings.items()}
    return readings[max(readings, key=lambda at: (known[at], at))]


class LocalClock:
    """Local stamps to epoch seconds, in the order of a body: only the order tells the repeated hour of autumn."""

    def __init__(self, zone: ZoneInfo) -> None:
        self._zone = zone
        self._last_s = float("-inf")

    def __call__(self, naive: datetime) -> float:
        """Epoch seconds of a local stamp; the later reading of an ambiguous one where the earlier would go back; NaN
        for one that the clock skips in spring."""
        at_s = naive.replace(tzinfo=self._zone, fold=0).timestamp()
        if datetime.fromtimestamp(at_s, tz=self._zone).replace(tzinfo=None) != naive:
            return math.nan
        if at_s < self._last_s:
            at_s = max(at_s, naive.replace(tzinfo=self._zone, fold=1).timestamp())
        self._last_s = max(at_s, self._last_s)
        return at_s


def amount(text: str) -> float | None:
    """Megawatts of a cell, with or without commas as thousands separators; empty, - and N/A are None. Raises
    ValueError."""
    cleaned = text.replace(",", "").strip()
    return float(cleaned) if cleaned not in ("", "-", "N/A") else None
