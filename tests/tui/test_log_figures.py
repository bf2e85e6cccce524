"""Figures that a training prints and does not report."""

from __future__ import annotations

from typing import Any

import pytest

from carbontui.tui.model.loglines import LogFigures, figures


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("step 30 loss 0.0645", LogFigures(0.0645)),
        ("epoch 2 | train loss: 1.25e-3 | val loss 9", LogFigures(9.0)),
        ("{'loss': 2.31, 'learning_rate': 5e-05}", LogFigures(2.31)),
        ("loss=0.5, lr=3e-4", LogFigures(0.5)),
        ("epoch 2:  71%|███████   | 3394/4800 [18:10<07:31, 3.11it/s]", LogFigures(None, 3394, 4800)),
        ("100%|█| 1.2k/1.2k [00:10<00:00]", LogFigures(None, 1200, 1200)),
        ("no gloss 5 here, lossless 7, loss nan, at-loss 3", LogFigures()),
        (f"|{'9' * 400}/{'9' * 400} [", LogFigures()),
        (f"loss{' ' * 20_000}x", LogFigures()),
        ("12/2026 [x] 50/40 |60/40 [", LogFigures()),
    ],
)
def test_a_loss_and_a_bar_are_read_and_nothing_else(line: str, found: LogFigures) -> None:
    assert figures([line]) == found
    assert figures([line, "something else"]) == found


async def test_what_is_printed_is_shown_as_such_where_nothing_is_reported(stage: Any) -> None:
    async with stage() as s:
        quiet = {"loss": None, "steps_total": None, "step": 0}
        s.fake.push(status=s.fake.status(**quiet))
        await s.until(lambda: "as printed" in s.text() and "71 % of 4,800 printed" in s.text())
        s.fake.push(status=s.fake.status(**quiet, work_done_s=360.0, work_total_s=28800.0))
        await s.until(lambda: "of 8 h" in s.text() and "1 %" in s.text())
        s.fake.push(status=s.fake.status(loss=1.5))
        await s.until(lambda: "as printed" not in s.text())
