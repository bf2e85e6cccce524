"""A run in the forms that others ask for: a model card's block, SCI, and Annex XI of the EU AI Act.

Every field is a figure of the journal, whose row is named beside it, or "unknown". Nothing is filled in.
"""

from __future__ import annotations

import json
from typing import Any, Literal

from carbontui.grid import zones
from carbontui.reports import figures
from carbontui.reports.parts import GRAM_DIGITS, KWH_DIGITS
from carbontui.reports.story import RunStory

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
        ("training_type", training_type or UNKNOWN, "--training-type"),
        ("geographical_location", place, "spec.json zone"),
        ("hardware_used", _hardware(story), "snapshot gpus"),
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
    known = grams is not None and made is not None and units
    score = (grams + made.grams) / units if grams is not None and made is not None and units else None
    rows = "; ".join(made.sources) or "--embodied" if made else "no published figure for these boards; --embodied"
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
            "sci": {
                "value": score if score is not None else UNKNOWN,
                "unit": f"gCO2e per {per}",
                "from": "(E x I + M) / R" if known else f"(E x I + M) / R: {_missing(grams, made, units)} not known",
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
            "compute_flops": UNKNOWN if flops is None else {"value": flops, "from": whence},
        }
    )


def metric_of(story: RunStory, names: tuple[str, ...]) -> tuple[float | None, str]:
    """A number that the script has reported under one of these names, and where it stands."""
    found = next((name for name in names if story.status.metrics.get(name, 0.0) > 0), None)
    if found is None:
        return None, f"not reported: carbontui.report(metrics={{{names[0]!r}: ...}})"
    return story.status.metrics[found], f"snapshot metrics.{found}, as the script reported it"


def _hardware(story: RunStory) -> str:
    names = [gpu.name for gpu in story.status.gpus]
    return ", ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names)) or UNKNOWN


def _kwh(story: RunStory) -> float | str:
    return UNKNOWN if story.unmetered else round(story.energy_wall_kwh, KWH_DIGITS)


def _g(grams: float | None) -> float | str:
    return UNKNOWN if grams is None else round(grams, GRAM_DIGITS)


def _missing(grams: float | None, made: object, units: object) -> str:
    parts = (("E x I", grams is not None), ("M", made is not None), ("R", bool(units)))
    return ", ".join(name for name, known in parts if not known)


def _json(value: dict[str, Any]) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"
