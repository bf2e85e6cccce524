"""How much work there is, how much is done, and how fast: in reference-speed seconds of the job's clock.

The reference is the speed of this job at full speed. Work is known from --work, from --steps or a reported total once
the reference rate has been measured; while it is unknown nothing is paused or delayed.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from typing import Annotated

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from carbontui import units
from carbontui.account.estimate import Blocks
from carbontui.job.terms.spec import Options

MIN_STEPS = 5
MIN_WALL_S = 3.0
"""A rate is trusted only after this many steps over this much time."""
MEMORY_WALL_S = 600.0
MEMORY_STEPS = 20
"""Memory of the reference rate: about this much running time and this many steps."""
CAPPED_STEPS = 20
FASTER = 1.05
"""This many steps under a cap, faster than the reference by this factor, show that the reference is too slow."""
ANY, NONE = "*", "-"
"""Acceptance of a guess from any source, and from none, however sure it is."""
GUESS_SLACK = 0.01
"""A guess without an interval is passed this far beyond it, and by more than one step."""
PAST_MOST = 100
"""How many ended processes are remembered by name."""
REPORT_WALL_S = 1.0
"""A rank reports its steps about this often: in a fast replay that is an hour of work, so it is interpolated."""

Seconds = Annotated[float, Meta(ge=0, le=units.LONGEST_S)]
Steps = Annotated[int, Meta(ge=0, le=2**53)]
"""Bounds of a kept value: the run-now baseline iterates over the work done in steps of five minutes."""


@dataclass(frozen=True, slots=True)
class Pace:
    """Steps, and how long they took on the job's clock and on the wall."""

    steps: Annotated[float, Meta(ge=0)] = 0.0
    time_s: Seconds = 0.0
    wall_s: Seconds = 0.0

    def plus(self, steps: float, time_s: float, wall_s: float) -> Pace:
        """With a new timing added; timings older than the memory are forgotten."""
        memory_s = max(MEMORY_WALL_S, MEMORY_STEPS * wall_s / steps)
        keep = max(0.0, 1.0 - wall_s / memory_s) if self.wall_s > memory_s else 1.0
        return Pace(self.steps * keep + steps, self.time_s * keep + time_s, self.wall_s * keep + wall_s)


NO_PACE, NO_BLOCKS = Pace(), Blocks()


class GuessRange(Struct, frozen=True):
    """The interval of a guessed total: `high` None for no limit, `at_most` if it is an upper bound."""

    low: Steps
    high: Steps | None
    at_most: bool
    sure: bool
    """Two sources agree, or it was borne out: good enough to plan with."""


class Progress(Struct, frozen=True):
    """What is known of the work at one moment; everything except the spans being timed survives a respawn.

    A struct, whose `replace` costs a tenth of a dataclass's: a tick replaces it seven times."""

    work_s: Seconds | None = None
    steps_total: Steps | None = None
    step: Steps = 0
    base: Steps = 0
    """Steps done before the command was last started."""
    starts: Steps = 0
    earlier: Steps = 0
    """Steps done by other jobs, from whose checkpoint the training started. Not work of this job."""
    before: Steps = 0
    """Steps of the trainings that ended before this one, if a command runs several in sequence."""
    processes: tuple[str, ...] | None = None
    """The training processes that count from `before`; None before the first."""
    past: tuple[str, ...] = ()
    """Training processes that have been succeeded by others: counts they left in files are already included."""
    told_total: Steps | None = None
    """`steps_total` as stated by the script; the user's --steps takes precedence."""
    guess: tuple[Steps, str] | None = None
    """Total steps guessed from the script's environment, and the source; counted like `steps_total`."""
    guess_range: GuessRange | None = None
    """Of the guess, counted like it."""
    guess_by: str = ""
    """The process that made it."""
    withdrawn: tuple[Steps, str] | None = None
    """The last guess that was planned with and proved wrong, until another is planned with."""
    agreed: str = ""
    """The source of the guess that the user accepted for planning; ANY with `run --guess`, NONE if he refused, '' if he
    said nothing: then one that is sure is planned with."""
    plain_done_s: Seconds = 0.0
    """Reference-speed seconds run, from the clock and the speeds of the levels."""
    ref_steps: Annotated[float, Meta(ge=0)] = 0.0
    ref_time_s: Seconds = 0.0
    ref_wall_s: Seconds = 0.0
    ahead_s: Seconds = 0.0
    """Reference-speed seconds run since the last reported step."""
    quiet_wall_s: Seconds = 0.0
    span_s: Seconds | None = None
    """How long it ran at full speed, or under caps, since the last reported step; None: not for all of that time."""
    span_wall_s: Seconds = 0.0
    span_capped: bool = False
    """The span was run under a cap."""
    capped: Pace = NO_PACE
    """Steps under caps since the last timing at full speed."""
    given_rate: Annotated[float, Meta(gt=0)] | None = None
    """Reference steps per job second, if measured beforehand by the caller (demo)."""
    blocks: Blocks = NO_BLOCKS
    """Step times at full speed, for the interval of the estimate."""
    core_wait: Annotated[float, Meta(ge=0, le=1)] = 0.0
    """Share of full-speed time in which the training was runnable and waited for a core; same memory as the rate."""
    span_wait_s: Seconds = 0.0
    fresh_steps: Steps = 0
    """Steps reported since `ran` or `rested` was last called."""

    @property
    def guessed(self) -> bool:
        """`steps_total` is a guess that the user accepted."""
        return bool(self.guess and self._agrees and self.steps_total == self.told_total == self.guess[0])

    @property
    def passed(self) -> bool:
        """More steps are done than the user or the script has stated in all."""
        total = None if self.guessed else self.steps_total
        return total is not None and self.step > total * (1 + GUESS_SLACK) + 1

    @property
    def _agrees(self) -> bool:
        if self.guess is None or self.agreed == NONE:
            return False
        return self.agreed in (ANY, self.guess[1]) or (self.guess_range is not None and self.guess_range.sure)

    @property
    def ref_rate(self) -> float | None:
        """Reference-speed steps per second of the job's clock; None until measured. No cap makes a training faster: if
        it has run faster under one since it last ran at full speed (others left the machine), that is the reference."""
        rate = self.given_rate
        if self.ref_steps >= MIN_STEPS and self.ref_wall_s >= MIN_WALL_S and self.ref_time_s > 0:
            rate = self.ref_steps / self.ref_time_s
        under = self.capped
        if rate and under.steps >= CAPPED_STEPS and under.wall_s >= MIN_WALL_S and under.time_s > 0:
            return max(rate, under.steps / under.time_s / FASTER)
        return rate

    @property
    def total_s(self) -> float | None:
        """The whole work in reference-speed seconds, the user's figure first: a budget is a multiple of it. None while
        unknown."""
        return self.work_s if self.work_s is not None else self._by_steps

    @property
    def _by_steps(self) -> float | None:
        if self.steps_total is None or not self.ref_rate:
            return None
        return _believed(max(0, self.steps_total - self.earlier) / self.ref_rate)

    @property
    def steps_done(self) -> int:
        """Steps that this job has done itself."""
        return max(0, self.step - self.earlier)

    @property
    def done_s(self) -> float:
        """How long the work done so far takes at full speed, at the measured rate if there is one."""
        rate = self.ref_rate
        by_steps = _believed(self.steps_done / rate) if rate and self.step else None
        return self.plain_done_s if by_steps is None else by_steps

    @property
    def left_s(self) -> float | None:
        """The work left in reference-speed seconds: by steps and the measured rate where both are known, since --work
        is an estimate; less what ran since the last reported step. None while unknown."""
        rate = self.ref_rate
        by_steps = _believed((self.steps_total - self.step) / rate) if self.steps_total is not None and rate else None
        if by_steps is not None:
            return max(0.0, by_steps - self.ahead_s)
        if self.work_s is None:
            return None
        return max(0.0, self.work_s - self.done_s - (self.ahead_s if rate and self.step else 0.0))

    @property
    def longest_left_s(self) -> float | None:
        """`left_s` at the upper end of a guessed total: what must fit before a deadline."""
        left, rate, bounds = self.left_s, self.ref_rate, self.guess_range
        if left is None or not rate or not self.guessed or bounds is None or self.steps_total is None:
            return left
        more = _believed(max(0, (bounds.high or 0) - self.steps_total) / rate)
        return left if more is None else left + more


def _believed(seconds: float) -> float | None:
    """Work in seconds if plausible, else None: a data set without a length reports the largest integer."""
    return seconds if seconds <= units.LONGEST_S else None


def begun(spec: Options) -> Progress:
    """The initial progress of a job, from the options of `run`."""
    agreed = ANY if spec.guess else ""
    return Progress(work_s=spec.work_s, steps_total=spec.steps, given_rate=spec.ref_rate, agreed=agreed)


def with_start(known: Progress, starts: int) -> Progress:
    """The keeper started the command for the `starts`-th time: steps continue from where they were."""
    if starts <= known.starts:
        return known
    return replace(known, starts=starts, base=known.step if known.starts else known.base)


def begun_again(known: Progress, step: int) -> Progress:
    """The training restarts from an earlier `step`; its measured speed is kept."""
    known = _over(known, known.processes or ())
    return rested(replace(known, step=step, base=step, before=0, plain_done_s=0.0, processes=None))


def _over(known: Progress, processes: tuple[str, ...]) -> Progress:
    return replace(known, past=(*known.past, *processes)[-PAST_MOST:])


def with_process(known: Progress, process: str, alive: Set[str], *, fresh: bool) -> Progress:
    """A training process has been heard. A `fresh` one (it reported no resume, and no launcher restarted it) with no
    other `alive` is the next training of the command; alongside another it is one of a pair."""
    if known.processes is None:
        return replace(known, processes=(process,))
    if process in known.processes:
        return known
    others = tuple(other for other in known.processes if other in alive)
    known = _over(known, tuple(other for other in known.processes if other not in alive))
    if not others and fresh:
        known = replace(known, before=known.step, base=known.step, blocks=NO_BLOCKS)
        if known.told_total is not None:
            known = replace(known, steps_total=None, told_total=None)
        known = replace(known, guess=None, guess_range=None, withdrawn=None)
    return replace(known, processes=(*others, process))


def with_step(known: Progress, step: int, start_step: int, total: int | None) -> Progress:
    """A rank's newest count. The script's total applies unless the user gave one."""
    began = known.before + start_step if start_step else known.base
    absolute = began + step
    new = max(0, absolute - known.step)
    if new:
        made = min(new, step)
        earlier = known.earlier + new - made
        known = replace(known, step=absolute, fresh_steps=known.fresh_steps + made, earlier=earlier)
    if total and known.steps_total == known.told_total:
        told = known.before + total
        if len(known.processes or ()) > 1:  # a pair: the longer one
            told = max(told, known.told_total or 0)
        known = replace(known, steps_total=told, told_total=told)
    return known


def with_guess(
    known: Progress,
    guess: tuple[int, str] | None,
    total: int | None,
    bounds: tuple[int, int | None, bool, bool] | None = None,
    process: str = "",
) -> Progress:
    """A rank's guess when it knows no `total`: planned with if it is sure, or the user accepted its source. Withdrawn
    when the process that made it offers it no longer, or the steps have passed it."""
    if total is not None:
        return replace(known, guess=None, guess_range=None, withdrawn=None) if known.guess else known
    if guess is not None:
        if known.guess is None and known.steps_total == known.told_total and len(known.processes or ()) < 2:
            known = replace(known, steps_total=None, told_total=None)  # what was known is so no longer
        whole = None
        if bounds is not None:
            low, high, at_most, sure = bounds
            low, high = known.before + low, None if high is None else known.before + high
            whole = GuessRange(low, high, at_most, sure)
        made = replace(known, guess=(known.before + guess[0], guess[1]), guess_range=whole, guess_by=process)
        if known.guessed and not known.agreed and not made._agrees:  # no longer sure: the total is open again
            made = replace(made, withdrawn=known.guess, steps_total=None, told_total=None)
        known = made
        if not _passed(known):
            return _with_guess(known)
    elif known.guess is None or (known.guess_by != process and not _passed(known)):
        return known
    return _without_guess(known)


def _passed(known: Progress) -> bool:
    if known.guess is None:
        return False
    steps, bounds = known.guess[0], known.guess_range
    return known.step > max(steps * (1 + GUESS_SLACK) + 1, (bounds.high or 0) if bounds is not None else 0)


def _without_guess(known: Progress) -> Progress:
    """Nothing is guessed any more."""
    if known.guessed:
        known = replace(known, withdrawn=known.guess, steps_total=None, told_total=None)
    return replace(known, guess=None, guess_range=None)


def agree(known: Progress, source: str) -> Progress:
    """The user accepts guesses of this source for planning; NONE refuses all."""
    if known.guessed:
        known = replace(known, steps_total=None, told_total=None)
    return _with_guess(replace(known, agreed=source))


def _with_guess(known: Progress) -> Progress:
    if known.guess is None or not known._agrees or known.steps_total != known.told_total:
        return known
    return replace(known, steps_total=known.guess[0], told_total=known.guess[0], withdrawn=None)


def ran(
    known: Progress,
    dt_s: float,
    dt_wall_s: float,
    speed: float,
    *,
    reference: bool,
    capped: bool = False,
    core_wait_s: float = 0.0,
) -> Progress:
    """`dt_s` of the job's clock passed while running. `reference`: at full speed, which updates the reference rate;
    `capped`: under a cap all the time, which may show that the reference is too slow. For `core_wait_s` of `dt_wall_s`
    the training was runnable and waited for a core."""
    new = known.fresh_steps
    bridged = _bridge(replace(known, plain_done_s=known.plain_done_s + dt_s * speed), dt_s * speed, dt_wall_s)
    known = replace(bridged, fresh_steps=0)
    if not (reference or capped):
        return replace(known, span_s=None)
    if known.span_capped != capped:
        known = replace(known, span_s=None, span_capped=capped)
    if known.span_s is not None:
        known = replace(
            known,
            span_s=known.span_s + dt_s,
            span_wall_s=known.span_wall_s + dt_wall_s,
            span_wait_s=known.span_wait_s + core_wait_s,
        )
        if new and known.span_s is not None:
            known = _learn(known, new, known.span_s, known.span_wall_s)
    return replace(known, span_s=0.0, span_wall_s=0.0, span_wait_s=0.0) if new else known


def _learn(known: Progress, steps: int, time_s: float, wall_s: float) -> Progress:
    """Update the rate with the steps between two reports in the same running state, and their duration."""
    if known.span_capped:
        return replace(known, capped=known.capped.plus(steps, time_s, wall_s))
    pace = Pace(known.ref_steps, known.ref_time_s, known.ref_wall_s).plus(steps, time_s, wall_s)
    waited = min(1.0, known.span_wait_s / wall_s) if wall_s > 0 else known.core_wait
    weight = wall_s / pace.wall_s if pace.wall_s > 0 else 1.0
    return replace(
        known,
        core_wait=known.core_wait + min(1.0, weight) * (waited - known.core_wait),
        blocks=known.blocks.plus(steps, time_s),
        ref_steps=pace.steps,
        ref_time_s=pace.time_s,
        ref_wall_s=pace.wall_s,
        capped=NO_PACE,
    )


def rested(known: Progress) -> Progress:
    """The job is paused at a reported step."""
    return replace(known, ahead_s=0.0, quiet_wall_s=0.0, span_s=None, fresh_steps=0)


def _bridge(known: Progress, worth_s: float, dt_wall_s: float) -> Progress:
    """Time since the last report counts as work until the next is due, or within one step: a stall counts nothing."""
    if known.fresh_steps:
        return replace(known, ahead_s=0.0, quiet_wall_s=0.0)
    rate, quiet = known.ref_rate, known.quiet_wall_s + dt_wall_s
    earned = quiet < REPORT_WALL_S or (rate and known.ahead_s + worth_s < 1.0 / rate)
    return replace(known, quiet_wall_s=quiet, ahead_s=known.ahead_s + (worth_s if earned else 0.0))


def restored(known: Progress, kept: object) -> Progress:
    """`known` with what a predecessor kept; time run since then was not measured.

    Raises msgspec.ValidationError on an invalid field.
    """
    return rested(msgspec.convert({**msgspec.to_builtins(known), **msgspec.convert(kept or {}, dict)}, Progress))
