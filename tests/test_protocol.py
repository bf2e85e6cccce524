"""The wire: golden lines for every message, and nothing but valid numbers gets through."""

import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from carbontui import protocol as p
from carbontui.text import situation

GOLDEN = Path(__file__).parent / "golden"
T = "2030-02-11T08:00:00.000Z"

STATUS = p.Status(
    job="k3f9aa",
    name="train.py",
    host="box",
    measured_at=T,
    state="paused",
    reason=p.Reason(
        "plan",
        "paused by the plan until 02:15",
        p.statement("with_silent", reason=p.statement("plan_pause", until_s=1.9e9), silent=("n1",)),
    ),
    level="pause",
    situation=p.Situation(
        decided="cap 300 W",
        applied="full",
        refused=p.Refusal("no_permission", 300.0),
        held_by="person",
        since=T,
        until=T,
        watts=120.5,
        ahead=(p.Next(T, "full"),),
    ),
    next=p.Next(T, "full"),
    override=p.Override("cap", 300.0, T, "ada@pts/1"),
    override_gen=3,
    budget=p.BudgetStatus(T, T, 1.8, True),
    finish_expected=T,
    pids=p.Pids(1, 2, 3, 4),
    clients=1,
    step=1204,
    steps_total=5000,
    rate_steps_per_s=12.5,
    gpus=(p.Gpu("GPU-51a0", "NVIDIA H100 80GB HBM3", 118.2, 700.0, 117.9, 2**34, 0.0),),
    power_w=118.2,
    energy_gpu_kwh=1.234567,
    energy_wall_kwh=1.500001,
    gco2_g=432.1,
    avoided_g=87.6,
    cost=p.Cost(0.51, "EUR"),
    at_end=p.AtEnd(
        finish=T,
        energy_wall_kwh=4.5,
        gco2_g=1300.0,
        gco2_lo_g=1200.0,
        gco2_hi_g=1400.0,
        run_now_g=1600.0,
        avoided_g=300.0,
        avoided_lo_g=250.0,
        avoided_hi_g=350.0,
        cost=p.Cost(1.5, "EUR"),
    ),
    estimate=p.Estimate(
        work_s=400.0,
        work_lo_s=390.0,
        work_hi_s=410.0,
        energy_wall_kwh=4.0,
        energy_lo_kwh=3.9,
        energy_hi_kwh=4.1,
        drifting=True,
        drift=0.05,
        steps_seen=1204,
    ),
    allowances=(
        p.AllowanceStatus(
            kind="carbon", most=1200.0, unit="gCO2", used=432.1, expected=1300.0, used_up_at=T, act="cap"
        ),
    ),
    intensity=p.Intensity(301.5, "average_direct", "DE", T, 10800.0),
    certificate=p.Certificate(400.0, 0.0004, 2),
    notices=("SIMULATED GPU",),
    provenance={"gpus.0.power_w": p.Provenance("measured", "nvml avg1s", 0.4)},
)
PLAN = p.PlanView(
    made_at=T,
    start=T,
    first_s=300.0,
    slot_s=900.0,
    deadline=T,
    levels=(("pause", 3), ("full", 20)),
    table=(p.Level("pause", "pause", 118.0, 0.0), p.Level("cap 300 W", "cap", 300.0, 0.8, 300.0)),
    finish=T,
    gco2_g=1200.0,
    cost=0.0,
    kwh=4.2,
    avoided_g=200.0,
    certificate=p.Certificate(1199.0, 0.0008, 2),
    explanation="Pausing until 02:15 saves 0.41 kg.",
    baselines=(p.Baseline("run now", 1400.0, 0.0, T, True),),
)
BAND = p.Band(T, 900.0, (300.0, None), (250.0, None), (350.0, None), 1, "DE", "average_direct", "recorded", "replay")
SERIES = p.ChartSeries(T, p.Watts(T, 60.0, (650.0, None), {"GPU-51a0": (650.0, None)}), BAND, (2.5, 2.25), 2000.0)
FRONTIER = p.Frontier((p.FrontierPoint(86400.0, 1400.0, 0.0, 4.2, (("full", 96),)),), 0, 86400.0)

FROM_PEER = [
    p.Hello(1, "0.1.0", "rank", 4242, 99, "box", 0, 2, 0),
    p.Hello(1, "0.1.0", "viewer", by="ada@pts/1"),
    p.RankReport(
        1204,
        "running",
        3,
        rate=12.5,
        loss=2.25,
        epoch=1.5,
        total=5000,
        devices=("GPU-51a0",),
        calls=1204,
        timed=(1203, 0.25),
    ),
    p.Ack(3, 1204),
    p.View(2.0),
    p.Cmd(7, "cap", {"value_w": 300.0, "until": "next"}, 3),
    p.Preview(8, "1.8x", 80.0),
    p.StatusAsk(9),
    p.LogRead(10, -4096, 1024),
    p.HistoryAsk(11, 3600.0, 60),
    p.JobsAsk(12),
    p.AbilitiesAsk(14),
    p.EventsAsk(15, T, 20, True),
    p.GridAsk(16),
    p.RankReport(
        step=40,
        state="running",
        want_gen=0,
        work=p.WorkReport(
            before=0,
            place=1,
            counted=39,
            values={"__main__.done": 39},
            lengths=(20, None),
            leading=p.LoaderPasses(2, 0, 2, (0, 20), (20, 20), 19),
            bars=(("tqdm(total=)", 1.0, 3.0),),
            schedules=(("StepLR(T_max=)", 40, 60),),
            stage=p.FrameworkStage(3, 0, 60, "early stopping", 1, None, 0, (0, 0, 0, 0)),
        ),
    ),
]
TO_RANK = [
    p.DesiredState("pause", 3, 15.0),
    p.DesiredState("run", 4, 15.0, duty=0.5),
    p.DesiredState("unload", 5, 15.0, not_before=T),
]
TO_VIEWER = [
    p.Welcome(1, "0.1.0", 3),
    p.Snap(1, STATUS, SERIES, PLAN, FRONTIER),
    p.Delta(2, status=STATUS),
    p.Delta(3, series_tail=p.SeriesTail(1, T, (640.0,), {"GPU-51a0": (640.0,)}), plan=None),
    p.Result(7, False, "ada@pts/1 was faster (pause); look again and repeat", exit_code=2),
    p.Previewed(8, PLAN, T, 1200.0, 0.0, 4.2, instead=p.PlanTotals(PLAN, T, 1300.0, 0.0, 4.5)),
    p.StatusAnswer(9, STATUS),
    p.LogAnswer(10, 0, 5, 5, "hello"),
    p.HistoryAnswer(11, p.Watts(T, 60.0, (1.0,))),
    p.JobsAnswer(12, (STATUS,)),
    p.AbilitiesAnswer(14, (p.Ability("GPU 0 H100", "power limit", "no permission", "root", "sudo ..."),), ("full",)),
    p.EventsAnswer(15, (p.Event(T, "override", "ada@pts/1 paused it", "ada@pts/1"),)),
    p.GridAnswer(
        16, (p.GridSource("Energy-Charts", "answers", "average_direct", T, "", "energy-charts"),), "", "coal +2.1 GW"
    ),
    p.Refused("not a JSON object", 13),
]


@pytest.mark.parametrize(
    ("name", "messages"), [("from_peer", FROM_PEER), ("to_rank", TO_RANK), ("to_viewer", TO_VIEWER)]
)
def test_the_wire_reads_as_it_always_has(name, messages):
    """A change here is a change of the protocol: a peer of another version reads these very lines."""
    lines = [json.loads(p.encode(message)) for message in messages]
    assert lines == [json.loads(line) for line in (GOLDEN / f"{name}.jsonl").read_text().splitlines()]


def test_every_message_reads_back_as_itself():
    for message in FROM_PEER:
        assert p.decode_from_peer(p.encode(message)) == message
    for message in TO_VIEWER:
        assert p.decode_to_viewer(p.encode(message)) == message


def test_what_a_newer_peer_says_is_ignored_not_refused():
    assert p.decode_from_peer(b'{"t":"sing","song":1}') is None
    assert p.decode_from_peer(b'{"t":"ack","want_gen":1,"step":2,"mood":"fine"}') == p.Ack(1, 2)


@pytest.mark.parametrize(
    "line",
    [
        b'{"t":"obs","step":NaN,"state":"running","want_gen":0}',
        b'{"t":"obs","step":-1,"state":"running","want_gen":0}',
        b'{"t":"obs","step":1,"state":"flying","want_gen":0}',
        b'{"t":"obs","step":1,"state":"running","want_gen":0,"rate":1e999}',
        b'{"t":"obs","step":1,"state":"running","want_gen":0,"rate":Infinity}',
        b'{"t":"obs","step":1,"state":"running","want_gen":0,"timed":[1,-0.5]}',
        b'{"t":"obs","step":1,"state":"running","want_gen":0,"timed":[1]}',
        b'{"t":"view","rate_hz":0}',
        b"[" * 60_000,
        b"not json",
        b"42",
        b'{"t":"obs"}',
        b'{"t":["obs"]}',
        b"\xff\xfe",
        b'{"t":"hello","v":1,"version":"x","role":"king"}',
        b" " * (p.LINE_MAX + 1),
    ],
)
def test_what_is_not_valid_is_refused_whole(line):
    with pytest.raises(p.BadMessage):
        p.decode_from_peer(line)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=300))
def test_no_bytes_do_more_than_be_refused(line):
    try:
        message = p.decode_from_peer(line)
    except p.BadMessage:
        return
    assert message is None or isinstance(message, msgspec.Struct)


@settings(max_examples=200, deadline=None)
@given(
    st.fixed_dictionaries(
        {
            "t": st.sampled_from(["obs", "view"]),
            "step": st.integers(-1, 2**54) | st.floats() | st.text(max_size=5),
            "state": st.sampled_from(["running", "paused", "x"]),
            "want_gen": st.integers(-1, 2**54),
        },
        optional={"rate": st.floats() | st.none(), "rate_hz": st.floats()},
    )
)
def test_numbers_that_get_through_are_finite_and_in_range(fields):
    try:
        message = p.decode_from_peer(json.dumps(fields).encode())
    except p.BadMessage:
        reject()
    if isinstance(message, p.RankReport):
        assert 0 <= message.step <= 2**53 and (message.rate is None or 0 <= message.rate <= 1e18)
    if isinstance(message, p.View):
        assert 0 < message.rate_hz <= 10


@pytest.mark.parametrize(
    "line",
    [
        b'{"t":"history","id":1,"span":1e300,"buckets":10}',
        b'{"t":"history","id":1,"span":3600,"buckets":1000000000}',
        b'{"t":"log.read","id":1,"offset":9223372036854775807,"max":10}',
        b'{"t":"log.read","id":1,"offset":-9223372036854775808,"max":10}',
        b'{"t":"view","rate_hz":1e300}',
    ],
)
def test_numbers_that_nobody_can_mean_are_refused_where_they_arrive(line):
    with pytest.raises(p.BadMessage):
        p.decode_from_peer(line)


def test_a_reason_code_of_a_newer_supervisor_is_read_with_its_text():
    line = p.encode(p.StatusAnswer(1, STATUS)).replace(b'"code":"plan"', b'"code":"tides"')
    assert p.decode_to_viewer(line).status.reason == p.Reason("tides", STATUS.reason.text, STATUS.reason.said)
    newer = line.replace(b'"with_silent"', b'"with_tides"')
    assert situation.reason(p.decode_to_viewer(newer).status) == STATUS.reason.text
