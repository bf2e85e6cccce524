"""What the supervisor holds of the grid: one object that always answers at once and never raises.

`refresh` talks to the network and fills the feed; `outlook` and `realised` answer from what is known. The
clock is the job's: in a replay it runs over the recorded rows, of which the future stays hidden.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from carbontui.grid import compose, typical
from carbontui.grid.settings import GridSettings
from carbontui.grid.types import Outlook, Row, Series, Signal

ADOPTED_FRESH_S = 3 * 3600.0
"""An own forecast older than this gives way to a newer source."""
SHORTEST_STEP_S = 900.0
"""Own forecasts are made on slots of at least 15 min."""
HISTORY_S = 550 * 86400.0


@dataclass(frozen=True, slots=True)
class SourceState:
    """One source of the zone: whether it answers, how fresh it is, what it cannot do or a key would add."""

    name: str
    title: str
    state: Literal["answers", "stale", "fails", "needs key", "not asked", "fallback"]
    signal: Signal
    fetched_at_s: float | None = None
    note: str = ""


class Feed:
    """The grid of one zone. Numpy-free; every method but `refresh` returns at once."""

    def __init__(
        self,
        zone: str | None,
        *,
        settings: GridSettings,
        now: Callable[[], float],
        recorded: Series | None = None,
        cache: Path | None = None,
    ) -> None:
        self.zone = zone or (recorded.zone if recorded else None)
        self.note = ""
        self._settings = settings
        self._now = now
        self._recorded = recorded
        self._cache = cache
        self._typical = typical.profile(self.zone) if self.zone else None
        self._adopted: dict[str, Any] | None = None
        if self.zone is None:
            self.note = "grid zone unknown: work is not shifted in time; set it with --zone (see `carbontui zones`)"
        elif recorded is None and self._typical is None:
            self.note = f"nothing is known of zone {self.zone}: work is not shifted in time"

    # --- what is known ---------------------------------------------------------------------------------------

    def _actual(self, now_s: float) -> Sequence[Row]:
        """Rows that were over by now_s: of a recording nothing else may be seen."""
        if self._recorded is None:
            return ()
        rows = self._recorded.rows
        return rows[: _first(rows, now_s)]

    @property
    def signal(self) -> Signal:
        if self._recorded is not None:
            return self._recorded.signal
        return self._typical.signal if self._typical else "average_direct"

    @property
    def sources(self) -> tuple[SourceState, ...]:
        found = []
        if self._recorded is not None:
            found.append(SourceState("recorded", self._recorded.source, "answers", self._recorded.signal))
        if self._typical is not None:
            found.append(SourceState("typical", self._typical.source, "fallback", self._typical.signal))
        return tuple(found)

    # --- network ---------------------------------------------------------------------------------------------

    async def refresh(self) -> None:
        """Ask the sources whose window is open."""

    def next_refresh_s(self) -> float:
        """Epoch seconds of the job's clock when `refresh` is worth calling again."""
        return math.inf

    # --- answers ---------------------------------------------------------------------------------------------

    def outlook(self, now_s: float, back_s: float, ahead_s: float, step_s: float) -> Outlook | None:
        """Slots of `step_s` (aligned to UTC) from `back_s` before to `ahead_s` after now; None without a zone.

        The first `realised` slots are over; the slot that holds `now_s` counts as expected.
        """
        actual = self._actual(now_s)
        if self.zone is None or (self._typical is None and not actual):
            return None
        start_s = math.floor((now_s - back_s) / step_s) * step_s
        realised = max(0, int((now_s - start_s) // step_s))
        slots = realised + max(1, math.ceil((now_s + ahead_s - start_s - realised * step_s) / step_s))
        past: list[compose.Cell] = [
            (value, value, value) for value in compose.slot_means(actual, start_s, step_s, realised)
        ]
        if not actual and self._typical is not None:
            past = [typical.slot_values(self._typical, start_s + k * step_s, step_s) for k in range(realised)]
        future, source, how = self._expected(actual, start_s + realised * step_s, step_s, slots - realised, now_s)
        mean, lo, hi = zip(*(past + future), strict=True)
        made_s = self._adopted["now_s"] if self._adopted and how != "default" else now_s
        return Outlook(
            self.zone, self.signal, start_s, step_s, mean, lo, hi, realised, source, how, made_s, note=self.note
        )

    def _expected(
        self, actual: Sequence[Row], start_s: float, step_s: float, slots: int, now_s: float
    ) -> tuple[list[compose.Cell], str, Literal["forecast", "default", "replay", "estimated"]]:
        """The future slots: own forecast, else typical days lifted to recent values."""
        replay = self._recorded is not None
        beyond = compose.expectation(self._typical, actual, now_s) if self._typical else None
        cells = [beyond.slot(start_s + k * step_s, step_s) if beyond else compose.NOTHING for k in range(slots)]
        source, how = beyond.source if beyond else "no forecast", "estimated" if actual else "default"
        adopted = self._adopted
        if adopted and -60.0 <= now_s - adopted["now_s"] <= ADOPTED_FRESH_S:
            own = [compose.slot_means(_rows(adopted, name), start_s, step_s, slots) for name in ("mean", "lo", "hi")]
            cells = [
                (mean, lo, hi) if mean is not None else cell for mean, lo, hi, cell in zip(*own, cells, strict=True)
            ]
            source, how = adopted["provenance"], "forecast"
        if replay and self._recorded is not None:
            return cells, f"{self._recorded.source}; ahead: {source}", "replay"
        return cells, source, how  # type: ignore[return-value]

    def realised(self, start_s: float, end_s: float) -> tuple[Row, ...]:
        """Rows for accounting between two times: known ones as `actual`, typical days as `estimated`.

        A gap in a source that has answered stays a gap, so that the accounts can mark it.
        """
        end_s = min(end_s, self._now()) if self._recorded is not None else end_s
        actual = self._actual(self._now())
        if actual:
            return tuple(row for row in actual if row.start_s + row.dur_s > start_s and row.start_s < end_s)
        if self._typical is None:
            return ()
        first = math.floor(start_s / 3600.0)
        hours = [hour * 3600.0 for hour in range(first, math.ceil(end_s / 3600.0))]
        values = [(hour, self._typical.at(hour)[0]) for hour in hours]
        return tuple(Row(hour, 3600.0, value, "estimated") for hour, value in values if value is not None)

    # --- own forecast ----------------------------------------------------------------------------------------

    def forecast_request(self, now_s: float, horizon_slots: int, step_s: float) -> dict[str, Any] | None:
        """Inputs for `carbontui.grid.forecast.answer` in the worker; None when there is no history to learn from."""
        actual = self._actual(now_s)
        actual = actual[_first(actual, now_s - HISTORY_S) :]
        if len(actual) < 8:
            return None
        native_s = max(SHORTEST_STEP_S, actual[-1].dur_s)
        start_s = math.floor(actual[0].start_s / native_s) * native_s
        slot_now_s = math.floor(now_s / native_s) * native_s
        horizon = math.ceil((now_s + horizon_slots * step_s - slot_now_s) / native_s)
        values = compose.slot_means(actual, start_s, native_s, round((slot_now_s - start_s) / native_s))
        expected = compose.expectation(self._typical, actual, now_s) if self._typical else None
        ahead = [expected.slot(slot_now_s + k * native_s, native_s) for k in range(horizon)] if expected else []
        return {
            "now_s": slot_now_s,
            "start_s": start_s,
            "step_s": native_s,
            "values": values,
            "horizon": horizon,
            "typical": [cell[0] for cell in ahead],
            "published": [],
        }

    def adopt(self, answer: dict[str, Any]) -> None:
        """Take the worker's answer; following outlooks use it. An older or broken one is left aside."""
        try:
            lengths = {len(answer[name]) for name in ("mean", "lo", "hi")}
            newer = self._adopted is None or answer["now_s"] >= self._adopted["now_s"]
            if lengths != {0} and len(lengths) == 1 and newer and answer["step_s"] > 0:
                self._adopted = answer
        except (KeyError, TypeError):
            return


def _first(rows: Sequence[Row], now_s: float) -> int:
    """Index of the first row that was not over by now_s."""
    low, high = 0, len(rows)
    while low < high:
        middle = (low + high) // 2
        if rows[middle].start_s + rows[middle].dur_s <= now_s + 1e-6:
            low = middle + 1
        else:
            high = middle
    return low


def _rows(answer: dict[str, Any], name: str) -> list[Row]:
    start_s, step_s = answer["now_s"], answer["step_s"]
    return [Row(start_s + k * step_s, step_s, value) for k, value in enumerate(answer[name])]
