"""The worker's part, in the test's process, with real messages between."""

from __future__ import annotations

import json

import msgspec

from carbontui import protocol
from carbontui.client.detection import places, sight
from carbontui.client.detection.report import WorkReporter
from carbontui.client.pausing import wire
from carbontui.job.worker import reading, work
from carbontui.job.worker.model import WorkModel


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
    return work.Nest() if saw is None else msgspec.convert(told(saw).nest, work.Nest)


class Both:
    """What a training's link and its supervisor do, without a socket between."""

    def __init__(self) -> None:
        self.reporter, self.work = WorkReporter(), WorkModel()

    def total(self, steps: int, *, framework: bool = False) -> protocol.RankReport:
        fields = {
            "step": steps,
            "state": "running",
            "want_gen": 0,
            "work": self.reporter.report(steps, 0, framework=framework),
        }
        report = protocol.decode_from_peer(wire.encode("obs", fields))
        assert isinstance(report, protocol.RankReport)
        report = self.work.folded(report, 0.0)
        if (kept := self.work.to_keep()) is not None:
            line = wire.decode(protocol.encode(kept).rstrip())
            assert isinstance(line, wire.ReadingLine)
            self.reporter.read(*line)
        return report

    def answered(self, steps: int, *, framework: bool = False) -> protocol.RankReport:
        """The total once every place has been read."""
        self.total(steps, framework=framework)
        while (sighting := self.reporter.sighting()) is not None:
            answer = told(sighting["place"], sighting["id"])
            self.reporter.read(*answer)
            self.work.read(
                protocol.CodeRead(answer.number, msgspec.Raw(json.dumps(answer.nest).encode()), answer.lacks)
            )
            self.total(steps, framework=framework)
        return self.total(steps, framework=framework)
