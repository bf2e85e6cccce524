"""Which boards belong to the job: those its training named, else those with its processes, else all visible ones."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import msgspec

from carbontui.job.supervisor.core.state.inputs import Inputs, Rank
from carbontui.power.messages import Reading

NAMED_S = 30.0
"""Boards still not named this long after the training named some are not the job's."""

READ_FIRST_S = 5.0
"""An agent that has not read the boards by then may never do so, nor a CPU that has not told what it draws idle."""


class LeftAlone(msgspec.Struct, frozen=True):
    """A predecessor's cap in watts per GPU, and the boards whose limit another program has changed since."""

    watts: float | None = None
    boards: tuple[str, ...] = ()


NONE_LEFT = LeftAlone()


@dataclass(frozen=True, slots=True)
class Boards:
    named: tuple[str, ...] | None = None
    """The boards that the training says it uses; None before it has named any."""
    named_mono_s: float = 0.0
    """When that last changed."""
    shown: tuple[str, ...] = ()
    """The boards on which the driver shows the training's processes, if it has named none."""
    shown_mono_s: float = 0.0
    own: frozenset[str] = frozenset()
    """Boards ever watched because they were named. A board stays the job's after its rank has gone."""
    left: LeftAlone = NONE_LEFT


class RefusedCap(NamedTuple):
    """A cap that every board has refused or dropped, the code of the refusal, and why; none of them while one holds or
    is pending."""

    watts: float | None = None
    code: str | None = None
    why: str = ""


def named(boards: Boards, ranks: tuple[Rank, ...], mono_s: float) -> Boards:
    """The boards the ranks name now; boards once named stay the job's while its ranks reconnect."""
    said = tuple(dict.fromkeys(uuid for rank in ranks for uuid in rank.devices))
    return replace(boards, named=said, named_mono_s=mono_s) if said and said != boards.named else boards


def shown(boards: Boards, inputs: Inputs) -> Boards:
    """Where the training names no board: the boards on which the driver shows its processes."""
    if boards.named is not None or not inputs.readings.by_process:
        return boards
    uuids = tuple(reading.uuid for reading in inputs.devices)
    return replace(boards, shown=uuids, shown_mono_s=inputs.mono_s) if uuids != boards.shown else boards


def known(boards: Boards) -> tuple[frozenset[str], float] | None:
    """The boards known to be the training's, and since when; None: it may use any visible one."""
    if boards.named is not None:
        return frozenset(boards.named), boards.named_mono_s
    return (frozenset(boards.shown), boards.shown_mono_s) if boards.shown else None


def settled(boards: Boards, inputs: Inputs) -> Boards:
    """Boards still watched NAMED_S after they were named become the job's own."""
    certain = known(boards)
    if certain is None or inputs.mono_s - certain[1] < NAMED_S or inputs.readings_age_s >= NAMED_S / 2:
        return boards
    own = boards.own | {reading.uuid for reading in inputs.devices}
    return replace(boards, own=own) if own != boards.own else boards


def foreign_boards(boards: Boards, inputs: Inputs, after_s: float = NAMED_S) -> tuple[str, ...]:
    """Boards counted only because it was not yet known which ones the training uses."""
    certain = known(boards)
    if certain is None or inputs.mono_s - certain[1] < after_s:
        return ()
    watched = {reading.uuid for reading in inputs.devices}
    return tuple(sorted(inputs.metered - watched - boards.own - certain[0])) if watched else ()


def unread(inputs: Inputs) -> bool:
    """Whether the machine has just been asked for its boards: until then any figure would be another machine's."""
    read = inputs.readings.mono_s and (inputs.devices or inputs.readings.host.idle_w is not None)
    return not read and inputs.uptime_s < READ_FIRST_S


def unseen(boards: Boards, inputs: Inputs) -> frozenset[str]:
    """Boards metered for this job that the driver no longer shows."""
    gone = inputs.metered - {reading.uuid for reading in inputs.readings.devices}
    certain = known(boards)
    return gone if certain is None else gone & (boards.own | certain[0])


def take_limits(devices: Sequence[Reading]) -> bool:
    """Whether every board takes a power limit, as far as is known."""
    known = [reading.caps["limit"].support for reading in devices if "limit" in reading.caps]
    return bool(devices) and all(support in ("yes", "unknown") for support in known)


def refused_cap(limit_w: float | None, inputs: Inputs) -> RefusedCap:
    """Whether the requested cap, `limit_w` per GPU, holds on no board."""
    outcomes = [inputs.limits.outcomes.get(reading.uuid) for reading in inputs.devices]
    failed = [outcome for outcome in outcomes if outcome is not None and not outcome.ok]
    unanswered = limit_w is None or not inputs.limits.asked or inputs.limits.pending or not outcomes
    if unanswered or len(failed) < len(outcomes):
        return RefusedCap()
    return RefusedCap(limit_w, failed[0].code, failed[0].text or failed[0].code)


def to_kept(boards: Boards, limit_w: float | None, left: tuple[str, ...]) -> Boards:
    """For the journal's `state` table; `left` are the boards excluded from the cap `limit_w` now."""
    return Boards(boards.named, shown=boards.shown, own=boards.own, left=LeftAlone(limit_w, left))


def restored(kept: object, mono_s: float) -> Boards:
    """Boards named or shown to a predecessor: others are not counted even while the ranks reconnect.

    Raises msgspec.ValidationError on an invalid field.
    """
    was = msgspec.convert(kept or {}, Boards)
    left = was.left if was.left.boards else NONE_LEFT
    if not was.named:
        return Boards(shown=was.shown, shown_mono_s=mono_s if was.shown else 0.0, left=left)
    return Boards(was.named, mono_s, own=was.own, left=left)
