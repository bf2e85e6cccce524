"""Draws the pictures of the report, of runs that the tests book: python screenshots/reports.py [folder]

A day and a month on the screen, and the month as it prints, its pages side by side. Needs Chromium, and pdftoppm
for the print.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests" / "report"))

import runs  # noqa: E402
from make import chromium  # noqa: E402

from carbontui import __version__  # noqa: E402
from carbontui.reports import formats, story  # noqa: E402

HALF_DAY = (
    ("throttled", 3600, 400.0, 0.8),
    ("paused", 2 * 3600, runs.PARKED_W, 0.0),
    ("unloaded", 2 * 3600, runs.IDLE_W, 0.0),
    ("throttled", 3600, 400.0, 0.8),
    ("running", 6 * 3600, runs.FULL_W, 1.0),
)
"""Twelve hours, one wave of `runs.grams`: it stands still while the grid is dirtiest."""
PAGE = 380, 492
"""Pixels of a printed page."""
SIZES = {"report": (1120, 1800), "report-month": (1120, 1200)}


def main(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as made:
        home = Path(made)
        jobs = {
            "report": runs.make(home, "day", phases=(runs.DAY[0], *HALF_DAY), job="bcdefg", wander=0.01),
            "report-month": runs.make(home, phases=HALF_DAY * 60, every=600, wander=0.01, epoch_steps=40_000),
        }
        for name, job in jobs.items():
            written = home / f"{name}.html"
            written.write_text(formats.html(story.build(job, version=__version__)))
            width, height = SIZES[name]
            chromium(written, f"--window-size={width},{height}", f"--screenshot={folder / name}.png")
        chromium(home / "report-month.html", "--no-pdf-header-footer", f"--print-to-pdf={home / 'month.pdf'}")
        side_by_side(home / "month.pdf", folder / "report-print.png")


def side_by_side(pdf: Path, picture: Path) -> None:
    """The pages of a PDF in one row."""
    subprocess.run(["pdftoppm", "-r", "46", "-png", str(pdf), str(pdf.with_suffix(""))], check=True, timeout=120)
    pages = sorted(pdf.parent.glob(f"{pdf.stem}-*.png"))
    row = pdf.with_suffix(".html")
    images = "".join(f'<img src="{path.name}" width={PAGE[0]} height={PAGE[1]}>' for path in pages)
    row.write_text(f"<body style='margin:0; display:flex'>{images}")
    chromium(row, f"--window-size={PAGE[0] * len(pages)},{PAGE[1]}", f"--screenshot={picture}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE)
