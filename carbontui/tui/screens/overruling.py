"""The keys that overrule the plan: what each asks, sends and answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from textual.screen import Screen

from carbontui import link, protocol, units
from carbontui.tui import keys
from carbontui.tui.feed import JobFeed
from carbontui.tui.overruled import PendingOverride
from carbontui.tui.picture import Picture
from carbontui.tui.target import Target
from carbontui.tui.widgets.status_line import StatusLine

if TYPE_CHECKING:
    from carbontui.tui.widgets.prompt import Prompt

ANSWER_SHOWN_S = 10.0


class Overruling(Screen[str | None]):
    """The dashboard's commands; what they need of it is named here."""

    target: Target
    feed: JobFeed
    picture: Picture | None
    _overrides: PendingOverride
    _monotonic: Callable[[], float]

    def action_pause(self) -> None:
        self.send("pause")

    def action_boost(self) -> None:
        self.send("boost")

    def action_resume(self) -> None:
        self.send("resume")

    def action_guess(self) -> None:
        self.send("guess", {"accept": True})

    async def action_pause_for(self) -> None:
        await self._ask_time("pause")

    async def action_boost_for(self) -> None:
        await self._ask_time("boost")

    async def _ask_time(self, verb: protocol.Verb) -> None:
        from carbontui.tui.widgets.prompt import AskText

        def answered(text: str) -> None:
            self.send(verb, keys.until_args(text))

        hint = "30m, 2h, a time like 18:00, or next (the next planned change)"
        await self.mount(AskText(f"{verb} for how long?", hint, "1h", keys.check_until, answered))

    async def action_cap(self) -> None:
        from carbontui.tui.widgets.prompt import AskText

        limits = [gpu.limit_w for gpu in self.picture.status.gpus if gpu.limit_w] if self.picture else []
        hint = f"watts per GPU, like {min(limits) * 0.7:.0f}" if limits else "watts per GPU, like 250"

        def answered(text: str) -> None:
            self.send("cap", {"value_w": units.parse_watts(text)})

        await self.mount(AskText("cap each GPU at how many watts?", hint, "", units.parse_watts, answered))

    async def action_stop(self) -> None:
        from carbontui.tui.widgets.prompt import AskStop

        await self.mount(
            AskStop(self.target.name or self.target.job, lambda how: self.send("stop", {"now": how == "now"}))
        )

    async def on_prompt_answered(self, message: Prompt.Answered) -> None:
        await message.prompt.close(message.value)

    def send(self, verb: protocol.Verb, args: dict[str, Any] | None = None) -> None:
        """Send a command with the override generation last seen; its answer goes to the status line."""
        self.answer(f"{verb} …")
        self.run_worker(self._send(verb, args or {}, self._overrides.next_gen(verb)), group="command")

    async def _send(self, verb: protocol.Verb, args: dict[str, Any], gen: int | None) -> None:
        try:
            answer = await self.feed.request(protocol.Cmd(0, verb, args, gen))
        except link.LinkError as error:
            self._overrides.answered(verb, gen, ok=False)
            self.answer(str(error), ok=False)
            return
        assert isinstance(answer, protocol.Result)
        self._overrides.answered(verb, gen, answer.ok)
        self.answer(answer.text or verb if answer.ok else answer.error or "refused", answer.ok)

    def _tell_overruled(self, picture: Picture) -> None:
        """Clear a message about an override that no longer holds; say who overruled mine."""
        stale, told = self._overrides.saw(picture.status)
        if told and not picture.over:
            self.answer(told, ok=False)
        elif stale:
            self.query_one(StatusLine).clear()

    def answer(self, text: str, ok: bool = True) -> None:
        """Say something in the status line for a while."""
        self.query_one(StatusLine).answer(text, ok, self._monotonic() + ANSWER_SHOWN_S)
