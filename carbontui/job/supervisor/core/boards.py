"""Which boards are the job's: those its training named, else those with its processes, else all visible ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import msgspec

from carbontui.job.supervisor.core.observation import Inputs, Rank
from carbontui.power.messages import Reading

NAMED_S = 30.0
"""Boards that the training has not named so long after it named some are not its own."""


class LeftAlone(NamedTuple):
    """A predecessor's cap in watts per GPU, and the boards whose limit someone else has set since."""

    watts: float | None = None
    boards: tuple[str, ...] = ()


NONE_LEFT = LeftAlone()


@dataclass(frozen=True, slots=True)
class Boards:
    named: tuple[str, ...] | None = None
    """The boards that the training has said it uses; None before it did."""
    named_mono_s: float = 0.0
    """When that last changed."""
    shown: tuple[str, ...] = ()
    """The boards on which the driver shows processes of a training that has named none."""
    shown_mono_s: float = 0.0
    own: frozenset[str] = frozenset()
    """Boards that were ever watched because they were named; one of a rank that is gone stays the job's."""
    left: LeftAlone = NONE_LEFT


class RefusedCap(NamedTuple):
    """A cap that every board has refused or given up, and why; (None, '') while one holds or is asked."""

    watts: float | None = None
    why: str = ""


def named(boards: Boards, ranks: tuple[Rank, ...], mono_s: float) -> Boards:
    """What the ranks say now; boards once named stay the job's while its ranks reconnect."""
    said = tuple(dict.fromkeys(uuid for rank in ranks for uuid in rank.devices))
    return replace(boards, named=said, named_mono_s=mono_s) if said and said != boards.named else boards


def shown(boards: Boards, seen: Inputs) -> Boards:
    """What the driver shows of a training that names no board: those with its processes are its own."""
    if boards.named is not None or not seen.readings.by_process:
        return boards
    uuids = tuple(reading.uuid for reading in seen.devices)
    return replace(boards, shown=uuids, shown_mono_s=seen.mono_s) if uuids != boards.shown else boards


def known(boards: Boards) -> tuple[frozenset[str], float] | None:
    """The boards that are certainly the training's, and since when that is known; None: any visible one may be."""
    if boards.named is not None:
        return frozenset(boards.named), boards.named_mono_s
    return (frozenset(boards.shown), boards.shown_mono_s) if boards.shown else None


def settled(boards: Boards, seen: Inputs) -> Boards:
    """Boards that are watched well after they were named are the job's own."""
    certain = known(boards)
    if certain is None or seen.mono_s - certain[1] < NAMED_S or seen.readings_age_s >= NAMED_S / 2:
        return boards
    own = boards.own | {reading.uuid for reading in seen.devices}
    return replace(boards, own=own) if own != boards.own else boards


def strangers(boards: Boards, seen: Inputs, after_s: float = NAMED_S) -> tuple[str, ...]:
    """Boards that were counted only because nobody had said yet which ones the training uses."""
    certain = known(boards)
    if certain is None or seen.mono_s - certain[1] < after_s:
        return ()
    watched = {reading.uuid for reading in seen.devices}
    return tuple(sorted(seen.metered - watched - boards.own - certain[0])) if watched else ()


def unseen(boards: Boards, seen: Inputs) -> frozenset[str]:
    """Boards that were metered for this job and that the driver does not show any more."""
    gone = seen.metered - {reading.uuid for reading in seen.readings.devices}
    certain = known(boards)
    return gone if certain is None else gone & (boards.own | certain[0])


def take_limits(devices: Sequence[Reading]) -> bool:
    """Whether every board takes a power limit, as far as is known."""
    known = [reading.caps["limit"].support for reading in devices if "limit" in reading.caps]
    return bool(devices) and all(support in ("yes", "unknown") for support in known)


def refused_cap(limit_w: float | None, seen: Inputs) -> RefusedCap:
    """Whether the cap that is asked for, `limit_w` per GPU, holds nowhere."""
    outcomes = [seen.limits.outcomes.get(reading.uuid) for reading in seen.devices]
    failed = [outcome for outcome in outcomes if outcome is not None and not outcome.ok]
    if not seen.limits.asked or seen.limits.pending or not outcomes or len(failed) < len(outcomes):
        return RefusedCap()
    return RefusedCap(limit_w, failed[0].text or failed[0].code)


def to_kept(boards: Boards, limit_w: float | None, left: tuple[str, ...]) -> dict[str, Any]:
    """For the journal's `state` table; `left` are the boards that are left alone under `limit_w` now."""
    return {"named": boards.named, "own": sorted(boards.own), "left": {"watts": limit_w, "boards": left}}


class _KeptLeft(msgspec.Struct):
    watts: float | None = None
    boards: tuple[str, ...] = ()


class _KeptBoards(msgspec.Struct):
    named: tuple[str, ...] | None = None
    own: frozenset[str] = frozenset()
    left: _KeptLeft | None = None


def restored(kept: Any, mono_s: float) -> Boards:
    """Boards named to a predecessor: others are not counted even while the ranks reconnect.

    Raises msgspec.ValidationError where a field is not what it should be.
    """
    was = msgspec.convert(kept or {}, _KeptBoards)
    left = LeftAlone(was.left.watts, was.left.boards) if was.left and was.left.boards else NONE_LEFT
    if not was.named:
        return Boards(left=left)
    return Boards(was.named, mono_s, own=was.own, left=left)
