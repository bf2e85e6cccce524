"""Reads recorded answers of the real services through the adapters; see RECORDED.md for where they are.

By hand: `python tests/grid/replay_recorded.py DIR`. Ends with 1 when an answer does not come to its known value.
"""

from __future__ import annotations

import json
import sys
import zipfile
from pathlib import Path
from typing import Any

from carbontui.grid.choose import EVERY
from carbontui.grid.fuels import intensity_g_per_kwh
from carbontui.grid.http import Http
from carbontui.grid.providers.base import utc
from carbontui.grid.settings import GridSettings

KNOWN = [
    ("nyiso", "US_NY/20250201rtfuelmix_csv.zip", "US-NY-NYIS", "2025-02-01T05:00", 212.244),
    ("ercot", "ERCOT_generation.json", "US-TEX-ERCO", "2025-10-08T05:00", 355.658),
    ("miso", "MISO.html", "US-MIDW-MISO", "2018-01-25T09:30", 511.842),
    ("ieso", "CA_ON/gen_output_capability_20250228.xml", "CA-ON", "2025-02-28T05:00", 40.334),
    ("hydro-quebec", "Hydroquebec/production.json", "CA-QC", "2023-08-15T04:30", 31.747),
    ("eco2mix", "FR/response.json", "FR", "2023-09-21T00:45", 13.0),
    ("ree", "ES/demandaGeneracionPeninsula.json", "ES", "2024-10-25T19:00", 129.755),
    ("ree", "ES/demandaGeneracionBaleares.json", "ES-IB-MA", "2024-10-25T19:00", 363.850),
    ("ree", "ES/demandaGeneracionCanarias.json", "ES-CN-TE", "2024-10-25T19:00", 585.147),
    ("ree", "ES/demandaGeneracionPeninsulaCeuta.json", "ES-CE", "2026-04-20T19:00", 733.0),
    ("ons", "ONS/data.json", "BR-CS", "2025-07-22T11:50", 140.589),
    ("ons", "ONS/data.json", "BR-S", "2025-07-22T11:50", 83.550),
    ("ons", "ONS/data.json", "BR-NE", "2025-07-22T11:50", 4.628),
    ("ons", "ONS/data.json", "BR-N", "2025-07-22T11:50", 252.230),
    ("transpower", "NZ/response_2024_04_24_18_00.html", "NZ", "2024-04-24T18:00", 64.629),
    ("taipower", "TAIPOWER/genary.json", "TW", "2025-05-14T07:30", 390.279),
    ("japan", "JP_area/eria_jukyu_202604_01.csv", "JP-HKD", "2026-03-31T15:00", 450.621),
    ("japan", "JP_area/realtime_jukyu_20260415_02.csv", "JP-TH", "2026-04-14T15:00", 442.754),
    ("japan", "JP_area/eria_jukyu_202604_03.csv", "JP-TK", "2026-03-31T15:00", 457.304),
    ("japan", "JP_area/eria_jukyu_202603_04.csv", "JP-CB", "2026-02-28T15:00", 476.386),
    ("japan", "JP_area/eria_jukyu_202604_05.csv", "JP-HR", "2026-03-31T15:00", 337.099),
    ("japan", "JP_area/eria_jukyu_202604_06.csv", "JP-KN", "2026-03-31T15:00", 235.418),
    ("japan", "JP_area/eria_jukyu_202604_07.csv", "JP-CG", "2026-03-31T15:00", 601.002),
    ("japan", "JP_area/eria_jukyu_202604_08.csv", "JP-SK", "2026-03-31T15:00", 363.569),
    ("japan", "JP_area/eria_jukyu_202604_09.csv", "JP-KY", "2026-03-31T15:00", 315.880),
    ("japan", "JP_area/eria_jukyu_202604_10.csv", "JP-ON", "2026-03-31T15:00", 618.043),
]


def values(name: str, path: Path, zone: str) -> dict[float, float | None]:
    """Interval start -> g/kWh as the adapter reads the file."""
    provider: Any = next(kind for kind in EVERY if kind.name == name)(Http(), GridSettings())
    if path.suffix == ".zip":
        with zipfile.ZipFile(path) as archive:
            bodies = [archive.read(entry) for entry in sorted(archive.namelist())]
    else:
        bodies = [path.read_bytes()]
    if name == "eco2mix":
        return {start_s: value for start_s, _, value, _ in provider.read(json.loads(bodies[0]))}
    mixes = provider.mixes(power for body in bodies for power in provider.read(body, zone))
    return {mix.start_s: intensity_g_per_kwh(mix.megawatts, provider.signal) for mix in mixes}


def main() -> int:
    if len(sys.argv) != 2:
        print(__doc__)
        return 2
    wrong = 0
    for name, file, zone, when, known in KNOWN:
        found = values(name, Path(sys.argv[1], file), zone).get(utc(when))
        good = found is not None and abs(found - known) < 0.001
        wrong += not good
        print(f"{'ok  ' if good else 'WRONG'} {name:14} {zone:14} {when}  {found}  known {known}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
