"""Base class of sources that publish a fuel mix: a subclass says what to request and how to read a row.

`path` names the bodies, `read` parses one into megawatts by the operator's own names, and this class makes the rows:
names become fuels, fuels an intensity, stamps intervals. A new operator is one class (see latest.py, daily.py), an
entry in choose.py and an answer in its real form in tests/grid/operators.py.
"""

from __future__ import annotations

from collections import Counter
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
    """Output of one kind of plant in the interval that begins at start_s; None where it is not yet published."""

    start_s: float
    word: str
    megawatts: float | None


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
        return self.series_of_mix(zone, self.mixes(power for body in bodies for power in self.read(body, zone)), now_s)

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
        """The mix of each interval; one whose mix is incomplete is left out. Raises BadAnswer."""
        mixes: dict[float, dict[str, float]] = {}
        unknown: dict[float, float] = {}
        said: Counter[float] = Counter()
        broken: set[float] = set()
        words: set[str] = set()
        for start_s, word, megawatts in powers:
            mix = mixes.setdefault(start_s, {})
            said[start_s] += 1
            if megawatts is None:
                broken.add(start_s)
            elif word not in self.fuels:
                words.add(word)
                unknown[start_s] = unknown.get(start_s, 0.0) + max(0.0, megawatts)
            elif (fuel := self.fuels[word]) is not None:
                mix[fuel] = mix.get(fuel, 0.0) + megawatts
        starts = sorted(mixes)
        half, known = max(said.values(), default=0) / 2, False
        for k, (start_s, length) in enumerate(zip(starts, steps(starts, self.step_s), strict=True)):
            mix = mixes[start_s]
            generated, strange = sum(power for power in mix.values() if power > 0), unknown.get(start_s, 0.0)
            if strange > STRANGE_SHARE * (generated + strange):
                continue
            known = True
            # an interval with fewer entries than its neighbours, or less than half of the most, is still being written
            around = [said[at] for at in starts[max(0, k - 1) : k + 2] if at != start_s]
            if start_s not in broken and said[start_s] >= max(half, min(around, default=0)):
                yield Mix(start_s, length, mix)
        if unknown and not known:
            raise BadAnswer(f"{self.title} names unknown fuels: {', '.join(sorted(words))[:80]}")


class LocalClock:
    """Local stamps to epoch seconds, in the order of a body: only the order tells the repeated hour of autumn."""

    def __init__(self, zone: ZoneInfo) -> None:
        self._zone = zone
        self._last_s = float("-inf")

    def __call__(self, naive: datetime) -> float:
        """Epoch seconds of a local stamp; the later reading of an ambiguous one where the earlier would go back."""
        at_s = naive.replace(tzinfo=self._zone, fold=0).timestamp()
        if at_s < self._last_s:
            at_s = max(at_s, naive.replace(tzinfo=self._zone, fold=1).timestamp())
        self._last_s = max(at_s, self._last_s)
        return at_s


def amount(text: str) -> float | None:
    """Megawatts of a cell, with or without commas as thousands separators; empty, - and N/A are None. Raises
    ValueError."""
    cleaned = text.replace(",", "").strip()
    return float(cleaned) if cleaned not in ("", "-", "N/A") else None
