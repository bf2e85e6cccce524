"""Who is not looking is told of what matters; who comes back, of what has been; everybody, who did what last."""

from __future__ import annotations

from typing import Any

import pytest
from fake import NOW, scene
from msgspec import structs

from carbontui import protocol, units
from carbontui.tui.app import CarbonApp
from carbontui.tui.model import notify
from carbontui.tui.model.view_state import ViewState, fold

PAUSED = protocol.Event(units.iso(NOW), "override", "ada@pts/3 paused it, until 22:00", "ada@pts/3")


def view_state(name: str = "running", **fields: Any) -> ViewState:
    snap = scene(name)
    found = fold(None, structs.replace(snap, status=structs.replace(snap.status, **fields)))
    assert found is not None
    return found


def test_news_are_changes_of_note_and_nothing_else() -> None:
    running = view_state()
    assert notify.news(None, running) is None and notify.news(running, view_state(step=9)) is None
    failed = notify.news(running, view_state("failed"))
    assert failed is not None and failed.urgent and failed.text == "charlm: failed: the command failed"
    paused = notify.news(running, view_state("paused"))
    assert paused is not None and not paused.urgent
    late = view_state(reason=protocol.Reason("late", "at full speed"))
    risk = notify.news(running, late)
    assert risk is not None and risk.urgent and "late" in risk.text
    assert notify.news(late, late) is None and notify.news(view_state("paused"), running) is None


def test_an_escape_of_a_name_never_reaches_the_terminal() -> None:
    assert notify.osc9("a\x07\x1b]52;c;AAAA\x07b") == "\x1b]9;a]52;c;AAAAb\x07"


async def test_the_line_shows_who_did_what_last(stage: Any) -> None:
    async with stage() as s:
        s.fake.push(status=s.fake.status(events=(PAUSED,), notices=()))
        await s.until(lambda: "21:24 ada@pts/3 paused it, until 22:00" in s.text())
        s.fake.push(status=s.fake.status(events=(PAUSED,), notices=("a notice",)))
        await s.until(lambda: "! a notice" in s.text() and "21:24 ada@pts/3 paused it" in s.text())


@pytest.mark.parametrize("off", ["", "off"])
async def test_a_job_that_ends_notifies_once(stage: Any, monkeypatch: pytest.MonkeyPatch, off: str) -> None:
    told: list[str] = []
    monkeypatch.setenv("CARBONTUI_NOTIFY", off)
    monkeypatch.setattr(CarbonApp, "tell_terminal", lambda self, text, bell: told.append(text))
    async with stage() as s:
        s.fake.push(status=s.fake.status(state="done"))
        await s.until(lambda: "the job is over" in s.text())
        s.fake.push(status=s.fake.status(state="done", step=1))
        await s.pilot.pause(0.1)
        assert [one.partition(";")[2][:12] for one in told] == ([] if off else ["charlm: done"])
