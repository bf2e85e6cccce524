"""What a recorded supervisor did, computed again by the pure functions from the same events in the same order.

The files were written before every job kept its events (`record/events_ring.py`). The first ones are of a supervisor
that learned, decided and computed effects in steps of its own, and had part of its state among its inputs: they are
read into today's events.
"""

from __future__ import annotations

import gzip
import math
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from carbontui import protocol
from carbontui.headroom import Headroom
from carbontui.job.supervisor.core.advance import Command, Event, LastCount, RankChanged, Tick, advance
from carbontui.job.supervisor.core.commands import Reply
from carbontui.job.supervisor.core.effects import Effect, KeeperOrder
from carbontui.job.supervisor.core.state import decision, job
from carbontui.job.supervisor.core.state.boards import LeftAlone
from carbontui.job.supervisor.core.state.inputs import Inputs, Rank
from carbontui.job.supervisor.core.state.job import Calibrating, JobState
from carbontui.job.supervisor.core.state.plan import Level
from carbontui.job.supervisor.core.state.unloading import Tried, Unloading
from carbontui.job.terms.spec import Options
from carbontui.protocol import Statement, statement, written

SENTENCES = {"text", "why", "error", "verdict", "said"}
"""Fields that hold words for people: whether there are any is compared, not which."""
IN_WORDS: dict[type, dict[str, str]] = {Unloading: {"verdict": "result"}, Tried: {"text": "result"}}
"""Fields that held words in the first recordings, and the statements that they are now."""
FIELDS = {"attendance": "membership", "unheard_s": "silent_s", "judged_mono_s": "checked_mono_s"}
"""Fields by their names in recordings, and today's."""
GONE: dict[type, tuple[str, ...]] = {
    Options: ("count_idle", "not_above_g", "max_wait_s", "cautious"),
    protocol.PlanView: ("hour_limit",),
}
"""Fields of recordings that are no more."""


RENAMED: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "Hold": lambda it: {"effect": "Hold", "until": it.get("until", it.get("until_wall_s"))},
    "Disown": lambda it: {**it, "effect": "ReverseBooking"},
    "StopChild": lambda it: {**it, "effect": "Stop"},
    "LastRun": lambda it: {**it, "effect": "DoNotResume"},
}
"""Effects that the first recordings have under other names."""

# --- the events ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Changed:
    """An event has put these fields into the state: an outlook, a plan, a curve, totals, a share."""

    fields: Mapping[str, Any]


@dataclass(frozen=True)
class Undecided:
    """A tick of the first recordings that learned from its inputs, and whose decision failed."""

    inputs: Inputs
    fields: Mapping[str, Any]


@dataclass(frozen=True)
class OldTick:
    """A tick of the first recordings: what was put into the state between learning and deciding is here before
    both."""

    tick: Tick
    fields: Mapping[str, Any]


Told = Event | Changed | Undecided | OldTick


@dataclass(frozen=True)
class Recorded:
    """An event, the line in the file where it ends, and its recorded outcome in the form of `outcome`."""

    line: int
    event: Told
    outcome: dict[str, Any]


# --- computed again -----------------------------------------------------------------------------------------------


def made_of(now: JobState, event: Told) -> tuple[JobState, Any]:
    """The next state, and its effects."""
    match event:
        case Changed(fields):
            return replace(now, **fields), ()
        case Undecided(inputs, fields):
            return replace(job.with_inputs(now, inputs), **fields), ()
        case OldTick(tick, fields):
            return advance(replace(now, **fields), tick)
    return advance(now, event)


def replayed(path: Path) -> Iterator[tuple[Recorded, dict[str, Any]]]:
    """Every event of a file with its outcome, as computed now."""
    for one in read(path):
        if isinstance(one, JobState):
            now = one
            continue
        now, done = made_of(now, one.event)
        yield one, outcome(one.event, now.asked, now.decision, done)


def outcome(event: Told, asked: Any, decision: Any, done: Any) -> dict[str, Any]:
    """What is compared: what is asked, what was decided, and the effects, without words. Of a command also its
    reply, the last of the effects."""
    told = {"asked": tree(asked), "decision": as_recorded(tree(decision))}
    effects = [RENAMED.get(one.get("effect"), lambda it: it)(one) for one in tree(done)]
    if isinstance(event, Command):
        *effects, reply = effects
        answer = reply["answer"]
        told["result"] = answer and {"ok": not answer[1], "exit_code": answer[1]}
        told["awaits"] = reply["awaits"]
    if isinstance(event, Command | Tick | OldTick):
        told["effects"] = effects
    return wordless(told)


def as_recorded(decision: Any) -> Any:
    """A decision in the form of the first recordings: its reason's code, and its level by name. A duty cycle's share
    of time stood beside its speed, which is the same."""
    decision = {name: cut(one) if isinstance(one, dict) else one for name, one in decision.items()}
    if "why" not in decision:
        return decision
    kept = {name: decision[name] for name in ("state", "hold_until_s", "wanted")}
    return {**kept, "reason": {"code": decision["why"]["code"], "text": True}, "level": decision["level"]["name"]}


def cut(level: dict[str, Any]) -> dict[str, Any]:
    return {name: one for name, one in level.items() if name != "duty"}


def wordless(value: Any) -> Any:
    """Without words; a statement that is still to be put into words counts as some."""
    if isinstance(value, dict):
        return {
            "text" if name == "said" else name: bool(inner)
            if name in SENTENCES
            and (
                inner is None or isinstance(inner, str) or (isinstance(inner, dict) and set(inner) == {"code", "parts"})
            )
            else wordless(inner)
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
        seen, of_state = inputs_and_fields(told["seen"]) if "seen" in told else (None, {})
        rank = built(told["rank"], Rank) if kind in ("hear", "left") else None
        event: Told
        match kind:
            case "begin":
                yield built(told["state"], JobState)
                continue
            case "absorb":
                metered, changed, ticking = seen, {}, True
                continue
            case "changed":
                fields = {FIELDS.get(name, name): told["state"][name] for name in line["state"]}
                fields = {name: built(one, hints(JobState)[name]) for name, one in fields.items()}
                if ticking:
                    changed |= fields
                    continue
                event = Changed(fields)
            case "decide":
                continue
            case "effects":
                event = OldTick(Tick(seen), changed | of_state)
                metered, changed, ticking = None, {}, False
            case "tick":
                if not ticking:
                    continue
                event = Undecided(metered, changed)
                metered, changed, ticking = None, {}, False
            case "advance":
                event = Tick(seen)
            case "hear" | "left":
                yield Recorded(number, change := Changed(of_state), _outcome(change, told))
                event = (RankChanged if kind == "hear" else LastCount)(rank, seen)
            case "command":
                yield Recorded(number, change := Changed(of_state), _outcome(change, told))
                event = Command(built(told["cmd"], protocol.Cmd), told["by"], seen)
            case _:
                raise ValueError(f"{path.name}, line {number}: an event {kind!r} is not known")
        yield Recorded(number, event, _outcome(event, told))


def inputs_and_fields(told: dict[str, Any]) -> tuple[Inputs, dict[str, Any]]:
    """The inputs, and what was among them in the first recordings and is in the state now."""
    told = dict(told)
    fields: dict[str, Any] = {}
    if "trial" in told:
        progress = told.pop("trial_text", None)
        said = built(told.pop("trial_said"), Statement) if "trial_said" in told else progress and written(progress)
        fields["calibrating"] = Calibrating(built(told.pop("trial"), Level | None), said or None)
        fields["site"] = built(told.pop("site"), Headroom | None)
        fields["plan_fault"] = statement("no_new_plan", why="") if told.pop("planning_failed") else None
    return built(told, Inputs), fields


def _outcome(event: Told, told: dict[str, Any]) -> dict[str, Any]:
    done = told.get("effects", [])
    if isinstance(event, Command) and "reply" in told:
        reply = told["reply"]
        if "answer" not in reply:
            reply = {**reply, "answer": reply["result"] and ["", reply["result"]["exit_code"]]}
        done = [*reply["effects"], reply]
    return outcome(event, told["asked"], told["decision"], done)


def tree(value: object) -> Any:
    """Any value of the core as JSON: structures as objects, sets in order, numbers that JSON has not as text, an
    effect with its kind."""
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, KeeperOrder):
        return {"effect": type(value).__name__, **{name: one for name, one in value._asdict().items() if name != "t"}}
    if isinstance(value, Mapping):
        return {str(key): tree(inner) for key, inner in value.items()}
    if isinstance(value, Set):
        return [tree(inner) for inner in sorted(value)]
    if isinstance(value, tuple | list):
        return [tree(inner) for inner in value]
    kind = {"effect": type(value).__name__} if isinstance(value, Effect | Reply) else {}
    if isinstance(value, msgspec.Struct):
        return {**kind, **{name: tree(getattr(value, name)) for name in value.__struct_fields__}}
    if is_dataclass(value):
        return {**kind, **{field.name: tree(getattr(value, field.name)) for field in fields(value)}}
    raise TypeError(f"{type(value).__name__} has no form in a recording")


def patched(old: Any, change: Any) -> Any:
    """A value made new by a change: [new] replaces it, an object has the changes of its entries, and of a list `len`
    and `from`."""
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
        kinds = [one for one in inner if one is not type(None)]  # several: a number or a fixed word
        return value if value is None or len(kinds) > 1 else built(value, kinds[0])
    if origin is tuple:
        kinds = [inner[0]] * len(value) if inner[-1] is ... else inner
        return tuple(map(built, value, kinds))
    if isinstance(origin, type) and issubclass(origin, Set):
        return origin(built(one, inner[0]) for one in value)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {inner[0](key): built(one, inner[1]) for key, one in value.items()}
    if kind is float and isinstance(value, str):
        return float(value)
    if isinstance(value, list) and (hasattr(kind, "_fields") or kind is LeftAlone):
        return kind(*map(built, value, hints(kind).values()))
    if kind is decision.Decision and "reason" in value:
        why = protocol.Why(value["reason"]["code"], protocol.statement("as_told", text=value["reason"]["text"]))
        level = Level(value["level"], value["level"].split()[0], 0.0, 1.0)
        value = {"state": value["state"], "hold_until_s": value["hold_until_s"], "wanted": value["wanted"]}
        return decision.Decision(why=why, level=level, **{n: built(v, hints(kind)[n]) for n, v in value.items()})
    if isinstance(value, dict) and kind in GONE:
        value = {name: one for name, one in value.items() if name not in GONE[kind]}
    if isinstance(value, dict) and kind is Unloading and "held" in value:
        value = {**{name: one for name, one in value.items() if name != "held"}, "resumes": value["held"]}
    if isinstance(value, dict) and kind is Rank and "timed_mono" not in value:
        value = {**value, "timed_mono": value["timed"], "timed": None}
    if isinstance(value, dict) and kind is JobState and "last_loss" in value:
        last = value["last_loss"]
        value = {**{name: one for name, one in value.items() if name != "last_loss"}, "loss": last and {"value": last}}
    if isinstance(value, dict) and kind in IN_WORDS:
        words = {new: value[old] for old, new in IN_WORDS[kind].items() if old in value}
        value = {name: one for name, one in value.items() if name not in IN_WORDS[kind]}
        value |= {name: protocol.written(text) if text else None for name, text in words.items()}
    if isinstance(value, protocol.Statement):
        return value
    if isinstance(value, dict) and kind is Level:
        value = cut(value)
    if isinstance(value, dict) and hasattr(kind, "__annotations__"):
        value = {FIELDS.get(name, name): one for name, one in value.items()}
        return kind(**{name: built(one, hints(kind)[name]) for name, one in value.items()})
    return value
