"""All jobs of the machine, live: the list from disk every two seconds, each job's status over its own socket."""

import asyncio
from collections.abc import Callable
from functools import partial

from msgspec import Struct

from carbontui import link, protocol
from carbontui.tui.model.feed import Connection, JobFeed, News, Target
from carbontui.tui.model.lists import ListedJob
from carbontui.tui.model.loglines import error_in
from carbontui.tui.model.view_state import PastLevels, ViewState

POLL_EVERY_S = 2.0


class JobsSnapshot(Struct, frozen=True):
    """One look at the machine. A fact is (label, text, whether it is in order); `host_w` is what CPU and memory draw,
    `headline` the grid in a few words, `load` how many programs want one of the `cores`."""

    facts: tuple[tuple[str, str, bool], ...] = ()
    jobs: tuple[Target, ...] = ()
    host_w: float | None = None
    headline: str = ""
    boards: tuple[protocol.Gpu, ...] = ()
    load: float | None = None
    cores: int = 1


class JobsFeed:
    """`run()` until cancelled; calls `changed` on every update. `observe` may block: it is called on a thread."""

    def __init__(self, observe: Callable[[], JobsSnapshot], changed: Callable[[], None]) -> None:
        self._poll, self._changed = observe, changed
        self._feeds: dict[str, tuple[JobFeed, asyncio.Task[None]]] = {}
        self._view_states: dict[str, ViewState] = {}
        self._past: dict[str, PastLevels] = {}
        self._lost: set[str] = set()
        self._errors: dict[str, str] = {}
        self.listing: JobsSnapshot | None = None
        self.polled = asyncio.Event()
        """Set once the jobs are known."""

    def jobs(self) -> tuple[ListedJob, ...]:
        """Every job with its newest known status."""
        return tuple(self._listed(target) for target in self.listing.jobs) if self.listing else ()

    async def request(self, job: str, message: link.Request) -> link.Answer:
        """A live job's answer. Raises LinkError."""
        if job not in self._feeds:
            raise link.NoSupervisor("the job is over: it has no supervisor any more")
        return await self._feeds[job][0].request(message)

    async def run(self) -> None:
        try:
            while True:
                self.listing = await asyncio.to_thread(self._once)
                self._follow({target.job: target for target in self.listing.jobs if not target.over})
                self._changed()
                self.polled.set()
                await asyncio.sleep(POLL_EVERY_S)
        finally:
            self._follow({})

    def _once(self) -> JobsSnapshot:
        seen = self._poll()
        for target in seen.jobs:
            failed = target.status is not None and target.status.state == "failed"
            if failed and target.read_log and target.job not in self._errors:
                self._errors[target.job] = error_in(target.read_log)
        return seen

    def _follow(self, live: dict[str, Target]) -> None:
        """A feed for every live job, none for the others; a new one where its socket is another."""
        kept = {job for job, (feed, _) in self._feeds.items() if job in live and feed.socket == live[job].socket}
        for job in set(self._feeds) - kept:
            self._feeds.pop(job)[1].cancel()
            self._view_states.pop(job, None)
            self._past.pop(job, None)
            self._lost.discard(job)
        for job in set(live) - set(self._feeds):
            feed = JobFeed(live[job].socket, partial(self._receive, job), away=live[job].away, with_log=False)
            self._feeds[job] = feed, asyncio.create_task(feed.run(), name=f"feed of {job}")

    def _receive(self, job: str, news: News) -> None:
        if isinstance(news, ViewState):
            self._view_states[job] = news
            self._changed()
        elif isinstance(news, PastLevels):
            self._past[job] = news
            self._changed()
        elif isinstance(news, Connection):
            # reported only once it lasts: a supervisor that is being replaced is back within seconds
            (self._lost.add if news.kind in ("reconnecting", "refused") else self._lost.discard)(job)

    def _listed(self, target: Target) -> ListedJob:
        view_state = self._view_states.get(target.job)
        away = target.status is not None and target.status.moved_to is not None  # what is there is not seen from here
        status = target.status if view_state is None or away else view_state.status
        assert status is not None
        lost, error = target.job in self._lost and not (target.over or away), self._errors.get(target.job, "")
        return ListedJob(target, status, error, lost, view_state, self._past.get(target.job))
