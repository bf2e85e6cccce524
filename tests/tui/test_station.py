"""The screen without a job: what the machine draws, the grid, the jobs that are over, and a way into each."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from fake import scene
from house import until
from msgspec import structs

from carbontui.tui.app import CarbonApp
from carbontui.tui.glyphs import ASCII, BLOCKS, Glyphs
from carbontui.tui.screens.station import Seen, Station

OVER = structs.replace(scene("done").status, job="aaaaaa", name="first", reason=scene("done").status.reason)
LIVE = structs.replace(scene("running").status, job="bbbbbb", name="模型 second", power_w=246.0)
FACTS = (
    ("gpu 0", "NVIDIA H100 80GB HBM3  71 W of 700 W, 0.5 GiB in use", True),
    ("grid", "DE 324 gCO2/kWh (default: typical days of DE 2020) " + "and what it says on and on " * 3, True),
)


@pytest.mark.parametrize(("size", "glyphs"), [((120, 40), BLOCKS), ((60, 20), BLOCKS), ((60, 20), ASCII)])
async def test_it_says_what_the_machine_does_and_opens_what_is_chosen(size: tuple[int, int], glyphs: Glyphs) -> None:
    looks = [Seen(FACTS, (OVER,)), Seen(FACTS, (LIVE, OVER))]

    def look() -> Seen:
        return looks.pop(0) if len(looks) > 1 else looks[0]

    app = CarbonApp(lambda: Station(look, glyphs))
    async with app.run_test(size=size) as pilot:
        text = ""
        due = time.monotonic() + 20
        while "first" not in text and time.monotonic() < due:
            await pilot.pause(0.02)
            text = "\n".join(strip.text for strip in app.screen._compositor.render_strips())
        for said in ("no job is running here", "71 W of 700 W", "324 gCO2/kWh", "carbontui demo", "aaaaaa"):
            assert said in text, text
        while "bbbbbb" not in text and time.monotonic() < due:
            await pilot.pause(0.02)
            text = "\n".join(strip.text for strip in app.screen._compositor.render_strips())
        assert "jobs running here: 1" in text and "246 W" in text
        while "enter open q leave" not in text and time.monotonic() < due:
            await pilot.pause(0.02)
            text = "\n".join(strip.text for strip in app.screen._compositor.render_strips())
        assert "enter open q leave" in text
        await pilot.press("home", "enter")
        await pilot.pause(0.05)
    assert app.return_value == "bbbbbb"


def test_the_watch_reads_this_machine_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CARBONTUI_HOME", str(tmp_path))
    monkeypatch.setenv("CARBONTUI_LEASE_DIR", str(tmp_path / "leases"))
    monkeypatch.setenv("CARBONTUI_OFFLINE", "1")
    monkeypatch.setenv("CARBONTUI_ZONE", "DE")
    from carbontui.verbs.station import StationWatch

    with StationWatch() as watch:
        seen = until(lambda: (s := watch.seen()) and not any("..." in fact[1] for fact in s.facts) and s, 30)
        thread = watch._thread
    assert not thread.is_alive()
    told = {what: text for what, text, _ in seen.facts}
    assert "gCO2/kWh" in told["grid"] and "typical days of DE" in told["grid"]
    assert seen.jobs == () and set(told) & {"boards", "gpu 0"}
