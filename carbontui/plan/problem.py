"""The planning problem: a job's levels, the cost of switching, the grid's forecast, the remaining work.

Immutable, free of numpy, validated when it is created: every `Problem` is valid. The JSON form is
"carbontui.problem/1"; times in it are seconds from the start of slot 0, its horizon ends at the deadline.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

SCHEMA = "carbontui.problem/1"
FREE_AGE = 1_000_000
"""An age that satisfies every minimum dwell."""
STANDS_STILL = -2
"""Given instead of a level in `fixed`: any level that does not run, whichever costs least."""
SLOTS_MAX = 20_000
LEVELS_MAX = 64
NUMBER_MAX = 1e12


class ProblemError(ValueError):
    """The input is not a valid problem; `where` names the field, the message is one line for the user."""

    def __init__(self, where: str, what: str) -> None:
        super().__init__(f"{where}: {what}")
        self.where = where


class Infeasible(ProblemError):
    """No schedule can ever finish the work, whatever the deadline."""


@dataclass(frozen=True, slots=True)
class ProblemLevel:
    """One level of the job: watts of the device alone, speed in reference-speed seconds of work per second."""

    name: str
    power_w: float
    speed: float
    rent_per_h: float = 0.0

    @property
    def running(self) -> bool:
        return self.speed > 0


@dataclass(frozen=True, slots=True)
class Problem:
    """T slots, L levels, the L x L switches between them, dwell limits, the job's current level and remaining work.

    `dur_s`, `ci_g_per_kwh`, `price_per_kwh` have T entries (prices may be negative, None is 0 everywhere); `switch_s`
    and `switch_w` are row = from, column = to (None = forbidden). `host_w` is added to every level and switch, `pue`
    multiplies every joule, the objective is alpha * cost + beta * grams + shadow. Raises ProblemError naming the field.
    """

    dur_s: tuple[float, ...]
    ci_g_per_kwh: tuple[float, ...]
    levels: tuple[ProblemLevel, ...]
    switch_s: tuple[tuple[float | None, ...], ...]
    switch_w: tuple[tuple[float, ...], ...]
    work_s: float
    initial_level: int
    initial_age_slots: int = FREE_AGE
    price_per_kwh: tuple[float, ...] | None = None
    min_run_slots: int = 1
    min_pause_slots: int = 1
    max_resumes: int | None = None
    host_w: float = 0.0
    pue: float = 1.0
    alpha: float = 0.0
    beta: float = 1.0
    shadow_per_h: tuple[tuple[float, ...], ...] | None = None
    """T x L: shadow price of an hour at a level in a slot, for watts that other jobs need as well. Added to the
    objective only; grams, cost and energy do not include it."""
    meta: dict[str, Any] = field(default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        slots, count = len(self.dur_s), len(self.levels)
        if not slots:
            raise ProblemError("slots.dur_s", "is empty; at least one slot is needed")
        if slots > SLOTS_MAX:
            raise ProblemError("slots.dur_s", f"has {slots} slots; at most {SLOTS_MAX} are planned")
        _numbers("slots.dur_s", self.dur_s, above=0.0)
        _same_length("slots.ci_g_per_kwh", self.ci_g_per_kwh, slots)
        _numbers("slots.ci_g_per_kwh", self.ci_g_per_kwh, least=0.0)
        if self.price_per_kwh is not None:
            _same_length("slots.price_per_kwh", self.price_per_kwh, slots)
            _numbers("slots.price_per_kwh", self.price_per_kwh)
        if not count:
            raise ProblemError("levels", "is empty; at least one level with speed > 0 is needed")
        if count > LEVELS_MAX:
            raise ProblemError("levels", f"has {count} entries; at most {LEVELS_MAX} are planned")
        for i, level in enumerate(self.levels):
            _number(f"levels[{i}].power_w", level.power_w, least=0.0)
            _number(f"levels[{i}].speed", level.speed, least=0.0)
            _number(f"levels[{i}].rent_per_h", level.rent_per_h, least=0.0)
        if not any(level.running for level in self.levels):
            raise ProblemError("levels", "has no level with speed > 0")
        _matrix("switch.time_s", self.switch_s, count)
        _matrix("switch.power_w", self.switch_w, count)
        for i, (times, watts) in enumerate(zip(self.switch_s, self.switch_w, strict=True)):
            for j, (time, power) in enumerate(zip(times, watts, strict=True)):
                # ignored entries (the diagonal, the watts of a forbidden switch) must still be numbers
                if i != j and time is not None:
                    _number(f"switch.time_s[{i}][{j}]", time, least=0.0)
                    _number(f"switch.power_w[{i}][{j}]", power, least=0.0)
                else:
                    _number(f"switch.time_s[{i}][{j}]", 0.0 if time is None else time)
                    _number(f"switch.power_w[{i}][{j}]", power)
        for name, value in (("min_run_slots", self.min_run_slots), ("min_pause_slots", self.min_pause_slots)):
            _integer(name, value, least=1)
        if self.max_resumes is not None:
            _integer("max_resumes", self.max_resumes, least=0)
        _integer("initial.level", self.initial_level, least=0)
        if self.initial_level >= count:
            raise ProblemError("initial.level", f"is {self.initial_level}, but there are {count} levels")
        _integer("initial.age_slots", self.initial_age_slots, least=1)
        _number("work_s", self.work_s, least=0.0)
        _number("host_w", self.host_w, least=0.0)
        _number("pue", self.pue, above=0.0)
        _number("alpha", self.alpha, least=0.0)
        _number("beta", self.beta, least=0.0)
        if self.shadow_per_h is not None:
            _same_length("slots.shadow_per_h", self.shadow_per_h, slots)
            for i, row in enumerate(self.shadow_per_h):
                if len(row) != count:
                    raise ProblemError(f"slots.shadow_per_h[{i}]", f"has {len(row)} entries, there are {count} levels")
                _numbers(f"slots.shadow_per_h[{i}]", row, least=0.0)

    @property
    def deadline_s(self) -> float:
        """Seconds from the start of slot 0 to the end of the horizon."""
        return math.fsum(self.dur_s)

    @property
    def fastest(self) -> int:
        """The level of highest speed, the first on ties: what 'at full speed' means."""
        return max(range(len(self.levels)), key=lambda j: (self.levels[j].speed, -j))

    @property
    def finish_tolerance(self) -> float:
        """Remaining work below this counts as done; relative, as the rounding of float sums is."""
        return 1e-9 * max(1.0, self.work_s)

    @classmethod
    def from_json(cls, text: str) -> Problem:
        """Read the JSON text of a problem; ProblemError names what is wrong."""
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ProblemError("problem", f"is not JSON ({error})") from None
        return problem_from_dict(data)

    def to_dict(self) -> dict[str, Any]:
        """The JSON-able form, exactly per the schema; floats survive a round trip to the last bit."""
        levels = []
        for level in self.levels:
            entry: dict[str, Any] = {"name": level.name, "power_w": level.power_w, "speed": level.speed}
            if level.rent_per_h:
                entry["rent_per_h"] = level.rent_per_h
            levels.append(entry)
        data: dict[str, Any] = {
            "schema": SCHEMA,
            "slots": {
                "dur_s": list(self.dur_s),
                "ci_g_per_kwh": list(self.ci_g_per_kwh),
                "price_per_kwh": None if self.price_per_kwh is None else list(self.price_per_kwh),
            },
            "levels": levels,
            "switch": {"time_s": [list(row) for row in self.switch_s], "power_w": [list(row) for row in self.switch_w]},
            "min_run_slots": self.min_run_slots,
            "min_pause_slots": self.min_pause_slots,
            "max_resumes": self.max_resumes,
            "initial": {"level": self.initial_level, "age_slots": self.initial_age_slots},
            "work_s": self.work_s,
            "host_w": self.host_w,
            "pue": self.pue,
            "alpha": self.alpha,
            "beta": self.beta,
        }
        if self.shadow_per_h is not None:
            data["slots"]["shadow_per_h"] = [list(row) for row in self.shadow_per_h]
        if self.meta:
            data["meta"] = self.meta
        return data

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), allow_nan=False)


FILE_MOST = 2**26
"""Characters; a year of quarter hours with a hundred levels is a tenth of this, and a device never ends."""


def load_problem(path: str | Path) -> Problem:
    """The problem in the JSON file at `path`. Raises ProblemError (bad content) or OSError (no such file)."""
    try:
        with Path(path).open(encoding="utf-8") as file:
            text = file.read(FILE_MOST + 1)
    except UnicodeDecodeError:
        raise ProblemError("problem", f"{path} is not UTF-8 text") from None
    if len(text) > FILE_MOST:
        raise ProblemError("problem", f"{path} has more than {FILE_MOST} characters: not a problem file")
    return Problem.from_json(text)


_TOP = {
    "schema",
    "slots",
    "levels",
    "switch",
    "min_run_slots",
    "min_pause_slots",
    "max_resumes",
    "initial",
    "work_s",
} | {
    "host_w",
    "pue",
    "alpha",
    "beta",
    "meta",
}


def shortened(problem: Problem, until_s: float) -> Problem:
    """The same problem with a deadline at the end of the slot that contains `until_s`."""
    ends = list(accumulate(problem.dur_s))
    keep = next((k + 1 for k, end in enumerate(ends) if end >= until_s - 1e-6), len(ends))
    price, shadow = problem.price_per_kwh, problem.shadow_per_h
    return replace(
        problem,
        dur_s=problem.dur_s[:keep],
        ci_g_per_kwh=problem.ci_g_per_kwh[:keep],
        price_per_kwh=None if price is None else price[:keep],
        shadow_per_h=None if shadow is None else shadow[:keep],
    )


def problem_from_dict(data: Any) -> Problem:
    """A `Problem` from its JSON-able form. Unknown keys are refused by name; ProblemError names the field."""
    top = _object("problem", data, _TOP, required={"slots", "levels", "switch", "initial", "work_s"})
    if top.get("schema", SCHEMA) != SCHEMA:
        raise ProblemError("schema", f"is {top['schema']!r}; this program reads {SCHEMA!r}")
    known = {"dur_s", "ci_g_per_kwh", "price_per_kwh", "shadow_per_h"}
    slots = _object("slots", top["slots"], known, required={"dur_s", "ci_g_per_kwh"})
    switch = _object("switch", top["switch"], {"time_s", "power_w"}, required={"time_s", "power_w"})
    initial = _object("initial", top["initial"], {"level", "age_slots"}, required={"level"})
    levels = []
    for i, raw in enumerate(_list("levels", top["levels"])):
        entry = _object(
            f"levels[{i}]", raw, {"name", "power_w", "speed", "rent_per_h"}, required={"name", "power_w", "speed"}
        )
        if not isinstance(entry["name"], str):
            raise ProblemError(f"levels[{i}].name", "is not a string")
        levels.append(ProblemLevel(**entry))
    price, shadow = slots.get("price_per_kwh"), slots.get("shadow_per_h")
    meta = top.get("meta")
    if meta is not None and not isinstance(meta, dict):
        raise ProblemError("meta", "is not an object")
    age = initial.get("age_slots", FREE_AGE)
    optional = {
        name: top[name]
        for name in ("min_run_slots", "min_pause_slots", "max_resumes", "host_w", "pue", "alpha", "beta")
        if name in top
    }
    return Problem(
        dur_s=tuple(_list("slots.dur_s", slots["dur_s"])),
        ci_g_per_kwh=tuple(_list("slots.ci_g_per_kwh", slots["ci_g_per_kwh"])),
        price_per_kwh=None if price is None else tuple(_list("slots.price_per_kwh", price)),
        levels=tuple(levels),
        switch_s=_rows("switch.time_s", switch["time_s"]),
        switch_w=_rows("switch.power_w", switch["power_w"]),
        initial_level=initial["level"],
        # 0 is ambiguous in a file and read as 'just entered'
        initial_age_slots=1 if age == 0 and not isinstance(age, bool) else age,
        work_s=top["work_s"],
        shadow_per_h=None if shadow is None else _rows("slots.shadow_per_h", shadow),
        meta=dict(meta or {}),
        **optional,
    )


def _object(where: str, data: Any, known: set[str], required: set[str]) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise ProblemError(where, "is not an object")
    prefix = "" if where == "problem" else f"{where}."
    for key in data:
        if key not in known:
            raise ProblemError(f"{prefix}{key}", "is not a key of this format")
    for key in sorted(required):
        if key not in data:
            raise ProblemError(f"{prefix}{key}", "is missing")
    return data


def _list(where: str, data: Any) -> list[Any]:
    if not isinstance(data, list | tuple):
        raise ProblemError(where, "is not a list")
    return list(data)


def _rows(where: str, data: Any) -> tuple[tuple[Any, ...], ...]:
    return tuple(tuple(_list(f"{where}[{i}]", row)) for i, row in enumerate(_list(where, data)))


def _same_length(where: str, values: tuple[object, ...], count: int) -> None:
    if len(values) != count:
        raise ProblemError(where, f"has {len(values)} entries, slots.dur_s has {count}")


def _matrix(where: str, rows: tuple[tuple[Any, ...], ...], count: int) -> None:
    if len(rows) != count or any(len(row) != count for row in rows):
        raise ProblemError(where, f"is not {count} x {count}, one row and column per level")


def _numbers(where: str, values: tuple[float, ...], least: float | None = None, above: float | None = None) -> None:
    for i, value in enumerate(values):
        _number(f"{where}[{i}]", value, least, above)


def _number(where: str, value: Any, least: float | None = None, above: float | None = None) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ProblemError(where, f"is {value!r}, not a number")
    if not math.isfinite(value):
        raise ProblemError(where, f"is {value}, not a finite number")
    if least is not None and value < least:
        raise ProblemError(where, f"is {value}, below {least:g}")
    if above is not None and value <= above:
        raise ProblemError(where, f"is {value}, not above {above:g}")
    if abs(value) > NUMBER_MAX:
        raise ProblemError(where, f"is {value:g}, absurdly large")


def _integer(where: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ProblemError(where, f"is {value!r}, not a whole number")
    if value < least:
        raise ProblemError(where, f"is {value}, below {least}")
