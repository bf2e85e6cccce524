"""A JobState and the Inputs of a moment, as a test wants them: the rest is a plain running job."""

from __future__ import annotations

from dataclasses import replace

from carbontui.grid.types import GridForecast
from carbontui.job.supervisor.core.rules.control import decide
from carbontui.job.supervisor.core.state.decision import Decision, Desired
from carbontui.job.supervisor.core.state.inputs import Inputs, LimitNews, Rank
from carbontui.job.supervisor.core.state.job import JobState, enter
from carbontui.job.supervisor.core.state.plan import OFF, UNLOAD, Level, Plan
from carbontui.job.supervisor.core.state.progress import begun
from carbontui.job.supervisor.core.view import status
from carbontui.job.supervisor.shell.door import Door, Faults
from carbontui.job.supervisor.shell.snapshot import described
from carbontui.job.terms import budget as budgets
from carbontui.job.terms.child import Child
from carbontui.job.terms.clock import Clock
from carbontui.job.terms.spec import Options
from carbontui.power.messages import Capability, Reading, Readings
from carbontui.protocol import Pids, PlanView, Status, Why, statement
from carbontui.units import iso

PIDS = Pids(1, 2, 3, 4)
NOW_S = 1_800_000_000.0
"""A slot boundary: 15 January 2027, 08:00 UTC."""
RUNNING = Child("running", age_s=100.0)
FULL = Level("full", "full", 600.0, 1.0)
PAUSE = Level("pause", "pause", 90.0, 0.0)
CAP = Level("cap 300 W", "cap", 300.0, 0.8, cap_w=300.0)
LEVELS = {level.name: level for level in (FULL, PAUSE, CAP, OFF, UNLOAD)}


def decided(state="running", level="full", code="plan", text="x", **fields) -> Decision:
    """A decision with its level by name, and its reason as given."""
    kind = level.split()[0]
    named = LEVELS.get(level) or Level(level, kind, 0.0, 1.0, float(level.split()[1]) if kind == "cap" else None)
    return Decision(state, Why(code, statement("as_told", text=text)), named, **fields)


def shown(state: JobState, seen: Inputs) -> Status:
    """What viewers get, with all that is told in words."""
    return described(status.status(state, seen, host="node1", pids=PIDS), state, seen)


def spec(**fields) -> Options:
    known = {"job": "t", "name": "t", "dir": "/nowhere", "argv": ("true",), "cwd": "/", "log": "/nowhere/run.log"}
    return Options(**{**known, "socket": "/nowhere/s", "created_s": NOW_S, "zone": "DE", "work_s": 7200.0, **fields})


def outlook(*mean_g: float | None, realised: int = 0, price=(), start_s: float = NOW_S) -> GridForecast:
    values = mean_g or (300.0,) * 96
    return GridForecast("DE", "average_direct", start_s, 900.0, values, values, values, realised, "a test", "forecast",
                   start_s, price=price)  # fmt: skip


def job_state(*, clock: Clock | None = None, budget: str = "2x", **fields) -> JobState:
    """Fields of the spec and of the state alike, told apart by name."""
    of_state = {name: fields.pop(name) for name in list(fields) if name in JobState.__dataclass_fields__}
    asked = of_state.pop("spec", None) or spec(**fields)
    made = JobState(
        spec=asked,
        clock=clock or Clock(),
        budget=budgets.parse(budget, NOW_S),
        progress=begun(asked),
        outlook=outlook(),
    )
    return replace(made, **of_state)


def inputs(now_s: float = NOW_S + 100.0, *, boards: tuple[Reading, ...] = (), **fields) -> Inputs:
    """Uptime and monotonic time grow with `now_s`; readings are fresh."""
    mono = fields.pop("mono_s", now_s - NOW_S + 1000.0)
    readings = fields.pop("readings", Readings(mono_s=mono - 0.5, devices=boards))
    known = {"child": RUNNING, "zone": "DE", "dt_s": 1.0, "dt_wall_s": 1.0, "uptime_s": 100.0, "starts": 1}
    return Inputs(now_s=now_s, mono_s=mono, readings=readings, **{**known, **fields})


def rank(state: str = "running", gen: int = 0, **fields) -> Rank:
    known = {"rank": 0, "step": 10, "quiet_s": 0.1, "process": "host 7 1", "pid": 7}
    return Rank(state=state, want_gen=gen, **{**known, **fields})


def board(uuid: str = "GPU-a", **fields) -> Reading:
    known = {"name": "H100", "power_w": 600.0, "limit_w": 700.0, "limit_found_w": 700.0, "limit_min_w": 200.0}
    return Reading(uuid=uuid, **{**known, "caps": {"limit": Capability("yes")}, "limit_max_w": 700.0, **fields})


def limits(**fields) -> LimitNews:
    return LimitNews(**fields)


def plan_of(*levels: Level, start_s: float = NOW_S, slot_s: float = 900.0, late_s: float = 0.0, left_s=None) -> Plan:
    """One level per slot; the work is done at the end of the last."""
    edges = tuple(start_s + index * slot_s for index in range(len(levels) + 1))
    table = {level.name: level for level in (PAUSE, CAP, FULL, *levels)}
    view = PlanView(
        made_at=iso(start_s), start=iso(start_s), first_s=slot_s, slot_s=slot_s, deadline=iso(edges[-1] - late_s),
        levels=tuple((level.name, 1) for level in levels), table=tuple(table.values()), finish=iso(edges[-1]),
        gco2_g=100.0, cost=0.0, kwh=1.0, late_s=late_s,
    )  # fmt: skip
    return Plan(tuple(level.name for level in levels), edges, table, view, left_s)


def policy(*planned: Level, slot_s: float = 900.0, now_s=NOW_S + 100.0, **fields) -> tuple[Desired, Decision]:
    """What is decided where a plan says these levels, one per slot; fields of inputs and of a job's state alike."""
    of_inputs = {name: fields.pop(name) for name in list(fields) if name in (*Inputs.__dataclass_fields__, "boards")}
    plan = plan_of(*planned, slot_s=slot_s) if planned else None
    return decide(job_state(plan=plan, **fields), inputs(now_s, **{"ranks": (rank(),), **of_inputs}))


def door(state: JobState) -> Door:
    """The state as the shell holds it; effects are not performed."""
    return Door(state, Faults(print), perform=lambda effect: None, record=lambda taken: None)


def settled(state: JobState, seen: Inputs) -> JobState:
    """The state after the decision that these inputs lead to."""
    asked, decision = decide(state, seen)
    return enter(state, asked, decision, seen)
