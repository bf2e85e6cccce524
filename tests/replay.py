"""Steps through every decision of a bundle, and says where today's code decides otherwise.

python -m tests.replay FILE

FILE is of `carbontui doctor --bundle`. Check out its version first: versions.json in it names that. Exit code 1 where
a decision, what is asked of the training or an effect differs from the recorded one.
"""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args, get_type_hints

import msgspec

from carbontui.job.supervisor.core.advance import Event, advance
from carbontui.job.supervisor.core.state.inputs import Inputs
from carbontui.job.supervisor.core.state.job import JobState
from carbontui.job.supervisor.record import events_ring
from carbontui.job.terms.clock import Clock, Standstills

KINDS = {kind.__name__: kind for kind in get_args(Event)}
OUTCOME = ("asked", "decision", "effects")
SHOWN = 20


@dataclass(frozen=True)
class Step:
    """One event, and its outcome as recorded and as computed now, both as plain values."""

    event: Event
    recorded: dict[str, Any]
    computed: dict[str, Any]

    @property
    def differences(self) -> dict[str, tuple[Any, Any]]:
        pairs = {name: (self.recorded[name], self.computed[name]) for name in OUTCOME}
        return {name: pair for name, pair in pairs.items() if repr(pair[0]) != repr(pair[1]) and pair[0] != pair[1]}


def typed(value: Any, kind: Any) -> Any:
    def standstills(_kind: type, spans: Any) -> Standstills:
        made = Standstills()
        made.spans = [(a, b) for a, b in spans]
        return made

    return msgspec.convert(value, kind, dec_hook=standstills)


def plain(value: object) -> Any:
    return msgspec.msgpack.decode(events_ring.pack(value))


def steps(segment: Iterable[dict[str, Any]]) -> Iterator[Step]:
    """Every event of one segment."""
    known: dict[str, Any] = {"inputs": {}}
    for frame in segment:
        if "state" in frame:
            now = typed(frame["state"], JobState)
            continue
        kind = KINDS[frame["event"]]
        known |= {name: value for name, value in frame.items() if name != "inputs"}
        known["inputs"] |= frame.get("inputs", {})
        types = get_type_hints(kind)
        facts = {
            name: typed(known[name], Inputs if name == "inputs" else types[name])
            for name in kind.__slots__
            if name in known
        }
        now, event, effects = replace(now, clock=typed(known["clock"], Clock)), kind(**facts), None
        try:
            now, effects = advance(now, event)
        except Exception as error:
            raised = f"{type(error).__name__}: {error}"
            effects = None if frame["effects"] is None else raised
        named = [(type(one).__name__, one) for one in effects] if isinstance(effects, tuple) else effects
        computed = {"asked": now.asked, "decision": now.decision, "effects": named}
        yield Step(event, {name: known[name] for name in OUTCOME}, plain(computed))


def bundled(path: Path) -> Iterator[Step]:
    """Every event of a bundle, oldest first."""
    with zipfile.ZipFile(path) as bundle:
        for name in sorted(name for name in bundle.namelist() if name.startswith(f"{events_ring.FOLDER}/")):
            yield from steps(events_ring.frames(bundle.read(name)))


def main(path: str) -> int:
    count = wrong = 0
    for count, step in enumerate(bundled(Path(path)), 1):
        if step.differences:
            wrong += 1
            if wrong <= SHOWN:
                at_s = getattr(getattr(step.event, "inputs", None), "now_s", None)
                print(f"event {count}, {type(step.event).__name__} at {at_s}:")
                for name, (recorded, computed) in step.differences.items():
                    print(f"  {name} recorded {recorded}\n  {name} computed {computed}")
    print(f"{count} decisions, {f'{wrong} differ' if wrong else 'all equal'}")
    return 1 if wrong or not count else 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1]))
