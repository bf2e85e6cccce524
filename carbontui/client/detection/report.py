"""What is seen of the work, for the supervisor, which makes a total of it (carbontui.job.worker.model): the places of
the code at which steps are made, the passes over the data, what frameworks, bars and schedules say.

Runs in the link's thread, never in the training's, and never reads the variables of a running function: that would keep
its tensors alive.
"""

from __future__ import annotations

import math
import sys
from typing import Any, Dict, Optional, Tuple

from carbontui.client.detection import places, sight
from carbontui.client.detection.places import Chain, key_of, watch
from carbontui.client.readonly import COUNT_MAX, count_of

FROM_STEPS = 3
"""Steps needed to see whether a schedule or a progress bar advances with the steps."""
AROUND_MAX = 100


class CodeAround:
    """A place, of which the worker reads what the source says."""

    def __init__(self, chain: Chain, fits: bool, number: int, steps: float) -> None:
        self.chain, self.fits, self.number, self.steps = chain, fits, number, steps
        """The number is 0 where no code of a script is; the steps are those done when it was sent."""
        self.due = True
        """To be sent."""
        self.lacks: Tuple[str, ...] = ()
        self.counters: Tuple[Tuple[str, str], ...] = ()
        """Modules and names of numbers that count its steps."""


class WorkReporter:
    """Remembers which places have been sent, and what the supervisor is to be told again."""

    def __init__(self) -> None:
        self.kept: Any = None
        self._around: Dict[Any, CodeAround] = {}
        self._number = 0

    def report(self, steps: int, before: int, *, framework: bool = False) -> Dict[str, Any]:
        """The fields of carbontui.protocol.WorkReport. `steps` are done so far, those at hand by a
        `framework`; `before` were done earlier."""
        found: Dict[str, Any] = {"before": before, "framework": framework, "kept": self.kept}
        if len(self._around) > AROUND_MAX:
            self._around.clear()
        if watch.stages or watch.trials or places.schedules or places.displays or "tqdm.std" in sys.modules:
            with watch.unforked:
                from carbontui.client.detection import stated

            found.update(stated.reported(self, steps))
        if not framework and steps >= FROM_STEPS and watch.observe is not None:
            steps_then, chain, values, unsure = watch.observe
            one, spaces = self.around(chain, steps), {place.module: place.space for place in chain}
            named = ((module, name) for module, name in one.counters if module in spaces)
            watch.globals = {f"{module}.{name}": (spaces[module], name) for module, name in named}
            numbers = {name: value for name, value in values.items() if type(value) is int and abs(value) < COUNT_MAX}
            found.update(place=one.number, counted=steps_then, values=numbers, unsure=unsure)
            found["lengths"] = [count_of(one.length) for one in list(watch.streams.values())]
            if (stream := watch.leading) is not None and stream.lengths:
                at, lengths = self.around(stream.at, steps).number, [*map(count_of, list(stream.lengths))]
                found["leading"] = (at, stream.first, stream.begun, list(stream.marks), lengths, count_of(stream.drawn))
        return found

    def around(self, chain: Chain, steps: int, *, fits: bool = False) -> CodeAround:
        """What is known of a place; it is sent again when half as many steps more are done."""
        key = (fits, *key_of(chain))
        one = self._around.get(key)
        if one is None:
            self._number += 1
            one = self._around[key] = CodeAround(chain, fits, self._number, steps)
        elif steps > one.steps * 1.5 + 10:
            one.due, one.steps = True, steps
        return one

    def sighting(self) -> Optional[Dict[str, Any]]:
        """What to send next: of a place that is to be read."""
        for one in [one for one in list(self._around.values()) if one.due]:
            one.due = False
            place = sight.sighting(one.chain, one.fits, one.lacks)
            if place is not None:
                return {"id": one.number, "place": place}
            one.number = 0
        return None

    def anew(self) -> None:
        """Whoever listens now knows no place: each is sent when it is named again."""
        for one in list(self._around.values()):
            one.due, one.steps = False, -math.inf

    def read(self, number: int, nest: Any, lacks: Tuple[str, ...], kept: Any) -> None:
        """The answer to a sighting, or what is to be told again."""
        self.kept = self.kept if kept is None else kept
        for one in (one for one in list(self._around.values()) if number and one.number == number):
            one.due, one.lacks = bool(lacks and not one.lacks), lacks
            if nest is not None:
                one.counters = tuple((str(module), str(name)) for module, name, *_ in nest[2])


reporter = WorkReporter()
