"""The wire: every message of job.sock as a struct, one JSON object per line, ``{"t": type, ...}``.

Level-triggered: a message says what is so, never what changed, except `delta`, whose `seq` shows a gap. Unknown
fields and unknown types are ignored; every known field is validated (finite, in range) before any is applied. A line to
a viewer holds at most `VIEWER_LINE_MAX` bytes, any other `LINE_MAX`. Times are RFC 3339 with milliseconds and Z.

The training process speaks the same messages with the standard library's json (carbontui.client); the golden
files in tests/golden hold both ends to the same form.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeGuard, get_args

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

VERSION = 1
STATUS_SCHEMA = "carbontui.status/1"
LINE_MAX = 64 * 1024
VIEWER_LINE_MAX = 1024 * 1024
LEASE_S = 15.0
RENEW_S = 3.0
SILENT_S = 6.0
"""A supervisor without a heartbeat for this long is replaced."""
FRONTIER_POINTS_MAX = 64

Time = str
NonNegative = Annotated[float, Meta(ge=0, le=1e18)]
Count = Annotated[int, Meta(ge=0, le=2**53)]
Mode = Literal["run", "pause", "unload"]
Verb = Literal["pause", "boost", "cap", "resume", "budget", "stop", "calibrate", "guess", "forbid", "allow", "rehearse"]
State = Literal[
    "starting",
    "waiting",
    "running",
    "throttled",
    "pausing",
    "paused",
    "unloaded",
    "done",
    "failed",
    "stopped",
    "lost",
]
LIVE_STATES: frozenset[str] = frozenset(
    {"starting", "waiting", "running", "throttled", "pausing", "paused", "unloaded"}
)
ReasonCode = Literal[
    "starting",  # processes are coming up
    "plan",  # this is what the plan says for now
    "plan_wait",  # not started yet: the plan begins later
    "override",  # a person said so
    "no_work",  # the amount of work is unknown: nothing is paused or delayed
    "no_zone",  # the grid zone is unknown or ambiguous: no shifting in time
    "no_grid",  # no source answers and nothing to fall back on: caps only
    "feed_lost",  # the source fell silent; the plan is kept
    "no_boundary",  # asked to pause, and no step has ended since
    "no_client",  # no training loop has connected (no step yet)
    "deadline",  # flat out is needed to finish in time
    "late",  # flat out and still late
    "max_pause",  # the longest pause allowed is over
    "calibrating",  # measuring the speed-per-watt curve, rehearsing an unload, or a try before the start
    "unguarded",  # the keeper is gone: no restart
    "exited",  # the command ended by itself
    "signalled",  # a signal ended the command
    "stop",  # a person stopped it
    "budget_stop",  # an energy, carbon or cost budget caps, pauses or stopped it
    "vanished",  # the child is gone and nobody saw its exit status
]
How = Literal["measured", "integrated", "estimated", "default", "forecast", "simulated", "replay"]
LevelKind = Literal["off", "unload", "pause", "duty", "cap", "full"]


def is_level_kind(word: str) -> TypeGuard[LevelKind]:
    return word in get_args(LevelKind)


# --- what `status --json` prints -------------------------------------------------------------------------------


class Reason(Struct, frozen=True):
    """Why the state is what it is: a code of the closed list, and a sentence for people."""

    code: ReasonCode
    text: str


class Next(Struct, frozen=True):
    """The next planned change of level."""

    at: Time
    level: str


class Override(Struct, frozen=True):
    """A person's word, around which the rest is planned. `value_w` is watts per GPU for cap."""

    mode: Literal["pause", "boost", "cap"]
    value_w: NonNegative | None
    until: Time | None
    """Null: until cleared. Of one set `until next` the time at which the level was planned to change."""
    by: str


class BudgetStatus(Struct, frozen=True):
    """The finish time allowed; `factor` is the multiple of flat-out time, null while the work is unknown."""

    start: Time
    deadline: Time | None
    factor: float | None
    work_known: bool


class Pids(Struct, frozen=True):
    keeper: int | None
    supervisor: int | None
    agent: int | None
    child: int | None


class Gpu(Struct, frozen=True):
    """One board. `parked_w` is what it draws while paused with the model in VRAM, once learned."""

    uuid: str
    name: str
    power_w: float | None = None
    limit_w: float | None = None
    parked_w: float | None = None
    memory_used_b: int | None = None
    util: float | None = None
    """Busy share, 0..1."""
    index: int | None = None
    """The driver's number of the board, which need not be its place in this list."""
    own_w: float | None = None
    """The part of `power_w` that is this job's, where others use the board too; null where nobody does."""
    node: str | None = None
    """The machine it is in, of a job on several."""
    temp_c: float | None = None
    sm_mhz: float | None = None
    slowed: str = ""
    """What holds its clock down, in words; '' where nothing does."""


class Cost(Struct, frozen=True):
    value: float
    currency: str


class Intensity(Struct, frozen=True):
    """Carbon intensity now. `signal` says average_lifecycle, average_direct, marginal, or given: by a
    person (`--grid FILE`), who has not said which."""

    value_g_per_kwh: float
    signal: str
    zone: str


class ForecastError(Struct, frozen=True):
    """How good this machine's forecasts of the zone's intensity have been `lead_h` ahead.

    `error` is a share of the level, as is `naive`, that of the same hour of the last known day; `coverage` is the share
    of the judged `hours` that lay inside the 80 % band."""

    lead_h: int
    hours: int
    error: float
    naive: float | None = None
    coverage: float | None = None


class Exit(Struct, frozen=True):
    """How the command ended: one of the two is null."""

    code: int | None
    signal: int | None
    at: Time | None = None
    """When, on the job's clock; null where nobody saw it."""


class Certificate(Struct, frozen=True):
    """How far the plan can be above the optimum of its forecast: (objective - lower_bound) / objective."""

    lower_bound: float
    gap: float
    stage: int


class Provenance(Struct, frozen=True):
    """Where a number comes from, and how old it is."""

    how: How
    source: str
    age_s: float | None = None


class ForbiddenHours(Struct, frozen=True):
    """Hours in which the training must not run, as a person said; of daily ones the next. `text` is them in words."""

    start: Time
    end: Time
    daily: bool = False
    by: str = ""
    text: str = ""


class Event(Struct, frozen=True):
    """Something that happened to the job, in a line: a person's word, a change of state, a new plan and why."""

    at: Time
    kind: str
    text: str
    by: str = ""


class AtEnd(Struct, frozen=True, kw_only=True):
    """What the whole job is expected to come to: what it has used so far, and the rest as planned. `lo` and `hi` bound
    80 % of the error of the grid's forecast; null where there is no band, or run-now is not known yet."""

    finish: Time
    energy_wall_kwh: float
    gco2_g: float
    gco2_lo_g: float | None = None
    gco2_hi_g: float | None = None
    run_now_g: float | None = None
    """The same work flat out from the start: on realised intensity up to now, on the forecast beyond."""
    avoided_g: float | None = None
    """`run_now_g` less `gco2_g`: negative where the plan emits more."""
    avoided_lo_g: float | None = None
    avoided_hi_g: float | None = None
    cost: Cost | None = None


class Estimate(Struct, frozen=True, kw_only=True):
    """The whole work flat out, from the steps timed so far: `lo` and `hi` are a 95 % interval. Energy is that of the
    time at the measured watts flat out, null until they are."""

    work_s: float
    work_lo_s: float
    work_hi_s: float
    energy_wall_kwh: float | None = None
    energy_lo_kwh: float | None = None
    energy_hi_kwh: float | None = None
    gco2_g: float | None = None
    """Flat out from the job's start on the grid as it was and is expected; its interval holds the forecast's error."""
    gco2_lo_g: float | None = None
    gco2_hi_g: float | None = None
    cost: float | None = None
    """In the job's currency, rent included; null without one, or where no price is known."""
    cost_lo: float | None = None
    cost_hi: float | None = None
    currency: str | None = None
    drifting: bool = False
    """Steps become slower or faster: the interval does not cover what that will go on to do."""
    drift: float = 0.0
    """The change over what was timed, as a share of the mean."""
    steps_seen: int = 0
    core_wait: float = 0.0
    """Share of that time for which the training was ready and waited for a core. The interval holds that the other
    programs leave, and that they become twice as many."""


class Guess(Struct, frozen=True):
    """How many steps the training will make in all, guessed: nothing is planned with it before a person agrees."""

    steps: Count
    source: str
    """Like "CosineAnnealingLR(T_max=)"."""
    agreed: bool = False
    """A person has agreed: `steps_total` follows it until the script says otherwise."""


class Allowance(Struct, frozen=True, kw_only=True):
    """A carbon, cost or energy budget of the job: `most`, `used` and `expected` (at the end; null while that is not
    known) in `unit`. `used_up_at` is when nothing will be left, null where it lasts to the end."""

    kind: Literal["carbon", "cost", "energy"]
    most: float
    unit: str
    used: float
    expected: float | None = None
    used_up_at: Time | None = None
    act: str | None = None
    """What is being done about it: warn, cap, ask, pause or stop."""


class Status(Struct, frozen=True, kw_only=True):
    """The whole truth about one job at `measured_at`; the body of `status --json` and of snapshot.json."""

    schema: str = STATUS_SCHEMA
    job: str
    name: str
    host: str
    measured_at: Time
    state: State
    reason: Reason
    level: str | None = None
    next: Next | None = None
    override: Override | None = None
    override_gen: int = 0
    forbidden: tuple[ForbiddenHours, ...] = ()
    budget: BudgetStatus | None = None
    finish_expected: Time | None = None
    pids: Pids = Pids(None, None, None, None)
    clients: int = 0
    step: int = 0
    steps_total: int | None = None
    work_done_s: float | None = None
    """Seconds of work done, flat out; null while the whole of it is not known."""
    work_total_s: float | None = None
    guess: Guess | None = None
    """Null where the total is known otherwise, or nothing tells."""
    rate_steps_per_s: float | None = None
    loss: float | None = None
    epoch: float | None = None
    metrics: dict[str, float] = {}
    """What the script reports of its own: carbontui.report(metrics=...)."""
    gpus: tuple[Gpu, ...] = ()
    power_w: float | None = None
    energy_gpu_kwh: float = 0.0
    energy_wall_kwh: float = 0.0
    gco2_g: float | None = None
    avoided_g: float | None = None
    cost: Cost | None = None
    at_end: AtEnd | None = None
    """Expected when the work is done; null while that cannot be said, and once the job is over."""
    estimate: Estimate | None = None
    """Null while the number of steps is not known, or too few were timed."""
    allowances: tuple[Allowance, ...] = ()
    intensity: Intensity | None = None
    forecast_errors: tuple[ForecastError, ...] = ()
    """Empty while too few of its forecasts have been judged."""
    exit: Exit | None = None
    events: tuple[Event, ...] = ()
    """The newest words of persons, the oldest first: who did what when."""
    certificate: Certificate | None = None
    notices: tuple[str, ...] = ()
    """One line each: what a person should know (simulated device, lost feed, stale lease, unguarded...)."""
    provenance: dict[str, Provenance] = {}

    @property
    def replayed(self) -> bool:
        """Whether its clock is a replay's. A grid that was recorded for a job of now makes none of it."""
        return any(found.how == "replay" for field, found in self.provenance.items() if field != "intensity")

    @property
    def ended_at(self) -> Time:
        """When a job that is over had ended: a replay goes on for hours while its account is closed."""
        return self.exit.at if self.exit is not None and self.exit.at is not None else self.measured_at


# --- what the charts show --------------------------------------------------------------------------------------


class Watts(Struct, frozen=True):
    """Mean watts per column of time; column i covers [start + i*step_s, +step_s). Null where nothing was read."""

    start: Time
    step_s: float
    total_w: tuple[float | None, ...] = ()
    gpus_w: dict[str, tuple[float | None, ...]] = {}


class Band(Struct, frozen=True):
    """Carbon intensity per slot, past and future in one row of equal slots.

    `realised` leading slots are what happened, the rest is the forecast with its 80 % band.
    """

    start: Time
    step_s: float
    mean_g: tuple[float | None, ...]
    lo_g: tuple[float | None, ...]
    hi_g: tuple[float | None, ...]
    realised: int
    zone: str
    signal: str
    source: str
    how: How


class PriceSlots(Struct, frozen=True):
    """Electricity price per slot, `currency` per kWh; without `lo` and `hi` where it is published, not expected."""

    start: Time
    step_s: float
    mean: tuple[float | None, ...]
    lo: tuple[float | None, ...]
    hi: tuple[float | None, ...]
    currency: str
    source: str


class ChartSeries(Struct, frozen=True):
    """What the charts draw. `now` is the job's clock, which a replay runs faster than life."""

    now: Time
    watts: Watts | None = None
    intensity: Band | None = None
    loss: tuple[float, ...] = ()
    """The loss so far, thinned to at most 240 values."""
    replay_speed: float | None = None
    price: PriceSlots | None = None
    """Null where no price of electricity is known."""


class LevelInfo(Struct, frozen=True):
    """A level of the plan: watts of the devices at the level, speed relative to the reference."""

    name: str
    kind: LevelKind
    power_w: float
    speed: float
    cap_w: float | None = None
    """Watts per GPU for a cap."""


class Baseline(Struct, frozen=True):
    """What another policy would have given on the same forecast."""

    name: str
    gco2_g: float
    cost: float
    finish: Time
    feasible: bool


class HourLimit(Struct, frozen=True):
    """Nothing runs above `not_above_g` gCO2/kWh, but after `max_wait_s` of waiting. What that costs against the best
    plan without it: grams more, and seconds later."""

    not_above_g: float
    max_wait_s: float
    more_g: float
    later_s: float


class PlanWindow(Struct, frozen=True):
    """A stretch of one level as planned. `gain_g`: grams against running flat out there, the work of a stretch that
    stands still made up at the plan's mean; `gco2_g` of such a one is what the parked boards emit."""

    start: Time
    end: Time
    level: str
    g_per_kwh: float
    kwh: float
    gco2_g: float
    gain_g: float


class PlanView(Struct, frozen=True, kw_only=True):
    """The plan in force. `levels` is run-length coded: (level name, slots); slot 0 lasts `first_s`, the others
    `slot_s`, and the last ends at `deadline`."""

    made_at: Time
    start: Time
    first_s: float
    slot_s: float
    deadline: Time
    levels: tuple[tuple[str, int], ...]
    table: tuple[LevelInfo, ...]
    finish: Time
    gco2_g: float
    cost: float
    kwh: float
    avoided_g: float | None = None
    late_s: float = 0.0
    certificate: Certificate | None = None
    explanation: str = ""
    hour_limit: HourLimit | None = None
    baselines: tuple[Baseline, ...] = ()
    windows: tuple[PlanWindow, ...] = ()
    curve_note: str = ""
    """Where the speeds under its caps are from, where they were not measured on this job, and what measuring gives."""


class FrontierPoint(Struct, frozen=True):
    """The best plan that finishes `finish_s` after the budget's start; `levels` as in PlanView."""

    finish_s: float
    gco2_g: float
    cost: float
    kwh: float
    levels: tuple[tuple[str, int], ...] = ()


class Frontier(Struct, frozen=True):
    """CO2 against finish time, at most 64 points, finish ascending; `chosen` is the plan in force."""

    points: tuple[FrontierPoint, ...]
    chosen: int | None = None
    reference_s: float | None = None
    """Flat-out duration from the budget's start: finish_s / reference_s is the budget as a multiple."""


# --- hello and welcome -----------------------------------------------------------------------------------------


class Hello(Struct, tag_field="t", tag="hello", frozen=True):
    """First line of every connection, in either role; a major version that differs leaves a rank running free."""

    v: Count
    version: str
    role: Literal["rank", "viewer"]
    pid: Count = 0
    start_time: Count = 0
    """Field 22 of /proc/<pid>/stat: tells a recycled pid."""
    host: str = ""
    rank: Count = 0
    world: Count = 1
    restart: Count = 0
    by: str = ""
    """user@tty of a viewer, shown with its overrides."""


class Welcome(Struct, tag_field="t", tag="welcome", frozen=True):
    """The answer to hello."""

    v: int
    version: str
    override_gen: int = 0


# --- ranks -----------------------------------------------------------------------------------------------------


class Obs(Struct, tag_field="t", tag="obs", frozen=True):
    """rank -> supervisor, about once a second and at every change: what the training loop does."""

    step: Count
    """Optimizer steps done (sum of n over step(n)) by this process."""
    state: Literal["running", "asked", "paused", "checkpointing", "unloading"]
    want_gen: Count
    """The newest want seen."""
    rate: NonNegative | None = None
    """Steps per second while running, smoothed; null until known."""
    loss: float | None = None
    epoch: float | None = None
    total: Count | None = None
    """Steps this run is going to make in all, when the script or its framework says so."""
    devices: tuple[str, ...] = ()
    """UUIDs of the GPUs this process uses."""
    calls: Count = 0
    """Boundaries seen (calls of step or optimizer steps)."""
    metrics: dict[str, float] = {}
    can_unload: bool = False
    """A checkpoint function is registered, so the process may be asked to leave and come back."""
    start_step: Count = 0
    """Steps done before this process started (a resumed run)."""
    timed: tuple[Count, NonNegative] | None = None
    """A step timed since about the last obs: steps done at its end, and how many seconds ago that was. What `step`
    alone cannot give, which is a whole count at some moment within the next step; null before the first."""
    guess: tuple[Count, str] | None = None
    """Where `total` is not known: a guess and its source, like "CosineAnnealingLR(T_max=)", for a person to confirm."""
    cannot_hold: str | None = None
    """Why a pause that is asked for does not come about: "ranks", which do not come to one step together."""
    start_known: bool = False
    """`start_step` is what the script or its framework has said, not what it was given when it was started."""
    saved_b: Count | None = None
    """Bytes that this process wrote while its checkpoint functions last ran."""
    trial: str | None = None
    """Of a sweep in one process: the trial under way, like "trial 3 of my-study"."""
    captured: bool = False
    """A CUDA graph was recorded: what replays it runs no hook, so that steps may not be seen."""


class Want(Struct, tag_field="t", tag="want", frozen=True):
    """supervisor -> rank: what is wanted until the lease ends. No lease, no pause and no duty cycle."""

    mode: Mode
    want_gen: Count
    lease_s: Annotated[float, Meta(gt=0, le=60)]
    duty: Annotated[float, Meta(gt=0, le=1)] | None = None
    """Share of time to run, 0..1; saves watts, not energy."""
    checkpoint: bool | None = None
    """Call the checkpoint function at the next boundary."""
    not_before: Time | None = None
    """With unload: when the keeper should start the command again."""


class Figures(Struct, tag_field="t", tag="figures", frozen=True, omit_defaults=True):
    """supervisor -> rank, every few seconds: the job's account for `carbontui.metrics()`. What is not known is absent;
    a client of before this message ignores it."""

    measured_at: Time
    state: str
    level: str | None = None
    power_w: float | None = None
    energy_gpu_kwh: float | None = None
    energy_wall_kwh: float | None = None
    gco2_g: float | None = None
    avoided_g: float | None = None
    intensity_g_per_kwh: float | None = None
    cost: float | None = None
    currency: str | None = None


class Ack(Struct, tag_field="t", tag="ack", frozen=True):
    """rank -> supervisor: at this boundary the want took effect."""

    want_gen: Count
    step: Count


# --- viewers ---------------------------------------------------------------------------------------------------


class View(Struct, tag_field="t", tag="view", frozen=True):
    """viewer -> supervisor: send a snap, then deltas at most this often."""

    rate_hz: Annotated[float, Meta(gt=0, le=10)] = 1.0


class Snap(Struct, tag_field="t", tag="snap", frozen=True):
    """Everything a screen shows."""

    seq: int
    status: Status
    series: ChartSeries
    plan: PlanView | None = None
    frontier: Frontier | None = None


class SeriesTail(Struct, frozen=True, rename={"from_": "from"}):
    """Columns of `series.watts` from index `from_` on: cut what you hold there, then append."""

    from_: int
    now: Time
    total_w: tuple[float | None, ...] = ()
    gpus_w: dict[str, tuple[float | None, ...]] = {}


class Delta(Struct, tag_field="t", tag="delta", frozen=True):
    """Sections that changed since seq - 1, whole; a gap in seq means: send `view` again."""

    seq: int
    status: Status | UnsetType = UNSET
    series: ChartSeries | UnsetType = UNSET
    series_tail: SeriesTail | UnsetType = UNSET
    plan: PlanView | UnsetType | None = UNSET
    frontier: Frontier | UnsetType | None = UNSET


class Cmd(Struct, tag_field="t", tag="cmd", frozen=True):
    """viewer -> supervisor. `override_gen` is the one last seen (compare-and-set); null: whatever it is.

    args by verb: pause, boost: {until?}; cap: {value_w, until?}; budget: {budget}; stop: {now?}; resume: {};
    calibrate, rehearse: {show?}; forbid: {hours}; allow: {hours?}, all of them where it is left out.
    """

    id: int
    verb: Verb
    args: dict[str, Any] = {}
    override_gen: int | None = None


class Result(Struct, tag_field="t", tag="result", frozen=True):
    """Answer to cmd. `text` is a line for people ('paused at step 1204', 'asked, no boundary yet')."""

    id: int
    ok: bool
    error: str | None = None
    text: str = ""
    exit_code: int = 0
    data: dict[str, Any] | None = None
    """What the text says, for scripts: of calibrate --show the curve (carbontui.curve/1)."""


class Preview(Struct, tag_field="t", tag="preview", frozen=True):
    """viewer -> supervisor: what would this give? Latest wins. `forbid` are hours that must not run besides those that
    are in force; `slot` a time whose slot is to be otherwise: standing still where the plan runs, else flat out."""

    id: int
    budget: str | None = None
    carbon_price: NonNegative | None = None
    forbid: str | None = None
    slot: Time | None = None


class Previewed(Struct, tag_field="t", tag="previewed", frozen=True):
    id: int
    plan: PlanView | None
    finish: Time | None
    gco2_g: float | None
    cost: float | None
    kwh: float | None
    error: str | None = None
    text: str = ""
    """What was understood: of forbidden hours the times that are meant, of a slot its time. Empty from a supervisor
    that knows neither: its plan is then no answer to them."""


class StatusAsk(Struct, tag_field="t", tag="status", frozen=True):
    """viewer -> supervisor: sample now (deadline 300 ms) and answer."""

    id: int


class StatusAnswer(Struct, tag_field="t", tag="status", frozen=True):
    id: int
    status: Status


class LogRead(Struct, tag_field="t", tag="log.read", frozen=True):
    """viewer -> supervisor: bytes of run.log from `offset` (negative: from the end), at most `max`."""

    id: int
    offset: Annotated[int, Meta(ge=-(2**53), le=2**53)]
    max: Annotated[int, Meta(ge=1, le=256 * 1024)] = 32 * 1024


class LogAnswer(Struct, tag_field="t", tag="log.read", frozen=True):
    """`text` starts at byte `offset`, the next read begins at `next`; `size` is the file's length now."""

    id: int
    offset: int
    next: int
    size: int
    text: str


class HistoryAsk(Struct, tag_field="t", tag="history", frozen=True):
    """viewer -> supervisor: the last `span` seconds of the job's clock in `buckets` columns."""

    id: int
    span: Annotated[float, Meta(ge=0.001, le=1e9)]
    buckets: Annotated[int, Meta(ge=1, le=2000)]


class HistoryAnswer(Struct, tag_field="t", tag="history", frozen=True):
    id: int
    watts: Watts
    level: tuple[str | None, ...] = ()
    intensity_g: tuple[float | None, ...] = ()


class JobsAsk(Struct, tag_field="t", tag="jobs", frozen=True):
    """viewer -> supervisor: the jobs of this user on this machine."""

    id: int


class JobsAnswer(Struct, tag_field="t", tag="jobs", frozen=True):
    id: int
    jobs: tuple[Status, ...]


class EventsAsk(Struct, tag_field="t", tag="events", frozen=True):
    """viewer -> supervisor: what has happened, from `since` on, the last `most` of it; new plans only if asked for."""

    id: int
    since: Time | None = None
    most: Annotated[int, Meta(ge=1, le=500)] = 100
    plans: bool = False


class EventsAnswer(Struct, tag_field="t", tag="events", frozen=True):
    """The oldest first."""

    id: int
    events: tuple[Event, ...]


class AbilitiesAsk(Struct, tag_field="t", tag="abilities", frozen=True):
    """viewer -> supervisor: what can be measured and done in this job?"""

    id: int


class Ability(Struct, frozen=True):
    """One line of the capability table: `support` in words ("supported", "no permission", "not supported",
    "no effect", "lost"; "unknown" before the first look), `fix` an exact command or ""."""

    device: str
    aspect: str
    support: str
    why: str
    fix: str = ""


class AbilitiesAnswer(Struct, tag_field="t", tag="abilities", frozen=True):
    """`curve` is the calibrated speed curve, a line a level; empty until one is known."""

    id: int
    rows: tuple[Ability, ...]
    curve: tuple[str, ...] = ()


class GridAsk(Struct, tag_field="t", tag="grid", frozen=True):
    """viewer -> supervisor: where do intensity and price come from?"""

    id: int


class GridSource(Struct, frozen=True):
    """One source of the zone, in the order they are tried. `state`: answers, stale, fails, needs key, not asked or
    fallback; `note` says what is wrong, or what a key would add."""

    title: str
    state: str
    signal: str
    fetched: Time | None = None
    note: str = ""


class GridAnswer(Struct, tag_field="t", tag="grid", frozen=True):
    """`note` is one line on what is wrong; `moved` says which fuels moved the intensity of late, where it is known."""

    id: int
    sources: tuple[GridSource, ...]
    note: str = ""
    moved: str = ""


class Refused(Struct, tag_field="t", tag="refused", frozen=True):
    """supervisor -> peer: a message that could not be used, and why; `id` where it had one."""

    error: str
    id: int | None = None


FromPeer = (
    Hello
    | Obs
    | Ack
    | View
    | Cmd
    | Preview
    | StatusAsk
    | LogRead
    | HistoryAsk
    | JobsAsk
    | EventsAsk
    | AbilitiesAsk
    | GridAsk
)
Answers = (
    Result
    | Previewed
    | StatusAnswer
    | LogAnswer
    | HistoryAnswer
    | JobsAnswer
    | EventsAnswer
    | AbilitiesAnswer
    | GridAnswer
    | Refused
)
ToViewer = Welcome | Snap | Delta | Answers
ToRank = Welcome | Want | Figures

_encoder = msgspec.json.Encoder()
_from_peer = msgspec.json.Decoder(FromPeer)
_to_viewer = msgspec.json.Decoder(ToViewer)
_tag_only = msgspec.json.Decoder(dict[str, Any])
_KNOWN_FROM_PEER = {kind.__struct_config__.tag for kind in FromPeer.__args__}
_KNOWN_TO_VIEWER = {kind.__struct_config__.tag for kind in ToViewer.__args__}


class BadMessage(ValueError):
    """A line that is no valid message; the text says what is wrong with it."""


def encode(message: Struct) -> bytes:
    """One line, newline included."""
    return _encoder.encode(message) + b"\n"


def _decode(line: bytes, decoder: Any, known: set[Any], limit: int) -> Any:
    if len(line) > limit:
        raise BadMessage(f"a line of {len(line)} bytes (at most {limit} are read)")
    try:
        return decoder.decode(line)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        # an unknown type is for a newer peer and is ignored; anything else is a fault of the sender
        try:
            tag = _tag_only.decode(line).get("t")
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            raise BadMessage(f"not a JSON object: {error}") from None
        if isinstance(tag, str) and tag not in known:
            return None
        raise BadMessage(str(error)) from None


def decode_from_peer(line: bytes) -> FromPeer | None:
    """The message a rank or viewer sent; None for an unknown type. Raises BadMessage."""
    return _decode(line, _from_peer, _KNOWN_FROM_PEER, LINE_MAX)  # type: ignore[no-any-return]


def decode_to_viewer(line: bytes) -> ToViewer | None:
    """The message the supervisor sent a viewer; None for an unknown type. Raises BadMessage."""
    return _decode(line, _to_viewer, _KNOWN_TO_VIEWER, VIEWER_LINE_MAX)  # type: ignore[no-any-return]
