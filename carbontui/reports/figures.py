"""The figures of a run as every report format prints them: one place, so that all agree to the last digit."""

import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import PurePath
from typing import Any, NamedTuple

from carbontui import units
from carbontui.account.accounts import METHODS, NO_PART
from carbontui.account.elapsed import EVENT, EVENT_HELD
from carbontui.account.split import Split
from carbontui.reports.parts import GRAM_DIGITS, KWH_DIGITS, EpochPart
from carbontui.reports.story import RunStory
from carbontui.text import account as words
from carbontui.text import figures as form
from carbontui.text import situation, sources

STATE_WORDS = {
    "running": "at full speed",
    "throttled": "under a cap",
    "paused": "paused, model in memory",
    EVENT: "capped for a grid event",
    EVENT_HELD: "held for a grid event",
    "pausing": "waiting for a step to end",
    "unloaded": "unloaded, GPUs free",
    "waiting": "waiting for its start",
    "starting": "starting",
    "switching": "going on again",
    **dict.fromkeys(("done", "failed", "stopped", "lost"), "ended"),
}
DEVICE_WORDS = {"cpu": "CPU", "dram": "memory", "host": "host constant"}
SIGNAL_WORDS = {
    "average_lifecycle": "average of the grid, lifecycle",
    "average_direct": "average of the grid, direct emissions",
    "marginal": "marginal",
    "given": "as given",
}
KIND_WORDS = {
    "actual": "as realised",
    "estimated": "estimated by the source or a typical day",
    "forecast": "forecast, not revised yet",
    "unknown": "not known: the value of that moment was used",
}
HOW_WORDS = {
    "counter": "energy counters of the devices (their sensors are good to ±5 %)",
    "integrated": "power readings, integrated, or a counter in its first minute",
    "unmetered": "not metered: a counter that the GPU's readings contradict",
    "split": "the job's share of shared devices",
    "late": "power readings that came late",
    "model": "a model of the host",
    "default": "the host's default",
    "given": "the host as given",
    "gap": "gaps filled at the last power",
    "snapshot": "carried over from a snapshot",
}


class Figure(NamedTuple):
    """A label, the printed value, and its basis ('' where it is obvious)."""

    label: str
    value: str
    rests_on: str = ""


def figures(story: RunStory) -> tuple[Figure, ...]:
    """The account of the whole run."""
    status = story.status
    label = f"energy {counted(story)}"
    found = [Figure(label, words.energy(story.energy_wall_kwh, story.account), _how(story, "energy_wall_kwh"))]
    if story.unmetered:
        found = [Figure(label, "not known", form.NOT_METERED)]
    if whole := words.whole_machine(status):
        found.append(Figure("whole machine", whole, "with what it idles, and the host"))
    if status.boundary is not None and status.boundary.counted:
        basis = f"{status.boundary.counted}; --boundary {status.boundary.kind}: {status.boundary.why}"
        found.append(Figure("counted", sources.COUNTS[status.boundary.kind], basis))
    if metered_for := words.metered(status):
        found.append(Figure("metered", metered_for, "of the time that the account covers"))
    if story.energy_gpu_kwh:
        found.append(Figure("GPUs alone", form.kwh(story.energy_gpu_kwh), _how(story, "energy_gpu_kwh")))
    if story.unmetered:
        found.append(Figure("emitted", "not known", "no energy was metered"))
    elif story.gco2_g is None:
        found.append(Figure("emitted", "not known", "no grid value was known"))
    else:
        mean = "" if story.intensity_mean is None else f"{story.intensity_mean:.0f} g/kWh on average; "
        found.append(Figure("emitted", f"{form.grams(story.gco2_g)} CO2", mean + _how(story, "gco2_g")))
    found += _avoided(story)
    if (made := story.embodied) is not None:
        rests = f"not in emitted; {form.grams(made.g_per_hour)} per hour held, for making GPUs and their servers"
        found.append(Figure("embodied", f"{form.grams(made.grams)} CO2", rests))
    if story.revisions:
        by_source = f"by the source, {times(len(story.revisions))}: {story.revisions[-1]}"
        found.append(Figure("revised", form.change(story.revised_g), by_source))
    if known := sources.age(status.intensity, units.from_iso(status.ended_at)):
        found.append(Figure("grid known", known, "as of its end" if status.exit else ""))
    if status.forecast_errors:
        errors = ", ".join(f"{form.percent(x.error)} {x.lead_h} h" for x in status.forecast_errors)
        found.append(Figure("forecast error", errors, "of the level; " + _how(story, "forecast_errors")))
    if status.cost is not None:
        found.append(Figure("cost", form.money(status.cost.value, status.cost.currency), "energy and rent"))
    found += [
        Figure(
            f"besides: {apart.reason}",
            f"{form.kwh(apart.energy_wall_kwh)}, {form.grams(apart.gco2_g)} CO2",
            f"{form.duration(apart.elapsed_s)}, to learn about the work: not in the account",
        )
        for apart in story.excluded
    ]
    if status.moves_cost is not None:
        found.append(Figure("moves", words.moves(status.moves_cost), "from the last step before to the first after"))
    found.append(Figure("elapsed", form.duration(story.elapsed_s), _budget(story)))
    if status.step:
        total = f" of {status.steps_total:,}" if status.steps_total else ""
        found.append(
            Figure("steps", f"{status.step:,}{total}", situation.loss_words(status).replace("loss", "last loss", 1))
        )
    return tuple(found)


def _avoided(story: RunStory) -> list[Figure]:
    """Against run-now; none where either is not known."""
    if story.energy_wall_kwh <= 0 or story.avoided_g is None:
        return []
    if story.run_now_g is None:
        return [Figure("avoided", words.NOTHING_HELD, "nothing was delayed or capped: nothing to compare")]
    part = words.share(story.avoided_g, story.run_now_g)
    share = "" if part is None else f" ({form.percent(part, 1)})"
    half = story.split.halves.avoided_g if story.split and story.split.halves else None
    band = "" if half is None or not words.worth(half) else f"80 % band ± {form.grams(half)}"
    rests_on = "; ".join(filter(None, (band, _how(story, "avoided_g"))))
    return [
        Figure("run now", f"{form.grams(story.run_now_g)} CO2", "the same work at full speed from the start"),
        Figure("avoided", f"{form.grams(story.avoided_g)} CO2{share}", rests_on),
    ]


def _how(story: RunStory, field: str) -> str:
    known = story.status.provenance.get(field)
    if known is None:
        return ""
    # forecasts of hours that have passed are no part of their account
    return f"{known.how}: {known.source}{'' if story.over or not known.ahead else f'; ahead: {known.ahead}'}"


def times(number: int) -> str:
    """'once', 'twice', '3 times'."""
    return {1: "once", 2: "twice"}.get(number, f"{number} times")


def _budget(story: RunStory) -> str:
    budget = story.status.budget
    if budget is None or budget.deadline is None:
        return ""
    slack = units.from_iso(budget.deadline) - story.end_s
    changed = [decision.text for decision in story.decisions if decision.kind == "budget"]
    last = changed[-1] if changed else f"budget {story.options.budget}"
    if not story.over:
        return last
    side = "before" if slack >= 0 else "after"
    return f"{last}, {form.duration(abs(slack))} {side} the deadline"


LEVERS = {
    "capped_g": ("caps", "against the same work at full speed at the same time"),
    "moved_g": ("shifting", "work moved in time, against the same done at once, at full speed"),
    "parked_g": ("waiting", "a paused GPU with the model in memory draws power"),
    "unloaded_g": ("unloading", "GPUs let go, against staying paused"),
    "event_g": ("grid events", "against the same work at full speed, less what it drew held"),
    "rest_g": ("other causes", "starting, switching, reloading, and deviations of full-speed watts from their mean"),
}
"""By the part of the split: what every form of report calls it, and what it is measured against."""


def levers(split: Split) -> list[Figure]:
    """CO2 saved by each means, as far as it is worth telling."""
    return [
        Figure(name, words.with_band(getattr(split, part), getattr(split.halves, part, None)), against)
        for part, (name, against) in LEVERS.items()
        if words.worth(getattr(split, part))
    ]


def parts(story: RunStory) -> list[Figure]:
    """CO2 saved by each means; the lines add up to the avoided grams. Empty where unknown."""
    split = story.split
    if split is None:
        return []
    why = "running now less emitted" + ("" if split.halves is None else "; ± is half of an 80 % band")
    value = words.with_band(split.avoided_g, split.halves and split.halves.avoided_g)
    return [*levers(split), Figure("avoided", value, why)]


def means(story: RunStory | None) -> str:
    """'caps +12.3 g ± 0.4 g, shifting +3.1 g ± 0.2 g, 3 h 20 later': avoided CO2 by lever, and what time that took; ''
    where there is none."""
    if story is None or story.split is None:
        return ""
    return ", ".join([*(f"{lever.label} {lever.value}" for lever in levers(story.split)), *later(story)])


def later(story: RunStory) -> list[str]:
    """'3 h 20 later', than at full speed, of a run that is over; a minute is none."""
    late_s = story.elapsed_s - story.run_now.seconds if story.over and story.run_now is not None else 0.0
    return [f"{form.duration(late_s)} later"] if late_s >= 60.0 else []


class ReportTable(NamedTuple):
    """A table of every report format; without a title it goes on with the subject of the one above."""

    title: str
    head: tuple[str, ...]
    rows: list[tuple[str, ...]]


def tables(story: RunStory) -> list[ReportTable]:
    """Where time, energy and grams went: by state, by device, and where they are known by day and epoch."""
    names = {gpu.uuid: f"{gpu.name} ({gpu.uuid})" for gpu in story.status.gpus}
    by_state, by_day = (
        [
            (STATE_WORDS.get(p.name, p.name), form.duration(p.seconds), form.kwh(p.kwh), form.grams(p.gco2_g))
            for p in parts
        ]
        for parts in (story.by_state, story.days)
    )
    by_device = [(_device(p.name, names), form.kwh(p.kwh), form.grams(p.gco2_g)) for p in story.by_device]
    of_epochs, epochs = ("epoch", "time", "steps", "energy", "CO2", "last loss"), _epoch_rows(story.epochs)
    shown = len(of_epochs) - (not any(row[-1] for row in epochs))  # a plain script reports no loss
    of_places, at_each = [words.place_row(place) for place in story.status.places], ("machine", "zone", "steps")
    return [
        *([ReportTable("By machine", (*at_each, "energy", "CO2"), [*of_places])] if of_places else ()),
        ReportTable("Where it went", ("state", "time", "energy", "CO2"), [*by_state]),
        ReportTable("", ("device", "energy", "CO2"), [*by_device]),
        *([ReportTable("Per day", ("day", "time", "energy", "CO2"), [*by_day])] if by_day else ()),
        *([ReportTable("Per epoch", of_epochs[:shown], [row[:shown] for row in epochs])] if epochs else ()),
    ]


def _device(name: str, boards: dict[str, str]) -> str:
    """'H100 (GPU-...)', 'CPU', or for another machine of the job 'CPU of n2'."""
    part, _, node = name.partition("@")
    word = DEVICE_WORDS.get(part)
    if name in boards or word is None:
        return boards.get(name, name)
    return f"{word} of {node}" if node else word


def shares(pairs: tuple[tuple[str, float], ...], names: dict[str, str]) -> str:
    """'97% energy counters of the devices, 3% a model of the host'; a single kind without its share."""
    if len(pairs) == 1:
        return names.get(pairs[0][0], pairs[0][0])
    return ", ".join(f"{form.percent(share)} {names.get(name, name)}" for name, share in pairs) or "nothing yet"


def hardware(story: RunStory) -> str:
    """'2 x H100'; '' without a board."""
    names = [gpu.name for gpu in story.status.gpus]
    return ", ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names))


def metered(story: RunStory, most: int | None = None) -> str:
    """How the energy was metered, largest share first; a simulated board has no sensors."""
    boards = {"counter": SIMULATED, "integrated": SIMULATED} if story.options.simulated is not None else {}
    return shares(story.how[:most], HOW_WORDS | boards)


def counted(story: RunStory) -> str:
    """What its energy is called."""
    return sources.called(story.options.boundary)


def metered_verb(story: RunStory) -> str:
    """The verb for how energy was obtained: 'measured' where nearly all of it was."""
    if story.options.simulated is not None:
        return "simulated"
    measured = math.fsum(share for how, share in story.how if how in METHODS)
    return "measured" if measured > 1.0 - NO_PART else "estimated" if measured < 0.5 else "measured in part"


SIMULATED = "a simulated GPU"


def zone(story: RunStory) -> str:
    """'DE, average of the grid, direct emissions', 'DE, as given in curve.csv', or ''."""
    known, file = story.status.intensity, story.options.grid
    if story.options.intensity_g_per_kwh is not None:  # the user's own value, wherever the job is
        return f"{story.options.zone}, {SIGNAL_WORDS['given']}" if story.options.zone else ""
    if known is None:
        return story.options.zone or ""
    if file is not None and known.signal == "given":
        return f"{known.zone}, as given in {units.printable(PurePath(file).name)}"
    return f"{known.zone}, {SIGNAL_WORDS.get(known.signal, known.signal)}"


def date_and_clock(at_s: float) -> str:
    """'2026-06-21 14:15': local time with its full date."""
    return f"{units.iso(at_s + units.local_offset_s(at_s))[:10]} {form.clock(at_s, at_s)}"


EPOCHS_SHOWN = 40
"""Most rows of a printed table; of more epochs the first and last half are shown. JSON has all."""


def _epoch_rows(parts: Sequence[EpochPart]) -> list[tuple[str, ...]]:
    rows = [_epoch_row(part) for part in parts]
    half, more = EPOCHS_SHOWN // 2, len(parts) - EPOCHS_SHOWN
    return rows if more <= 0 else [*rows[:half], (f"{more} more", *[""] * 5), *rows[-half:]]


def _epoch_row(part: EpochPart) -> tuple[str, ...]:
    name = "before the first" if part.number is None else str(part.number)
    name += "" if part.last is None else f" to {part.last}"
    loss = "" if part.loss is None else f"{part.loss:.4g}"
    seconds = form.duration(part.end_s - part.start_s)
    return name, seconds, f"{part.steps:,}", form.kwh(part.kwh), form.grams(part.gco2_g), loss


def accuracy(story: RunStory) -> str:
    """The systematic error that scales all figures of the run alike."""
    if story.options.simulated is not None:
        return "The GPU is simulated: none of these figures comes from a real machine."
    return "What the energy is off, within its band, scales all of these figures alike."


DIGITS = {"s": 3, "seconds": 3, "kwh": KWH_DIGITS, "g": GRAM_DIGITS}
"""Of a figure in JSON, by the unit that its name ends with."""


def at_digits(figures: dict[str, Any]) -> dict[str, Any]:
    """The figures, rounded by their units."""

    def at(name: str, value: Any) -> Any:
        digits = DIGITS.get(name.rpartition("_")[2])
        return value if digits is None or not isinstance(value, float) else round(value, digits)

    return {name: at(name, value) for name, value in figures.items()}


def split_numbers(split: Split) -> dict[str, Any]:
    """The parts in grams; `halves` is half the width of each 80 % band, null where unknown."""
    halves = split.halves and at_digits(split.halves._asdict())
    parts = {**asdict(split), "shifting_g": split.shifting_g, "avoided_g": split.avoided_g}
    return at_digits({**parts, "halves": halves})
