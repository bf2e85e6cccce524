"""One line per change: for pipes, dumb terminals and screen readers. No boxes, no colour, no cursor."""

import asyncio
import contextlib
from typing import TextIO

from carbontui import protocol
from carbontui.text import figures, situation
from carbontui.text.account import NoticesShown, at_end, summary
from carbontui.tui.model import state_text
from carbontui.tui.model.feed import Connection, JobFeed, News, Target
from carbontui.tui.model.view_state import ViewState, offline


class PlainNarrator:
    """`tell` it every picture; it writes a line to the stream for each change worth reading."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._shown: dict[str, str] = {}
        self._notices = NoticesShown()
        self._tenth = 0
        self._named = self._finished = False

    def tell(self, view_state: ViewState) -> None:
        """Narrate what differs from the previous picture."""
        status, now = view_state.status, view_state.now_s
        state = situation.stated(status)
        key = f"{status.state} {status.reason.code} {status.level}"
        if self._shown.get("state") != key:
            self._shown["state"] = key
            told = state, self._watts(status), situation.next_change(status, view_state.plan, now)
            self._say(now, "; ".join(filter(None, told)))
        self._changed("override", situation.override(status, now) or "none", now, first="none")
        budget = status.budget
        if budget is not None and budget.deadline is not None:
            factor = f"{budget.factor:.2f}x the time at full speed, " if budget.factor else ""
            self._changed("budget", f"{factor}deadline {situation.clock(budget.deadline, now)}", now)
        self._changed("note", state_text.banner(status, view_state.series), now, first="")
        self._changed("training", situation.diverged(status), now, first="")
        for notice in self._notices.news(status):
            self._say(now, f"note: {notice}")
        if status.at_end is not None and "at the end" not in self._shown:
            self._changed("at the end", at_end(status.at_end), now)
        self._progress(status, now)
        if view_state.over and not self._finished:
            self._finished = True
            self._summary(view_state)

    def write(self, text: str) -> None:
        """Write one line at once; also for events outside any picture (connection lost, detached)."""
        print(text, file=self._stream, flush=True)

    def _say(self, now_s: float, text: str) -> None:
        # the first line names the zone of all
        zone, self._named = "" if self._named else f" {figures.clock_name(now_s)}", True
        self.write(f"{state_text.clock(now_s, now_s)}{zone} {text}")

    def _changed(self, what: str, text: str, now: float, first: str | None = None) -> None:
        if self._shown.get(what, first) != text:
            self._say(now, f"{what}: {text}")
        self._shown[what] = text

    def _watts(self, status: protocol.Status) -> str:
        if status.power_w is None or status.state not in protocol.LIVE_STATES:
            return ""
        how = status.provenance.get("power_w")
        said = f" ({how.how})" if how and how.how not in ("measured", "integrated") else ""
        return f"{figures.watts(status.power_w)}{said}"

    def _progress(self, status: protocol.Status, now: float) -> None:
        if not status.steps_total or status.step is None:
            return
        tenth = min(10, status.step * 10 // status.steps_total)
        if tenth > self._tenth:
            self._tenth = tenth
            ends = "" if status.finish_expected is None else f"ends {situation.finish(status, now)}"
            total = "" if status.at_end is None else f"at the end {at_end(status.at_end)}"
            done = f"{figures.percent(tenth / 10)}: step {status.step} of {status.steps_total}"
            self._say(now, "; ".join(filter(None, (done, situation.loss_words(status), ends, total))))

    def _summary(self, view_state: ViewState) -> None:
        status = view_state.status

        def of(field: str) -> str:
            # no page explains the marks here
            return f" ({status.provenance[field].how})" if state_text.mark(status, field) else ""

        for label, told in summary(status, of):
            self.write(f"{label}: {told}")


def follow(target: Target, stream: TextIO) -> int:
    """Narrate the job's changes; exit code 0 when it is over or ctrl-c detaches, 3 when it refuses this viewer."""
    narrator = PlainNarrator(stream)
    if target.over and target.status is not None:
        narrator.tell(offline(target.status))
        return 0
    with contextlib.suppress(KeyboardInterrupt):
        return asyncio.run(_follow(target, narrator))
    narrator.write(f"detached; the training goes on (carbontui attach {target.job})")
    return 0


async def _follow(target: Target, narrator: PlainNarrator) -> int:
    refused = lost = False

    def receive(news: News) -> None:
        nonlocal refused, lost
        if isinstance(news, ViewState):
            narrator.tell(news)
            if news.over:
                following.cancel()
        elif isinstance(news, Connection):
            refused, was_lost, lost = news.kind == "refused", lost, news.kind == "reconnecting"
            if refused:
                narrator.write(news.text)
            elif lost and not was_lost:
                narrator.write(f"{news.text}; the training goes on, trying again")

    following = asyncio.create_task(JobFeed(target.socket, receive, away=target.away, with_log=False).run())
    await asyncio.wait([following])
    if not following.cancelled():
        following.result()
    return 3 if refused else 0
