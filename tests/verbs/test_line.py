"""One job in a few words."""

from __future__ import annotations

import pytest

from carbontui import protocol
from carbontui.verbs.line import words

NOW = "2026-11-22T12:00:00.000Z"
LATER = "2026-11-22T17:30:00.000Z"


def status(**fields) -> protocol.Status:
    known = {"job": "k7q2mz", "name": "llama", "host": "h", "measured_at": NOW, "state": "running"}
    return protocol.Status(**{**known, "reason": protocol.Reason("plan", "flat out by the plan"), **fields})


def end(avoided_g: float) -> protocol.AtEnd:
    return protocol.AtEnd(finish=LATER, energy_wall_kwh=1.0, gco2_g=910.0, run_now_g=1000.0, avoided_g=avoided_g)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"step": 31, "steps_total": 100, "power_w": 246.0}, "▶ 31% 246W"),
        ({"next": protocol.Next(LATER, "pause"), "at_end": end(90.0)}, "▶ ‖17:30 −9%"),
        ({"state": "paused", "next": protocol.Next(LATER, "full"), "at_end": end(-20.0)}, "‖ ▶17:30 +2%"),
        ({"state": "failed", "step": 5, "steps_total": 100, "power_w": None}, "✗ 5% failed"),
    ],
)
def test_the_line_says_state_progress_watts_the_next_change_and_the_gain(
    fields, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import time

    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    assert words(status(**fields)) == said
