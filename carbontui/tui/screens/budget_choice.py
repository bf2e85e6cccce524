"""The budget under consideration before it is committed: from the slider or typed, with the supervisor's preview."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

from carbontui import link, protocol
from carbontui.tui import deadline
from carbontui.tui.picture import Choice, Picture
from carbontui.tui.widgets.budget_slider import nearest_to

PREVIEW_PAUSE_S = 0.06
"""A held arrow key asks for a preview once it rests, not at every step."""

AskPreview = Callable[[protocol.Preview], Awaitable[link.Answer]]


class BudgetChoice:
    """`choice` is the budget considered; None: the budget in force. `changed` is called whenever it changes."""

    def __init__(self, request: AskPreview, changed: Callable[[], None]) -> None:
        self._request, self._changed = request, changed
        self._asking: asyncio.Task[None] | None = None
        self.choice: Choice | None = None

    def step(self, picture: Picture, steps: int) -> None:
        """Move along the frontier from the choice, or from the budget in force."""
        choice, due = self.choice, deadline.deadlines(picture)
        at, held_s = deadline.position(picture) or 0, deadline.in_force(picture)
        if choice is not None and choice.index is not None:
            at, held_s = choice.index, choice.deadline_s
        index = None if held_s is None else deadline.moved(due, at, held_s, steps)
        if index is not None:
            self.look_at(picture, index)

    def look_at(self, picture: Picture, index: int) -> None:
        frontier = picture.frontier
        held = deadline.position(picture) if self.choice is None else self.choice.index
        if frontier is not None and index < len(frontier.points) and index != held:
            due_s = deadline.deadlines(picture)[index]
            self._look(Choice(deadline.as_budget(due_s), index, frontier.points[index], due_s))

    def type(self, text: str) -> None:
        """Preview a budget as it is typed; empty text clears the choice."""
        if text.strip():
            self._look(Choice(text.strip()))
        else:
            self.let_go()

    def let_go(self) -> None:
        if self.choice is not None:
            self.choice = None
            self.stop()
            self._changed()

    def replanned(self, picture: Picture) -> None:
        """A new plan is in force: the chosen budget stays the same, its preview is requested again.

        The preview for the old plan is used until then: in the text, on the chart and in what enter commits alike.
        """
        choice = self.choice
        if choice is None:
            return
        index = point = None
        if picture.frontier is not None and len(picture.frontier.points) >= 2 and choice.index is not None:
            index = nearest_to(picture, choice, choice.index)
            point = picture.frontier.points[index]
        self._look(replace(choice, index=index, point=point))

    def _look(self, choice: Choice) -> None:
        self.choice = choice
        self._changed()
        self.stop()
        self._asking = asyncio.create_task(self._ask(choice), name="preview")

    def stop(self) -> None:
        if self._asking is not None:
            self._asking.cancel()

    async def _ask(self, choice: Choice) -> None:
        await asyncio.sleep(PREVIEW_PAUSE_S)
        try:
            answer = await self._request(protocol.Preview(0, choice.budget))
        except link.LinkError as error:
            found = replace(choice, error=str(error))
        else:
            assert isinstance(answer, protocol.Previewed)
            found = replace(choice, previewed=answer if answer.plan else choice.previewed, error=answer.error or "")
        if self.choice is choice:
            self.choice = found
            self._changed()
