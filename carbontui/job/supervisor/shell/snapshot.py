"""The Status of one tick, including facts known only to the shell, its copy on disk, and its Prometheus metrics."""

import asyncio
import contextlib
import os
import shutil
import socket
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import msgspec

from carbontui import paths, protocol
from carbontui.job.files import shown_totals
from carbontui.job.supervisor.core.planning import machine
from carbontui.job.supervisor.core.state import forbidden
from carbontui.job.supervisor.core.state.inputs import FRESH_S, Inputs
from carbontui.job.supervisor.core.state.job import JobState
from carbontui.job.supervisor.core.view import notices, provenance
from carbontui.job.supervisor.core.view import status as view
from carbontui.job.supervisor.record.accounting import Accounting
from carbontui.job.supervisor.record.disk import Disk, Recorder
from carbontui.job.supervisor.shell import metrics
from carbontui.job.supervisor.shell.door import Ports
from carbontui.job.supervisor.shell.keeper_handle import KeeperHandle
from carbontui.job.terms.spec import Options
from carbontui.power.agent.handle import AgentHandle
from carbontui.power.metering import witness
from carbontui.protocol import Statement, statement, written
from carbontui.system.openmetrics import MetricsPlace, MonotonicCounter, render
from carbontui.text.sources import slowed
from carbontui.text.statements import kept, reason

DISK_LEAST_B = 1 << 30


@dataclass(eq=False)
class Snapshots:
    spec: Options
    keeper: KeeperHandle
    agent: AgentHandle
    accounting: Accounting
    recorder: Recorder
    disk: Disk
    ports: Ports
    fault: str = ""
    """Why its copy on disk is an older one; '' if it is not."""
    _low: list[Statement] = field(default_factory=list)
    _totals: MonotonicCounter = field(default_factory=MonotonicCounter)
    _host: str = field(default_factory=socket.gethostname)

    def __post_init__(self) -> None:
        spec = self.spec
        self._shown = shown_totals.ShownTotals(shown_totals.place(spec.socket))
        self._metrics = MetricsPlace(spec.metrics, spec.job) if spec.metrics else None
        if self._metrics is not None:
            metrics.resume(self._totals, self._metrics.before())

    def describe(self, state: JobState, inputs: Inputs) -> protocol.Status:
        pids = protocol.Pids(self.keeper.keeper_pid, os.getpid(), self.agent.pid, self.keeper.pid)
        fault = self._metrics.fault if self._metrics else ""
        found = [*self.ports.notices(), *([written(fault)] if fault else []), *self._low]
        told = described(view.status(state, inputs, host=self._host, pids=pids), state, inputs, found)
        return msgspec.structs.replace(self._shown.shown(told, inputs.uptime_s), events=self.recorder.recent)

    def write(self, status: protocol.Status) -> asyncio.Future[None]:
        """Write to disk; Prometheus metrics at their own interval, and once the job is over."""
        over = status.state not in protocol.LIVE_STATES
        text, place = "", self._metrics
        if place is not None and (over or place.due()):
            text = render(metrics.families(status, self.accounting.ledger.by_board, self._totals))
        return self.disk.do(partial(self._write, status, text))

    def _write(self, status: protocol.Status, exposition: str) -> None:
        path, self.fault = Path(self.spec.dir) / "snapshot.json", ""
        try:
            paths.write_whole(path, msgspec.json.encode(status))
        except OSError as error:
            self.fault = f"{path.name} not written: {error.strerror}"
            if status.state not in protocol.LIVE_STATES:  # figures of before the end are no end's
                path.unlink(missing_ok=True)
        if self._metrics is not None and exposition:
            self._metrics.tell(exposition)
        self._low = _disk_notice(Path(self.spec.log).parent)

    def close(self, *, over: bool) -> None:
        """The job is over, or has a successor."""
        self._shown.close(over=over)


def described(
    status: protocol.Status, state: JobState, inputs: Inputs, ours: Iterable[Statement] = ()
) -> protocol.Status:
    """The Status of the core with all that is told in words; `ours` are notices of the shell."""
    now_s, replace = inputs.now_s, msgspec.structs.replace
    hours = zip(status.forbidden, forbidden.current(state.forbidden, now_s), strict=True)
    boards = zip(status.gpus, inputs.devices, strict=True)
    fresh = inputs.readings_age_s < FRESH_S
    told = {kept(line, now_s): line for line in notices.notices(state, inputs, list(ours))}
    sources = provenance.sources(state, inputs, status).items()
    why, counted = (kept(said, now_s) for said in view.boundary(state, inputs))
    assumed = machine.host(state, inputs).how == "default"
    meters = witness.of_machine(inputs.readings, state.totals.counters, assumed=assumed)
    return replace(
        status,
        witnesses=tuple(protocol.Witness(*msgspec.structs.astuple(one)) for one in meters),
        boundary=replace(status.boundary, why=why, counted=counted) if status.boundary else None,
        reason=reason(state.decision.why, now_s),
        forbidden=tuple(replace(one, text=kept(its.said, now_s)) for one, its in hours),
        gpus=tuple(replace(gpu, slowed=slowed(reading.reasons)) if fresh else gpu for gpu, reading in boards),
        notices=tuple(told),
        notices_said=tuple(told.values()),
        notice_keys=tuple(notices.key(line, text) for text, line in told.items()),
        provenance={name: protocol.Provenance(x.how, kept(x.said, now_s), x.age_s, x.ahead) for name, x in sources},
    )


def _disk_notice(folder: Path) -> list[Statement]:
    with contextlib.suppress(OSError):
        if shutil.disk_usage(folder).free < DISK_LEAST_B:
            # a folder's name may contain bytes that are not text; a message cannot
            return [statement("disk_low", folder=os.fsencode(folder).decode(errors="replace"))]
    return []
