"""What can be measured and done in this job, why not the better thing, and the mend: the screen's page `d`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from carbontui import protocol, units
from carbontui.power import capability

if TYPE_CHECKING:
    from carbontui.job.supervisor import Supervisor


def answer(job: Supervisor, ask: protocol.AbilitiesAsk) -> protocol.AbilitiesAnswer:
    """Boards and host as the agent sees them, then the training; the speed curve as far as one is known."""
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
        why = job.freeze_refusal()
        stop = row("training", "SIGSTOP", "yes" if not why else "no", why or "asked for with --sigstop")
        if not job.options.sigstop:
            stop = row("training", "SIGSTOP", "no", "not asked for", "carbontui run --sigstop -- ...")
        return [row("training", "pause", "unknown", "no training step has been seen yet"), stop]
    took = job.learned.pause_s.value
    held = "" if took is None else f"; a pause takes hold after {_brief(took)}"
    unload = any(peer.obs is not None and peer.obs.can_unload for peer in ranks)
    return [
        row("training", "pause", "yes", f"{len(ranks)} process{'es' if len(ranks) > 1 else ''} at its steps{held}"),
        row("training", "duty cycle", "yes", "in whole steps; saves watts, not energy"),
        row("training", "unload", "yes", "a checkpoint function is registered")
        if unload
        else row("training", "unload", "no", "it has no checkpoint function", "carbontui.on_checkpoint(save)"),
    ]
