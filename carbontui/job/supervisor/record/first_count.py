"""Where a board's metering begins: its counter at the start of the training, read alongside it a second before an agent
could, else the second of the job's life that the board's first average covers."""

from __future__ import annotations

from pathlib import Path

import msgspec

from carbontui.power.messages import Sample
from carbontui.system import untrusted

FILE = "first-count.json"
AVERAGE_S = 1.0
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

    def __init__(self, directory: Path, created_s: float = 0.0) -> None:
        self._path, self._created_s = directory / FILE, created_s
        self._rows: dict[str, _Row] | None = None

    def before(self, sample: Sample) -> Sample | None:
        """What is known of this board before its first `sample`; None if nothing is."""
        if self._rows is None:
            try:
                rows = untrusted.decode(self._path.read_bytes(), list[_Row])
            except (OSError, ValueError):
                rows = []
            self._rows = {row.uuid: row for row in rows}
        row = self._rows.pop(sample.uuid, None)
        if row is not None and row.energy_mj is not None and sample.energy_uj is not None:
            if 0 < sample.mono_s - row.mono_s < NEAR_S:
                counted = {"energy_uj": row.energy_mj * 1000, "power_w": None}
                return msgspec.structs.replace(sample, mono_s=row.mono_s, wall_s=row.wall_s, **counted)
        elif sample.kind == "avg1s" and sample.wall_s - self._created_s >= AVERAGE_S:
            earlier = {"mono_s": sample.mono_s - AVERAGE_S, "wall_s": sample.wall_s - AVERAGE_S}
            return msgspec.structs.replace(sample, energy_uj=None, **earlier)
        return None
