"""Commands to a supervisor, and the keys of a job's page that overrule its plan.

Whose override is in force: the generation the next command must name, and a line for the user who was overruled.
"""

import time
from collections.abc import Awaitable, Callable
from typing import Any

from textual.screen import Screen

from carbontui import link, protocol, units
from carbontui.text.statements import rendered
from carbontui.tui.model.feed import JobFeed, Target
from carbontui.tui.model.view_state import PastLevels, ViewState
from carbontui.tui.terminal import keys
from carbontui.tui.widgets.bottom import StatusLine

ANSWER_SHOWN_S = 10.0
OVERRULES = frozenset({"pause", "boost", "cap", "resume"})
"""Verbs that change the generation of the override."""
_HOLDS = {"pause": "paused it", "boost": "boosts it", "cap": "caps it"}
Ask = Callable[[protocol.Cmd], Awaitable[link.Answer]]


class PendingOverride:
    """`me` is user@tty as others see it. Compare-and-set: a command names the override generation last seen."""

    def __init__(self, me: str) -> None:
        self._me = me
        self._counted = 0
        self._ahead = 0
        self._mine: tuple[str, int] | None = None

    def next_gen(self, verb: protocol.Verb) -> int | None:
        """The generation `verb` names now; several commands in a row build on one another before a picture arrives."""
        if verb not in OVERRULES:
            return None
        gen = max(self._counted, self._ahead)
        self._ahead = gen + 1
        return gen

    def answered(self, verb: protocol.Verb, gen: int | None, ok: bool) -> None:
        if gen is None:
            return
        if not ok:
            self._ahead = 0
        else:
            self._mine = None if verb == "resume" else (verb, gen + 1)

    async def send(self, ask: Ask, verb: protocol.Verb, args: dict[str, Any], gen: int | None) -> tuple[bool, str]:
        """Whether the supervisor accepts a command, and a line about it; `gen` is what `next_gen` gave."""
        try:
            answer = await ask(protocol.Cmd(0, verb, args, gen))
        except link.LinkError as error:
            self.answered(verb, gen, ok=False)
            return False, str(error)
        assert isinstance(answer, protocol.Result)
        self.answered(verb, gen, answer.ok)
        said = rendered(answer.said, answer.text if answer.ok else answer.error or "refused", time.time())
        return answer.ok, said or verb

    def update(self, status: protocol.Status) -> tuple[bool, str]:
        """(whether the last answer about an override is out of date, a line about who overruled mine or '')."""
        gen, held = status.override_gen, status.override
        changed, self._counted = gen != self._counted, gen
        if gen >= self._ahead:
            self._ahead = 0
        mine = self._mine
        if mine is None or gen <= mine[1]:
            return changed and mine is None, ""
        self._mine = None
        if held is None:
            return True, f"your {mine[0]} is over"
        if held.by == self._me:
            return True, ""
        until = "" if held.until else " until cleared"
        return True, f"{held.by} {_HOLDS[held.mode]} now{until}: your {mine[0]} no longer holds"


class Answers(Screen[str | None]):
    """A page that says in its status line what was answered."""

    _monotonic = staticmethod(time.monotonic)

    def answer(self, text: str, ok: bool = True) -> None:
        """Say something in the status line for a while."""
        self.query_one(StatusLine).answer(text, ok, self._monotonic() + ANSWER_SHOWN_S)

    def action_help(self) -> None:
        """The keys of this screen and the marks."""
        from carbontui.tui.screens.page_rows import help_rows
        from carbontui.tui.screens.read import Read

        rows = help_rows(self)
        self.app.push_screen(Read("keys and marks", lambda page: rows))


class JobPage(Answers):
    """A page of one job: what its parts need of it."""

    target: Target
    feed: JobFeed
    view_state: ViewState | None
    past: PastLevels | None
    readonly: bool

    def newest(self) -> ViewState:
        assert self.view_state is not None
        return self.view_state


class Commands(Answers):
    """A page of one job that sends commands."""

    feed: JobFeed
    _overrides: PendingOverride

    def send(self, verb: protocol.Verb, args: dict[str, Any] | None = None) -> None:
        """Send a command with the override generation last seen; its answer goes to the status line."""
        self.answer(f"{verb} …")
        self.run_worker(self._send(verb, args or {}, self._overrides.next_gen(verb)), group="command")

    async def _send(self, verb: protocol.Verb, args: dict[str, Any], gen: int | None) -> None:
        ok, told = await self._overrides.send(self.feed.request, verb, args, gen)
        self.answer(told, ok)


class Overruling(Commands, JobPage):
    """The dashboard's commands."""

    def action_send(self, verb: protocol.Verb) -> None:
        self.send(verb)

    def action_guess(self) -> None:
        self.send("guess", {"accept": True})

    async def action_timed(self, verb: protocol.Verb) -> None:
        from carbontui.tui.widgets.prompt import AskText

        def answered(text: str) -> None:
            now_s = self.view_state.now_s if self.view_state else time.time()
            self.send(verb, keys.until_args(text, now_s))

        hint = "30m, 2h, a time like 18:00, or next (the next planned change)"
        await self.mount(AskText(f"{verb} for how long?", hint, "1h", keys.check_until, answered))

    async def action_cap(self) -> None:
        from carbontui.tui.widgets.prompt import AskText

        limits = [gpu.limit_w for gpu in self.view_state.status.gpus if gpu.limit_w] if self.view_state else []
        hint = f"watts per GPU, like {min(limits) * 0.7:.0f}" if limits else "watts per GPU, like 250"

        def answered(text: str) -> None:
            self.send("cap", {"value_w": units.parse_watts(text)})

        await self.mount(AskText("cap each GPU at how many watts?", hint, "", units.parse_watts, answered))

    async def action_stop(self) -> None:
        from carbontui.tui.widgets.prompt import AskStop

        await self.mount(
            AskStop(self.target.name or self.target.job, lambda how: self.send("stop", {"now": how == "now"}))
        )

    def _tell_overruled(self, view_state: ViewState) -> None:
        """Clear a message about an override that no longer holds; say who overruled mine."""
        stale, told = self._overrides.update(view_state.status)
        if told and not view_state.over:
            self.answer(told, ok=False)
        elif stale:
            self.query_one(StatusLine).clear()
