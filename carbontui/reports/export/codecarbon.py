"""A run as one row of CodeCarbon's emissions.csv, for tools that read those files.

The columns are those of CodeCarbon 3.3.2 (MIT licence), in its order and units: kWh, kg CO2, watts, seconds. A column
is empty where the journal has no value: a board that was never read must not appear with 0 W.
"""

from __future__ import annotations

import csv
import io
import os
from pathlib import Path

from carbontui import units
from carbontui.account.boundary import IDLE
from carbontui.reports.parts import Part
from carbontui.reports.story import RunStory

COLUMNS = (
    "timestamp", "project_name", "run_id", "experiment_id", "duration", "emissions", "emissions_rate", "cpu_power",
    "gpu_power", "ram_power", "cpu_energy", "gpu_energy", "ram_energy", "energy_consumed", "water_consumed",
    "country_name", "country_iso_code", "region", "cloud_provider", "cloud_region", "os", "python_version",
    "codecarbon_version", "cpu_count", "cpu_model", "gpu_count", "gpu_model", "longitude", "latitude", "ram_total_size",
    "tracking_mode", "cpu_utilization_percent", "gpu_utilization_percent", "ram_utilization_percent", "ram_used_gb",
    "on_cloud", "pue", "wue",
)  # fmt: skip


FORMULA = "=+-@\t\r\n\uff1d\uff0b\uff0d\uff20"
"""A spreadsheet reads a cell that begins with one of these as a formula (OWASP, CSV injection); the wide forms, too."""


class NotThatFile(ValueError):
    """A file to append to that has other columns."""


def row(story: RunStory) -> dict[str, str]:
    """By column. Energies include the PUE, as CodeCarbon's do; the host constant, and what the machine idles without
    the job, are in `energy_consumed` alone."""
    kinds: dict[str, list[Part]] = {"cpu": [], "dram": [], "host": [], IDLE: [], "gpu": []}
    for part in story.by_device:  # of another machine: 'cpu@n2'
        kind = part.name.partition("@")[0]
        kinds[kind if kind in kinds else "gpu"].append(part)
    names = sorted({gpu.name for gpu in story.status.gpus})
    known = {
        "timestamp": units.iso(story.end_s)[:19],
        "project_name": _text(story.status.name),
        "run_id": story.status.job,
        "duration": f"{story.elapsed_s:.3f}",
        "energy_consumed": f"{story.energy_wall_kwh:.9f}",
        "gpu_count": str(len(story.status.gpus)) if story.status.gpus else "",
        "gpu_model": _text(" + ".join(names)),
        "region": _text(story.options.zone or ""),
        "tracking_mode": "process",
        "pue": f"{story.options.pue:g}",
        **_device("cpu", kinds["cpu"]),
        **_device("ram", kinds["dram"]),
        **_device("gpu", kinds["gpu"]),
    }
    if story.gco2_g is not None:
        known["emissions"] = f"{story.gco2_g / 1000:.9f}"
        known["emissions_rate"] = f"{story.gco2_g / 1000 / story.elapsed_s:.12f}" if story.elapsed_s > 0 else ""
    return {column: known.get(column, "") for column in COLUMNS}


def _text(name: str) -> str:
    """An untrusted name as a cell that every reader takes as text: prefixed with OWASP's quote where needed."""
    shown = units.printable(name)
    return f"'{shown}" if name.startswith(tuple(FORMULA)) else shown


def _device(name: str, parts: list[Part]) -> dict[str, str]:
    """Energy and mean power while metered, of all devices of a kind; empty where none was."""
    seconds = max((part.seconds for part in parts), default=0.0)
    kwh = sum(part.kwh for part in parts)
    if not parts or seconds <= 0:
        return {}
    return {f"{name}_energy": f"{kwh:.9f}", f"{name}_power": f"{kwh * units.J_PER_KWH / seconds:.3f}"}


def text(story: RunStory) -> str:
    """Header and row."""
    out = io.StringIO()
    rows = csv.DictWriter(out, COLUMNS, lineterminator="\n")
    rows.writeheader()
    rows.writerow(row(story))
    return out.getvalue()


def append(path: Path, story: RunStory) -> None:
    """Append a row to the file, as CodeCarbon does; a new file gets the header first.

    Raises OSError, and NotThatFile where the file has other columns.
    """
    whole = text(story)
    header, line = whole.split("\n", 1)
    with path.open("ab+") as file:
        file.seek(0)
        # a device has no end, and another program's file may have no line
        first = file.readline(len(header) + 2).rstrip(b"\r\n")
        if not first:
            file.write(whole.encode())
        elif first != header.encode():
            raise NotThatFile(f"{path} has other columns than CodeCarbon 3.3.2 writes; name a new file")
        else:
            file.seek(-1, os.SEEK_END)
            ends = file.read(1) == b"\n"
            file.write((line if ends else f"\n{line}").encode())
