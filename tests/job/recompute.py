"""Energy, CO2 and avoided of a finished replay, recomputed from its journal and the grid file alone.

Shares no code with carbontui: SQLite rows of energy, a CSV of intensities, arithmetic.

    python recompute.py JOURNAL GRID.csv
"""

import csv
import json
import sqlite3
import sys
from datetime import datetime


def intensities(path):
    """[(start, value)] of the recorded file; a value holds until the next start."""
    with open(path, newline="") as file:
        rows = list(csv.reader(file))[1:]
    return [(datetime.fromisoformat(t.replace("Z", "+00:00")).timestamp(), float(v)) for t, v in rows]


def grams(grid, t0, t1, joules):
    """Joules spread evenly over [t0, t1], weighed with the intensity that held at each moment."""
    if t1 <= t0:
        return 0.0
    total = 0.0
    for (start, value), (end, _) in zip(grid, grid[1:] + [(grid[-1][0] + 900, 0)], strict=True):
        overlap = min(t1, end) - max(t0, start)
        if overlap > 0:
            total += joules * overlap / (t1 - t0) / 3.6e6 * value
    return total


def recompute(journal, grid_file):
    grid = intensities(grid_file)
    db = sqlite3.connect(f"file:{journal}?mode=ro", uri=True)
    said = json.loads(db.execute("select value from state where key='accounts'").fetchone()[0])
    rows = db.execute("select t0, t1, device, joules, state from energy order by t0").fetchall()
    pue = said["pue"]
    counted = [row for row in rows if row[4] not in ("waiting", "try", "estimate", "calibration")]
    wall_j = pue * sum(row[3] for row in counted)
    emitted = pue * sum(grams(grid, t0, t1, joules) for t0, t1, _, joules, _ in counted)
    start, seconds = said["start_s"], said["run_now_s"]
    run_now = grams(grid, start, start + seconds, said["run_now_w"] * seconds) if said["lever_acted"] else emitted
    return {
        "energy_wall_kwh": wall_j / 3.6e6,
        "gco2_g": emitted,
        "avoided_g": run_now - emitted,
        "run_now_g": run_now,
        "said": said,
        "states": db.execute("select at, data from event where kind='state' order by at").fetchall(),
        "acks": db.execute("select count(*) from event where kind='ack'").fetchone()[0],
        "rows": rows,
    }


if __name__ == "__main__":
    found = recompute(sys.argv[1], sys.argv[2])
    for key in ("energy_wall_kwh", "gco2_g", "avoided_g"):
        print(f"{key}: recomputed {found[key]:.6f}, said {found['said'][key]:.6f}")
