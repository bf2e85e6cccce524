"""Energy counters at the start of the training, read alongside it a second before an agent could."""

from __future__ import annotations

from pathlib import Path

import msgspec

from carbontui.power.messages import Sample
from carbontui.system import untrusted

FILE = "first-count.json"
NEAR_S = 60.0
"""A count older than this is from another start or a slow driver: its interval would be a guess."""


class _Row(msgspec.Struct, array_like=True):
    uuid: str
    mono_s: float
    wall_s: float
    energy_mj: int | None
    power_mw: int | None


class FirstCounts:
    """The file is read when a board's first sample arrives; by then it exists or never will."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / FILE
        self._rows: dict[str, _Row] | None = None

    def before(self, sample: Sample) -> Sample | None:
        """The count of this board when the training began; None if it was not read shortly before `sample`."""
        if self._rows is None:
            try:
                rows = untrusted.decode(self._path.read_bytes(), list[_Row])
            except (OSError, ValueError):
                rows = []
            self._rows = {row.uuid: row for row in rows}
        row = self._rows.pop(sample.uuid, None)
        if row is None or row.energy_mj is None or sample.energy_uj is None:
            return None
        if not 0 < sample.mono_s - row.mono_s < NEAR_S:
            return None
        return msgspec.structs.replace(
            sample, mono_s=row.mono_s, wall_s=row.wall_s, energy_uj=row.energy_mj * 1000, power_w=None
        )
