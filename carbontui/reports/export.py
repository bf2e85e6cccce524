"""A run in the columns and forms of others: CodeCarbon's emissions.csv, a model card's block, SCI, and Annex XI
of the EU AI Act.

Every field of the last three is a figure of the journal, whose row is named beside it, or "unknown". Nothing is filled
in.
"""

import csv
import io
import json
import os
from pathlib import Path
from typing import Any, Literal

from msgspec import structs

from carbontui import units
from carbontui.account.boundary import IDLE
from carbontui.grid import zones
from carbontui.reports import figures
from carbontui.reports.parts import GRAM_DIGITS, KWH_DIGITS, kind_of, rounded
from carbontui.reports.story import RunStory

CODECARBON_COLUMNS = (
    "timestamp", "project_name", "run_id", "experiment_id", "duration", "emissions", "emissions_rate", "cpu_power",
    "gpu_power", "ram_power", "cpu_energy", "gpu_energy", "ram_energy", "energy_consumed", "water_consumed",
    "country_name", "country_iso_code", "region", "cloud_provider", "cloud_region", "os", "python_version",
    "codecarbon_version", "cpu_count", "cpu_model", "gpu_count", "gpu_model", "longitude", "latitude", "ram_total_size",
    "tracking_mode", "cpu_utilization_percent", "gpu_utilization_percent", "ram_utilization_percent", "ram_used_gb",
    "on_cloud", "pue", "wue",
)  # fmt: skip
"""Those of CodeCarbon 3.3.2 (MIT licence), in its order and units: kWh, kg CO2, watts, seconds. A column is empty where
the journal has no value: a board that was never read must not appear with 0 W."""


FORMULA = "=+-@\t\r\n\uff1d\uff0b\uff0d\uff20"
"""A spreadsheet reads a cell that begins with one of these as a formula (OWASP, CSV injection); the wide forms, too."""


class NotThatFile(ValueError):
    """A file to append to that has other columns."""


def codecarbon_row(story: RunStory) -> dict[str, str]:
    """By column. Energies include the PUE, as CodeCarbon's do, and add up to `energy_consumed`: what a machine draws
    besides boards and memory stands with its CPU, and what idles anyway is in no part. CodeCarbon writes on a file only
    where it has exactly its columns, so boundary, band and the whole machine stand in the free text of one."""
    kinds = [kind for kind in ("ram", "gpu", "cpu") if kind in story.by_kind]
    kwh = rounded([story.by_kind[kind] for kind in kinds], story.energy_wall_kwh, KWH_DIGITS)
    names = sorted({gpu.name for gpu in story.status.gpus})
    known = {
        "timestamp": units.iso(story.end_s)[:19],
        "project_name": _text(story.status.name),
        "run_id": story.status.job,
        "experiment_id": _in_words(story),
        "duration": f"{story.elapsed_s:.3f}",
        "energy_consumed": f"{story.energy_wall_kwh:.9f}",
        "gpu_count": str(len(story.status.gpus)) if story.status.gpus else "",
        "gpu_model": _text(" + ".join(names)),
        "region": _text(story.options.zone or ""),
        "tracking_mode": "process",
        "pue": f"{story.options.pue:g}",
    }
    for kind, energy in zip(kinds, kwh, strict=True):
        same = (part.seconds for part in story.by_device if part.name != IDLE and kind_of(part.name) == kind)
        known[f"{kind}_energy"] = f"{energy:.{KWH_DIGITS}f}"
        if (seconds := max(same, default=0.0)) > 0:
            known[f"{kind}_power"] = f"{energy * units.J_PER_KWH / seconds:.3f}"
    if story.gco2_g is not None:
        known["emissions"] = f"{story.gco2_g / 1000:.9f}"
        known["emissions_rate"] = f"{story.gco2_g / 1000 / story.elapsed_s:.12f}" if story.elapsed_s > 0 else ""
    return {column: known.get(column, "") for column in CODECARBON_COLUMNS}


def _in_words(story: RunStory) -> str:
    """'always-on: energy above idle, 0.4 to 0.6 kWh; whole machine 0.7 kWh, 0.6 to 0.8 kWh'."""
    known = disclosed(story)
    (lo, hi), whole = known["energy_band_kwh"], known["whole_machine"]
    band = "" if lo is None else f", {lo} to {hi} kWh"
    beside = whole and f"; whole machine {whole['energy_kwh']} kWh, {whole['lo_kwh']} to {whole['hi_kwh']} kWh"
    return f"{known['boundary']}{band}{beside or ''}"


def _text(name: str) -> str:
    """An untrusted name as a cell that every reader takes as text: prefixed with OWASP's quote where needed."""
    shown = units.printable(name)
    return f"'{shown}" if name.startswith(tuple(FORMULA)) else shown


def codecarbon(story: RunStory) -> str:
    """Header and row."""
    out = io.StringIO()
    rows = csv.DictWriter(out, CODECARBON_COLUMNS, lineterminator="\n")
    rows.writeheader()
    rows.writerow(codecarbon_row(story))
    return out.getvalue()


def append(path: Path, story: RunStory) -> None:
    """Append a row to the file, as CodeCarbon does; a new file gets the header first.

    Raises OSError, and NotThatFile where the file has other columns.
    """
    whole = codecarbon(story)
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


UNKNOWN = "unknown"
Per = Literal["step", "run", "token"]
TOKENS = ("tokens", "num_tokens", "total_tokens", "tokens_seen", "num_input_tokens_seen")
FLOPS = ("flops", "total_flos", "total_flops", "compute_flops")
"""Under which names scripts report these with carbontui.report(metrics=...)."""


def model_card(story: RunStory, training_type: str | None) -> str:
    """The `co2_eq_emissions` block of a Hugging Face model card (docs: Model cards, CO2 emissions): YAML, emissions in
    grams. Each line's comment names its row."""
    zone = story.options.zone
    place = UNKNOWN if not zone else f"{zone} ({known.name})" if (known := zones.every().get(zone)) else zone
    sources = "; ".join(story.sources) or UNKNOWN
    fields: list[tuple[str, Any, str]] = [
        ("emissions", _g(story.gco2_g), "journal state accounts.gco2_g, in grams"),
        ("source", f"carbontui {story.version}: {figures.metered(story)}; grid: {sources}", "journal energy, grid"),
        ("boundary", json.dumps(disclosed(story)), "spec.json boundary, snapshot whole_machine"),
        ("training_type", training_type or UNKNOWN, "--training-type"),
        ("geographical_location", place, "spec.json zone"),
        ("hardware_used", figures.hardware(story) or UNKNOWN, "snapshot gpus"),
    ]
    lines = [f"  {name}: {json.dumps(value, ensure_ascii=False)}  # {row}" for name, value, row in fields]
    return "\n".join(["co2_eq_emissions:", *lines, ""])


def sci(story: RunStory, per: Per) -> str:
    """The Software Carbon Intensity, (E x I + M) per R (ISO/IEC 21031:2024), location-based; R is the work done."""
    grams, made, used = story.gco2_g, story.embodied, story.account.so_far
    sources = {
        "step": (used.steps or None, "journal state accounts.account.so_far.steps"),
        "run": (1, "one run"),
        "token": metric_of(story, TOKENS),
    }
    units, whence = sources[per]
    missing = [name for name, known in (("E x I", grams), ("M", made), ("R", units)) if known is None]
    score = (grams + made.grams) / units if grams is not None and made is not None and units else None
    rows = "; ".join(made.sources) or "--embodied" if made else "no published figure for these GPUs; --embodied"
    return _json(
        {
            "E": {"value": _kwh(story), "unit": "kWh", "from": "journal state accounts.energy_wall_kwh"},
            "I": {
                "value": _g(story.intensity_mean),
                "unit": "gCO2e/kWh",
                "from": "journal state accounts.gco2_g / accounts.energy_wall_kwh: the hours' grid values by energy",
            },
            "M": {
                "value": _g(made.grams if made else None),
                "unit": "gCO2e",
                "from": f"journal state books.held_s x grams per hour: {rows}",
            },
            "R": {"value": units or UNKNOWN, "unit": per, "from": whence},
            "functional_unit": per,
            **disclosed(story),
            "sci": {
                "value": score if score is not None else UNKNOWN,
                "unit": f"gCO2e per {per}",
                "from": "(E x I + M) / R" + (f": {', '.join(missing)} not known" if missing else ""),
            },
        }
    )


def annex_xi(story: RunStory) -> str:
    """What Annex XI, section 1 (2) (d) and (e) of Regulation (EU) 2024/1689 asks of a training: time, energy and how it
    is known, and the compute, if the script reports it."""
    flops, whence = metric_of(story, FLOPS)
    seconds = round(story.elapsed_s, 3)
    method = f"{figures.metered_verb(story)}: {figures.metered(story)}; PUE {story.options.pue:g}"
    return _json(
        {
            "training_time_s": {"value": seconds, "from": "journal state accounts.start_s until exit.json at"},
            "energy_kwh": {"value": _kwh(story), "from": "journal state accounts.energy_wall_kwh"},
            "method": UNKNOWN if story.unmetered else method,
            **disclosed(story),
            "compute_flops": UNKNOWN if flops is None else {"value": flops, "from": whence},
        }
    )


def metric_of(story: RunStory, names: tuple[str, ...]) -> tuple[float | None, str]:
    """A number that the script has reported under one of these names, and where it stands."""
    found = next((name for name in names if story.status.metrics.get(name, 0.0) > 0), None)
    if found is None:
        return None, f"not reported: carbontui.report(metrics={{{names[0]!r}: ...}})"
    return story.status.metrics[found], f"snapshot metrics.{found}, as the script reported it"


def disclosed(story: RunStory) -> dict[str, Any]:
    """What belongs to an energy: its boundary, its band in kWh, and the whole machine's figure beside it."""
    used, whole = story.account.so_far, story.status.whole_machine
    return {
        "boundary": f"{story.options.boundary}: energy {figures.counted(story)}",
        "energy_band_kwh": [used.energy_wall_lo_kwh, used.energy_wall_hi_kwh],
        "whole_machine": None if whole is None else structs.asdict(whole),
    }


def _kwh(story: RunStory) -> float | str:
    return UNKNOWN if story.unmetered else round(story.energy_wall_kwh, KWH_DIGITS)


def _g(grams: float | None) -> float | str:
    return UNKNOWN if grams is None else round(grams, GRAM_DIGITS)


def _json(value: dict[str, Any]) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"
