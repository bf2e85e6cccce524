"""The dashboard's keys, and how typed text becomes the arguments of a command."""

import asyncio
import contextlib
import re
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Protocol, runtime_checkable

from textual.app import App
from textual.binding import Binding, BindingType
from textual.events import Event
from textual.message_pump import MessagePump
from textual.screen import Screen

from carbontui import units
from carbontui.text import situation
from carbontui.tui.model.feed import Target
from carbontui.tui.model.view_state import ViewState

PATIENCE_S = 2.0
"""A page that waits for the supervisor longer than this no longer holds up the keys that follow."""


@runtime_checkable
class Settles(Protocol):
    """A screen that may still be loading after its messages are handled, and so is not ready for the next key."""

    async def settle(self) -> None: ...


async def answered(screen: Screen[Any], group: str) -> None:
    """Wait until this group's workers have delivered what the screen asked for: the next key moves through it."""
    reading = [worker.wait() for worker in screen.workers if worker.group == group and worker.node is screen]
    if reading:
        await asyncio.wait([asyncio.ensure_future(one) for one in reading])


class KeyOrder:
    """A queue of keys before `dispatch`, which hands one to the app. Lives as long as `run()` runs."""

    def __init__(self, app: App[Any], dispatch: Callable[[Event], Awaitable[None]]) -> None:
        self._app, self._dispatch = app, dispatch
        self._waiting: asyncio.Queue[Event] = asyncio.Queue()

    def put(self, event: Event) -> None:
        self._waiting.put_nowait(event)

    async def done(self) -> None:
        """Wait until every key so far has acted."""
        await self._waiting.join()

    async def run(self) -> None:
        while True:
            event = await self._waiting.get()
            try:
                before = self._app.screen
                path = _path(self._app.focused or before)
                await self._dispatch(event)
                await self._settled(path, before)
            finally:
                self._waiting.task_done()

    async def _settled(self, path: list[MessagePump], before: Screen[Any]) -> None:
        """Wait until the key, what it posted and the screen it opened have been handled.

        A key and the messages it causes bubble from the focused widget to the app; each widget's queue is drained once
        for the key, and once for what that handling posted to the widget itself.
        """
        await _drained([pump for pump in path for _ in range(2)])
        if self._app.screen is not before:
            # a page's first focus and first messages come with its mounting
            await _drained([self._app.screen, self._app, *_path(self._app.focused or self._app.screen)])
        if isinstance(self._app.screen, Settles):
            try:
                await asyncio.wait_for(self._app.screen.settle(), PATIENCE_S)
            except (TimeoutError, asyncio.TimeoutError):
                return


def _path(widget: MessagePump) -> list[MessagePump]:
    """The widget and all above it, the app last."""
    path = [widget]
    while path[-1]._parent is not None:
        path.append(path[-1]._parent)
    return path


async def _drained(pumps: Iterable[MessagePump]) -> None:
    """Wait for each in turn until its queue is handled; a closed one has nothing left to do."""
    for pump in pumps:
        handled = asyncio.Event()
        if pump.is_running and pump.call_later(handled.set):
            waited = asyncio.ensure_future(handled.wait())
            # a loop that has ended no longer runs callbacks
            over = {pump._task} if pump._task is not None else set()
            await asyncio.wait({waited, *over}, timeout=PATIENCE_S, return_when=asyncio.FIRST_COMPLETED)
            waited.cancel()


DANGEROUS = frozenset({"send", "timed", "cap", "commit", "type_budget", "stop", "guess", "move"})

BINDINGS: list[BindingType] = [
    # first: a narrow footer shows these at least
    Binding("question_mark", "help", "help", id="help", key_display="?", tooltip="Every key, and what the marks say"),
    Binding("q", "detach", "detach", id="detach", tooltip="Leave the screen; the training goes on"),
    Binding("p", "send('pause')", "pause", id="pause", tooltip="Hold the training at its next step, until cleared"),
    Binding("P", "timed('pause')", "pause for", id="pause_for", show=False, tooltip="Pause for a time (asks how long)"),
    Binding("b", "send('boost')", "boost", id="boost", tooltip="Run at full speed, until cleared"),
    Binding("B", "timed('boost')", "boost for", id="boost_for", show=False, tooltip="Boost for a time (asks how long)"),
    Binding("r", "send('resume')", "resume", id="resume", tooltip="Resume the plan: clear the override"),
    Binding("c", "cap", "cap", id="cap", tooltip="Cap the watts of each GPU (asks how many)"),
    Binding("left", "budget(-1)", "budget", id="tighter", key_display="←→", tooltip="A tighter budget"),
    Binding("right", "budget(1)", "a looser budget", id="looser", show=False, tooltip="A looser budget"),
    Binding("shift+left", "budget(-10)", "tighter by ten", id="tighter10", show=False, tooltip="Ten steps tighter"),
    Binding("shift+right", "budget(10)", "looser by ten", id="looser10", show=False, tooltip="Ten steps looser"),
    Binding("home", "budget(-10000)", "tightest budget", id="tightest", show=False, tooltip="The tightest budget"),
    Binding("end", "budget(10000)", "loosest budget", id="loosest", show=False, tooltip="The loosest budget"),
    Binding("e", "type_budget", "type it", id="type_budget", show=False, tooltip="Type a budget: 18h, 1.8x, fri 09:00"),
    Binding("enter", "commit", "commit", id="commit", tooltip="Make the budget shown the budget in force"),
    Binding("escape", "back", "back", id="back", show=False, tooltip="Return to the budget in force"),
    Binding("g", "guess", "guess", id="guess", show=False, tooltip="Plan with the guessed total"),
    Binding("l", "log", "log", id="log", tooltip="All of the training's output"),
    Binding("t", "table", "all jobs", id="table", tooltip="The table of all jobs of this machine"),
    Binding("w", "plan", "why", id="plan", tooltip="The plan: why each hour is as it is; hours that must not run"),
    Binding("i,G", "sources", "sources", id="sources", show=False, tooltip="Where each number and the grid come from"),
    Binding("d", "abilities", "doctor", id="abilities", show=False, tooltip="GPUs, what can be measured and done"),
    Binding("M", "move", "move", id="move", show=False, tooltip="Move it to the machine named below (asks first)"),
    Binding("S", "stop", "stop", id="stop", tooltip="Stop the training (asks first)"),
    Binding("z", "zoom", "zoom", id="zoom", show=False, tooltip="The work alone, or the whole time to the deadline"),
]


def until_args(text: str, now_s: float) -> dict[str, Any]:
    """'30m' as a duration, '18:00' as that time in our zone, anything else for the supervisor to parse."""
    try:
        return {"for_s": units.parse_duration(text)}
    except ValueError:
        return {"until": units.instant(text, now_s)}


_BUDGET = re.compile(r"\d+(\.\d+)?x", re.IGNORECASE | re.ASCII)


def _is_time(said: str) -> bool:
    """Whether it is a time of day, a duration or a moment."""
    for read in (units.parse_duration, lambda text: units.parse_moment(text, 0.0)):
        with contextlib.suppress(ValueError):
            read(said)
            return True
    return False


def check_until(text: str) -> None:
    """Raises ValueError for text that is not a time, while the prompt is still open; the supervisor checks the rest."""
    said = text.strip()
    if said.lower() != "next" and not _is_time(said):
        raise ValueError(f"{said!r} is not a time; use 30m, 18:00, fri 09:00 or next")


def check_budget(text: str) -> None:
    """Raises ValueError for text that is not a budget; the supervisor checks its size."""
    said = text.strip()
    if not (_BUDGET.fullmatch(said) or _is_time(said)):
        raise ValueError(f"{said!r} is not a budget; use 18h, 1.8x or fri 09:00")


def why_not(action: str, view_state: ViewState | None) -> str:
    """Why a key has no effect at the moment; '' when it has one, or where that is not known."""
    if view_state is None:
        return ""
    if action == "cap" and not view_state.status.gpus:
        return "no GPU of this job to cap (d says what can be done here)"
    if action == "guess" and (view_state.status.guess is None or view_state.status.guess.agreed):
        return "no guessed total to accept"
    return ""


def asking(screen: Screen[Any]) -> bool:
    """Whether a prompt is open, which then takes the keys. Called for every key of the page, so no DOM query."""
    return any(child.id == "prompt" for child in screen.children)


def farewell(target: Target, view_state: ViewState | None) -> str:
    """The line printed when the screen is left: where to go on looking."""
    if view_state is None:
        return ""
    if view_state.over:
        status = view_state.status
        how = f"{status.name} is over ({situation.state(status)}, {situation.exit_words(status.exit)})"
        if status.state == "failed":
            return f"{how}; what it wrote: carbontui log {target.job}"
        return f"{how}; what it took: carbontui report {target.job}"
    if view_state.status.reason.code == "stop":
        return f"{view_state.status.name} is being stopped; look with: carbontui attach {target.job}"
    return f"{view_state.status.name} continues; return to it with: carbontui attach {target.job}"
