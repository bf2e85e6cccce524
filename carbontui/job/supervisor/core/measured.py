"""What the job teaches about itself while it runs: watts flat out and parked, seconds to pause and to resume."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

SETTLE_WALL_S = 1.5
"""After a change of state the boards' averages need this long to tell the new one."""
MEMORY = 120
"""Samples after which the oldest counts little."""


@dataclass
class Mean:
    """A mean that forgets slowly."""

    value: float | None = None
    count: int = 0

    def add(self, sample: float, weight: int = 1) -> None:
        self.count = min(MEMORY, self.count + weight)
        self.value = sample if self.value is None else self.value + (sample - self.value) * weight / self.count


@dataclass
class Learned:
    """Per GPU UUID where it concerns boards; seconds of the machine's clock where it concerns latencies."""

    full_w: dict[str, Mean] = field(default_factory=dict)
    parked_w: dict[str, Mean] = field(default_factory=dict)
    idle_w: dict[str, Mean] = field(default_factory=dict)
    rest_w: Mean = field(default_factory=Mean)
    rest_parked_w: Mean = field(default_factory=Mean)
    """CPU and DRAM while the training stands still."""
    pause_s: Mean = field(default_factory=Mean)
    resume_s: Mean = field(default_factory=Mean)
    reload_s: Mean = field(default_factory=Mean)
    """From the start of the command to its first step: what coming back from an unload takes."""

    def watts(self, kind: str, uuid: str, watts: float) -> None:
        """A settled reading of one board while `full`, `parked` or `idle`."""
        table = {"full": self.full_w, "parked": self.parked_w, "idle": self.idle_w}[kind]
        table.setdefault(uuid, Mean()).add(watts)

    def total(self, kind: str, uuids: tuple[str, ...], default_w: float) -> tuple[float, bool]:
        """Sum over boards, and whether every one of them was measured; a board not yet measured counts as the
        mean of the measured ones, else as `default_w`."""
        table = {"full": self.full_w, "parked": self.parked_w, "idle": self.idle_w}[kind]
        known = [mean.value for uuid, mean in table.items() if uuid in uuids and mean.value is not None]
        fallback = sum(known) / len(known) if known else default_w
        return sum(known) + fallback * (len(uuids) - len(known)), bool(uuids) and len(known) == len(uuids)

    def to_dict(self) -> dict[str, Any]:
        def pairs(table: dict[str, Mean]) -> dict[str, list[Any]]:
            return {uuid: [mean.value, mean.count] for uuid, mean in table.items()}

        return {
            "full_w": pairs(self.full_w),
            "parked_w": pairs(self.parked_w),
            "idle_w": pairs(self.idle_w),
            "rest_w": [self.rest_w.value, self.rest_w.count],
            "rest_parked_w": [self.rest_parked_w.value, self.rest_parked_w.count],
            "pause_s": [self.pause_s.value, self.pause_s.count],
            "resume_s": [self.resume_s.value, self.resume_s.count],
            "reload_s": [self.reload_s.value, self.reload_s.count],
        }

    def restore(self, kept: dict[str, Any] | None) -> None:
        for name, value in (kept or {}).items():
            if isinstance(value, dict):
                setattr(self, name, {uuid: Mean(*pair) for uuid, pair in value.items()})
            elif name in self.__dict__:
                setattr(self, name, Mean(*value))
