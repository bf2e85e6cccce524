"""The worker's part, in the test's process, with real messages between."""

from __future__ import annotations

import msgspec

from carbontui import protocol
from carbontui.client.detection import guess, places, sight, work
from carbontui.client.pausing import wire
from carbontui.job.worker import reading


def told(saw: object, number: int = 1) -> wire.ReadingLine:
    """The answer to a sighting, as the link takes it."""
    line = wire.encode("sighting", {"id": number, "place": saw})
    sighting = protocol.decode_from_peer(line)
    assert isinstance(sighting, protocol.Sighting)
    answer = msgspec.structs.replace(reading.read(sighting.place), id=number)
    line = protocol.encode(answer)
    back = wire.decode(line.rstrip())
    assert isinstance(back, wire.ReadingLine)
    return back


def read(chain: places.Chain, *, fits: bool = False) -> work.Nest:
    """What is around a place."""
    saw = sight.sighting(chain, fits)
    return work.Nest() if saw is None else work.nest_of(told(saw).nest)


def answered(detector: guess.Detector, steps: int, *, framework: bool = False) -> work.FoldedWork | None:
    """The total once every place has been read."""
    detector.total(steps, framework=framework)
    while (sighting := detector.sighting()) is not None:
        detector.read(*told(sighting["place"], sighting["id"]))
        detector.total(steps, framework=framework)
    return detector.total(steps, framework=framework)
