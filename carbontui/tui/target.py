"""What a screen is opened on: one job's socket, and what its files say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from carbontui import protocol


class JobRecord(Protocol):
    """What `Target.of` needs to know of a job's record."""

    @property
    def id(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def socket(self) -> Path: ...
    def status(self) -> protocol.Status: ...
    def read_log(self, ask: protocol.LogRead) -> protocol.LogAnswer: ...


@dataclass(frozen=True, slots=True)
class Target:
    """One job to look at. `status` and `read_log` are what its files say; of one that is over, that is all there is."""

    job: str
    name: str
    socket: Path
    status: protocol.Status | None = None
    read_log: Callable[[protocol.LogRead], protocol.LogAnswer] | None = None

    @classmethod
    def of(cls, job: JobRecord) -> Target:
        return cls(job.id, job.name, job.socket, job.status(), job.read_log)

    @property
    def over(self) -> bool:
        return self.status is not None and self.status.state not in protocol.LIVE_STATES
