"""The account of a run recomputed from its journal alone: SQLite, arithmetic, no line of carbontui."""

import json
import sqlite3


def recompute(path):
    db = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    said = json.loads(db.execute("select value from state where key='accounts'").fetchone()[0])
    grid = db.execute("select start, start + dur, value from grid where signal != 'price' order by start").fetchall()

    def mass(t0, t1, joules):
        if t1 <= t0:
            return 0.0
        parts = ((min(t1, end) - max(t0, start), value) for start, end, value in grid if start < t1 and end > t0)
        return sum(joules * length / (t1 - t0) / 3.6e6 * value for length, value in parts)

    apart = "('waiting', 'try', 'estimate', 'calibration')"
    rows = db.execute(f"select t0, t1, joules from energy where state not in {apart}").fetchall()
    emitted = said["pue"] * sum(mass(*row) for row in rows)
    start, seconds = said["start_s"], said["run_now_s"]
    run_now = mass(start, start + seconds, said["run_now_w"] * seconds) if said["lever_acted"] else emitted
    kwh = said["pue"] * sum(joules for _, _, joules in rows) / 3.6e6
    return {"energy_wall_kwh": kwh, "gco2_g": emitted, "avoided_g": run_now - emitted}
