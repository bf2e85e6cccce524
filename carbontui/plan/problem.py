"""The planning problem: a job's levels, the cost of switching, the grid's forecast, the remaining work.

Immutable, free of numpy, validated when it is created: every `Problem` is valid. The JSON form is
"carbontui.problem/1"; times in it are seconds from the start of slot 0, its horizon ends at the deadline.
"""

from __future__ import annotations

import json
import math
import operator
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Annotated, NamedTuple, TypeAlias

import msgspec
from msgspec import Meta, Struct

from carbontui.units import J_PER_KWH


class Weight(NamedTuple):
    """Shares of carbon and of cost in the objective; they sum to 1."""

    carbon: float
    cost: float

    def scaled(self, ci_g_per_kwh: Sequence[float], price_per_kwh: Sequence[float]) -> tuple[float, float]:
        """(alpha, beta) of a problem: grams count by the share of carbon, and money so that a mean kWh of these
        intensities and prices is worth its share of cost, in grams. Prices count by their size: their mean may be
        zero or below. With no intensity or no price at all, the other counts alone."""
        grams = math.fsum(ci_g_per_kwh) / len(ci_g_per_kwh) if ci_g_per_kwh else 0.0
        money = math.fsum(map(abs, price_per_kwh)) / len(price_per_kwh) if price_per_kwh else 0.0
        if money <= 0 or grams <= 0:
            return (1.0, 0.0) if money > 0 else (0.0, 1.0)
        return self.cost * grams / money, self.carbon


def weighed(problem: Problem, weight: Weight | None) -> Problem:
    """The problem with the weights of its own slots; unchanged for None."""
    if weight is None:
        return problem
    alpha, beta = weight.scaled(problem.ci_g_per_kwh, problem.price_per_kwh or ())
    return replace(problem, alpha=alpha, beta=beta)


def parse_weight(weighting: str) -> Weight:
    """`carbon=0.7,cost=0.3`, in any order and of any sum above zero. Raises ValueError naming the repair."""
    repair = f"{weighting[:40]!r} is no weighting; write it like carbon=0.7,cost=0.3"
    given: dict[str, float] = {}
    for part in weighting.split(","):
        name, _, value = (piece.strip() for piece in part.partition("="))
        try:
            number = float(value)
        except ValueError:
            raise ValueError(repair) from None
        if name not in Weight._fields or name in given or not (math.isfinite(number) and number >= 0):
            raise ValueError(repair)
        given[name] = number
    total = sum(given.values())
    if total <= 0:
        raise ValueError(repair)
    return Weight(given.get("carbon", 0.0) / total, given.get("cost", 0.0) / total)


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


Number: TypeAlias = Annotated[float, Meta(ge=-NUMBER_MAX, le=NUMBER_MAX)]
Amount: TypeAlias = Annotated[float, Meta(ge=0, le=NUMBER_MAX)]
Positive: TypeAlias = Annotated[float, Meta(gt=0, le=NUMBER_MAX)]
Count: TypeAlias = Annotated[int, Meta(ge=1)]


class ProblemLevel(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One level of the job: watts of the device alone, speed in reference-speed seconds of work per second."""

    name: str
    power_w: Amount
    speed: Amount
    rent_per_h: Amount = 0.0
    embodied_g_per_h: Amount = 0.0
    """Of making the hardware, while the level is held: weighed as grams are, no part of them."""

    @property
    def running(self) -> bool:
        return self.speed > 0


class ProblemSlots(Struct, frozen=True, forbid_unknown_fields=True):
    dur_s: Annotated[tuple[Positive, ...], Meta(min_length=1, max_length=SLOTS_MAX)]
    ci_g_per_kwh: tuple[Amount, ...]
    price_per_kwh: tuple[Number, ...] | None = None
    shadow_per_h: tuple[tuple[Amount, ...], ...] | None = None


class ProblemSwitch(Struct, frozen=True, forbid_unknown_fields=True):
    time_s: tuple[tuple[Number | None, ...], ...]
    power_w: tuple[tuple[Number, ...], ...]


class ProblemInitial(Struct, frozen=True, forbid_unknown_fields=True):
    level: int
    age_slots: Annotated[int, Meta(ge=0)] = FREE_AGE


class ProblemFile(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The public form, in files and from supervisor to worker. Decoding checks single values, `problem()` the rest."""

    schema: str = SCHEMA
    slots: ProblemSlots
    levels: Annotated[tuple[ProblemLevel, ...], Meta(min_length=1, max_length=LEVELS_MAX)]
    switch: ProblemSwitch
    initial: ProblemInitial
    work_s: Amount
    min_run_slots: Count = 1
    min_pause_slots: Count = 1
    max_resumes: Annotated[int, Meta(ge=0)] | None = None
    host_w: Amount = 0.0
    pue: Positive = 1.0
    alpha: Amount = 0.0
    beta: Amount = 1.0
    price_of_time: Amount = 0.0
    meta: dict[str, object] | None = None
    """Ignored."""

    def problem(self) -> Problem:
        """The problem to be solved. Raises ProblemError, naming the field, where the parts do not fit together."""
        if self.schema != SCHEMA:
            raise ProblemError("schema", f"is {self.schema!r}; this program reads {SCHEMA!r}")
        return Problem(
            **msgspec.structs.asdict(self.slots),
            switch_s=self.switch.time_s,
            switch_w=self.switch.power_w,
            initial_level=self.initial.level,
            initial_age_slots=max(1, self.initial.age_slots),  # 0 is ambiguous in a file and read as 'just entered'
            **{name: getattr(self, name) for name in _ALIKE},
        )


@dataclass(frozen=True, slots=True)
class Problem:
    """T slots, L levels, the L x L switches between them, dwell limits, the job's current level and remaining work.

    `dur_s`, `ci_g_per_kwh`, `price_per_kwh` have T entries (prices may be negative, None is 0 everywhere); `switch_s`
    and `switch_w` are row = from, column = to (None = forbidden). `host_w` is added to every level and switch, `pue`
    multiplies every joule, the objective is alpha * cost + beta * (grams + embodied grams) + shadow + `price_of_time` *
    finish_s. Raises ProblemError, naming the field, where the parts do not fit together; single values are checked
    where they are read (`problem_from_dict`).
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
    price_of_time: float = 0.0
    """Of each second until the finish, in units of the objective; no part of grams, cost and energy."""
    shadow_per_h: tuple[tuple[float, ...], ...] | None = None
    """T x L: shadow price of an hour at a level in a slot, for watts that other jobs need as well. Added to the
    objective only; grams, cost and energy do not include it."""

    def __post_init__(self) -> None:
        slots, count = len(self.dur_s), len(self.levels)
        for name, values in (("ci_g_per_kwh", self.ci_g_per_kwh), ("price_per_kwh", self.price_per_kwh)):
            if values is not None and len(values) != slots:
                raise ProblemError(f"slots.{name}", f"has {len(values)} entries, slots.dur_s has {slots}")
        if not any(level.running for level in self.levels):
            raise ProblemError("levels", "has no level with speed > 0")
        for name, rows in (("time_s", self.switch_s), ("power_w", self.switch_w)):
            if len(rows) != count or any(len(row) != count for row in rows):
                raise ProblemError(f"switch.{name}", f"is not {count} x {count}, one row and column per level")
        for i, (times, watts) in enumerate(zip(self.switch_s, self.switch_w, strict=True)):
            for j, (time, power) in enumerate(zip(times, watts, strict=True)):
                # the diagonal, and the watts of a forbidden switch, are ignored
                if i != j and time is not None and min(time, power) < 0:
                    name = "time_s" if time < 0 else "power_w"
                    raise ProblemError(f"switch.{name}[{i}][{j}]", f"is {min(time, power)}, below 0")
        if not 0 <= self.initial_level < count:
            raise ProblemError("initial.level", f"is {self.initial_level}, but there are {count} levels")
        for i, row in enumerate(self.shadow_per_h or ()):
            if len(row) != count or len(self.shadow_per_h or ()) != slots:
                raise ProblemError(f"slots.shadow_per_h[{i}]", f"is not {slots} x {count}, a row per slot")

    @property
    def deadline_s(self) -> float:
        """Seconds from the start of slot 0 to the end of the horizon."""
        return math.fsum(self.dur_s)

    @property
    def worth_per_kwh(self) -> tuple[float, ...]:
        """Units of the objective for a kWh, by slot."""
        prices = self.price_per_kwh or (0.0,) * len(self.dur_s)
        return tuple(self.alpha * p + self.beta * ci for p, ci in zip(prices, self.ci_g_per_kwh, strict=True))

    @property
    def fastest(self) -> int:
        """The level of highest speed, the first on ties: what 'at full speed' means."""
        return max(range(len(self.levels)), key=lambda j: (self.levels[j].speed, -j))

    @property
    def finish_tolerance(self) -> float:
        """Remaining work below this counts as done; relative, as the rounding of float sums is."""
        return 1e-9 * max(1.0, self.work_s)

    @classmethod
    def from_json(cls, text: str, name: str = "it") -> Problem:
        """Read the JSON text of a problem, called by `name`; ProblemError names what is wrong."""
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ProblemError("problem", f"{name} is not JSON ({error})") from None
        return problem_from_dict(data)

    def to_dict(self) -> dict[str, object]:
        """The public form; floats survive a round trip to the last bit."""
        file = ProblemFile(
            slots=ProblemSlots(self.dur_s, self.ci_g_per_kwh, self.price_per_kwh, self.shadow_per_h),
            switch=ProblemSwitch(self.switch_s, self.switch_w),
            initial=ProblemInitial(self.initial_level, self.initial_age_slots),
            **{name: getattr(self, name) for name in _ALIKE},
        )
        return dict(msgspec.to_builtins(file))


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
    return Problem.from_json(text, str(path))


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


def run_now_mean(problem: Problem) -> float:
    """Units of the objective per kWh: the time mean while the work is done from slot 0 on at full speed."""
    takes_s = min(problem.work_s / problem.levels[problem.fastest].speed, problem.deadline_s)
    begins = accumulate(problem.dur_s, initial=0.0)
    spent_s = [max(0.0, min(dur_s, takes_s - at_s)) for dur_s, at_s in zip(problem.dur_s, begins, strict=False)]
    total = math.fsum(map(operator.mul, spent_s, problem.worth_per_kwh))
    return max(0.0, total / math.fsum(spent_s)) if takes_s > 0 else 0.0


def price_of_time(problem: Problem, patience_pct: float, mean_per_kwh: float | None = None) -> float:
    """Units of the objective per second, where an hour of later finish must save `patience_pct` percent of what an hour
    at full speed takes on a grid of `mean_per_kwh` units per kWh (None: the mean while it would run now)."""
    full, mean = problem.levels[problem.fastest], run_now_mean(problem) if mean_per_kwh is None else mean_per_kwh
    held = problem.alpha * full.rent_per_h + problem.beta * full.embodied_g_per_h
    return patience_pct / 100 * ((full.power_w + problem.host_w) * problem.pue * mean / J_PER_KWH + held / 3600)


def problem_from_dict(data: object) -> Problem:
    """A `Problem` from its JSON-able form. Unknown keys are refused by name; ProblemError names the field."""
    try:
        return msgspec.convert(data, ProblemFile).problem()
    except msgspec.ValidationError as error:
        raise _refusal(str(error), data) from None


_ALIKE = tuple(name for name in ProblemFile.__struct_fields__ if name in Problem.__dataclass_fields__)
"""What both call by one name."""


def _refusal(line: str, data: object) -> ProblemError:
    """msgspec's "Expected `float` >= 0.0 - at `$.levels[1].power_w`" with the field in front, and its value."""
    what, _, path = line.partition(" - at `$")
    place = path.rstrip("`").lstrip(".")
    key = re.fullmatch(r"Object (?:contains unknown|(missing) required) field `(.*)`", what)
    if key is not None:
        problem = "is missing" if key[1] else "is not a key of this format"
        return ProblemError(".".join(filter(None, (place, key[2]))), problem)
    for step in re.findall(r"\w+", place):
        if isinstance(data, list | tuple):
            data = data[int(step)]
        elif isinstance(data, dict):
            data = data[step]
    return ProblemError(place or "problem", f"is {repr(data)[:40]}: {what[0].lower()}{what[1:].replace('`', '')}")
