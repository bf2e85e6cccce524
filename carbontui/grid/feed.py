"""The supervisor's view of the grid: one object whose answers are immediate and never raise.

`refresh` uses the network and fills the feed; `outlook` and `realised` answer from the data held. The clock is the
job's: in a replay it runs over the recorded rows, and later rows stay hidden.
"""

import bisect
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from carbontui.grid import compose, fuels, prices, truth, typical
from carbontui.grid.http import Http, NoData
from carbontui.grid.issues import COLUMNS, ForecastAnswer, ForecastRequest
from carbontui.grid.live import Live
from carbontui.grid.settings import GridSettings
from carbontui.grid.types import YOURS, GridForecast, Row, Series, Signal
from carbontui.protocol import ForecastError, GridSource

ADOPTED_FRESH_S = 3 * 3600.0
"""Our own forecast is not used once it is older than this."""
HISTORY_S = 550 * 86400.0
TRUTH_AHEAD_S = (max(truth.LEADS_H) + 1) * 3600.0

How = Literal["forecast", "default", "replay", "estimated"]


class Feed:
    """The grid of one zone. Numpy-free; every method but `refresh` returns at once."""

    def __init__(
        self,
        zone: str | None,
        *,
        settings: GridSettings,
        now: Callable[[], float],
        recorded: Series | None = None,
        recorded_price: Series | None = None,
        cache: Path | None = None,
        http: Http | None = None,
    ) -> None:
        self._yours = settings.intensity_g_per_kwh if recorded is None else None
        self.zone = zone or (recorded.zone if recorded else None) or (None if self._yours is None else YOURS)
        self._settings = settings
        self._now = now
        self._recorded = recorded
        same_money = recorded_price is not None and recorded_price.currency == settings.currency
        self._recorded_price = recorded_price if same_money else None
        # typical days are average intensities: they never replace a marginal signal
        marginal = settings.marginal or (recorded is not None and recorded.signal == "marginal")
        known = self.zone is not None and not marginal and self._yours is None
        self._typical = typical.profile(self.zone) if self.zone and known else None
        self._adopted: ForecastAnswer | None = None
        self._adopted_price: ForecastAnswer | None = None
        live = self.zone not in (None, YOURS) and recorded is None and not settings.offline
        self._live = Live(self.zone, settings, now, cache, http) if live and self.zone else None

    # --- state -----------------------------------------------------------------------------------------------

    @property
    def note(self) -> str:
        """One line for the screen: a fault, a switch of source, a missing zone; empty when all is well."""
        if self.zone is None:
            return "grid zone unknown: work is not shifted in time; set it with --zone (see `carbontui zones`)"
        if self._recorded is not None:
            return "; ".join(filter(None, (self._recorded_note(self._recorded), self._settings.remark)))
        if self._live is not None and (said := "; ".join(filter(None, (self._live.note, self._settings.remark)))):
            bare = self._live.source is None and self._typical is not None and self._yours is None
            return f"{said}; meanwhile using {self._typical.source}" if bare and self._typical else said
        if self._yours is not None:
            return ""
        if self._typical is None and (self._live is None or self._live.history is None):
            if self._settings.marginal:
                return f"no marginal rates of {self.zone} are known; set signal = average to use other sources"
            return f"no grid data for zone {self.zone}: work is not shifted in time"
        days = self._typical.source if self._typical else ""
        if self._live is None:
            return f"offline: {days}, no live data" if days else ""
        asked = any(source.state not in ("needs key", "not asked") for source in self._live.sources)
        return "" if asked or self._live.source else f"no live source for {self.zone} yet: {days}"

    def _recorded_note(self, recorded: Series) -> str:
        if self._now() < recorded.rows[0].start_s:
            return "the recorded grid starts later: values until then are expected, not recorded"
        over = self._now() >= recorded.end_s
        return "the recorded grid has ended: later values are expected, not recorded" if over else ""

    @property
    def signal(self) -> Signal:
        if self._recorded is not None:
            return self._recorded.signal
        if self._live is not None and self._live.source is not None:
            return self._live.source.signal
        if self._yours is not None:
            return "marginal" if self._settings.marginal else "given"
        return self._typical.signal if self._typical else "average_direct"

    @property
    def _yours_title(self) -> str:
        return f"yours: {self._yours:g} gCO2/kWh at all hours"

    @property
    def sources(self) -> tuple[GridSource, ...]:
        """Every source of the zone in the order it is tried."""
        found = list(self._live.sources) if self._live else []
        if self._recorded is not None:
            found.append(GridSource(self._recorded.source, "answers", self._recorded.signal, name="recorded"))
        if self._yours is not None:
            found.append(GridSource(self._yours_title, "answers", self.signal, name=YOURS))
        if self._typical is not None:
            found.append(GridSource(self._typical.source, "fallback", self._typical.signal, name="typical"))
        return tuple(found)

    def _actual(self, now_s: float) -> Sequence[Row]:
        """Rows that had ended by now_s; later rows of a recording stay hidden."""
        series = self._recorded or (self._live.history if self._live else None)
        return series.rows[: _first(series.rows, now_s)] if series else ()

    def _plays(self, now_s: float) -> bool:
        """Whether the recording covers now."""
        series = self._recorded
        return series is not None and series.rows[0].start_s <= now_s < series.end_s

    def _published(self) -> Sequence[Row]:
        return self._live.published.rows if self._live and self._live.published else ()

    # --- network ---------------------------------------------------------------------------------------------

    async def refresh(self) -> None:
        """Query the sources whose window is open; bounded in time, never raises."""
        if self._live is None:
            return
        await self._live.refresh()
        now_s = self._now()
        # only a job makes its own forecast, and only forecasts that plans use are worth scoring
        said = self.outlook(now_s, 0.0, TRUTH_AHEAD_S, 3600.0) if self._fresh(now_s) else None
        await self._live.keep_truth(said)

    @property
    def accuracy(self) -> tuple[ForecastError, ...]:
        """Accuracy of this machine's forecasts of the zone, by lead; empty while too few have been scored."""
        return truth.accuracy(self._live.truth) if self._live is not None else ()

    def moved(self, now_s: float) -> str:
        """Which fuels changed the intensity recently, in words; '' where the mix is unknown or little has changed."""
        history = self._live.history if self._live is not None else None
        return fuels.words(fuels.moved(history.mix, now_s), now_s) if history is not None else ""

    def next_refresh_s(self) -> float:
        """When `refresh` is next worth calling, epoch seconds of the job's clock."""
        return self._live.next_s if self._live is not None else math.inf

    # --- answers ---------------------------------------------------------------------------------------------

    def outlook(self, now_s: float, back_s: float, ahead_s: float, step_s: float) -> GridForecast | None:
        """Slots of `step_s` (aligned to UTC) from `back_s` before to `ahead_s` after now; None without a zone or data.

        The first `realised` slots are over; the slot that contains `now_s` counts as expected. Past slots without a
        value yet show the forecast published for them.
        """
        actual = self._actual(now_s)
        reported = actual or self._published() or self._plays(now_s)
        if self.zone is None or not (reported or self._typical is not None or self._yours is not None):
            return None
        start_s = math.floor((now_s - back_s) / step_s) * step_s
        realised = max(0, int((now_s - start_s) // step_s))
        slots = max(1, math.ceil((now_s + ahead_s - start_s) / step_s - 1e-9) - realised)
        past = self._past(actual, start_s, step_s, realised)
        future, source, how, ahead = self._expected(actual, start_s + realised * step_s, step_s, slots, now_s)
        mean, lo, hi = zip(*(past + future), strict=True)
        made_s = self._adopted["now_s"] if self._adopted and self._fresh(now_s) else now_s
        newest_s = next((row.end_s for row in reversed(actual) if not row.suspect), None)
        price = self._prices(start_s, step_s, realised + slots)
        return GridForecast(
            self.zone if self._yours is None else YOURS,
            self.signal,
            start_s,
            step_s,
            mean,
            lo,
            hi,
            realised,
            source,
            how,
            made_s,
            price=price.mean,
            price_lo=price.lo,
            price_hi=price.hi,
            price_source=price.source,
            currency=self._settings.currency if price.mean else None,
            note=self.note,
            ahead_source=ahead,
            moved=self.moved(now_s),
            accuracy=self.accuracy,
            known_until_s=now_s if self._plays(now_s) else newest_s,
            difference_error=self._live.difference_error if self._live is not None else None,
        )

    def _past(self, actual: Sequence[Row], start_s: float, step_s: float, slots: int) -> list[typical.ValueAndBand]:
        if self._yours is not None:
            return [(self._yours, self._yours, self._yours)] * slots
        if not actual and not self._published():
            if self._typical is None:
                return [compose.NOTHING] * slots
            return [typical.slot_values(self._typical, start_s + k * step_s, step_s) for k in range(slots)]
        known, said = (compose.slot_means(rows, start_s, step_s, slots) for rows in (actual, self._published()))
        best = [value if value is not None else other for value, other in zip(known, said, strict=True)]
        return [(value, value, value) for value in best]

    def _fresh(self, now_s: float) -> bool:
        return self._adopted is not None and -60.0 <= now_s - self._adopted["now_s"] <= ADOPTED_FRESH_S

    def _expected(
        self, actual: Sequence[Row], start_s: float, step_s: float, slots: int, now_s: float
    ) -> tuple[list[typical.ValueAndBand], str, How, str]:
        """The future slots: the user's value, else our own forecast, else the published one, else typical days scaled
        to recent values; their source and kind, and in a replay of a recording the source of what is to come."""
        if self._yours is not None:
            return [(self._yours, self._yours, self._yours)] * slots, self._yours_title, "estimated", ""
        beyond = compose.expectation(self._typical, actual, now_s) if self._typical else None
        cells = [beyond.slot(start_s + k * step_s, step_s) if beyond else compose.NOTHING for k in range(slots)]
        source = beyond.source if beyond else "no forecast"
        how: How = "estimated" if beyond and beyond.last_s is not None else "default"
        published = self._published()
        if published:
            said = compose.slot_means(published, start_s, step_s, slots)
            if any(value is not None for value in said):
                nowcast_g, last_s = compose.nowcast(published, actual, now_s)
                cells = compose.overlaid(cells, said, nowcast_g, last_s, start_s, step_s)
                source, how = f"{self._source_title()} forecast", "forecast"
        if self._fresh(now_s) and self._adopted is not None:
            own = [compose.slots_of(self._adopted, name, start_s, step_s, slots) for name in COLUMNS]
            cells = compose.joined(cells, list(zip(*own, strict=True)), step_s)
            source, how = self._adopted["provenance"], "forecast"
            if published:
                source = f"{source} ({self._source_title()})"
        if self._recorded is not None:
            if self._plays(now_s):
                # what holds now is a fact of the recording, as a source reports it; what is to come is not
                rows = self._recorded.rows
                at = _first(rows, now_s)
                if at < len(rows) and rows[at].start_s <= now_s:
                    cells[0] = (rows[at].value,) * 3
                return cells, self._recorded.source, "replay", source
            # the recording does not cover this time: the values shown are not its data
            source = f"{source}; {self._recorded.source} does not cover this time"
        return cells, source, how, ""

    def _source_title(self) -> str:
        shown = (self._live.published or self._live.history) if self._live else None
        return shown.source if shown else "published"

    def _prices(self, start_s: float, step_s: float, slots: int) -> prices.PriceOutlook:
        if self._settings.currency is None:
            return prices.PriceOutlook()
        known, flat = self._known_price(), self._settings.price_per_kwh
        return prices.laid_out(known, self._adopted_price, flat, start_s, step_s, slots)

    def _known_price(self) -> Series | None:
        """Published prices; from a recording, those that the market would have published by now."""
        if self._recorded_price is None:
            return self._live.price if self._live else None
        rows = self._recorded_price.rows
        told = rows[: _first(rows, prices.published_until_s(self._now()))]
        return replace(self._recorded_price, rows=told) if told else None

    @property
    def past_source(self) -> str:
        """The source of the rows of `realised`."""
        if self._recorded is not None:
            return self._recorded.source
        if self._yours is not None:
            return self._yours_title
        if self._live is not None and (self._live.history or self._live.published):
            return self._source_title()
        return self._typical.source if self._typical else ""

    def realised(self, start_s: float, end_s: float, *, closing: bool = False) -> tuple[Row, ...]:
        """Rows for accounting between two times, by kind: `actual` and `estimated` as the source marks them, `forecast`
        where no value has arrived yet, typical days as `estimated` where no source has ever answered.

        A gap in a source that has answered stays a gap, so that the accounts can mark it. `closing`: the job is over,
        so nothing is decided on the rows, and a recording also gives the row in which the job ended.
        """
        now_s = self._now()
        if self._yours is not None:
            first, last = math.floor(start_s / 3600.0), math.ceil(end_s / 3600.0)
            return tuple(Row(hour * 3600.0, 3600.0, self._yours) for hour in range(first, last))
        end_s = min(end_s, now_s) if self._recorded is not None else end_s
        actual, published = self._actual(now_s), self._published()
        if closing and self._recorded is not None:
            actual = self._recorded.rows
        if actual or published:
            last_s = actual[-1].end_s if actual else -math.inf
            later = [row for row in published if row.start_s >= last_s - 1e-6]
            return tuple(row for row in [*actual, *later] if row.end_s > start_s and row.start_s < end_s)
        if self._typical is None:
            return ()
        hours = [hour * 3600.0 for hour in range(math.floor(start_s / 3600.0), math.ceil(end_s / 3600.0))]
        return tuple(Row(hour, 3600.0, self._typical.at(hour)[0], "estimated") for hour in hours)

    async def again(self, source: str, start_s: float, end_s: float) -> tuple[Row, ...]:
        """Current values of a job's hours from the source they were booked from. Raises GridError."""
        if self._recorded is not None:  # there has been no other source
            return self.realised(start_s, end_s, closing=True)
        if self._live is None:
            raise NoData(f"{source}: not a live source, or offline")
        return await self._live.again(source, start_s, end_s)

    # --- own forecast ----------------------------------------------------------------------------------------

    def forecast_request(self, now_s: float, horizon_slots: int, step_s: float) -> ForecastRequest | None:
        """Inputs for `carbontui.grid.forecast.answer` in the worker; None without enough history to learn from."""
        actual = self._actual(now_s)
        actual = [row for row in actual[_first(actual, now_s - HISTORY_S) :] if not row.suspect]
        if len(actual) < 8:
            return None
        past = compose.history(actual, now_s, now_s + horizon_slots * step_s)
        here_s, native_s = past["now_s"], past["step_s"]
        expected = compose.expectation(self._typical, actual, now_s) if self._typical else None
        return {
            **past,
            "typical": [expected.slot(here_s + k * native_s, native_s)[0] for k in range(past["horizon"]) if expected],
            "published": self._live.issues if self._live else [],
            "key": f"{self.zone} {self._source_title()}",
        }

    def price_request(self, now_s: float, horizon_slots: int, step_s: float) -> ForecastRequest | None:
        """The same for the prices beyond the published ones; None when no forecast is needed or possible."""
        return prices.request(self._known_price(), now_s + horizon_slots * step_s, str(self.zone))

    def adopt(self, answer: ForecastAnswer) -> None:
        """Take the worker's answer for the following outlooks. An older or malformed one is ignored."""
        self._adopted = _newer(self._adopted, answer)

    def adopt_price(self, answer: ForecastAnswer) -> None:
        """The same for the answer to `price_request`."""
        self._adopted_price = _newer(self._adopted_price, answer)


def _newer(kept: ForecastAnswer | None, answer: ForecastAnswer) -> ForecastAnswer | None:
    try:
        lengths = {len(answer[name]) for name in COLUMNS}
        newer = kept is None or answer["now_s"] >= kept["now_s"]
        return answer if lengths != {0} and len(lengths) == 1 and newer and answer["step_s"] > 0 else kept
    except (KeyError, TypeError):
        return kept


def _first(rows: Sequence[Row], now_s: float) -> int:
    """Index of the first row that had not ended by now_s."""
    return bisect.bisect_right(rows, now_s + 1e-6, key=lambda row: row.end_s)
