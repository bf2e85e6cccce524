"""The network half of a feed: queries a zone's sources in order, through the cache, and keeps their answers."""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from carbontui.grid import choose, clean, compose, issues, truth
from carbontui.grid.cache import Cache, Entry, Turn
from carbontui.grid.http import GridError, Http, NoData, Unreachable, in_thread
from carbontui.grid.providers.base import Provider
from carbontui.grid.settings import GridSettings
from carbontui.grid.types import DAY_S, Answer, GridForecast, Row, Series
from carbontui.protocol import GridSource
from carbontui.units import iso

T = TypeVar("T")
Question: TypeAlias = Callable[[Series | None], Coroutine[Any, Any, Answer]]
"""Asks a provider, given its last answer."""

REFRESH_S = 30.0
"""A refresh ends after this, however many sources are silent."""
QUESTION_S = 22.0
"""A question of several requests ends before that, so that a slow forecast never delays the current values."""
GRACE_S = 1.0
"""For a thread that overruns its own deadline."""
AHEAD_S = 4 * DAY_S
DEPTH_S = 56 * DAY_S
"""How much history is collected for the forecast, one stretch per window."""
BACKFILL_S = 300.0
SAID_KEPT_S = 2 * DAY_S
SKEW_S = 120.0
SECOND_S = 3600.0
"""How often a second source of the zone is queried for comparison."""
OPINION_S = 6.0
"""How long to wait for it: the first one's answer is already there."""


class Live:
    """The answers of a zone's providers so far; `refresh` never raises."""

    def __init__(
        self, zone: str, settings: GridSettings, now: Callable[[], float], cache: Path | None, http: Http | None = None
    ) -> None:
        self.zone = zone
        self.http = http or Http()
        self.history: Series | None = None
        self._trusted: Series | None = None
        """The history as of the last time two sources agreed."""
        self.published: Series | None = None
        self.price: Series | None = None
        self.issues: issues.Issues = []
        self.truth = truth.ForecastRecord()
        self.difference_error: float | None = None
        self._issued_s = 0.0
        self.note = ""
        self._ahead_s = 0.0
        """How far the last answers of the source in use lay in the future of this machine's clock."""
        self.source: Provider | None = None
        self._settings = settings
        self._now = now
        self._cache = Cache(cache, now)
        self._carbon = choose.carbon(zone, self.http, settings)
        self.price_zone = settings.price_zone or zone
        self._prices = choose.prices(self.price_zone, self.http, settings)
        self._states: dict[str, GridSource] = {}
        self.next_s = 0.0

    @property
    def sources(self) -> tuple[GridSource, ...]:
        return tuple(self._states.get(p.name) or self._unasked(p) for p in [*self._carbon, *self._prices])

    async def refresh(self) -> None:
        """Query the sources once; at most one request per source, question and window."""
        self.next_s = self._now() + BACKFILL_S
        try:
            await asyncio.wait_for(self._round(), REFRESH_S)
        except asyncio.TimeoutError:
            self.note = f"the grid sources did not answer within {REFRESH_S:.0f} s"
        except Exception as error:  # a bug here must never end a job
            self.note = f"the grid feed failed ({type(error).__name__}); the last known values are kept"

    async def keep_truth(self, said: GridForecast | None) -> None:
        """Compare earlier forecasts with the values since, and record the current one (None: none); never raises."""
        if self.source is None:
            return
        actual = self.history.rows if self.history else ()
        key = f"truth-{self.zone}-{self.source.signal}"

        def change(kept: truth.ForecastRecord | None) -> truth.ForecastRecord:
            record = truth.judged(kept or truth.ForecastRecord(), actual, self._now())
            return truth.issued(record, said, self._now()) if said else record

        with contextlib.suppress(Exception):  # a fault in measuring a forecast must not prevent its use
            self.truth = await self._cache.keep(key, truth.ForecastRecord, change)
            self.difference_error = truth.difference_error(self.truth)

    async def _round(self) -> None:
        opens: list[float] = []
        faults: list[str] = []
        for provider in self._carbon:
            if not choose.usable(provider, self._settings):
                continue
            history, forecast = await self._ask(provider, opens)
            self._ahead_s = max(entry.series.ahead_s if entry.series else 0.0 for entry in (history, forecast))
            state = self._states[provider.name] = self._judge(provider, history, forecast, self._now())
            if state.state == "answers":
                faults += await self._take_nearest(provider, history, forecast, opens)
                break
            if self.source is None and (history.series or forecast.series):
                await self._take(provider, history.series, forecast.series)
            faults.append(state.note or f"{provider.title}: {state.state}")
        else:
            if self.source is not None:
                faults.append(f"keeping the last answer of {self.source.title}")
        await self._ask_price(opens, faults)
        self.note = "; ".join([*faults, *self._remarks()])[:240]
        if opens:
            self.next_s = max(self._now() + 5.0, min(opens))

    def _remarks(self) -> list[str]:
        shown = self.published or self.history
        if self._ahead_s:
            return [clean.ahead_note(self._ahead_s)]
        if self.source is not None and shown is not None and shown.source != self.source.title:
            return [f"no values for {self.zone}: showing {shown.source}"]
        skew_s = self.http.skew_s
        if skew_s is not None and abs(skew_s) > SKEW_S:
            side = "behind" if skew_s > 0 else "ahead of"
            return [f"this machine's clock is {abs(skew_s) / 60:.0f} min {side} the provider's"]
        return []

    async def _ask(self, provider: Provider, opens: list[float]) -> tuple[Entry, Entry]:
        """Its history and its forecast; an empty entry for one that it does not have."""
        zone, now_s = self.zone, self._now()
        asked = [self._ask_history(provider, provider.window_s)]
        if provider.foresees:
            window_s = provider.forecast_window_s or provider.window_s
            ahead = _always(provider.forecast, zone, now_s + AHEAD_S, now_s)
            asked.append(self._cached(provider, zone, "forecast", window_s, ahead, SAID_KEPT_S))
        answers = await asyncio.gather(*asked)
        opens += [entry.next_s for entry in answers]
        return answers[0], answers[1] if provider.foresees else Entry()

    async def _cached(
        self, provider: Provider, zone: str, question: str, window_s: float, ask: Question, kept_s: float = DEPTH_S
    ) -> Entry:
        """The provider's answer, joined to its last one."""

        async def fetch(old: Entry) -> Answer:
            try:
                found, notes = await _in_time(provider, ask(old.series))
            except GridError as error:
                if question == "past":  # nothing waits for older values
                    wait_s = DAY_S if isinstance(error, NoData) else 3600.0
                    error.retry_after_s = max(error.retry_after_s or 0.0, wait_s)
                raise
            return _joined(old.series, found, self._now(), kept_s), notes

        # past and future prices are one data set
        data_set = "price" if provider.signal == "price" else "forecast" if question == "forecast" else "history"
        turn = Turn(f"{provider.name}-{data_set}", provider.spacing_s) if provider.spacing_s else None
        return await self._cache.ask(f"{provider.name}-{zone}-{question}", window_s, fetch, turn)

    async def _ask_history(self, provider: Provider, window_s: float) -> Entry:
        zone, now_s = self.zone, self._now()

        async def recent(old: Series | None) -> Answer:
            start_s = max(now_s - provider.reach_s, old.rows[-1].start_s - provider.overlap_s if old else 0.0)
            try:
                return await provider.history(zone, start_s, now_s, now_s)
            except NoData:
                # a source without recent measured values may still have a forecast
                if old is None:
                    raise
                return old, ("no new value",)

        return await self._cached(provider, zone, "history", window_s, recent)

    async def again(self, source: str, start_s: float, end_s: float) -> tuple[Row, ...]:
        """The current values of past hours from the source with that title, requested in stretches that it allows.
        Raises GridError."""
        titled = (p for p in self._carbon if p.title == source)
        provider = next((p for p in titled if choose.usable(p, self._settings)), None)
        if provider is None:
            raise NoData(f"{source}: past values cannot be requested here")
        rows: list[Row] = []
        at = start_s
        while at < end_s:
            until = min(end_s, at + provider.reach_s)
            past = _always(provider.history, self.zone, at, until, self._now())
            question = f"again-{at:.0f}-{until:.0f}"
            entry = await self._cached(provider, self.zone, question, provider.window_s, past)
            if entry.series is None or entry.fault:
                raise NoData(entry.fault or "; ".join(entry.notes) or f"{source} does not answer")
            rows += entry.series.rows
            at = until
        return tuple(row for row in rows if row.end_s > start_s and row.start_s < end_s)

    async def _take_nearest(self, first: Provider, history: Entry, forecast: Entry, opens: list[float]) -> list[str]:
        """Take the answer of `first`, unless the next source of the same signal differs by a factor of two and is
        nearer to the usual level. Returns a line on any such disagreement."""
        second = self._second(first)
        opinion = Entry()
        if second:
            with contextlib.suppress(asyncio.TimeoutError):
                asked = self._ask_history(second, max(second.window_s, SECOND_S))
                opinion = await asyncio.wait_for(asked, OPINION_S)
                self._states[second.name] = self._judge(second, opinion, Entry(), self._now())
        found = None
        if history.series and opinion.series:
            found = compose.disagreement(history.series, opinion.series, self._trusted, self._now())
        if second and found and found.second_is_nearer:
            await self._take(second, opinion.series, None)
        else:
            await self._take(first, history.series, forecast.series)
            if history.series is not None and not history.fault:
                past = await self._backfill(first, self.zone, history.series)
                opens.append(past.next_s)
                if self.history is not None:
                    self.history = _joined(past.series, self.history, self._now())
        if not second or not found:
            self._trusted = self.history if opinion.series else self._trusted
            return []
        taken = second if found.second_is_nearer else first
        said = f"{first.title} says {found.first_g:.0f} g, {second.title} {found.second_g:.0f} g for the same hours"
        return [f"{said}: using {taken.title}, nearer to the usual {found.usual_g:.0f} g"]

    def _second(self, first: Provider) -> Provider | None:
        """The next usable source after `first` with the same signal and a history."""
        later = self._carbon[self._carbon.index(first) + 1 :]
        fit = (p for p in later if p.signal == first.signal and choose.usable(p, self._settings))
        return next(fit, None)

    def _judge(self, provider: Provider, history: Entry, forecast: Entry, now_s: float) -> GridSource:
        fault = history.fault or forecast.fault
        fetched_s = max(history.asked_at_s, forecast.asked_at_s)
        newest_s = history.series.end_s if history.series else 0.0
        expects = forecast.series is not None and forecast.series.end_s > now_s + 3600
        notes = "; ".join([*([fault] if fault else []), *history.notes, *forecast.notes])
        answers = now_s - newest_s <= provider.late_s or (expects and not forecast.fault)
        if not answers and not fault and newest_s:
            notes = f"{provider.title}: newest value {(now_s - newest_s) / 3600:.0f} h old"
        word = "answers" if answers else "fails" if fault else "stale"
        return _state(provider, word, fetched_s, fault if word == "fails" else notes)

    async def _take(self, provider: Provider, history: Series | None, forecast: Series | None) -> None:
        if self.source is not None and self.source.name != provider.name:
            # another source may count other gases or imports: no rows of the old one stay in the series
            self.history, self.published, self.issues, self._issued_s = None, None, [], 0.0
        self.source = provider
        if history is not None:
            self.history = _joined(self.history, history, self._now())
        if forecast is not None:
            self.published = _joined(self.published, forecast, self._now())
            issue = issues.issue_of(forecast, self._now())
            if issue["issued_at_s"] > self._issued_s:
                self._issued_s = issue["issued_at_s"]
                self.issues = await self._cache.add_issue(f"{provider.name}-{self.zone}-issues", issue)

    async def _backfill(self, provider: Provider, zone: str, known: Series) -> Entry:
        """Fetch one older stretch per window, until the forecast has enough to learn from."""
        entry = await self._cache.peek(f"{provider.name}-{zone}-past")
        oldest_s = (entry.series or known).rows[0].start_s
        if oldest_s <= self._now() - DEPTH_S:
            return Entry(entry.series, next_s=self._now() + DAY_S)

        async def older(old: Series | None) -> Answer:
            end_s = (old or known).rows[0].start_s
            found = await provider.history(zone, end_s - provider.reach_s, end_s, self._now())
            if found[0].rows[0].start_s >= end_s:
                raise NoData(f"{provider.title} has no older values")
            return found

        return await self._cached(provider, zone, "past", BACKFILL_S, older)

    async def _ask_price(self, opens: list[float], faults: list[str]) -> None:
        now_s, zone = self._now(), self.price_zone
        for provider in self._prices:
            if not choose.usable(provider, self._settings):
                continue
            ahead = _always(provider.forecast, zone, now_s + 2 * DAY_S, now_s)
            entry = await self._cached(provider, zone, "forecast", provider.window_s, ahead)
            opens.append(entry.next_s)
            good = entry.series is not None and entry.series.end_s > now_s
            word = "answers" if good else "fails" if entry.fault else "stale"
            self._states[provider.name] = _state(provider, word, entry.asked_at_s, entry.fault)
            if good and entry.series is not None:
                past = await self._backfill(provider, zone, entry.series)
                opens.append(past.next_s)
                self.price = _joined(past.series, entry.series, now_s)
                return
            faults.append(entry.fault or f"{provider.title}: no current price")
        if not self._prices and (told := choose.price_zones(zone, self._settings)):
            faults.append(f"prices in {zone} differ by zone: set price_zone to {' or '.join(told[:4])}")
        elif not self._prices and self._settings.price_zone:
            faults.append(f"price_zone {zone}: no source has its prices in {self._settings.currency or 'any currency'}")

    def _unasked(self, provider: Provider) -> GridSource:
        missing = [name for name in provider.keys if not self._settings.keys.get(name)]
        if missing:
            note = f"set {' and '.join(missing)}" + (f" ({provider.limits})" if provider.limits else "")
            return _state(provider, "needs key", 0.0, note)
        return _state(provider, "not asked", 0.0, provider.limits)


def _state(provider: Provider, word: str, fetched_s: float, note: str) -> GridSource:
    fetched = iso(fetched_s) if fetched_s else None
    return GridSource(provider.title, word, provider.signal, fetched, note, provider.name)


def _always(ask: Callable[..., Coroutine[Any, Any, Answer]], *args: Any) -> Question:
    """The question, whatever the last answer was."""
    return lambda old: ask(*args)


async def _in_time(provider: Provider, question: Coroutine[Any, Any, T]) -> T:
    """The answer, or Unreachable after QUESTION_S. It is requested, unpacked and parsed in a thread with its own event
    loop: a server that sends byte by byte, or endless rows, must not delay the lease renewals on this one."""
    try:
        return await in_thread(asyncio.run, asyncio.wait_for(question, QUESTION_S), deadline_s=QUESTION_S + GRACE_S)
    except asyncio.TimeoutError:
        raise Unreachable(f"{provider.title} took longer than {QUESTION_S:g} s") from None


def _kind(series: Series) -> tuple[str, str, str | None]:
    """The fields that must agree for two answers to form one series."""
    return series.signal, series.source, series.currency


def _joined(older: Series | None, newer: Series, now_s: float, kept_s: float = DEPTH_S) -> Series:
    """Rows of both, those of the last `kept_s` and a little; the newer answer wins where they overlap."""
    if older is None or _kind(older) != _kind(newer):
        return newer
    first_s, last_s = (newer.rows[0].start_s, newer.end_s) if newer.rows else (0.0, 0.0)
    # within the span of the new answer, no older row with other stamps may remain
    rows = {row.start_s: row for row in older.rows if not first_s <= row.start_s < last_s}
    rows |= {row.start_s: row for row in newer.rows}
    kept = tuple(rows[start] for start in sorted(rows) if start > now_s - 1.1 * kept_s)
    mixes = {mix.start_s: mix for mix in (*older.mix, *newer.mix) if mix.start_s > now_s - DAY_S}
    return replace(newer, rows=kept, mix=tuple(mixes[start] for start in sorted(mixes)))
