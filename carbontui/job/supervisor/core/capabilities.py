"""What can be measured and done in this job, why not the better thing, and the mend."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from carbontui import protocol, units
from carbontui.job.supervisor.core.status import FRESH_S
from carbontui.power import capability
from carbontui.power.messages import Capability, Reading

if TYPE_CHECKING:
    from carbontui.job.supervisor.loop import Supervisor


def caps_hold(devices: Sequence[Reading]) -> bool:
    """Whether every board takes a limit, as far as is known."""
    known = [reading.caps["limit"].support for reading in devices if "limit" in reading.caps]
    return bool(devices) and all(support in ("yes", "unknown") for support in known)


def board_notices(devices: Sequence[Reading], age_s: float) -> list[str]:
    """What keeps the watts of these boards from being this job's: no answer, no reading, others who use them.

    `age_s` is the age of the readings; boards that were seen and are silent are named by what is missing.
    """
    if devices and age_s >= FRESH_S:
        silent = units.fmt_duration(age_s)
        return [f"the driver has not answered for {silent}: watts are unknown, limits stay as they are until it does"]
    found = []
    for reading in devices:
        board = f"GPU {reading.index}"
        if reading.lost:
            found.append(f"{board} is lost (it fell off the bus): reboot or reset it; its energy until then is kept")
            continue
        if reading.power_w is None and reading.caps.get("energy", Capability("unknown")).support != "yes":
            why = reading.why.get("power_w", "no reading")
            found.append(f"{board}: no watts can be read ({why}); the energy counted is without them")
        if reading.mig:
            found.append(f"{board}: its watts are those of the whole board, shared by its MIG slices")
        if reading.foreign_pids:
            pid = reading.foreign_pids[0]
            found.append(f"{board}: another process uses it too (pid {pid}); its watts are counted here")
    return found


def sigstop_refusal(devices: Sequence[Reading]) -> str:
    """Why SIGSTOP is out of the question, or ''. Processes that share a board, or a collective, would wait for each
    other: an NCCL watchdog ends a job whose collective is older than ten minutes."""
    own: set[int] = set()
    for reading in devices:
        if reading.pids is None:
            return f"the driver does not tell which processes use {reading.name}"
        if len(reading.pids) > 1:
            return f"{len(reading.pids)} processes use {reading.name} (GPU {reading.index})"
        own |= set(reading.pids) - set(reading.foreign_pids)
    return f"its {len(own)} processes use GPUs together" if len(own) > 1 else ""


def freeze_why(job: Supervisor) -> str:
    """Why SIGSTOP is not to be used now although `run --sigstop` asked for it."""
    if not job.options.sigstop:
        return ""
    return sigstop_refusal(job.devices) if job.guard.guarded else "the keeper, which undoes it, is gone"


def answer(job: Supervisor, ask: protocol.AbilitiesAsk) -> protocol.AbilitiesAnswer:
    """For the screen's page `d`: boards and host as the agent sees them, then the training, then its speed curve."""
    readings = msgspec.structs.replace(job.agent.readings, devices=job.devices)
    boards = [
        protocol.Ability(row.device, row.aspect, capability.SAYS[row.support], row.why, row.fix)
        for row in capability.table(readings)
    ]
    return protocol.AbilitiesAnswer(ask.id, (*boards, *_training(job)), tuple(job.trial.table().splitlines()))


def _brief(seconds: float) -> str:
    return f"{1000 * seconds:.0f} ms" if seconds < 1 else units.fmt_duration(seconds)


def _training(job: Supervisor) -> list[protocol.Ability]:
    row = protocol.Ability
    ranks = [peer for peer in job.server.ranks if peer.obs is not None]
    if not ranks:
        why = freeze_why(job)
        stop = row(
            "training", "SIGSTOP", "supported" if not why else "not supported", why or "asked for with --sigstop"
        )
        if not job.options.sigstop:
            stop = row("training", "SIGSTOP", "not supported", "not asked for", "carbontui run --sigstop -- ...")
        return [row("training", "pause", "not supported", "no training step has been seen yet"), stop]
    took = job.learned.pause_s.value
    held = "" if took is None else f"; a pause takes hold after {_brief(took)}"
    unload = any(peer.obs is not None and peer.obs.can_unload for peer in ranks)
    return [
        row(
            "training", "pause", "supported", f"{len(ranks)} process{'es' if len(ranks) > 1 else ''} at its steps{held}"
        ),
        row("training", "duty cycle", "supported", "in whole steps; saves watts, not energy"),
        row("training", "unload", "supported", "a checkpoint function is registered")
        if unload
        else row(
            "training", "unload", "not supported", "it has no checkpoint function", "carbontui.on_checkpoint(save)"
        ),
    ]
