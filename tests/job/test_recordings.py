"""What supervisors did in recorded lives of real jobs, they would do again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from replay import bundled
from replayed_events import replayed

from carbontui.job.supervisor.core.rules import control
from carbontui.job.supervisor.core.state.override import Overrides

FOLDER = Path(__file__).parent / "recordings"
RECORDINGS = sorted(path.name for path in FOLDER.glob("*.jsonl.gz"))
BUNDLES = sorted(path.name for path in FOLDER.glob("*.zip"))
INTENDED = {
    "cap": "another cap of the plan is an event of its own: the report listed it hours later, with the next state",
    "site": "a hold or cap by the site budget has a reason code of its own, so it begins and ends as a change of state",
    "start": "a job that has waited is planned anew at its start: its plan had counted on caps that nobody had tried",
    "until": "an override's end is recorded as an instant, which a reader puts into its own zone, not as typed",
    "warned once": "that a budget will not suffice is told once per level, not again as the watts of its cap change",
}
"""Differences that are meant, by name, and the reason."""


def differences(name: str) -> list[str]:
    """Every event whose outcome is not the recorded one, with what differs; of a meant difference its name alone."""
    found, held_by_site = [], False
    for one, now in replayed(FOLDER / name):
        now = like(one.outcome, now)
        before, held_by_site = held_by_site, now["decision"]["reason"]["code"] == "site"
        if now == one.outcome:
            continue
        if (before or held_by_site) and alike(without_reasons(one.outcome), without_reasons(now)):
            found.append("site")
            continue
        if any(effect.get("kind") == "allowance" for effect in now.get("effects", ())) and alike(
            unsaid(one.outcome), now
        ):
            found.append("warned once")
            continue
        if without_ends(one.outcome) == without_ends(now):
            found.append("until")
            continue
        if starts(now) and alike(one.outcome, {**now, "effects": now["effects"][1:]}):
            found.append("start")
            continue
        changed = [effect["facts"] for effect in now.get("effects", ()) if effect.get("kind") == "state"]
        same = alike(one.outcome["decision"], now["decision"]) and changed and changed[0]["reason"] == "plan"
        if same and alike(without_reasons(one.outcome), without_reasons(now)):
            found.append("cap")
            continue
        parts = {part: (one.outcome[part], now[part]) for part in now if now[part] != one.outcome[part]}
        found.append(f"{name}:{one.line} {type(one.event).__name__}: {parts}")
    return found


def without_reasons(outcome):
    """Without the reason's code, and the entries of journal and log that a change of it makes."""
    decision = {name: value for name, value in outcome["decision"].items() if name != "reason"}
    effects = [one for one in outcome.get("effects", ()) if one["effect"] != "LogLine" and one.get("kind") != "state"]
    return {**outcome, "decision": decision, "effects": effects}


def starts(outcome):
    """Whether a wait ends with this tick, for which a new plan is asked first."""
    effects = outcome.get("effects") or [{}]
    return outcome["decision"]["state"] == "starting" and effects[0].get("effect") == "Replan"


def without_ends(value):
    """Without when an override ends."""
    if isinstance(value, dict):
        return {name: without_ends(one) for name, one in value.items() if name != "until"}
    return [without_ends(one) for one in value] if isinstance(value, list | tuple) else value


def unsaid(outcome):
    """Without the entries of the log."""
    return {**outcome, "effects": [one for one in outcome["effects"] if one["effect"] != "LogLine"]}


def alike(recorded, now):
    return like(recorded, now) == recorded


def like(recorded, now):
    """Without the fields that are new since the recording."""
    if isinstance(recorded, dict) and isinstance(now, dict):
        return {name: like(recorded[name], value) for name, value in now.items() if name in recorded}
    if isinstance(recorded, list) and isinstance(now, list) and len(recorded) == len(now):
        return [like(one, other) for one, other in zip(recorded, now, strict=True)]
    return now


@pytest.mark.parametrize("name", RECORDINGS)
def test_every_event_of_a_recorded_life_has_the_same_effects_and_decision(name):
    assert [difference for difference in differences(name) if difference not in INTENDED][:5] == []


@pytest.mark.parametrize("name", BUNDLES)
def test_every_event_of_a_bundled_life_has_the_same_effects_and_decision(name):
    pairs = ([*map(without_ends, pair)] for step in bundled(FOLDER / name) for pair in step.differences.values())
    assert [pair for pair in pairs if pair[0] != pair[1]][:5] == []


def test_each_intended_difference_is_one():
    assert set(INTENDED) == {one for name in RECORDINGS for one in differences(name)}


def test_a_broken_rule_is_noticed(monkeypatch):
    decide = control.decide

    def unresponsive(state, seen):
        """A user's override is not heard."""
        return decide(replace(state, override=Overrides()), seen)

    monkeypatch.setattr(control, "decide", unresponsive)
    assert any(set(differences(name)) - set(INTENDED) for name in RECORDINGS)
