"""Notices for the user, one line each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from carbontui import units
from carbontui.job.supervisor.core import (
    allowance_rules,
    attendance,
    boards,
    finish,
    site_room,
    unload_rules,
)
from carbontui.job.supervisor.core.observation import FRESH_S, Inputs
from carbontui.job.supervisor.core.state import JobState
from carbontui.power.messages import Capability, Reading
from carbontui.protocol import Statement

TRIED_S = 60.0
"""The result of a try is shown until the real start is this old."""
UNREAD_S = 10.0
"""Agents of other machines may take this long to come up before their watts are reported missing."""


def notices(state: JobState, seen: Inputs, ours: Iterable[str]) -> tuple[str | Statement, ...]:
    """Caveats on the numbers first, then `ours` (faults of carbontui itself), then the rest."""
    found: list[str | Statement] = []
    if state.spec.simulated:
        found.append("SIMULATED GPU: watts are a model, not a measurement")
    if state.clock.replay:
        found.append(f"REPLAY of recorded grid data, {state.clock.speed:.0f} times faster than life")
    # the consequence of the user's own command comes before standing conditions
    if (missed := finish.unreachable_by_pause(state, seen.now_s)) is not None:
        found.append(missed)
    found += allowance_rules.notices(state, seen.now_s)
    if not seen.guarded:
        found.append("unguarded: no restart (the keeper is gone)")
    if state.spec.nodes is not None and state.spec.nodes.fault:
        found.append(state.spec.nodes.fault)
    if silent := attendance.silent(state.attendance, seen):
        found.append(f"silent: {', '.join(silent)}")
    if seen.uptime_s >= UNREAD_S and (unread := attendance.unread_nodes(seen)):
        found.append(f"watts are unknown without {', '.join(unread)}")
    if text := site_room.notice(seen.site):
        found.append(text)
    # the screen has room for the first only: wrong watts come before the source of the grid data
    found += board_notices(seen.devices, seen.readings_age_s)
    if missing := boards.unseen(state.boards, seen):
        found.append(f"{len(missing)} of its boards cannot be seen any more: watts are unknown without them")
    if state.tried.text and (seen.child.state != "running" or seen.child.age_s < TRIED_S):
        found.append(state.tried.text)
    if unload_rules.offered(state, seen):
        found.append(f"for long pauses it could be unloaded, after a rehearsal: carbontui rehearse {state.spec.job}")
    found += [line for line in ours if line]
    found += seen.readings.notices
    several = {r.uuid: f"{r.label}: " for r in seen.readings.devices} if len(seen.readings.devices) > 1 else {}
    shared = {reading.uuid for reading in seen.devices if reading.foreign_pids}
    failed = [o for o in seen.limits.outcomes.values() if not o.ok and o.text]
    found += [several.get(o.uuid, "") + o.text for o in failed if o.code != "foreign" or o.uuid not in shared]
    return tuple(one for index, one in enumerate(found) if one not in found[:index])


def _whose(reading: Reading) -> str:
    """How the watts of a board shared with others are counted."""
    if reading.share is None:
        return "its watts are counted here"
    if reading.own_w is None or reading.power_w is None:
        return "its watts are shared, split"
    return f"its watts are shared, split: {reading.own_w:.0f} of {reading.power_w:.0f} W are this job's"


def board_notices(devices: Sequence[Reading], age_s: float) -> list[str]:
    """Why the watts of these boards are not simply this job's: no answer, no reading, other users.

    `age_s` is the age of the readings; boards seen before and now silent are named together with what is missing.
    """
    if devices and age_s >= FRESH_S:
        silent = units.fmt_duration(age_s)
        return [f"the driver has not answered for {silent}: watts are unknown, limits stay as they are until it does"]
    found = []
    for reading in devices:
        board = reading.label
        if reading.lost:
            found.append(f"{board} is lost (it fell off the bus): reset it or reboot; its energy until then is kept")
            continue
        counts = reading.caps.get("energy", Capability("unknown")).support == "yes"
        why = reading.why.get("power_w", "no reading")
        said = why.startswith("nothing read on")  # reported once, for the whole machine
        if reading.power_w is None and not counts and not said:
            found.append(f"{board}: no watts can be read ({why}); the energy counted is without them")
        if reading.mig:
            found.append(f"{board}: its watts are those of the whole board, shared by its MIG slices")
        if reading.foreign_pids:
            user = reading.foreign_user or f"another process (pid {reading.foreign_pids[0]})"
            found.append(f"{board}: {user} uses it too: its limit is left alone, {_whose(reading)}")
    return found
