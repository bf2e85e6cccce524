"""What supervisors did in recorded lives of real jobs, they would do again."""

from __future__ import annotations

import gzip
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from replayed_events import patched, replayed
from states import FULL, PAUSE, board, inputs, job_state, plan_of, rank

from carbontui import protocol
from carbontui.job.supervisor.core import allowance_rules, commands, control, state, trying
from carbontui.job.supervisor.core.effects import effects
from carbontui.job.supervisor.core.observe import observe
from carbontui.job.supervisor.core.state import Totals
from carbontui.job.supervisor.record import events_file
from carbontui.job.supervisor.shell.cell import StateCell

FOLDER = Path(__file__).parent / "recordings"
RECORDINGS = sorted(path.name for path in FOLDER.glob("*.jsonl.gz"))
INTENDED = {
    "site": "a hold or cap by the site budget has a reason code of its own, so it begins and ends as a change of state",
}
"""Differences that are meant, by name, and the reason."""

FLAT = (
    st.none()
    | st.booleans()
    | st.integers(0, 3)
    | st.sampled_from(["", "a", "[", "from"])
    | st.sampled_from([0.5, 1.0])
)
JSON = st.recursive(FLAT, lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.sampled_from("abc"), inner))


def differences(name: str) -> list[str]:
    """Every event whose outcome is not the recorded one, with what differs; of a meant difference its name alone."""
    found, held_by_site = [], False
    for one, now in replayed(FOLDER / name):
        now = like(one.outcome, now)
        before, held_by_site = held_by_site, now["decision"]["reason"]["code"] == "site"
        if now == one.outcome:
            continue
        if (before or held_by_site) and without_reasons(now) == without_reasons(one.outcome):
            found.append("site")
            continue
        parts = {part: (one.outcome[part], now[part]) for part in now if now[part] != one.outcome[part]}
        found.append(f"{name}:{one.line} {type(one.event).__name__}: {parts}")
    return found


def without_reasons(outcome):
    """Without the reason's code, and the entries of journal and log that a change of it makes."""
    decision = {name: value for name, value in outcome["decision"].items() if name != "reason"}
    effects = [one for one in outcome.get("effects", ()) if one["effect"] != "LogLine" and one.get("kind") != "state"]
    return {**outcome, "decision": decision, "effects": effects}


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


def test_each_intended_difference_is_one():
    assert set(INTENDED) == {one for name in RECORDINGS for one in differences(name)}


def test_a_broken_rule_is_noticed(monkeypatch):
    decide = control.decide

    def deaf(before, seen):
        """A user's override is not heard."""
        return decide(before, replace(seen, override=None))

    monkeypatch.setattr(control, "decide", deaf)
    assert any(set(differences(name)) - set(INTENDED) for name in RECORDINGS)


def test_nothing_is_recorded_unless_the_environment_names_a_folder(monkeypatch, tmp_path):
    monkeypatch.delenv(events_file.FOLDER, raising=False)
    monkeypatch.chdir(tmp_path)
    cell = StateCell(job_state())
    cell.become(job_state(), "tick")
    assert cell._events is None and list(tmp_path.iterdir()) == []


def test_a_recording_made_now_is_replayed_to_the_same(monkeypatch, tmp_path):
    """Every type that inputs and state may hold has a form in a file."""
    monkeypatch.setenv(events_file.FOLDER, str(tmp_path))
    now = job_state(plan=plan_of(FULL, PAUSE), last_metrics={"accuracy": float("nan")})
    cell = StateCell(now)
    cell.become(now, "begin")
    seen = inputs(boards=(board(),), ranks=(rank(devices=("GPU-a",), guess=(9, "max_iters")),), alive=frozenset("ba"))
    for cmd in (protocol.Cmd(1, "pause", {"for_s": 60.0}), protocol.Cmd(2, "cap", {"value_w": 1e9})):
        now, reply = commands.apply(cell.state, cmd, seen, "ada")
        cell.become(now, "command", cmd=cmd, by="ada", seen=seen, reply=reply)
    cell.become(now, "tick")
    cell.become(state.absorb(now, seen), "absorb", seen=seen)
    cell.replace(totals=Totals(1.0, float("inf"), None))
    judged = allowance_rules.judged(state.expire(trying.saw(cell.state, seen), seen.now_s), seen)
    after = state.enter(judged, *control.decide(judged.asked, observe(judged, seen)), seen)
    cell.become(after, "decide", seen=seen, renew=True)
    cell.become(after, "effects", effects=effects(now, after, seen, renew=True))
    (made,) = tmp_path.iterdir()
    packed = tmp_path / "made.jsonl.gz"
    packed.write_bytes(gzip.compress(made.read_bytes()))
    outcomes = [(one.outcome, again) for one, again in replayed(packed)]
    assert len(outcomes) == 4 and outcomes[-1][0]["effects"]
    assert [again for _, again in outcomes] == [recorded for recorded, _ in outcomes]


def test_a_recording_that_fails_is_given_up_and_the_state_goes_on(monkeypatch, tmp_path):
    monkeypatch.setenv(events_file.FOLDER, str(tmp_path))
    cell = StateCell(job_state())
    cell.become(job_state(), "begin")
    after = job_state(trial="second")
    cell.become(after, "absorb", seen=object())
    assert cell.state is after
    (made,) = tmp_path.iterdir()
    size = made.stat().st_size
    cell.become(after, "absorb", seen=inputs())
    assert made.stat().st_size == size


@given(st.lists(JSON, min_size=1, max_size=5))
def test_what_a_reader_puts_together_is_what_was_written(values):
    old = None
    for new in values:
        change = msgspec.json.decode(msgspec.json.encode(events_file.difference(old, new)))
        old = patched(old, change) if change else old
        assert old == new and repr(old) == repr(new)
