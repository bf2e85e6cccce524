"""What a recorded supervisor did, computed again by the pure functions from the same events in the same order.

The files are those of `record/events_file.py`. `advance` is what is held to them: a supervisor built otherwise needs
another `advance`, and no other recordings.
"""

from __future__ import annotations

import gzip
import types
import typing
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from carbontui import protocol
from carbontui.job.supervisor.core import allowance_rules, commands, control, state, trying
from carbontui.job.supervisor.core.effects import effects
from carbontui.job.supervisor.core.observation import Inputs, Rank
from carbontui.job.supervisor.core.observe import observe
from carbontui.job.supervisor.core.state import JobState
from carbontui.job.supervisor.record.events_file import tree

SENTENCES = {"text", "why", "error", "verdict"}
"""Fields that hold words for people: whether there are any is compared, not which."""


# --- the events ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Changed:
    """Something outside the events put these fields into the state: an outlook, a plan, a curve, totals."""

    fields: Mapping[str, Any]


@dataclass(frozen=True)
class Heard:
    """A training process came, left or changed its state between two ticks."""

    rank: Rank
    seen: Inputs


@dataclass(frozen=True)
class LeftCount:
    """The last count of a training process that nobody heard, from its file."""

    rank: Rank
    seen: Inputs


@dataclass(frozen=True)
class Commanded:
    """A user's command, as it was taken."""

    cmd: protocol.Cmd
    by: str
    seen: Inputs


@dataclass(frozen=True)
class TickBegins:
    """The state as of now is the one whose effects the tick compares with; a tick may wait for the boards after it."""


@dataclass(frozen=True)
class Tick:
    """One tick. `metered`: the inputs absorbed (None after the training's end), `changed`: by the grid and the
    calibration afterwards, `seen`: the inputs of the decision (None: there was none), `renew`: leases are due."""

    metered: Inputs | None
    changed: Mapping[str, Any]
    seen: Inputs | None
    renew: bool


Event = Changed | Heard | LeftCount | Commanded | TickBegins | Tick


@dataclass(frozen=True)
class Recorded:
    """An event, the line in the file where it ends, and its recorded outcome in the form of `outcome`."""

    line: int
    event: Event
    outcome: dict[str, Any]


# --- computed again -----------------------------------------------------------------------------------------------


def advance(now: JobState, event: Event, began: JobState) -> tuple[JobState, Any]:
    """What today's loop makes of an event: the next state, and its effects (of a command, its reply). `began`: the
    state at the beginning of the tick."""
    match event:
        case Changed(fields):
            return replace(now, **fields), ()
        case Heard(rank, seen):
            return state.hear(now, rank, seen), ()
        case LeftCount(rank, seen):
            return state.hear_left(now, rank, seen), ()
        case Commanded(cmd, by, seen):
            return commands.apply(now, cmd, seen, by)
        case Tick(metered, changed, seen, renew):
            if metered is not None:
                now = state.absorb(now, metered)
            now = replace(now, **changed)
            if seen is None:
                return now, ()
            judged = allowance_rules.judged(state.expire(trying.saw(now, seen), seen.now_s), seen)
            asked, decision = control.decide(judged.asked, observe(judged, seen))
            after = state.enter(judged, asked, decision, seen)
            return after, effects(began, after, seen, renew=renew)
    return now, ()


def replayed(path: Path) -> Iterator[tuple[Recorded, dict[str, Any]]]:
    """Every event of a file with its outcome, as computed now."""
    for one in read(path):
        if isinstance(one, JobState):
            now = began = one
            continue
        if isinstance(one.event, TickBegins):
            began = now
        now, done = advance(now, one.event, began)
        yield one, outcome(one.event, now.asked, now.decision, done)


def outcome(event: Event, asked: Any, decision: Any, done: Any) -> dict[str, Any]:
    """What is compared: what is asked, what was decided, and the effects or the reply, without words."""
    told = {"asked": tree(asked), "decision": tree(decision)}
    if isinstance(event, Commanded):
        reply = tree(done)
        result = reply["result"] and {name: reply["result"][name] for name in ("ok", "exit_code")}
        told |= {"result": result, "awaits": reply["awaits"], "effects": reply["effects"]}
    elif isinstance(event, Tick):
        told["effects"] = tree(done)
    return wordless(told)


def wordless(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            name: bool(inner) if name in SENTENCES and isinstance(inner, str) else wordless(inner)
            for name, inner in value.items()
        }
    return [wordless(inner) for inner in value] if isinstance(value, list) else value


# --- read from a file ---------------------------------------------------------------------------------------------


def read(path: Path) -> Iterator[JobState | Recorded]:
    """Of each supervisor in the file: its state at the beginning, then its events."""
    told: dict[str, Any] = {}
    metered: Inputs | None = None
    changed: dict[str, Any] = {}
    ticking = False
    for number, text in enumerate(gzip.decompress(path.read_bytes()).splitlines(), 1):
        line = msgspec.json.decode(text)
        kind = line.pop("event")
        if kind == "begin":
            told, metered, changed, ticking = {}, None, {}, False
        told |= {name: patched(told.get(name), change) for name, change in line.items()}
        seen = built(told["seen"], Inputs) if "seen" in told else None
        rank = built(told["rank"], Rank) if kind in ("hear", "left") else None
        event: Event
        match kind:
            case "begin":
                yield built(told["state"], JobState)
                continue
            case "absorb":
                metered, changed, ticking = seen, {}, True
                continue
            case "changed":
                fields = {name: built(told["state"][name], hints(JobState)[name]) for name in line["state"]}
                if ticking:
                    changed |= fields
                    continue
                event = Changed(fields)
            case "decide":
                continue
            case "effects":
                event = Tick(metered, changed, seen, told["renew"])
                metered, changed, ticking = None, {}, False
            case "tick":
                if ticking:  # the last one absorbed its inputs, and could not decide
                    yield Recorded(number, tick := Tick(metered, changed, None, False), _outcome(tick, told))
                    metered, changed, ticking = None, {}, False
                event = TickBegins()
            case "hear":
                event = Heard(rank, seen)
            case "left":
                event = LeftCount(rank, seen)
            case "command":
                event = Commanded(built(told["cmd"], protocol.Cmd), told["by"], seen)
            case _:
                raise ValueError(f"{path.name}, line {number}: an event {kind!r} is not known")
        yield Recorded(number, event, _outcome(event, told))


def _outcome(event: Event, told: dict[str, Any]) -> dict[str, Any]:
    done = told["reply"] if isinstance(event, Commanded) else told.get("effects", [])
    return outcome(event, told["asked"], told["decision"], done)


def patched(old: Any, change: Any) -> Any:
    """The other half of `events_file.difference`."""
    if isinstance(change, list):
        return change[0]
    if isinstance(old, list):
        rest = dict(enumerate(old[change.get("from", 0) :]))
        return [patched(rest.get(n), change.get(str(n), {})) for n in range(change.get("len", len(old)))]
    return {**old, **{key: patched(old.get(key), inner) for key, inner in change.items()}} if change else old


@cache
def hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def built(value: Any, kind: Any) -> Any:
    """The value of that type, as it was before it became a `tree`."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        (kind,) = (one for one in inner if one is not type(None))  # the core has no other unions
        return None if value is None else built(value, kind)
    if origin is tuple:
        kinds = [inner[0]] * len(value) if inner[-1] is ... else inner
        return tuple(map(built, value, kinds))
    if isinstance(origin, type) and issubclass(origin, Set):
        return origin(built(one, inner[0]) for one in value)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {inner[0](key): built(one, inner[1]) for key, one in value.items()}
    if kind is float and isinstance(value, str):
        return float(value)
    if isinstance(value, list) and hasattr(kind, "_fields"):
        return kind(*map(built, value, hints(kind).values()))
    if isinstance(value, dict) and hasattr(kind, "__annotations__"):
        return kind(**{name: built(one, hints(kind)[name]) for name, one in value.items()})
    return value
