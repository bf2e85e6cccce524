"""The wire: every message of job.sock as a struct, one JSON object per line, ``{"t": type, ...}``.

Level-triggered: a message states the current situation, never a change, except `delta`, whose `seq` shows a gap.
Unknown fields and types are ignored; every known field is validated (finite, in range) before any is applied. A line to
a viewer has at most `VIEWER_LINE_MAX` bytes, any other `LINE_MAX`. Times are RFC 3339 with milliseconds and Z.

The training process uses the same messages with the standard library's json (carbontui.client); the golden
files in tests/golden hold both ends to the same format.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, TypeAlias, TypeGuard, get_args

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

VERSION = 1
STATUS_SCHEMA = "carbontui.status/1"
LINE_MAX = 64 * 1024
VIEWER_LINE_MAX = 1024 * 1024
LEASE_S = 15.0
RENEW_S = 3.0
"""A supervisor without a heartbeat for this long is replaced."""
FRONTIER_POINTS_MAX = 64

Time = str
NonNegative = Annotated[float, Meta(ge=0, le=1e18)]
Count = Annotated[int, Meta(ge=0, le=2**53)]
Whole = Annotated[int, Meta(ge=-(2**53), le=2**53)]
Mode = Literal["run", "pause", "unload"]
Verb = Literal["pause", "boost", "cap", "resume", "budget", "stop", "calibrate", "guess", "forbid", "allow", "rehearse"]
State = Literal[
    "starting", "waiting", "running", "throttled", "pausing", "paused", "unloaded", "done", "failed", "stopped", "lost"
]
LIVE_STATES: frozenset[str] = frozenset(
    {"starting", "waiting", "running", "throttled", "pausing", "paused", "unloaded"}
)
ReasonCode = Literal[
    "starting",  # processes are coming up
    "plan",  # as planned
    "plan_wait",  # not started yet: the plan begins later
    "override",  # a user's override
    "no_work",  # the amount of work is unknown: nothing is paused or delayed
    "no_zone",  # the grid zone is unknown or ambiguous: no shifting in time
    "no_grid",  # no source answers and nothing to fall back on: caps only
    "feed_lost",  # the source stopped answering; the plan is kept
    "no_boundary",  # asked to pause, and no step has ended since
    "no_client",  # no training loop has connected (no step yet)
    "deadline",  # at full speed is needed to finish in time
    "late",  # at full speed and still late
    "max_pause",  # the longest pause allowed is over
    "epoch_end",  # to be unloaded as planned, at the end of the epoch
    "calibrating",  # measuring the speed-per-watt curve, rehearsing an unload, or a try before the start
    "unguarded",  # the keeper is gone: no restart
    "unseen",  # its processes cannot be seen from here: whether it lives is not known
    "exited",  # the command ended by itself
    "signalled",  # a signal ended the command
    "stop",  # a user stopped it
    "budget_stop",  # an energy, carbon or cost budget caps, pauses or stopped it
    "site",  # the machine's power budget leaves less than was decided, or nothing
    "event",  # a grid event leaves less than was decided, or nothing
    "vanished",  # the child is gone and its exit status is unknown
    "moved",  # it is on its way to another machine, or there
]
HeldBy = Literal["plan", "person", "site", "allowance", "forbidden", "calibration", "try", "end"]
"""Whose decision holds: the plan (also where nobody decided otherwise), a person's override or stop, the site budget, a
carbon, cost or energy budget, forbidden hours, a calibration or rehearsal, a try before the start, the job's end."""
How = Literal["measured", "integrated", "estimated", "default", "forecast", "simulated", "replay"]
LevelKind = Literal["off", "unload", "pause", "duty", "cap", "full"]


STILL: frozenset[str] = frozenset({"off", "unload", "pause"})
"""Kinds of level without training steps."""


def is_level_kind(word: str) -> TypeGuard[LevelKind]:
    return word in get_args(LevelKind)


# --- what `status --json` prints -------------------------------------------------------------------------------


class Statement(Struct, frozen=True):
    """What users are told, as a code and its figures; `carbontui.text` puts it into words where it is read, in the
    reader's time zone. Statements among the parts are read back as such."""

    code: str
    parts: dict[str, Any] = {}

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "parts", {name: _thawed(part) for name, part in self.parts.items()})


def _thawed(part: Any) -> Any:
    """A part as it was before it was JSON."""
    if isinstance(part, list | tuple) and type(part) in (list, tuple):
        return tuple(map(_thawed, part))
    if isinstance(part, dict) and part.keys() == {"code", "parts"}:
        return msgspec.convert(part, Statement)
    return part


def statement(code: str, **parts: Any) -> Statement:
    return Statement(code, parts)


def written(text: str) -> Statement:
    """A text of others (a driver, an agent, an error), told as it is."""
    return Statement("as_told", {"text": text})


Fact: TypeAlias = "Statement | bool | float | str | Sequence[Fact] | Mapping[str, Fact] | None"
"""A value in an event of the journal or in an answer for machines: JSON, once its statements are in words."""


class Why(Struct, frozen=True):
    """A reason before it is in words: a code of the closed list, and what is to be said."""

    code: ReasonCode
    said: Statement


class Reason(Struct, frozen=True):
    """Why the job is in its state: a code, one of ReasonCode or of a newer peer's, and a sentence for scripts, in the
    supervisor's time zone. Viewers render `said`; null from an older peer."""

    code: str
    text: str
    said: Statement | None = None


class Next(Struct, frozen=True):
    """The next planned change of level."""

    at: Time
    level: str


class Refusal(Struct, frozen=True):
    """Why the boards do not hold the decided cap, `cap_w` per GPU: a code of power.messages.Code."""

    code: str
    cap_w: float | None = None


class Situation(Struct, frozen=True, kw_only=True):
    """What is decided, what is in force, by whom, since and until when, and what comes next: the one truth about a job
    that every output renders. Levels by name, as in the plan's table."""

    decided: str
    applied: str | None
    """In force as far as is observed: full speed under a cap that is refused, and until a pause has taken hold. Null:
    not known."""
    refused: Refusal | None = None
    held_by: str = "plan"
    """One of HeldBy, or of a newer peer's."""
    since: Time | None = None
    """When this level was decided by the same."""
    until: Time | None = None
    """When what holds it ends; null where that is not known."""
    watts: float | None = None
    ahead: tuple[Next, ...] = ()
    """The next changes as they will be carried out, at most MOST_AHEAD."""

    @staticmethod
    def over(ended: Time | None) -> Situation:
        """Of a job that has ended: nothing runs, nothing is held."""
        return Situation(decided="off", applied="off", held_by="end", since=ended)

    @staticmethod
    def unsteered(was: Situation | None) -> Situation:
        """Of a training whose supervisor is gone: leases have run out, so it trains at full speed, whatever was
        decided."""
        held = "plan" if was is None else was.held_by
        return Situation(decided="full" if was is None else was.decided, applied="full", held_by=held)


MOST_AHEAD = 8


class Override(Struct, frozen=True):
    """A user's override, around which the rest is planned. `value_w` is watts per GPU for cap."""

    mode: Literal["pause", "boost", "cap"]
    value_w: NonNegative | None
    until: Time | None
    """Null: until cleared. If set with `until next`, the time of the next planned change of level."""
    by: str


class BudgetStatus(Struct, frozen=True):
    """The finish time allowed; `factor` is the multiple of full-speed time, null while the work is unknown."""

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
    """One board. `parked_w` is its draw while paused with the model in VRAM, once measured."""

    uuid: str
    name: str
    power_w: float | None = None
    limit_w: float | None = None
    parked_w: float | None = None
    memory_used_b: int | None = None
    util: float | None = None
    """Busy share, 0..1."""
    index: int | None = None
    """The driver's index of the board, which may differ from its place in this list."""
    own_w: float | None = None
    """This job's share of `power_w` if others use the board too; null if it is not shared."""
    node: str | None = None
    """Its machine, for a multi-node job."""
    temp_c: float | None = None
    sm_mhz: float | None = None
    slowed: str = ""
    """Why its clock is held down, as text; '' if it is not."""
    memory_total_b: int | None = None
    users: str = ""
    """Its compute processes and their owners, as text: 'python (ada)'; '' where the driver lists none."""


class Cost(Struct, frozen=True):
    value: float
    currency: str


class Intensity(Struct, frozen=True):
    """Carbon intensity now. `signal` says average_lifecycle, average_direct, marginal, or given: by the
    user (`--grid FILE`), kind unknown. The newest measured value ended at `known_until`, `age_s` ago: null where none
    was measured; what is shown since is a forecast."""

    value_g_per_kwh: float
    signal: str
    zone: str
    known_until: Time | None = None
    age_s: float | None = None


class ForecastError(Struct, frozen=True):
    """How good this machine's forecasts of the zone's intensity have been `lead_h` ahead.

    `error` is relative to the level, as is `naive`, the error of taking the same hour of the last known day; `coverage`
    is the share of the judged `hours` inside the 80 % band."""

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
    """When, on the job's clock; null if not observed."""


class Certificate(Struct, frozen=True):
    """How far the plan can be above the optimum of its forecast: (objective - lower_bound) / objective. The objective
    has the price of time in it."""

    lower_bound: float
    gap: float
    stage: int
    gap_at_finish: float | None = None
    """The same without the price of time, among all plans that finish no later. Null: time has none."""


class Provenance(Struct, frozen=True):
    """Where a number comes from, and how old it is. `ahead` is the source of what is to come, where that is another."""

    how: How
    source: str
    age_s: float | None = None
    ahead: str = ""


class ForbiddenStatus(Struct, frozen=True):
    """Hours in which the user forbids training; for daily ones the next occurrence. `text` describes them for
    scripts."""

    start: Time
    end: Time
    daily: bool = False
    by: str = ""
    text: str = ""


class Event(Struct, frozen=True):
    """An event of the job as one line: a user command, a change of state, a new plan and why. Viewers render `said`;
    `text` is the line as the supervisor would."""

    at: Time
    kind: str
    text: str
    by: str = ""
    state: str = ""
    """For a change of state, the new one."""
    finish: Time | None = None
    gco2_g: float | None = None
    """Of a new plan: when it ends, and what it emits until then."""
    whole_g: float | None = None
    """Of a new plan: what the whole job comes to under it; null where what it had used is not known."""
    said: Statement | None = None


class AtEnd(Struct, frozen=True, kw_only=True):
    """Expected totals of the whole job: what it has used so far, and the rest as planned. `lo` and `hi` bound 80 % of
    the grid forecast's error; null if there is no band, or run-now is not known yet."""

    finish: Time
    energy_wall_kwh: float
    gco2_g: float
    gco2_lo_g: float | None = None
    gco2_hi_g: float | None = None
    run_now_g: float | None = None
    """The same work at full speed from the start: on realised intensity up to now, on the forecast beyond."""
    avoided_g: float | None = None
    """`run_now_g` minus `gco2_g`: negative if the plan emits more."""
    avoided_lo_g: float | None = None
    avoided_hi_g: float | None = None
    cost: Cost | None = None


class Amounts(Struct, frozen=True, kw_only=True):
    """Time, steps, energy and CO2 of the work, and of the same work with every lever undone (run-now).

    `run_now_g` is null where it is not known, and where no lever acted; then `avoided_g` is 0."""

    elapsed_s: float
    steps: int | None
    """Null: the number of steps to come is not known."""
    energy_gpu_kwh: float
    energy_wall_kwh: float
    gco2_g: float | None
    run_now_g: float | None = None
    avoided_g: float | None = None
    energy_wall_lo_kwh: float | None = None
    energy_wall_hi_kwh: float | None = None
    """The band of the energy, by how each part of it was obtained; null of what is ahead."""


class WholeMachine(Struct, frozen=True, kw_only=True):
    """All that the job's part of its machine has drawn for it, whatever the account counts: what it idles and the host
    too. `lo` and `hi` as the band of the account."""

    energy_kwh: float
    lo_kwh: float
    hi_kwh: float
    gco2_g: float | None


class Account(Struct, frozen=True, kw_only=True):
    """What the job has used, what it will still use as planned, and both together: `so_far` + `ahead` = `whole`, to
    the printed digit. The latter two are null while unknown, and once the job is over."""

    so_far: Amounts
    ahead: Amounts | None = None
    whole: Amounts | None = None


class Excluded(Struct, frozen=True, kw_only=True):
    """What was run to learn about the work, not to do it: in nothing of the account, and not in run-now."""

    reason: str
    """try, estimate or calibration."""
    elapsed_s: float
    steps: int
    energy_gpu_kwh: float
    energy_wall_kwh: float
    gco2_g: float | None


class PlaceUse(Struct, frozen=True, kw_only=True):
    """What a job used at one of its machines, in the zone of that machine; the account is the sum of them."""

    host: str
    zone: str | None
    steps: int | None
    energy_wall_kwh: float | None
    """Null, like the other figures, of a machine that was lost with what it had booked."""
    gco2_g: float | None


class MovesCost(Struct, frozen=True, kw_only=True):
    """What the moves of a job took, from the last step before each to the first one after it: part of its places."""

    energy_wall_kwh: float
    gco2_g: float | None
    bytes: int
    s: float


class MovedTo(Struct, frozen=True):
    host: str


Doing = Literal["evaluates", "loads"]
"""What a training does between its steps, where its code names it: a function of an evaluation, torch's loaders."""
NotFinite = Literal["NaN", "inf", "-inf"]


class Loss(Struct, frozen=True):
    """The training's last loss: reported by the script, else as printed in its output."""

    value: float | None
    """Null where it is no finite number."""
    finite: bool = True
    not_finite_since_step: int | None = None
    word: NotFinite | None = None
    """What it is where it is not finite."""
    printed: bool = False


class Coverage(Struct, frozen=True):
    """Seconds since the start: metered ones, gaps, and all; the rest of these is excluded."""

    metered_s: float
    gap_s: float
    lived_s: float

    @property
    def share(self) -> float | None:
        """Metered share of the seconds of the account; None before any has passed."""
        counted_s = self.metered_s + self.gap_s
        return self.metered_s / counted_s if counted_s > 0 else None


class Estimate(Struct, frozen=True, kw_only=True):
    """The whole work at full speed, from the steps timed so far: `lo` and `hi` are a 95 % interval. Energy is the time
    at the measured full-speed watts, null until these are measured."""

    work_s: float
    work_lo_s: float
    work_hi_s: float
    energy_wall_kwh: float | None = None
    energy_lo_kwh: float | None = None
    energy_hi_kwh: float | None = None
    gco2_g: float | None = None
    """At full speed from the job's start on the realised and forecast grid; its interval includes the forecast
    error."""
    gco2_lo_g: float | None = None
    gco2_hi_g: float | None = None
    cost: float | None = None
    """In the job's currency, rent included; null without a currency or a known price."""
    cost_lo: float | None = None
    cost_hi: float | None = None
    currency: str | None = None
    drifting: bool = False
    """Steps become slower or faster: the interval does not cover a continued drift."""
    drift: float = 0.0
    """The change over the timed steps, relative to the mean."""
    steps_seen: int = 0
    core_wait: float = 0.0
    """Share of that time in which the training was runnable and waited for a core. The interval covers the cases that
    the other programs leave, and that they double."""


class UnitEstimate(Struct, frozen=True, kw_only=True):
    """An amount of the work at full speed, whatever its total: of 1,000 steps, or of an hour. `s_lo` and `s_hi` are a
    95 % interval of its time; null where watts or grid are not known."""

    s: float
    s_lo: float
    s_hi: float
    steps: float
    kwh: float | None = None
    gco2_g: float | None = None


class Guess(Struct, frozen=True):
    """Guessed total number of steps: planned with once two sources agree on it, an epoch bore it out, or the user
    accepts it."""

    steps: Count
    source: str
    """Like "CosineAnnealingLR(T_max=)"."""
    agreed: bool = False
    """It is planned with: accepted by the user, or sure. `steps_total` follows it until the script says otherwise."""
    low: Count = 0
    high: Count | None = None
    """The total lies between these, as far as is known; null: no limit."""
    at_most: bool = False
    """It is an upper bound: the training may end earlier."""


class AllowanceStatus(Struct, frozen=True, kw_only=True):
    """A carbon, cost or energy budget of the job: `most`, `used` and `expected` (at the end; null while unknown) in
    `unit`. `used_up_at` is when nothing will be left, null if it lasts to the end."""

    kind: Literal["carbon", "cost", "energy"]
    most: float
    unit: str
    used: float
    expected: float | None = None
    used_up_at: Time | None = None
    act: str | None = None
    """The action in force: warn, cap, ask, pause, stop or stop!."""


class BoundaryStatus(Struct, frozen=True, kw_only=True):
    """What the account counts: `why` and `counted` in words."""

    kind: Literal["held", "always-on", "given-back"]
    why: str = ""
    counted: str = ""
    idle_limit_s: float | None = None
    """The longest stillness on boards that are held; null: unlimited."""
    host_w: float = 0.0
    """What counts besides boards, CPU and memory."""
    pue: float = 1.0


class NodePower(Struct, frozen=True):
    """The job's watts on one of its machines; null while that is silent, or not metered."""

    node: str
    power_w: float | None


class GridEventStatus(Struct, frozen=True):
    """A grid event that comes, or lasts until the watts are back."""

    id: str
    start: Time
    end: Time


class Witness(Struct, frozen=True):
    """A source of watts or joules, what of a machine it speaks of, whether it is believed, and if not why. `ratio`: of
    its figure to another's over the same seconds; of a machine's supply, of what its parts drew to its own."""

    what: str
    scope: str
    """gpu, slice, module, package, node or chassis."""
    verdict: str
    """believed, doubted or refused."""
    why: str = ""
    ratio: float | None = None


class Status(Struct, frozen=True, kw_only=True):
    """The complete status of one job at `measured_at`; the body of `status --json` and of snapshot.json."""

    schema: str = STATUS_SCHEMA
    job: str
    name: str
    host: str
    measured_at: Time
    state: State
    reason: Reason
    level: str | None = None
    situation: Situation | None = None
    """Null in a snapshot of a job that was never decided about."""
    next: Next | None = None
    override: Override | None = None
    override_gen: int = 0
    forbidden: tuple[ForbiddenStatus, ...] = ()
    budget: BudgetStatus | None = None
    finish_expected: Time | None = None
    pids: Pids = Pids(None, None, None, None)
    clients: int = 0
    owner: str = ""
    """The user whose job it is; '' while its supervisor alone is asked."""
    step: int | None = 0
    """Null where the command has run and nothing says how far."""
    steps_total: int | None = None
    work_done_s: float | None = None
    """Seconds of work done, at full speed; null while the total is unknown."""
    work_total_s: float | None = None
    guess: Guess | None = None
    """Null if the total is known otherwise, or nothing suggests one."""
    rate_steps_per_s: float | None = None
    loss: Loss | float | None = None
    """Null until one was reported or printed; a number alone in snapshots of before 2026-12."""
    epoch: float | None = None
    doing: Doing | None = None
    metrics: dict[str, float] = {}
    """The script's own metrics: carbontui.report(metrics=...)."""
    gpus: tuple[Gpu, ...] = ()
    power_w: float | None = None
    nodes: tuple[NodePower, ...] = ()
    """The machines of a job on several, whose watts are in `power_w`."""
    energy_gpu_kwh: float = 0.0
    energy_wall_kwh: float = 0.0
    gco2_g: float | None = None
    avoided_g: float | None = None
    cost: Cost | None = None
    account: Account | None = None
    excluded: tuple[Excluded, ...] = ()
    coverage: Coverage | None = None
    places: tuple[PlaceUse, ...] = ()
    """In order of time, the present one last; empty for a job that never moved."""
    moves_cost: MovesCost | None = None
    moved_to: MovedTo | None = None
    """Where the job is, at a machine that it has left."""
    boundary: BoundaryStatus | None = None
    at_end: AtEnd | None = None
    """Expected totals at the end of the work; null while unknown, and once the job is over."""
    estimate: Estimate | None = None
    """Null while the number of steps is unknown, or too few were timed."""
    per_1000_steps: UnitEstimate | None = None
    """Null while too few steps were timed."""
    per_hour: UnitEstimate | None = None
    allowances: tuple[AllowanceStatus, ...] = ()
    grid_event: GridEventStatus | None = None
    intensity: Intensity | None = None
    forecast_errors: tuple[ForecastError, ...] = ()
    """Empty while too few forecasts have been judged."""
    exit: Exit | None = None
    events: tuple[Event, ...] = ()
    """The latest user commands, oldest first: who did what when."""
    certificate: Certificate | None = None
    notices: tuple[str, ...] = ()
    """Notices for the user, one line each (simulated device, lost feed, stale lease, unguarded...)."""
    witnesses: tuple[Witness, ...] = ()
    """The sources of the job's energy on this machine."""
    whole_machine: WholeMachine | None = None
    notice_keys: tuple[str, ...] = ()
    """What each of them is about: with the same key, only figures are new."""
    notices_said: tuple[Statement, ...] = ()
    """Each of them as viewers render it; empty from an older peer."""
    provenance: dict[str, Provenance] = {}

    @property
    def replayed(self) -> bool:
        """Whether its clock is a replay's. A recorded grid alone does not make a live job a replay."""
        return any(found.how == "replay" for field, found in self.provenance.items() if field != "intensity")

    @property
    def run_now_g(self) -> float | None:
        """Run-now's grams for what was done so far; None where they are not known, or no lever acted."""
        if self.account is not None:
            return self.account.so_far.run_now_g
        return None if self.avoided_g is None or self.gco2_g is None else self.avoided_g + self.gco2_g

    @property
    def last_loss(self) -> Loss | None:
        return Loss(self.loss) if isinstance(self.loss, float) else self.loss

    @property
    def loss_value(self) -> float | None:
        return None if self.last_loss is None else self.last_loss.value

    @property
    def ended_at(self) -> Time:
        """When a finished job ended: a replay's clock advances by hours while its account is closed."""
        return self.exit.at if self.exit is not None and self.exit.at is not None else self.measured_at


# --- what the charts show --------------------------------------------------------------------------------------


class Watts(Struct, frozen=True):
    """Mean watts per column of time; column i covers [start + i*step_s, +step_s). Null where there was no reading."""

    start: Time
    step_s: float
    total_w: tuple[float | None, ...] = ()
    gpus_w: dict[str, tuple[float | None, ...]] = {}


class Band(Struct, frozen=True):
    """Carbon intensity per slot, past and future in one series of equal slots.

    The first `realised` slots are realised values, the rest is the forecast with its 80 % band.
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
    """Electricity price per slot, `currency` per kWh; without `lo` and `hi` where it is published, not forecast."""

    start: Time
    step_s: float
    mean: tuple[float | None, ...]
    lo: tuple[float | None, ...]
    hi: tuple[float | None, ...]
    currency: str
    source: str


class ChartSeries(Struct, frozen=True):
    """The data of the charts. `now` is the job's clock, which in a replay runs faster than real time."""

    now: Time
    watts: Watts | None = None
    intensity: Band | None = None
    loss: tuple[float, ...] = ()
    """The loss so far, downsampled to at most 240 values."""
    replay_speed: float | None = None
    price: PriceSlots | None = None
    """Null if no electricity price is known."""


class Level(Struct, frozen=True):
    """A level of the plan, and what it means for the job: watts of all boards, speed against full speed."""

    name: str
    kind: LevelKind
    power_w: float
    speed: float
    cap_w: float | None = None
    """Watts per GPU for a cap."""
    assumed: bool = False
    """Watts and speed are worked out from those of measured levels."""

    @property
    def still(self) -> bool:
        return self.kind in STILL

    @property
    def duty(self) -> float | None:
        """The share of time of a duty cycle, which is its speed."""
        return self.speed if self.kind == "duty" else None


class Baseline(Struct, frozen=True):
    """The result of another policy on the same forecast."""

    name: str
    gco2_g: float
    cost: float
    finish: Time
    feasible: bool


class PlanWindow(Struct, frozen=True):
    """A planned stretch at one level. `gain_g`: grams saved against the same work in run-now, at its mean; those of
    all stretches sum to what the plan saves. `gco2_g` of a still stretch is what the parked boards emit."""

    start: Time
    end: Time
    level: str
    g_per_kwh: float
    kwh: float
    gco2_g: float
    gain_g: float


class WeightPoint(Struct, frozen=True):
    """What the rest would take if CO2 counted by the share `carbon` and money by what remains of 1."""

    carbon: float
    gco2_g: float
    cost: float
    currency: str


class PlanView(Struct, frozen=True, kw_only=True):
    """The plan in force. `levels` is run-length coded: (level name, slots); slot 0 lasts `first_s`, the others
    `slot_s`, and the last ends at `deadline`."""

    made_at: Time
    start: Time
    first_s: float
    slot_s: float
    deadline: Time
    levels: tuple[tuple[str, int], ...]
    table: tuple[Level, ...]
    finish: Time
    gco2_g: float
    cost: float
    kwh: float
    avoided_g: float | None = None
    late_s: float = 0.0
    certificate: Certificate | None = None
    patience_pct: float = 0.0
    """An hour of later finish must save so much of what an hour at full speed takes; least time: 0."""
    price_of_time_g_per_h: float | None = None
    """The same in grams, or in the unit of the objective."""
    explanation: str = ""
    """For scripts, in the supervisor's time zone; viewers render `said`."""
    said: tuple[Statement, ...] = ()
    baselines: tuple[Baseline, ...] = ()
    windows: tuple[PlanWindow, ...] = ()
    weights: tuple[WeightPoint, ...] = ()
    """With `run --weight`: the frontier between CO2 and money, from CO2 alone to money alone."""
    curve_note: str = ""
    """Source of the speeds under its caps if they were not measured on this job, and the benefit of measuring."""


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
    """Full-speed duration from the budget's start: finish_s / reference_s is the budget as a multiple."""


# --- hello and welcome -----------------------------------------------------------------------------------------


class Hello(Struct, tag_field="t", tag="hello", frozen=True):
    """First line of every connection, in either role; with a different major version a rank runs unsteered."""

    v: Count
    version: str
    role: Literal["rank", "viewer"]
    pid: Count = 0
    start_time: Count = 0
    """Field 22 of /proc/<pid>/stat: detects a recycled pid."""
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


class LoaderPasses(Struct, array_like=True, frozen=True):
    """The passes over the data in which steps are made: the place at which they begin, steps done when the first began,
    passes begun, steps done when each of the last began and the batches of each, batches taken of the present one."""

    place: Count
    first: Count
    begun: Annotated[int, Meta(ge=1, le=2**53)]
    marks: Annotated[tuple[Count, ...], Meta(min_length=1)]
    lengths: Annotated[tuple[Count | None, ...], Meta(min_length=1)]
    drawn: Count | None


class FrameworkStage(Struct, array_like=True, frozen=True):
    """A training that a framework makes in one call, or a sweep's trial; see carbontui.client.detection.stated.Stage.
    `sizes`: of those that have ended at its place: how many, steps of the shortest, of the longest, of all."""

    place: Count | None
    began: Count
    expected: Count | None
    until: str
    number: Count
    ended: Count | None
    times: Count | None
    sizes: tuple[Count, int, int, int]


class WorkReport(Struct, frozen=True):
    """What a training has seen of its work; places by the numbers of their sightings."""

    before: Count
    """Steps done before those that the places count."""
    framework: bool = False
    """The steps at hand are a framework's."""
    kept: msgspec.Raw = msgspec.Raw(b"null")
    place: Count | None = None
    """Where a step was made; null before the third, and in a framework."""
    counted: Count = 0
    """Steps done then."""
    values: dict[str, int] = {}
    """Of the names of modules that count something."""
    unsure: bool = False
    """It may turn out to be no step."""
    lengths: tuple[Count | None, ...] = ()
    """Batches of the loaders."""
    leading: LoaderPasses | None = None
    bars: tuple[tuple[str, float, float], ...] = ()
    """Progress bars and schedules: source, how far, the end."""
    schedules: tuple[tuple[str, float, float], ...] = ()
    ended: Count = 0
    """Steps done at the last end of a stage before `counted`."""
    stage: FrameworkStage | None = None
    trial: FrameworkStage | None = None


class RankReport(Struct, tag_field="t", tag="obs", frozen=True):
    """rank -> supervisor, about once a second and at every change: the state of the training loop."""

    step: Count
    """Optimizer steps done (sum of n over step(n)) by this process."""
    state: Literal["running", "asked", "paused", "checkpointing", "unloading"]
    want_gen: Count
    """The newest want seen."""
    rate: NonNegative | None = None
    """Steps per second while running, smoothed; null until known."""
    loss: float | None = None
    loss_word: NotFinite | None = None
    """What the loss is where it is no finite number; `loss` is null then."""
    epoch: float | None = None
    total: Count | None = None
    """Total steps of this run, if the script or its framework states them."""
    devices: tuple[str, ...] = ()
    """UUIDs of the GPUs this process uses."""
    calls: Count = 0
    """Boundaries seen (calls of step or optimizer steps)."""
    metrics: dict[str, float] = {}
    can_unload: bool = False
    """A checkpoint function is registered, so the process may be asked to exit and resume later."""
    start_step: Count = 0
    """Steps done before this process started (a resumed run)."""
    timed: tuple[Count, NonNegative] | None = None
    """A step timed since about the last obs: steps done at its end, and how many seconds ago that was. More precise
    than `step`, a whole count read at some moment within the next step; null before the first."""
    guess: tuple[Count, str] | None = None
    """If `total` is not known: a guess and its source, like "CosineAnnealingLR(T_max=)", for the user to confirm."""
    guess_range: tuple[Count, Count | None, bool, bool] | None = None
    """Of the guess: the lowest and highest total (null: no limit), whether it is an upper bound, and whether it is good
    enough to plan with."""
    cannot_hold: str | None = None
    """Why a requested pause cannot take effect: "ranks" do not reach a common step, share no store ("apart"), or are
    short of "descriptors"."""
    start_known: bool = False
    """`start_step` was stated by the script or its framework, not passed to it at its start."""
    saved_b: Count | None = None
    """Bytes written by this process during the last run of its checkpoint functions."""
    data_order: Literal["same", "other"] | None = None
    """Whether a resumed run goes on with the batches of an undisturbed one; null if only the script knows."""
    restarts: tuple[Literal["loss", "tokens"], ...] = ()
    """What the training's own log counts anew after a resume: the loss since the last line, TRL's tokens."""
    trial: str | None = None
    """Of a sweep in one process: the current trial, like "trial 3 of my-study"."""
    captured: bool = False
    """A CUDA graph was recorded: its replay runs no hook, so that steps may not be seen."""
    epoch_left: tuple[Count, Count] | None = None
    """Steps to the end of the present epoch, and of a whole one, where a resumed run may go on with other batches until
    then; null where that is not known."""
    doing: Doing | None = None
    work: WorkReport | None = None
    """Of the work, for the supervisor to make a total of; absent where one is stated. Older clients make a `guess`
    themselves."""


class Sighting(Struct, tag_field="t", tag="sighting", frozen=True):
    """rank -> supervisor: where in the code the training is, for the worker, which reads it there
    (`carbontui.job.worker.reading.Sighted`); answered by a CodeRead of the same number."""

    id: Count
    place: msgspec.Raw


class CodeRead(Struct, tag_field="t", tag="reading", frozen=True, omit_defaults=True):
    """supervisor -> rank: what the code says of a place, as the lists of `carbontui.job.worker.work.Nest`; null
    of one that could not be read. `lacks`: files that the worker cannot read, whose text the next sighting has."""

    id: Count = 0
    nest: msgspec.Raw = msgspec.Raw(b"null")
    lacks: tuple[str, ...] = ()
    kept: msgspec.Raw = msgspec.Raw(b"null")
    """What the supervisor is to be told again in `WorkReport`: it may be another one then."""


class DesiredState(Struct, tag_field="t", tag="want", frozen=True):
    """supervisor -> rank: what is wanted until the lease expires. Without a lease, no pause and no duty cycle."""

    mode: Mode
    want_gen: Count
    lease_s: Annotated[float, Meta(gt=0, le=60)]
    duty: Annotated[float, Meta(gt=0, le=1)] | None = None
    """Share of time to run, 0..1; saves watts, not energy."""
    checkpoint: bool | None = None
    """Call the checkpoint function at the next boundary."""
    not_before: Time | None = None
    """With unload: when the keeper should start the command again."""
    epoch_end: bool | None = None
    """With unload: train on to the end of the epoch, and leave there."""


class Figures(Struct, tag_field="t", tag="figures", frozen=True, omit_defaults=True):
    """supervisor -> rank, every few seconds: the job's account for `carbontui.metrics()`. Unknown values are absent;
    an older client ignores this message."""

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


class Numbered(Struct, tag_field="t", frozen=True):
    """A question of a viewer, or the answer to it, which has its id."""

    id: Whole


class View(Struct, tag_field="t", tag="view", frozen=True):
    """viewer -> supervisor: send a snap, then deltas at most this often."""

    rate_hz: Annotated[float, Meta(gt=0, le=10)] = 1.0


class Snap(Struct, tag_field="t", tag="snap", frozen=True):
    """All data of a screen."""

    seq: int
    status: Status
    series: ChartSeries
    plan: PlanView | None = None
    frontier: Frontier | None = None


class SeriesTail(Struct, frozen=True, rename={"from_": "from"}):
    """Columns of `series.watts` from index `from_` on: truncate there, then append."""

    from_: int
    now: Time
    total_w: tuple[float | None, ...] = ()
    gpus_w: dict[str, tuple[float | None, ...]] = {}


class Delta(Struct, tag_field="t", tag="delta", frozen=True):
    """Sections that changed since seq - 1, each complete; after a gap in seq send `view` again."""

    seq: int
    status: Status | UnsetType = UNSET
    series: ChartSeries | UnsetType = UNSET
    series_tail: SeriesTail | UnsetType = UNSET
    plan: PlanView | UnsetType | None = UNSET
    frontier: Frontier | UnsetType | None = UNSET


def _argument(value: Any) -> bool | float | str | None:
    """What journal and events can hold: numbers of 64 bits and text, which anything else becomes."""
    if value is None or isinstance(value, (bool, float, str)):
        return value
    return float(value) if isinstance(value, int) and abs(value) < 2**63 else str(value)


class Cmd(Numbered, tag="cmd", frozen=True):
    """viewer -> supervisor. `override_gen` is the one last seen (compare-and-set); null: any.

    args by verb: pause, boost: {until?}; cap: {value_w, until?}; budget: {budget}; stop: {now?}; resume: {};
    calibrate, rehearse: {show?}; forbid: {hours}; allow: {hours?}, all of them if omitted.
    """

    verb: Verb
    args: dict[str, Any] = {}
    override_gen: Whole | None = None

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "args", {name: _argument(value) for name, value in self.args.items()})


class Result(Numbered, tag="result", frozen=True):
    """Answer to cmd. `text`, of a refusal `error`, is a line for the user ('paused at step 1,204'), `said` the same to
    be rendered by the viewer."""

    ok: bool
    error: str | None = None
    text: str = ""
    exit_code: int = 0
    data: dict[str, Any] | None = None
    """The content of the text in machine-readable form: for calibrate --show the curve (carbontui.curve/1)."""
    said: Statement | None = None


class Preview(Numbered, tag="preview", frozen=True):
    """viewer -> supervisor: a what-if request. Latest wins. `forbid` are forbidden hours in addition to those in force;
    `slot` is a time whose slot is to be changed: still where the plan runs, else at full speed."""

    budget: str | None = None
    carbon_price: NonNegative | None = None
    forbid: str | None = None
    slot: Time | None = None


class PlanTotals(Struct, frozen=True):
    """A plan and what the whole job would come to under it."""

    plan: PlanView
    finish: Time
    gco2_g: float
    cost: float
    kwh: float


class Previewed(Numbered, tag="previewed", frozen=True):
    plan: PlanView | None
    finish: Time | None
    gco2_g: float | None
    cost: float | None
    kwh: float | None
    error: str | None = None
    text: str = ""
    """How the request was read: the times of the forbidden hours, or the slot's time. Empty from a supervisor that
    supports neither: its plan then does not account for them."""
    misread: bool = False
    """The error is about the request itself: it cannot be understood or met, with any plan."""
    instead: PlanTotals | None = None
    """What is in force, solved anew on the same inputs: a difference is that of the request alone. Null if it could not
    be solved."""
    said: Statement | None = None
    """`text`, to be rendered by the viewer."""


class StatusAsk(Numbered, tag="status", frozen=True):
    """viewer -> supervisor: sample now (deadline 300 ms) and answer."""


class StatusAnswer(Numbered, tag="status", frozen=True):
    status: Status


class LogRead(Numbered, tag="log.read", frozen=True, omit_defaults=True):
    """viewer -> supervisor: bytes of run.log (`err`: of run.err) from `offset` (negative: from the end), at most
    `max`."""

    offset: Annotated[int, Meta(ge=-(2**53), le=2**53)]
    max: Annotated[int, Meta(ge=1, le=256 * 1024)] = 32 * 1024
    err: bool = False


class LogAnswer(Numbered, tag="log.read", frozen=True, omit_defaults=True):
    """`text` starts at byte `offset`, the next read begins at `next`; `size` is the file's length now. `err`: it is of
    run.err; where that was asked for and this is not, both outputs are in run.log."""

    offset: int
    next: int
    size: int
    text: str
    err: bool = False


class HistoryAsk(Numbered, tag="history", frozen=True):
    """viewer -> supervisor: the last `span` seconds of the job's clock in `buckets` columns."""

    span: Annotated[float, Meta(ge=0.001, le=1e9)]
    buckets: Annotated[int, Meta(ge=1, le=2000)]


class HistoryAnswer(Numbered, tag="history", frozen=True):
    watts: Watts
    level: tuple[str | None, ...] = ()
    intensity_g: tuple[float | None, ...] = ()
    kind: tuple[LevelKind | None, ...] = ()
    """Of each level."""


class JobsAsk(Numbered, tag="jobs", frozen=True):
    """viewer -> supervisor: the jobs of this user on this machine."""


class JobsAnswer(Numbered, tag="jobs", frozen=True):
    jobs: tuple[Status, ...]


class EventsAsk(Numbered, tag="events", frozen=True):
    """viewer -> supervisor: the last `most` events from `since` on; new plans only if requested."""

    since: Time | None = None
    most: Annotated[int, Meta(ge=1, le=500)] = 100
    plans: bool = False


class EventsAnswer(Numbered, tag="events", frozen=True):
    """Oldest first."""

    events: tuple[Event, ...]


class AbilitiesAsk(Numbered, tag="abilities", frozen=True):
    """viewer -> supervisor: what can be measured and done in this job?"""


class Ability(Struct, frozen=True):
    """One line of the capability table: `support` as text ("supported", "no permission", "not supported",
    "no effect", "lost"; "unknown" before the first look), `fix` an exact command or ""."""

    device: str
    aspect: str
    support: str
    why: str
    fix: str = ""


class AbilitiesAnswer(Numbered, tag="abilities", frozen=True):
    """`curve` is the calibrated speed curve, one line per level, if it is known; an unload takes `unload_s`, a
    start after it `start_s`."""

    rows: tuple[Ability, ...]
    curve: tuple[str, ...] = ()
    unload_s: float = 30.0
    start_s: float = 60.0


class GridAsk(Numbered, tag="grid", frozen=True):
    """viewer -> supervisor: where do intensity and price come from?"""


class GridSource(Struct, frozen=True):
    """One source of the zone, in the order they are tried. `state`: answers, stale, fails, needs key, not asked or
    fallback; `note` says what is wrong, its limits, or what a key would add."""

    title: str
    state: str
    signal: str
    fetched: Time | None = None
    note: str = ""
    name: str = ""


class GridAnswer(Numbered, tag="grid", frozen=True):
    """`note` is one line on what is wrong; `moved` says which fuels recently moved the intensity, if known."""

    sources: tuple[GridSource, ...]
    note: str = ""
    moved: str = ""


class Refused(Struct, tag_field="t", tag="refused", frozen=True):
    """supervisor -> peer: a message that could not be used, and why; `id` if it had one."""

    error: str
    id: int | None = None


Request = Cmd | Preview | StatusAsk | LogRead | HistoryAsk | JobsAsk | EventsAsk | AbilitiesAsk | GridAsk | Sighting
Answer = (
    Result
    | Previewed
    | StatusAnswer
    | LogAnswer
    | HistoryAnswer
    | JobsAnswer
    | EventsAnswer
    | AbilitiesAnswer
    | GridAnswer
    | CodeRead
)
FromPeer = Hello | RankReport | Ack | View | Request
ToViewer = Welcome | Snap | Delta | Answer | Refused

_encoder = msgspec.json.Encoder()
_tag_only = msgspec.json.Decoder(dict[str, Any])
_KNOWN_FROM_PEER = {kind.__struct_config__.tag for kind in FromPeer.__args__}
_KNOWN_TO_VIEWER = {kind.__struct_config__.tag for kind in ToViewer.__args__}


@functools.cache
def _decoder(kinds: Any) -> msgspec.json.Decoder[Any]:
    """Made when it is first used: a viewer decodes no peer's messages, and each costs some milliseconds to make."""
    return msgspec.json.Decoder(kinds)


class BadMessage(ValueError):
    """A line that is not a valid message; the text says what is wrong with it."""


def encode(message: Struct) -> bytes:
    """One line, newline included."""
    return _encoder.encode(message) + b"\n"


def _decode(line: bytes, kinds: Any, known: set[Any], limit: int) -> Any:
    if len(line) > limit:
        raise BadMessage(f"a line of {len(line)} bytes (at most {limit} are read)")
    try:
        return _decoder(kinds).decode(line)
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
    return _decode(line, FromPeer, _KNOWN_FROM_PEER, LINE_MAX)  # type: ignore[no-any-return]


def decode_to_viewer(line: bytes) -> ToViewer | None:
    """The message the supervisor sent a viewer; None for an unknown type. Raises BadMessage."""
    return _decode(line, ToViewer, _KNOWN_TO_VIEWER, VIEWER_LINE_MAX)  # type: ignore[no-any-return]
