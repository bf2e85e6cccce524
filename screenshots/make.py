"""Draws every picture of a run of `carbontui demo`, and its cast: python screenshots/make.py [folder]

One recorded day at three sizes: the dashboard while it runs, its pages, and its ending. Each as SVG, and as PNG beside
it where Chromium is installed. About four minutes; every picture is of one moment of a real run.
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
from dataclasses import replace
from pathlib import Path

os.environ["TZ"] = "UTC"
time.tzset()
HERE = Path(__file__).parent

import cast  # noqa: E402
from cells import svg  # noqa: E402

from carbontui.job import store  # noqa: E402
from carbontui.tui.app import CarbonApp  # noqa: E402
from carbontui.tui.screens.dashboard import Dashboard  # noqa: E402
from carbontui.verbs.support.endings import target_of  # noqa: E402

SECONDS = "150"
"""Of the recorded day: long enough to open every page while it lasts."""
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
    screen = Dashboard(replace(target_of(found), last_look=None))
    app = CarbonApp(lambda: screen)
    app.theme = theme
    async with app.run_test(size=size) as pilot:
        while screen.picture is None or not screen.past:
            await pilot.pause(0.05)
        await pilot.pause(1.0)  # the first read of the log, the reply of a page
        await pilot.press(*keys)
        await pilot.pause(1.0)
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
        finally:
            subprocess.run([*carbontui, "stop", "--now", "--yes", job], check=False, stderr=subprocess.PIPE, **told)


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
