"""The job's state, and the only way to change it: an event is taken, and its effects are performed."""

from __future__ import annotations

from collections.abc import Callable

from carbontui.job.supervisor.core.advance import Event, advance
from carbontui.job.supervisor.core.commands import Reply
from carbontui.job.supervisor.core.effects import Effect
from carbontui.job.supervisor.core.state.job import JobState
from carbontui.job.supervisor.record.events_ring import EventsRing, Taken
from carbontui.job.supervisor.shell.faults import Faults


class Door:
    """Holds one JobState. An event that raises leaves it as it was and is reported once; the next one passes."""

    def __init__(
        self, state: JobState, faults: Faults, perform: Callable[[Effect], None], events: EventsRing | None = None
    ) -> None:
        self.state = state
        self._faults = faults
        self._perform = perform
        self._events = events

    def begin(self, restored: JobState) -> None:
        """Continue with what a predecessor has left."""
        self.state = restored

    def take(self, event: Event) -> Reply | None:
        """Advance by one event and perform its effects; a command's reply is returned, None if it failed."""
        reply: Reply | None = None
        with self._faults.confined(event.part):
            before, done = self.state, None
            try:
                self.state, effects = advance(before, event)
                done = effects
            finally:
                if self._events is not None:
                    self._events.add(Taken(event, before, self.state, done))
            for effect in effects:
                if isinstance(effect, Reply):
                    reply = effect
                    continue
                with self._faults.confined(type(effect).__name__):
                    self._perform(effect)
        return reply

    def close(self) -> None:
        """Have the last events written."""
        if self._events is not None:
            self._events.flush()
