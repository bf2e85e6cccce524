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
from states import CAP, FULL, PAUSE, board, door, inputs, job_state, plan_of, rank

from carbontui import protocol
from carbontui.job.supervisor.core.advance import Booked, CalibrationSaid, Command, RankChanged, Tick
from carbontui.job.supervisor.core.rules import control
from carbontui.job.supervisor.core.state.job import Totals
from carbontui.job.supervisor.record import events_file
from carbontui.protocol import statement

FOLDER = Path(__file__).parent / "recordings"
RECORDINGS = sorted(path.name for path in FOLDER.glob("*.jsonl.gz"))
INTENDED = {
    "site": "a hold or cap by the site budget has a reason code of its own, so it begins and ends as a change of state",
    "warned once": "that a budget will not suffice is told once per level, not again as the watts of its cap change",
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
        if (before or held_by_site) and alike(without_reasons(one.outcome), without_reasons(now)):
            found.append("site")
            continue
        if any(effect.get("kind") == "allowance" for effect in now.get("effects", ())) and alike(
            unsaid(one.outcome), now
        ):
            found.append("warned once")
            continue
        parts = {part: (one.outcome[part], now[part]) for part in now if now[part] != one.outcome[part]}
        found.append(f"{name}:{one.line} {type(one.event).__name__}: {parts}")
    return found


def without_reasons(outcome):
    """Without the reason's code, and the entries of journal and log that a change of it makes."""
    decision = {name: value for name, value in outcome["decision"].items() if name != "reason"}
    effects = [one for one in outcome.get("effects", ()) if one["effect"] != "LogLine" and one.get("kind") != "state"]
    return {**outcome, "decision": decision, "effects": effects}


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
    door(job_state()).take(Tick(inputs()))
    assert list(tmp_path.iterdir()) == []


def test_a_recording_made_now_is_replayed_to_the_same(monkeypatch, tmp_path):
    """Every type that inputs and state may hold has a form in a file."""
    monkeypatch.setenv(events_file.FOLDER, str(tmp_path))
    now = job_state(plan=plan_of(FULL, PAUSE), last_metrics={"accuracy": float("nan")})
    job = door(now)
    job.begin(now)
    seen = inputs(boards=(board(),), ranks=(rank(devices=("GPU-a",), guess=(9, "max_iters")),), alive=frozenset("ba"))
    for cmd in (protocol.Cmd(1, "pause", {"for_s": 60.0}), protocol.Cmd(2, "cap", {"value_w": 1e9})):
        job.take(Command(cmd, "ada", seen))
    job.take(Booked(Totals(1.0, float("inf"), None)))
    job.take(CalibrationSaid(CAP, statement("calibration_starts")))
    job.take(RankChanged(seen.ranks[0], seen))
    job.take(Tick(seen))
    (made,) = tmp_path.iterdir()
    packed = tmp_path / "made.jsonl.gz"
    packed.write_bytes(gzip.compress(made.read_bytes()))
    outcomes = [(one.outcome, again) for one, again in replayed(packed)]
    assert len([one for one, _ in outcomes if one.get("effects")]) == 2, "one command was refused"
    assert [again for _, again in outcomes] == [recorded for recorded, _ in outcomes]


def test_a_recording_that_fails_is_given_up_and_the_state_goes_on(monkeypatch, tmp_path):
    monkeypatch.setenv(events_file.FOLDER, str(tmp_path))
    job = door(job_state())
    job.begin(job_state(last_metrics={"odd": object()}))
    (made,) = tmp_path.iterdir()
    size = made.stat().st_size
    job.take(Tick(inputs()))
    assert job.state.renewed_mono_s > 0 and made.stat().st_size == size


@given(st.lists(JSON, min_size=1, max_size=5))
def test_what_a_reader_puts_together_is_what_was_written(values):
    old = None
    for new in values:
        change = msgspec.json.decode(msgspec.json.encode(events_file.difference(old, new)))
        old = patched(old, change) if change else old
        assert old == new and repr(old) == repr(new)
