"""Draws every picture: python screenshots/make.py [folder]

That of the README is taken from a running `carbontui demo` (the `demo` extra, a minute), the others, which need a state
at will, from the fake supervisor of the tests. Each as SVG, and as PNG beside it where Chromium is installed.
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
sys.path.insert(0, str(HERE.parent / "tests" / "tui"))

from fake import FakeSupervisor, past_levels, scene, situated  # noqa: E402
from msgspec import structs  # noqa: E402

from carbontui import units  # noqa: E402
from carbontui.tui.app import CarbonApp  # noqa: E402
from carbontui.tui.screens.dashboard import Dashboard  # noqa: E402
from carbontui.tui.target import Target  # noqa: E402

PICTURES = {
    "dashboard": ("running", 1, (120, 40), [], "carbon-dark"),
    "dashboard-light": ("running", 1, (120, 40), [], "carbon-light"),
    "preview": ("running", 8, (120, 40), ["shift+right", "right", "right"], "carbon-dark"),
    "paused": ("override", 1, (120, 40), [], "carbon-dark"),
    "doctor": ("running", 1, (120, 40), ["d"], "carbon-dark"),
    "small": ("demo", 1, (80, 24), [], "carbon-dark"),
    "summary": ("done", 1, (120, 40), [], "carbon-dark"),
}


async def draw(name: str, folder: Path) -> None:
    what, gpus, size, keys, theme = PICTURES[name]
    snap = scene(what, gpus)
    if snap.status.state == "running":  # under its cap, as a supervisor tells it
        snap = structs.replace(snap, status=situated(structs.replace(snap.status, state="throttled")))
    with tempfile.TemporaryDirectory() as place:
        socket = Path(place) / "s"
        async with FakeSupervisor(socket, snap) as fake:
            fake.levels = past_levels(gpus, now=units.from_iso(fake.snap.series.now))
            screen = Dashboard(Target("k7q2mz", "charlm", socket), monotonic=lambda: 0.0)
            app = CarbonApp(lambda: screen)
            app.theme = theme
            async with app.run_test(size=size) as pilot:
                while screen.picture is None or not (screen.past or screen.picture.over):
                    await pilot.pause(0.05)
                await pilot.pause(0.3)  # the first read of the log
                await pilot.press(*keys)
                await pilot.pause(0.2)
                (folder / f"{name}.svg").write_text(app.export_screenshot(title="carbontui"))


async def draw_demo(folder: Path) -> None:
    """The dashboard of the real demo, when a third of its CO2 is emitted."""
    with tempfile.TemporaryDirectory() as home:
        carbontui = [sys.executable, "-m", "carbontui.cli"]
        told = {"env": os.environ | {"CARBONTUI_HOME": home}, "cwd": home, "stdout": subprocess.PIPE, "text": True}
        job = subprocess.run([*carbontui, "demo", "--detach"], check=True, **told).stdout.split()[-1]
        try:
            record = json.loads((Path(home) / "jobs" / job / "job.json").read_text())
            screen = Dashboard(Target(job, "demo", Path(record["socket"])))
            app = CarbonApp(lambda: screen)
            app.theme = "carbon-dark"
            async with app.run_test(size=(120, 40)) as pilot:
                while not third(screen):
                    await pilot.pause(0.05)
                (folder / "demo.svg").write_text(app.export_screenshot(title="carbontui demo"))
        finally:
            subprocess.run([*carbontui, "stop", "--now", "--yes", job], check=False, **told)


def third(screen: Dashboard) -> bool:
    status = screen.picture.status if screen.picture else None
    return bool(status and status.at_end and 3 * (status.gco2_g or 0.0) >= status.at_end.gco2_g)


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
    plain = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
    subprocess.run([command, *plain, *flags, shown.resolve().as_uri()], check=True, capture_output=True, timeout=120)
    print(flags[-1].partition("=")[2])


async def main(folder: Path) -> None:
    for name in PICTURES:
        await draw(name, folder)
        print(folder / f"{name}.svg")
        photograph(folder / f"{name}.svg")
    await draw_demo(folder)
    photograph(folder / "demo.svg")


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE))
