"""Whatever happens in whatever order: a decision is made, nobody is paused without a cause, and it can be shown."""

from dataclasses import replace

import msgspec
from drawn import drawn, drawn_plan
from hypothesis import given, settings
from hypothesis import strategies as st
from states import CAP, FULL, NOW_S, PAUSE, board, inputs, job_state, limits, outlook, plan_of, rank

from carbontui import protocol
from carbontui.job.supervisor.core import commands
from carbontui.job.supervisor.core import effects as fx
from carbontui.job.supervisor.core.advance import CalibrationSaid, PlanFailed, Tick, advance
from carbontui.job.supervisor.core.planning import finish, plan_request
from carbontui.job.supervisor.core.state.plan import OFF, Level
from carbontui.job.supervisor.core.view import notices, status
from carbontui.job.terms.child import Child
from carbontui.job.terms.clock import Clock
from carbontui.power.backends.simulated import SimulatedSpec
from carbontui.power.messages import Capability, HostReading, Outcome, Readings
from carbontui.protocol import statement

DUTY = Level("duty 50 %", "duty", 345.0, 0.5)
UNLOAD = Level("unload", "unload", 25.0, 0.0)
PLANS = (
    None, plan_of(FULL, PAUSE, FULL), plan_of(PAUSE, CAP, FULL, PAUSE, late_s=500.0), plan_of(UNLOAD, FULL, UNLOAD),
    plan_of(OFF, OFF, DUTY, FULL), replace(plan_of(PAUSE, FULL), table={}), plan_of(FULL, start_s=NOW_S + 1e6),
)  # fmt: skip
JOBS = (
    job_state(),
    job_state(work_s=None, steps=500),
    job_state(work_s=None, sigstop=True),
    job_state(simulated=SimulatedSpec()),
    job_state(cap=False, budget="1x"),
    job_state(clock=Clock(60.0, NOW_S, NOW_S)),
    job_state(outlook=None),
    job_state(work_s=None, steps=2**53, ref_rate=3.0),
    job_state(outlook=outlook(None, 300.0, None)),
)

CHILDREN = st.builds(
    Child,
    st.sampled_from(["waiting", "running", "running", "running", "running", "unloaded", "exited", "vanished"]),
    age_s=st.sampled_from([0.0, 2.0, 15.0, 5000.0]),
    code=st.sampled_from([None, 0, 3]),
    signal=st.sampled_from([None, 9]),
    stopped=st.booleans(),
    unloaded=st.booleans(),
    frozen=st.booleans(),
)
RANKS = st.lists(
    st.builds(
        rank,
        st.sampled_from(["running", "asked", "paused", "checkpointing", "unloading"]),
        st.integers(0, 6),
        rank=st.integers(0, 2),
        step=st.sampled_from([0, 1, 40, 1000, 2**53]),
        start_step=st.sampled_from([0, 0, 30]),
        total=st.sampled_from([None, None, 100, 2**53]),
        loss=st.sampled_from([None, 0.5]),
        process=st.sampled_from(["host 7 1", "host 8 2"]),
        restart=st.sampled_from([0, 0, 1]),
        can_unload=st.booleans(),
        devices=st.sampled_from([(), ("GPU-a",), ("GPU-a", "GPU-b")]),
    ),
    max_size=3,
).map(tuple)
SUPPORTS = st.sampled_from([{}, *({"limit": Capability(s)} for s in ("yes", "unknown", "no_permission"))])
BOARDS = st.lists(
    st.builds(
        board,
        st.sampled_from(["GPU-a", "GPU-b"]),
        power_w=st.sampled_from([None, 0.0, 90.0, 650.0]),
        limit_found_w=st.sampled_from([None, 700.0]),
        limit_min_w=st.sampled_from([None, 200.0]),
        lost=st.booleans(),
        watched=st.sampled_from([True, True, False]),
        foreign_pids=st.sampled_from([(), (), (9,)]),
        caps=SUPPORTS,
    ),
    max_size=2,
    unique_by=lambda reading: reading.uuid,
).map(tuple)
NEWS = st.builds(
    limits,
    asked=st.booleans(),
    pending=st.booleans(),
    outcomes=st.dictionaries(
        st.sampled_from(["GPU-a", "GPU-b"]),
        st.builds(Outcome, st.just("GPU-a"), st.booleans(), st.sampled_from(["applied", "no_permission", "lost"])),
    ),
)
CMDS = st.one_of(
    st.none(),
    st.none(),
    st.builds(
        protocol.Cmd,
        st.just(1),
        st.sampled_from(["pause", "boost", "cap", "resume", "budget", "stop", "calibrate"]),
        st.fixed_dictionaries(
            {},
            optional={
                "value_w": st.sampled_from([300.0, 250, 5000]),
                "for_s": st.sampled_from([30.0, 3000.0, 1e6]),
                "until": st.sampled_from(["next", "18:00"]),
                "budget": st.sampled_from(["1x", "1000x", "4h", "10m"]),
            },
        ),
        st.sampled_from([None, None, 0, 1]),
    ),
)
MOMENTS = st.fixed_dictionaries(
    {
        "dt_s": st.sampled_from([0.0, 0.3, 1.0, 1.0, 700.0, 90_000.0]),
        "child": CHILDREN,
        "ranks": RANKS,
        "boards": BOARDS,
        "news": NEWS,
        "host": st.sampled_from([HostReading(), HostReading(cpu_w=60.0, source="load")]),
        "age_s": st.sampled_from([0.4, 0.4, 3.0, 60.0]),
        "zone": st.sampled_from(["DE", "DE", None]),
        "metered": st.sampled_from([frozenset(), frozenset({"GPU-a", "GPU-z"})]),
        "starts": st.integers(0, 3),
        "guarded": st.sampled_from([True, True, False]),
        "failed": st.booleans(),
        "trial": st.sampled_from([None, None, None, FULL, PAUSE, CAP]),
        "renew": st.booleans(),
        "plan": st.sampled_from([None, None, None, *range(len(PLANS))]),
        "cmd": CMDS,
    }
)


def seen_at(now_s, mono_s, it):
    return inputs(
        now_s,
        mono_s=mono_s,
        dt_s=it["dt_s"],
        dt_wall_s=it["dt_s"],
        child=it["child"],
        child_pid=5,
        ranks=it["ranks"],
        alive=frozenset(r.process for r in it["ranks"]),
        readings=Readings(mono_s=mono_s - it["age_s"], devices=it["boards"], host=it["host"]),
        limits=it["news"],
        zone=it["zone"],
        metered=it["metered"],
        starts=it["starts"],
        guarded=it["guarded"],
        uptime_s=mono_s - 1000.0,
    )


def may_stand(known, seen):
    """Whether there is a cause to stand still: a person's pause, a trial of it, or a plan that may shift."""
    if known.override.current is not None:
        return known.override.current.mode == "pause"
    if known.calibrating.level is not None:
        return known.calibrating.level.still
    level = finish.planned(known, seen).level
    return finish.why_no_shifting(known, seen) is None and level is not None and level.still


@settings(max_examples=150)
@given(st.sampled_from(JOBS), st.lists(MOMENTS, min_size=1, max_size=12))
def test_every_story_is_decided_shown_and_pauses_nobody_without_a_cause(job, story):
    now_s, mono_s = NOW_S, 1000.0
    for it in story:
        now_s, mono_s = now_s + it["dt_s"] * job.clock.speed, mono_s + it["dt_s"]
        seen = seen_at(now_s, mono_s, it)
        if it["plan"] is not None:
            job = replace(job, plan=PLANS[it["plan"]])
        if it["cmd"] is not None:
            told, reply = commands.apply(job, it["cmd"], seen, "ada")
            assert told is job or reply.answer is None or not reply.answer.exit_code
            assert reply.answer is None or drawn(reply.answer, now_s)
            assert told.override.gen >= job.override.gen
            job = told
        job = advance(job, CalibrationSaid(it["trial"], None))[0]
        if it["failed"]:
            job = advance(job, PlanFailed(statement("no_new_plan", why="")))[0]
        before = replace(job, renewed_mono_s=float("-inf") if it["renew"] else mono_s)
        after, done = advance(before, Tick(seen))

        assert after.asked.gen >= before.asked.gen and after.override.gen >= before.override.gen
        assert after.progress.step >= before.progress.step
        assert after.asked.limit_w is None or after.spec.cap
        wants = [effect.want for effect in done if isinstance(effect, fx.SendWants)]
        assert len(wants) <= 1 and (wants or not it["renew"])
        for want in wants:
            assert want.want_gen == after.asked.gen
            assert want.mode == "run" or may_stand(after, seen)
            if seen.child.stopped:
                assert want.mode == "run", "held, it could not end in its own way"
        for effect in done:
            assert not isinstance(effect, fx.Hold) or seen.child.state in ("waiting", "unloaded")
            assert not isinstance(effect, fx.Freeze) or (after.spec.sigstop and it["guarded"] and not it["ranks"])
        lines = tuple(drawn(line, now_s) for line in notices.notices(after, seen, ()))
        shown = status.status(after, seen, host="h", pids=protocol.Pids(1, 2, 3, 4))
        shown = msgspec.structs.replace(shown, notices=lines)
        assert msgspec.json.decode(msgspec.json.encode(shown), type=protocol.Status) == shown
        assert drawn(after.decision, now_s)
        drawn_plan(after, seen)
        plan_request.plan_request(after, seen)
        job = after
