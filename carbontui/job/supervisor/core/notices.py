"""What is told of the job: its Status of a moment, the notices, the snapshot on disk."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from typing import TYPE_CHECKING

import msgspec

from carbontui import protocol, units
from carbontui.job import store
from carbontui.job.supervisor.core import capabilities as abilities
from carbontui.job.supervisor.core import status as picture
from carbontui.power.messages import Readings

if TYPE_CHECKING:
    from carbontui.job.supervisor.loop import Supervisor


class Teller:
    """Reads the job's state and changes nothing of it."""

    def __init__(self, job: Supervisor) -> None:
        self._job = job

    def describe(self, now: float) -> protocol.Status:
        """The Status of this moment."""
        job = self._job
        child = job.guard.child()
        ranks = job.server.ranks
        leader = next((p.obs for p in ranks if p.hello and p.hello.rank == 0), None)
        deadline = job.deadline_s()
        total = job.progress.total_s
        factor = None if deadline is None or not total else (deadline - job.start_s) / total
        readings: Readings = job.agent.readings
        parked = {uuid: mean.value for uuid, mean in job.learned.parked_w.items() if mean.value is not None}
        _, next_at, next_level = job.planner.level_at(now)
        following = job.decision.reason.code in ("plan", "plan_wait")
        over = child.state == "exited"
        return picture.status(
            picture.Facts(
                job=job.options.job,
                name=job.options.name,
                host=socket.gethostname(),
                now_s=now,
                decision=job.decision,
                next_at_s=next_at if following else job.overrides.until_s,
                next_level=next_level if following else (None if job.overrides.until_s is None else "plan"),
                override=job.overrides.current,
                override_gen=job.overrides.gen,
                budget=protocol.BudgetStatus(
                    units.iso(job.start_s),
                    None if deadline is None else units.iso(deadline),
                    factor,
                    total is not None,
                ),
                finish_expected_s=job.planner.finish_s() if job.decision.state in protocol.LIVE_STATES else None,
                pids=protocol.Pids(job.guard.keeper_pid, os.getpid(), job.agent.pid, job.guard.pid),
                clients=len(ranks),
                step=job.progress.step,
                steps_total=job.progress.steps_total,
                rate=leader.rate if leader else None,
                loss=leader.loss if leader else job.desk.last_loss,
                epoch=leader.epoch if leader else None,
                readings=readings,
                age_s=readings.age_s(time.monotonic()),
                devices=job.devices,
                parked_w=parked,
                energy_gpu_kwh=job.books.ledger.gpu_kwh,
                energy_wall_kwh=job.books.ledger.wall_kwh,
                gco2_g=job.sums.gco2_g,
                avoided_g=job.sums.avoided_g,
                cost=job.sums.cost,
                outlook=job.outlook,
                exit=protocol.Exit(child.code, child.signal) if over and not child.unloaded else None,
                certificate=job.planner.certificate(),
                notices=self.notices(now),
                replay=job.clock.replay,
                simulated=job.options.simulated is not None,
                how_shares=job.books.how_shares(),
                gpu_how_shares=job.books.how_shares(gpus=True),
                unseen=bool(job.unseen) or bool(job.hands.named and not job.devices),
                full_measured=job.senses.full_wall_w() is not None,
            )
        )

    def notices(self, now: float) -> tuple[str, ...]:
        """One line each for what a person should know."""
        job = self._job
        found: list[str] = []
        if job.options.simulated:
            found.append("SIMULATED GPU: watts are a model, not a measurement")
        if job.clock.replay:
            found.append(f"REPLAY of recorded grid data, {job.clock.speed:.0f} times faster than life")
        if not job.guard.guarded:
            found.append("unguarded: no restart (the keeper is gone)")
        readings = job.agent.readings
        # the screen has room for the first: what makes the watts wrong comes before where the grid data is from
        found += abilities.board_notices(job.devices, readings.age_s(time.monotonic()))
        if job.unseen:
            found.append(f"{len(job.unseen)} of its boards cannot be seen any more: watts are unknown without them")
        found += [
            note for note in (job.missing, job.server.fault, job.feed.note, job.journal.fault, job.planner.note) if note
        ]
        found += job.faults.notices
        found += readings.notices
        several = {r.uuid: f"GPU {r.index}: " for r in readings.devices} if len(readings.devices) > 1 else {}
        found += [several.get(o.uuid, "") + o.text for o in job.agent.outcomes.values() if not o.ok and o.text]
        found += job.desk.notices(now)
        return tuple(dict.fromkeys(found))

    def write_snapshot(self) -> None:
        job = self._job
        if job.status is not None:
            with contextlib.suppress(OSError):
                store.write_atomic(job.dir / "snapshot.json", msgspec.json.encode(job.status))
