"""The job's state, and the only way to change it: an event is taken, and its effects are performed.

What a part of the supervisor raises is confined to that part, reported once, and cleared when it works again.
"""

import contextlib
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from carbontui.job.supervisor.core.advance import Event, advance
from carbontui.job.supervisor.core.commands import Reply
from carbontui.job.supervisor.core.effects import Effect
from carbontui.job.supervisor.core.state.inputs import Inputs
from carbontui.job.supervisor.core.state.job import JobState
from carbontui.job.supervisor.record.events_ring import Taken
from carbontui.protocol import Statement, statement
from carbontui.text.statements import words


@dataclass(frozen=True)
class Ports:
    """What the parts of a supervisor ask of it as a whole: made once, before the parts, and handed to each that needs
    one; called once all of them are made."""

    read_inputs: Callable[[], Inputs]
    """The inputs as of now, as far as known: to who acts between ticks (actuators, keeping, replanner, requests)."""
    perform: Callable[[Effect], None]
    """Carries out an effect: to the door, for what follows from an event, and to the grid, which wants a new plan."""
    wake: Callable[[], None]
    """A tick at once: to who has news for a decision (keeper, grid, replanner, requests, boards that have answered)."""
    book: Callable[[], None]
    """Books the newest samples: to requests, which are about to report them as current."""
    keep: Callable[[], None]
    """Has everything stored as of now: to the actuators."""
    notices: Callable[[], Iterable[Statement]]
    """One notice per fault of carbontui itself: to the status."""


class Faults:
    """A supervisor that died of one bad row would die of it again after every respawn; so it survives and reports."""

    def __init__(self, log: Callable[[str], None]) -> None:
        self._log = log
        self._standing: dict[str, str] = {}

    @contextlib.contextmanager
    def confined(self, part: str) -> Iterator[None]:
        """An exception inside ends this block and nothing else. `part` is a code of `text/log.py`'s PARTS."""
        try:
            yield
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
            if self._standing.get(part) != text:
                where = traceback.extract_tb(error.__traceback__)[-1]
                known = {"name": where.name, "line": where.lineno, "file": where.filename}
                self._log(words(statement("fault_logged", part=part, text=text, where=known), 0.0))
            self._standing[part] = text
        else:
            self._standing.pop(part, None)

    @property
    def notices(self) -> list[Statement]:
        return [statement("fault", part=part, text=text) for part, text in self._standing.items()]


class Door:
    """Holds one JobState. An event that raises leaves it as it was and is reported once; the next one passes."""

    def __init__(
        self, state: JobState, faults: Faults, perform: Callable[[Effect], None], record: Callable[[Taken], None]
    ) -> None:
        self.state = state
        self._faults = faults
        self._perform = perform
        self._record = record

    def restore(self, restored: JobState) -> None:
        """Continue with what a predecessor has left."""
        self.state = restored

    def dispatch(self, event: Event) -> Reply | None:
        """Advance by one event and perform its effects; a command's reply is returned, None if it failed."""
        reply: Reply | None = None
        with self._faults.confined(event.part):
            before, done = self.state, None
            try:
                self.state, effects = advance(before, event)
                done = effects
            finally:
                self._record(Taken(event, before, self.state, done))
            for effect in effects:
                if isinstance(effect, Reply):
                    reply = effect
                    continue
                with self._faults.confined(type(effect).__name__):
                    self._perform(effect)
        return reply
