"""What the parts of a supervisor ask of it as a whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from carbontui.job.supervisor.core.effects import Effect
from carbontui.job.supervisor.core.state.inputs import Inputs
from carbontui.protocol import Statement


@dataclass(frozen=True)
class Ports:
    """Made once, before the parts, and handed to each that needs one; called once all of them are made."""

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
