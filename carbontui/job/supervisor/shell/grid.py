"""The supervisor's access to the grid: refreshes the feed when due, books realised values."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from carbontui.account.accounts import Revision
from carbontui.grid import opening
from carbontui.grid.feed import Feed
from carbontui.grid.settings import GridSettings
from carbontui.grid.types import GridForecast
from carbontui.job.supervisor.core.advance import ForecastRead
from carbontui.job.supervisor.core.effects import Replan
from carbontui.job.supervisor.core.planning import plan_request
from carbontui.job.supervisor.core.planning.problem import SLOT_S
from carbontui.job.supervisor.record.accounting import REVISED_MOST_S, Accounting
from carbontui.job.supervisor.shell.door import Door, Ports
from carbontui.job.terms.clock import Clock
from carbontui.job.terms.spec import Options
from carbontui.job.worker.handle import WorkerHandle, WorkFailed
from carbontui.job.worker.messages import ForecastAsk
from carbontui.protocol import statement

BACK_LEAST_S, BACK_MOST_S = 6 * 3600.0, 36 * 3600.0
"""How much of the past an outlook covers while the job lives."""
WHOLE_MOST_S = 7 * 86400.0
"""How much of the past the outlook of a finished job covers: all of it, up to this."""
FORECAST_EVERY_S = 900.0
REVISED_NEWS_S = 900.0
"""How long a revision stays among the notices; the report lists all of them."""


def open_feed(options: Options, clock: Clock, log: Callable[[str], None]) -> Feed:
    """The feed of the job's zone; an unusable source is reported and does not affect the others."""

    def now() -> float:
        return clock.at_wall(time.time())

    given = GridSettings(
        offline=options.offline,
        marginal=options.signal == "marginal",
        currency=options.currency,
        price_zone=options.price_zone,
        price_per_kwh=options.price_per_kwh,
        intensity_g_per_kwh=options.intensity_g_per_kwh,
    )
    settings = opening.settings(given, forgiving=True)
    if settings.remark:
        log(settings.remark)
    try:
        # to a live job its file is what the user says of the grid, whatever hours it covers
        source = f"grid: {Path(options.grid).name}" if options.grid and options.replay is None else None
        return opening.open_feed(options.zone, settings=settings, now=now, grid_file=options.grid, source=source)
    except ValueError as error:
        log(f"the recorded grid of this job is gone, other sources take its place: {error}")
        return opening.open_feed(options.zone, settings=settings, now=now)


@dataclass(eq=False)
class GridReader:
    """Puts a fresh outlook into the state; what the sources have told is a reason for a new plan."""

    door: Door
    feed: Feed
    accounting: Accounting
    worker: WorkerHandle
    ports: Ports
    _refreshing: asyncio.Task[None] | None = None
    _forecast_s: float = float("-inf")
    _revision: Revision | None = None
    _revised_mono_s: float = 0.0

    @property
    def revised(self) -> str:
        """The source's revision of hours already booked, while recent; else ''."""
        found = self.accounting.revision
        if found is not self._revision:
            self._revision, self._revised_mono_s = found, time.monotonic()
        news = found is not None and time.monotonic() - self._revised_mono_s < REVISED_NEWS_S
        return f"the grid's values were revised: {found.words}" if found is not None and news else ""

    def _now_s(self) -> float:
        return self.door.state.clock.at_wall(time.time())

    def read(self, now_s: float) -> None:
        """Query the sources when due, and refresh the outlook once a slot is over."""
        if now_s >= self.feed.next_refresh_s() and (self._refreshing is None or self._refreshing.done()):
            self._refreshing = asyncio.ensure_future(self._refresh())
        outlook = self.door.state.outlook
        if outlook is None or now_s >= outlook.start_s + (outlook.realised + 1) * outlook.step_s:
            self.observe(now_s)

    def observe(self, now_s: float, *, closing: bool = False) -> GridForecast | None:
        """Take a fresh outlook and book realised values; `closing`: for the final account of a finished job."""
        state = self.door.state
        most_s = BACK_MOST_S if state.live else WHOLE_MOST_S
        back = max(BACK_LEAST_S, min(now_s - state.start_s + SLOT_S, most_s))
        outlook = self.feed.outlook(now_s, back, plan_request.ahead_s(state, now_s), SLOT_S)
        self.door.dispatch(ForecastRead(outlook))
        if outlook is not None:
            since = max(min(state.start_s, self.accounting.ledger.first_s) - SLOT_S, now_s - REVISED_MOST_S)
            rows = self.feed.realised(since, now_s, closing=closing)
            self.accounting.realised(rows, outlook.signal, self.feed.past_source)
            self.accounting.prices(outlook)
        return outlook

    async def _refresh(self) -> None:
        await self.feed.refresh()
        self.observe(self._now_s())
        self.ports.perform(Replan(statement("cause_grid")))
        self.ports.wake()

    async def forecast(self, now_s: float) -> str:
        """Have the worker forecast if there is history to learn from and the last forecast is a slot old. Returns why
        that failed, or ''."""
        if now_s - self._forecast_s < FORECAST_EVERY_S:
            return ""
        slots = int(plan_request.ahead_s(self.door.state, now_s) // SLOT_S) + 1
        asked = [
            (self.feed.forecast_request(now_s, slots, SLOT_S), self.feed.adopt),
            (self.feed.price_request(now_s, slots, SLOT_S), self.feed.adopt_price),
        ]
        why = ""
        for request, adopt in asked:
            if request is None:
                continue
            self._forecast_s = now_s
            try:
                adopt(await self.worker.forecast(ForecastAsk(request=request)))
            except WorkFailed as error:
                why = str(error)
        if self._forecast_s == now_s:
            self.observe(self._now_s())
        return why
