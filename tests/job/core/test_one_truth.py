"""One truth: whoever decides, whatever is refused or unknown, no two outputs of one job contradict each other."""

from __future__ import annotations

import itertools
import math
import re
from dataclasses import replace

import msgspec
import pytest
from drawn import drawn_plan
from msgspec import structs
from states import CAP, FULL, NOW_S, PAUSE, board, inputs, job_state, limits, plan_of, rank, settled

from carbontui import line, protocol, units
from carbontui.commands import status
from carbontui.headroom import Headroom
from carbontui.job.supervisor.core.state.allowances import Allowances
from carbontui.job.supervisor.core.state.forbidden import ForbiddenHours
from carbontui.job.supervisor.core.state.inputs import Inputs
from carbontui.job.supervisor.core.state.job import JobState, Totals
from carbontui.job.supervisor.core.state.measured import Mean, Measured
from carbontui.job.supervisor.core.state.override import Overrides
from carbontui.job.supervisor.core.state.plan import OFF, UNLOAD
from carbontui.job.supervisor.core.view import status as statuses
from carbontui.job.terms.child import Child
from carbontui.plan.results import Explanation
from carbontui.power.curves.curve import Curve, Point
from carbontui.power.messages import Outcome
from carbontui.text import situation
from carbontui.text.statements import reason
from carbontui.tui.widgets import levels as chart
from carbontui.tui.widgets.scale import TimeScale

AT_S = NOW_S + 100.0
PERSON = "ada@pts/3"
SAVES = Explanation(verdict="saves", saved=9.0, waits=True, runner="would_cost", runner_name="full", runner_value=4.0)
POINTS = (
    Point(kind="cap", cap_w=300.0, power_w=300.0, power_se=0.0, speed=0.8, speed_se=0.0),
    Point(kind="full", cap_w=None, power_w=600.0, power_se=0.0, speed=1.0, speed_se=0.0),
)
CURVE = Curve(gpu="H100", gpus=1, fingerprint="x", measured_s=NOW_S, rate_steps_per_s=1.0, points=POINTS, levels=POINTS)

OVERRIDES = {
    "none": None,
    "pause": ("pause", None, None),
    "pause until": ("pause", None, NOW_S + 3000.0),
    "boost": ("boost", None, None),
    "boost until": ("boost", None, NOW_S + 1500.0),
    "cap": ("cap", 300.0, None),
    "cap below": ("cap", 210.0, None),
    "cap until": ("cap", 450.0, NOW_S + 3600.0),
}
SITES = {
    "none": None,
    "room": Headroom(700.0, 1000.0, True, 1500.0, 2000.0),
    "cap": Headroom(260.0, 1000.0, True, 1500.0, 2000.0),
    "held": Headroom(100.0, 1000.0, True, 1500.0, 2000.0),
}
REFUSED = (False, True)
FORBIDDEN = {"none": (), "now": ((-600.0, 1800.0),), "later": ((5400.0, 7200.0),)}
ALLOWANCES = {"none": None, "cap": 250.0, "paused": "pause", "stopped": "stop"}
CHILDREN = {"running": True, "can unload": True, "waiting": False, "unloaded": False, "done": False}
PLANS = {
    "none": None,
    "full": (FULL,) * 8,
    "cap": (CAP, CAP, CAP, FULL, FULL, FULL, FULL, FULL),
    "pause": (PAUSE, PAUSE, FULL, FULL, FULL, FULL, FULL, FULL),
    "unload": (UNLOAD, UNLOAD, FULL, FULL, FULL, FULL, FULL, FULL),
    "late": (FULL,) * 8,
    "off": (OFF, OFF, FULL, FULL, FULL, FULL, FULL, FULL),
}
WORK = (6600.0, None)
COMBINATIONS = math.prod(map(len, (OVERRIDES, SITES, REFUSED, FORBIDDEN, ALLOWANCES, CHILDREN, PLANS, WORK)))  # 53,760


def test_there_are_enough_combinations():
    assert COMBINATIONS >= 20_000


def the_job(override, forbidden, allowance, plan, work) -> JobState:
    from carbontui.job.terms.allowance import Allowance

    made = None
    if PLANS[plan] is not None:
        made = plan_of(*PLANS[plan], late_s=900.0 if plan == "late" else 0.0, left_s=6600.0)
        made = replace(made, explanation=SAVES, free_gco2_g=95.0)
        run_now = protocol.Baseline("run now", 109.0, 0.0, made.view.finish, True)
        certified = protocol.Certificate(99.9, 0.001, 1)
        made = replace(made, view=structs.replace(made.view, baselines=(run_now,), certificate=certified))
    held = OVERRIDES[override]
    known = ALLOWANCES[allowance]
    given = (Allowance("carbon", 2000.0),) if known is not None else ()
    spent = "carbon" if isinstance(known, str) else None
    return job_state(
        work_s=work,
        plan=made,
        caps_hold=True,
        curve=CURVE,
        measured=Measured(full_w={"GPU-a": Mean(600.0, 9)}, parked_w={"GPU-a": Mean(90.0, 9)}),
        totals=Totals(gpu_kwh=0.1, wall_kwh=0.1, gco2_g=30.0),
        override=Overrides()
        if held is None
        else Overrides(
            protocol.Override(held[0], held[1], None if held[2] is None else units.iso(held[2]), PERSON), 1, held[2]
        ),
        forbidden=tuple(ForbiddenHours(NOW_S + a, NOW_S + b, by="bob@pts/1") for a, b in FORBIDDEN[forbidden]),
        allowances=Allowances(
            given, cap_w=known if isinstance(known, float) else None, spent=spent, act=known if spent else None
        ),
    )


def the_world(refused, child, state: JobState) -> Inputs:
    """As the training and the boards answer what was last asked."""
    asked = state.asked
    stands = asked.mode in ("pause", "unload")
    ranks = (rank("paused" if stands else "running", asked.gen, can_unload=child == "can unload"),)
    outcome = Outcome("GPU-a", not refused, "no_permission" if refused else "applied", text="only root may")
    news = limits(asked=asked.limit_w is not None, outcomes={"GPU-a": outcome} if asked.limit_w is not None else {})
    of_child = {"done": Child("exited", code=0, ended_wall_s=AT_S), "waiting": Child("waiting")}
    return inputs(
        AT_S,
        boards=(board(),),
        ranks=ranks if CHILDREN[child] else (),
        child=of_child.get(child) or Child("unloaded" if child == "unloaded" else "running", age_s=100.0),
        starts=0 if child == "waiting" else 1,
        limits=news,
    )


CLASS = {
    "starting": "running", "running": "running", "throttled": "capped", "pausing": "still", "paused": "still",
    "unloaded": "still", "waiting": "waiting", "done": "over", "failed": "over", "stopped": "over", "lost": "over",
}  # fmt: skip
VERBS = {
    "starting": "running", "running": "running", "capped": "capped", "pausing": "still", "paused": "still",
    "unloaded": "still", "waiting": "waiting", "done": "over", "failed": "over", "stopped": "over", "lost": "over",
}  # fmt: skip
UNTIL = re.compile(r"until ((?:[A-Z][a-z]{2} )?\d\d:\d\d)")
STILL = {"pause", "unload", "off"}


def faults(state: JobState, seen: Inputs) -> list[str]:
    """What contradicts what, over all outputs."""
    told = statuses.status(state, seen, host="h", pids=protocol.Pids(1, 2, 3, 4))
    told = structs.replace(told, reason=reason(state.decision.why, AT_S))
    plan, now = drawn_plan(state, seen), told.situation
    assert now is not None
    why = situation.why(told, plan)
    author = situation.author(told, AT_S)
    live = told.state in protocol.LIVE_STATES
    headline = f"{situation.state(told)} {situation.at_level(told, plan)} {situation.refused(told)} {author}"
    rows = dict(row.split(maxsplit=1) for row in status.report(told) if " " in row)
    listed, brief = status.listed(told), line.words(msgspec.to_builtins(told))
    found = []

    def check(fine: bool, what: str) -> None:
        if not fine:
            found.append(what)

    # the class of the verb, everywhere
    kind = CLASS[told.state]
    check(VERBS[headline.split()[0]] == kind, f"headline {headline!r} of {told.state}")
    check(VERBS[rows["state"].split()[0].rstrip(":")] == kind, f"status {rows['state']!r}")
    check(VERBS[listed.split()[2].rstrip(":")] == kind, f"ls {listed!r}")
    check(brief.startswith(line.SHAPES[told.state]), f"line {brief!r}")
    applied_still = now.applied is not None and now.applied.split()[0] in STILL
    check(applied_still == (kind in ("still", "waiting", "over")) or told.state == "pausing", f"applied {now.applied}")
    check((kind == "capped") == (now.applied or "").startswith(("cap", "duty")), f"applied {now.applied} {told.state}")
    check(now.refused is None or (kind == "running" and "refused" in headline + why), "a refusal that is not told")
    # the author
    for output in (headline + why, rows["state"], listed):
        check(now.held_by == "person" or not live or PERSON not in output, f"{now.held_by}, yet {output!r}")
    if now.held_by == "person" and live and told.override is not None:
        check(PERSON in headline + why and PERSON in rows["override"], "the author is missing")
    # until when
    clock = None if now.until is None else situation.clock(now.until, AT_S)
    plain = {why if now.held_by != "plan" else "", author, told.reason.text}
    if now.held_by in ("person", "forbidden", "plan") and live:
        said = {at for output in plain for at in UNTIL.findall(output)}
        check(said <= {clock}, f"until {said} against {clock}")
    # the end
    ends = {told.finish_expected, told.at_end.finish if told.at_end else told.finish_expected}
    if plan is not None and told.finish_expected is not None:
        ends.add(plan.finish)
    check(len({None if end is None else round(units.from_iso(end)) for end in ends}) == 1, f"ends {ends}")
    # what comes next
    check(told.next == (now.ahead[0] if now.ahead else None), "next")
    # the chart begins with what is in force
    if plan is not None and live:
        cells = chart.planned(plan, TimeScale(NOW_S, 900.0, 40), AT_S)
        expected = now.decided if told.state == "pausing" else now.applied
        first = cells[0].name if cells[0] else None
        check(first == expected, f"chart begins with {first}, {expected} is in force")
    # a comparison is the plan's alone
    decided = now.held_by == "plan" and now.refused is None and told.reason.code in ("plan", "plan_wait", "late")
    check(decided or not re.search(r"\b(best|saves|saved|cost \S+ \S+ more)\b", why), f"{now.held_by} claims {why!r}")
    if plan is not None and now.refused is not None:
        check("Capped" not in plan.explanation, f"refused, and {plan.explanation!r}")
    if plan is not None and live:
        check(decided or not plan.baselines, "baselines of a plan that does not decide")
    return found


@pytest.mark.long
@pytest.mark.parametrize("override", OVERRIDES)
def test_no_two_outputs_of_a_job_contradict_each_other(override):
    wrong: dict[str, list[tuple[object, ...]]] = {}
    for given in itertools.product(FORBIDDEN, ALLOWANCES, PLANS, WORK):
        job, limited = the_job(override, *given), False
        for site, child, refused in itertools.product(SITES, CHILDREN, REFUSED):
            if refused and not limited:  # no board was asked: it is the case before once more
                continue
            state, limited = replace(job, site=SITES[site]), False
            for _ in range(3):  # until what was asked is answered
                limited |= state.asked.limit_w is not None
                before, state = state, settled(state, the_world(refused, child, state))
                if state == before:
                    break
            state = replace(state, child=the_world(refused, child, state).child)
            limited |= state.asked.limit_w is not None
            for fault in faults(state, the_world(refused, child, state)):
                wrong.setdefault(fault, []).append((site, refused, child, *given))
    assert {fault: (len(cases), cases[0]) for fault, cases in wrong.items()} == {}
