"""Draws every picture of a run of `carbontui demo`, and its cast: python screenshots/make.py [folder]

One recorded day at three sizes: the dashboard while it runs, its pages, and its ending; then the table, in which the
demo is over, the same day runs on eight simulated boards, a job waits for a person and one has failed. Each as SVG, and
as PNG beside it where Chromium is installed. About five minutes; every picture is of one moment of real runs.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ["TZ"] = "UTC"
time.tzset()
HERE = Path(__file__).parent

import cast  # noqa: E402
from cells import svg  # noqa: E402

from carbontui.commands import demo  # noqa: E402
from carbontui.commands.attach import target_of  # noqa: E402
from carbontui.commands.support.station import StationWatch  # noqa: E402
from carbontui.job.files import store  # noqa: E402
from carbontui.job.life import launch  # noqa: E402
from carbontui.tui.app import CarbonApp  # noqa: E402
from carbontui.tui.screens.dashboard import Dashboard  # noqa: E402
from carbontui.tui.screens.jobs import Jobs  # noqa: E402
from carbontui.tui.widgets.state_bar import StateBar  # noqa: E402

SECONDS = "150"
"""Of the recorded day: long enough to open every page while it lasts."""
BOARDS = 8
LOADS = (
    "import time, carbontui; carbontui.report(total=9000); [(time.sleep(0.1), carbontui.step()) for _ in range(9000)]"
)
FAILS = "raise RuntimeError('CUDA out of memory: tried to allocate 2.5 GiB')"
SIZES = {"": (120, 40), "-80x24": (80, 24), "-200x60": (200, 60)}
PAGES = {
    "plan": (["w"], "carbon-dark"),
    "boards": (["d"], "carbon-dark"),
    "preview": (["left", "left"], "carbon-dark"),
    "light": ([], "carbon-light"),
}


async def draw(job: str, path: Path, size: tuple[int, int], keys: list[str], theme: str) -> None:
    found = store.named(job)
    assert found is not None
    screen = Dashboard(target_of(found))
    app = CarbonApp(lambda: screen)
    app.theme = theme
    async with app.run_test(size=size) as pilot:
        while screen.view_state is None or not screen.past:
            await pilot.pause(0.05)
        await pilot.pause(1.0)  # the first read of the log, the reply of a page
        await pilot.press(*keys)
        await pilot.pause(1.0)
        while "asking" in (picture := svg(app)) or (screen.is_current and not settled(screen)):
            await pilot.pause(0.05)
        path.write_text(picture)
    print(path, flush=True)
    photograph(path)


def settled(screen: Dashboard) -> bool:
    """Whether a pause that is shown has reached the boards."""
    shown = screen.query_one(StateBar).view_state
    return shown is None or shown.status.state != "paused" or (shown.status.power_w or 0.0) < 120.0


async def others(home: str) -> tuple[str, ...]:
    """Starts what stands beside the demo in the table; the ids."""
    longer = demo.day("llama-8b", float(SECONDS), boards=BOARDS)
    launch.start(longer, hold=False)
    plain = [sys.executable, "-m", "carbontui.cli", "run", "--detach", "--zone", "DE", "--intensity", "324"]
    told = {"cwd": home, "capture_output": True, "text": True, "check": True}
    found = [longer.job]
    for name, script in (("tokenize", LOADS), ("eval", FAILS)):
        command = [*plain, "--name", name, "--work", "2h", "--budget", "2x", "--", sys.executable, "-c", script]
        found.append(subprocess.run(command, **told).stdout.split()[-1])
    while not status(home, found[1]).get("step"):
        await asyncio.sleep(0.2)
    subprocess.run([sys.executable, "-m", "carbontui.cli", "pause", found[1]], **told)
    while status(home, found[0]).get("step", 0) < 200:
        await asyncio.sleep(0.5)
    return tuple(found)


async def table(path: Path, size: tuple[int, int]) -> None:
    with StationWatch(target_of) as watch:
        screen = Jobs(watch.listing, Dashboard)
        app = CarbonApp(lambda: screen)
        app.theme = "carbon-dark"
        async with app.run_test(size=size) as pilot:
            await screen.feed.polled.wait()
            await pilot.pause(3.0)  # the first answers of every job and of the boards
            path.write_text(svg(app))
    print(path, flush=True)
    photograph(path)


async def day(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as home:
        os.environ["CARBONTUI_HOME"] = home
        carbontui = [sys.executable, "-m", "carbontui.cli"]
        told = {"cwd": home, "stdout": subprocess.PIPE, "text": True}
        job = subprocess.run([*carbontui, "demo", "--seconds", SECONDS, "--detach"], check=True, **told).stdout.split()[
            -1
        ]
        beside: tuple[str, ...] = ()
        try:
            while status(home, job).get("step", 0) < 60:
                await asyncio.sleep(0.2)
            for name, size in SIZES.items():
                await draw(job, folder / f"demo{name}.svg", size, [], "carbon-dark")
            for name, (keys, theme) in PAGES.items():
                await draw(job, folder / f"{name}.svg", SIZES[""], keys, theme)
            while status(home, job).get("state") != "done":
                await asyncio.sleep(0.5)
            for name, size in SIZES.items():
                await draw(job, folder / f"ended{name}.svg", size, [], "carbon-dark")
            beside = await others(home)
            for name, size in SIZES.items():
                await table(folder / f"table{name}.svg", size)
        finally:
            for one in (job, *beside):
                subprocess.run([*carbontui, "stop", "--now", "--yes", one], check=False, stderr=subprocess.PIPE, **told)


def status(home: str, job: str) -> dict[str, object]:
    asked = [sys.executable, "-m", "carbontui.cli", "status", "--json", job]
    told = subprocess.run(asked, capture_output=True, text=True, check=False, cwd=home).stdout
    return dict(json.loads(told)) if told else {}


def photograph(picture: Path) -> None:
    """The PNG of an SVG, at its own size."""
    size = re.search(r'viewBox="0 0 ([0-9.]+) ([0-9.]+)"', picture.read_text())
    if size is not None:
        width, height = (round(float(number)) for number in size.groups())
        chromium(picture, f"--window-size={width},{height}", f"--screenshot={picture.with_suffix('.png')}")


def chromium(shown: Path, *flags: str) -> None:
    """Chromium without a window on a local file; nothing where it is not installed."""
    command = shutil.which("chromium") or shutil.which("google-chrome")
    if command is None:
        return
    with tempfile.TemporaryDirectory() as profile:
        plain = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={profile}"]
        subprocess.run(
            [command, *plain, *flags, shown.resolve().as_uri()], check=True, capture_output=True, timeout=120
        )
    print(flags[-1].partition("=")[2])


if __name__ == "__main__":
    place = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE
    asyncio.run(day(place))
    cast.record(place / "demo.cast")
