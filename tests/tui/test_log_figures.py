"""Figures that a training prints and does not report."""

from __future__ import annotations

from typing import Any

import pytest

from carbontui.protocol import Loss
from carbontui.tui.model.loglines import bar


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("epoch 2:  71%|███████   | 3394/4800 [18:10<07:31, 3.11it/s]", (3394, 4800)),
        ("100%|█| 1.2k/1.2k [00:10<00:00]", (1200, 1200)),
        (f"|{'9' * 400}/{'9' * 400} [", None),
        ("12/2026 [x] 50/40 |60/40 [", None),
    ],
)
def test_a_bar_is_read_and_nothing_else(line: str, found: object) -> None:
    assert bar([line]) == found
    assert bar([line, "something else"]) == found


async def test_what_is_printed_is_shown_as_such_where_nothing_is_reported(stage: Any) -> None:
    async with stage() as s:
        quiet = {"loss": None, "steps_total": None, "step": 0}
        s.fake.push(status=s.fake.status(**quiet))
        await s.until(lambda: "71 % of 4,800 printed" in s.text())
        s.fake.push(status=s.fake.status(**quiet, work_done_s=360.0, work_total_s=28800.0))
        await s.until(lambda: "of 8 h" in s.text() and "1 %" in s.text())
        s.fake.push(status=s.fake.status(loss=Loss(None, False, 4180, "NaN")))
        await s.until(lambda: "NaN since step 4,180" in s.text() and s.text().count("NaN") == 2)
