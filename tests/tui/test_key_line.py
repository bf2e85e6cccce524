"""The row of keys at the foot of a page: whole names, and a click that does what the key would."""

from __future__ import annotations

from typing import Any

import pytest

from carbontui.tui.screens.dashboard import Dashboard
from carbontui.tui.screens.plan import PlanPage
from carbontui.tui.widgets.bottom import KeyLine


def keys_of(stage: Any) -> str:
    return stage.text().splitlines()[-1]


async def test_a_click_on_a_key_does_what_the_key_would(stage: Any) -> None:
    async with stage() as s:
        await s.pilot.click(KeyLine, offset=(keys_of(s).index("w why") + 1, 0))
        await s.until(lambda: isinstance(s.app.screen, PlanPage))
        await s.pilot.click(KeyLine, offset=(keys_of(s).index("q back") + 2, 0))
        await s.until(lambda: isinstance(s.app.screen, Dashboard))
        await s.pilot.click(KeyLine, offset=(119, 0))  # beside the last of them
        await s.pilot.click(KeyLine, offset=(keys_of(s).index("p pause"), 0))
        await s.until(lambda: s.fake.commands)
        assert [command.verb for command in s.fake.commands] == ["pause"]


@pytest.mark.parametrize("width", [36, 40, 47, 60, 73, 80])
async def test_no_key_is_cut_in_half(stage: Any, width: int) -> None:
    async with stage(size=(width, 24)) as s:
        shown = keys_of(s).split()
        names = {"?": "help", "q": "detach", "p": "pause", "b": "boost", "r": "resume", "c": "cap", "←→": "budget"}
        names |= {"l": "log", "w": "why", "S": "stop"}
        assert shown[:4] == ["?", "help", "q", "detach"]
        assert dict(zip(shown[::2], shown[1::2], strict=True)).items() <= names.items()
