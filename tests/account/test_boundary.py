"""What counts of a machine, against an evaluator that adds up watts second by second and shares no code with ours."""

import itertools
import random
import sys
from pathlib import Path

import pytest

from carbontui import units
from carbontui.account.accounts import run_now
from carbontui.account.boundary import Draw, charged_w, counted
from carbontui.grid.types import Row
from carbontui.job.files.journal import Journal
from carbontui.job.supervisor.core.planning import problem
from carbontui.job.supervisor.core.state.plan import Level
from carbontui.job.supervisor.record.accounting import Accounting
from carbontui.job.supervisor.record.restoring import restore
from carbontui.job.terms.clock import Clock
from carbontui.job.terms.spec import Options
from carbontui.power.messages import Sample

sys.path.append(str(Path(__file__).parents[2] / "examples"))
import audit

START_S, PUE, HOST_W, RENT = 1_800_000_000.0, 1.2, 250.0, 2.4
FULL_W, PARKED_W, IDLE_W, CAPPED_W = 650.0, 118.0, 70.0, 430.0
BUSY_W, QUIET_W, IDLING_W = 60.0, 20.0, 15.0
"""CPU and memory at work, while paused, and without the job's work."""
WORK = ("running", FULL_W, BUSY_W)
EVENTS = {
    "wait": ("waiting", IDLE_W, IDLING_W),
    "pause": ("paused", PARKED_W, QUIET_W),
    "unload": ("unloaded", IDLE_W, IDLING_W),
    "cap": ("throttled", CAPPED_W, BUSY_W),
    "crash": WORK,
    "try": ("try", FULL_W, BUSY_W),
}
BOUNDARIES = [("held", False), ("held", True), ("always-on", False), ("given-back", False)]
SCENARIOS = [
    (kind, gives_back, event, seed)
    for seed, ((kind, gives_back), event) in itertools.product(range(3), itertools.product(BOUNDARIES, EVENTS))
]


def intensity(at_s):
    return 100.0 + 37.0 * ((at_s // 300) % 11)


def seconds_of(event, seed):
    """(state, board watts, CPU and memory watts) of every second: work, the event, work; waits and tries come first."""
    draw = random.Random(f"{event} {seed}")
    before, held, after = (draw.randint(200, 1200) for _ in range(3))
    first = 0 if event in ("wait", "try") else before
    return [*[WORK] * first, *[EVENTS[event]] * held, *[WORK] * after], first


def foreign_boards(timeline, kind, gives_back):
    """kWh and grams at the wall, those excluded, run-now's grams, and the rent, by one addition per second."""
    kwh = grams = apart_kwh = rent = at_speed_j = 0.0
    at_speed_s = capped_s = 0
    for second, (state, board_w, rest_w) in enumerate(timeline):
        away = state == "waiting" or state == "unloaded"
        watts = board_w + rest_w + HOST_W
        if kind == "always-on":
            watts = 0.0 if away else board_w - IDLE_W + rest_w - IDLING_W
        elif (away and kind == "given-back") or (state == "unloaded" and gives_back):
            watts = 0.0
        used = watts * PUE / 3.6e6
        if state == "try":
            apart_kwh += used
            continue
        kwh, grams = kwh + used, grams + used * intensity(START_S + second)
        rent += RENT / 3600 if watts else 0.0
        if state == "running":
            at_speed_s, at_speed_j = at_speed_s + 1, at_speed_j + watts
        capped_s += state == "throttled"
    full_w = FULL_W - IDLE_W + BUSY_W - IDLING_W if kind == "always-on" else FULL_W + BUSY_W + HOST_W
    work_s = at_speed_s + 0.8 * capped_s
    mean_w = (at_speed_j + full_w * 0.8 * capped_s) * PUE / work_s
    flat, at = 0.0, 0.0
    while at < work_s:
        step = min(1.0, work_s - at)
        flat += mean_w * step / 3.6e6 * intensity(START_S + at)
        at += step
    return kwh, grams, apart_kwh, flat, rent


def ours(timeline, first, event, kind, gives_back, folder):
    spec = Options(
        job="b", name="b", dir="", argv=(), cwd="", log="", socket="", created_s=START_S, pue=PUE, boundary=kind,
        gives_back=gives_back, gpu_price=RENT, currency="EUR", price_per_kwh=0.0,
    )  # fmt: skip

    def life():
        account = Accounting(spec, Clock(), Journal(folder / "j.db"), "boot")
        restore(account)
        account.idle_w = {"GPU-a": IDLE_W, "cpu": IDLING_W}
        return account

    account, counter = life(), 0.0
    for second in range(len(timeline) + 1):
        state, board_w, rest_w = timeline[max(0, second - 1)]
        if second:
            counter += board_w * 1e6
        if event == "crash" and first <= second < first + 90:
            if second == first:
                account.write(everything=True)
                account.keep()
                account.journal.commit()
                account.journal.close()
            continue
        if event == "crash" and second == first + 90:
            account = life()
        at = {"mono_s": float(second), "wall_s": START_S + second}
        samples = [
            Sample(uuid="GPU-a", energy_uj=round(counter), power_w=board_w, kind="avg1s", max_w=700.0, **at),
            Sample(uuid="cpu", power_w=rest_w, how="estimated", kind="model", share=1.0, **at),
        ]
        account.meter_samples(samples, state, frozenset({"GPU-a"}))
        if second:
            more_s = 0.8 if state == "throttled" else 1.0
            account.pass_time(START_S + second, 1.0, state, work_s=more_s, paused=state == "waiting", host_w=HOST_W)
    account.realised(
        [Row(START_S + at, 300.0, intensity(START_S + at), "actual") for at in range(-300, len(timeline) + 900, 300)],
        "average", "t",
    )  # fmt: skip
    machine = problem.Machine(
        full_w=FULL_W, idle_w=IDLE_W, rest_w=BUSY_W, rest_idle_w=IDLING_W, host_w=HOST_W, boundary=kind
    )
    flat = run_now(account.elapsed, pue=PUE, full_wall_w=machine.full_charged_w * PUE, rate=None)
    totals = account.totals(start_s=START_S, run_now=flat._replace(acted=True), nowcast=None, gpus=1)
    apart = sum(one.energy_wall_kwh for one in totals.excluded)
    account.write(everything=True)
    account.journal.keep("accounts", {"pue": PUE, "boundary": kind})
    account.journal.close()
    audited = audit.audit(folder / "j.db")
    assert (audited["energy_wall_kwh"], audited["gco2_g"]) == pytest.approx((totals.wall_kwh, totals.gco2_g), rel=1e-6)
    return totals.wall_kwh, totals.gco2_g, apart, totals.run_now_g, totals.cost.value


@pytest.mark.parametrize(("kind", "gives_back", "event", "seed"), SCENARIOS)
def test_an_account_is_what_a_stranger_adds_up(kind, gives_back, event, seed, tmp_path) -> None:
    timeline, first = seconds_of(event, seed)
    expected = foreign_boards(timeline, kind, gives_back)
    found = ours(timeline, first, event, kind, gives_back, tmp_path)
    for name, theirs, own in zip(("kWh", "g", "kWh apart", "run-now g", "rent"), expected, found, strict=True):
        assert own == pytest.approx(theirs, rel=0.005, abs=1e-6), name


@pytest.mark.parametrize(("kind", "gives_back"), BOUNDARIES)
def test_a_plan_charges_what_the_account_books(kind, gives_back) -> None:
    machine = problem.Machine(
        full_w=FULL_W, parked_w=PARKED_W, idle_w=IDLE_W, rest_w=BUSY_W, rest_parked_w=QUIET_W, rest_idle_w=IDLING_W,
        host_w=HOST_W, boundary=kind, gives_back=gives_back, can_unload=True,
    )  # fmt: skip
    planned = {level.kind: level for started in (False, True) for level in problem.levels_of(machine, started=started)}
    states = {"off": "wait", "unload": "unload", "pause": "pause", "full": "crash"}
    for name, event in states.items():
        kwh = foreign_boards([EVENTS[event], WORK], kind, gives_back)[0] - foreign_boards([WORK], kind, gives_back)[0]
        if name == "off" and gives_back:
            kwh = 0.0  # a start that a successor makes is waited for in the queue
        assert machine.charged_w(planned[name]) * PUE == pytest.approx(kwh * units.J_PER_KWH), name
    cap = Level("cap 430 W", "cap", CAPPED_W, 0.8)
    assert machine.charged_w(cap) == charged_w(
        counted(kind, "here"), Draw(CAPPED_W, BUSY_W, HOST_W), Draw(IDLE_W, IDLING_W)
    )


@pytest.mark.parametrize(("kind", "joules"), [("held", 100.0), ("always-on", 60.0)])
def test_others_work_is_not_counted_before_the_jobs_share_is_known(kind, joules, tmp_path) -> None:
    spec = Options(
        job="b", name="b", dir="", argv=(), cwd="", log="", socket="", created_s=START_S, pue=1.0, boundary=kind
    )
    account = Accounting(spec, Clock(), Journal(tmp_path / "j.db"), "boot")
    account.idle_w, account.idle_doubts = {"cpu": 20.0}, {"cpu": 0.5}
    found = []
    for second, share in enumerate((None, None, 0.25)):
        at = {"mono_s": float(second), "wall_s": START_S + second}
        sample = Sample(uuid="cpu", power_w=200.0, how="estimated", kind="model", share=share, **at)
        account.meter_samples([sample], "running", frozenset())
        found.append(account.ledger.rest_j)
    assert found == [0.0, 0.0, pytest.approx(joules)]  # a quarter of 200 W over the two seconds, less what idles
    assert account.ledger.idle_doubt_j == pytest.approx((100.0 - joules) / 2)


def test_a_light_job_never_shows_less_than_nothing_and_adds_up_in_the_end(tmp_path) -> None:
    spec = Options(
        job="b", name="b", dir="", argv=(), cwd="", log="", socket="", created_s=START_S, pue=1.0, boundary="always-on"
    )
    account, found = Accounting(spec, Clock(), Journal(tmp_path / "j.db"), "boot"), []
    for second in range(201):
        account.idle_w = {"cpu": (5.5, 7.0)[second % 2]}  # 6.25 W, read at another moment than the samples
        told = {"how": "estimated", "kind": "model", "share": 1.0, "mono_s": float(second), "wall_s": START_S + second}
        samples = [Sample(uuid=name, power_w=watts, **told) for name, watts in (("cpu", 1.5), ("dram", 5.0))]
        account.meter_samples(samples, "running", frozenset())
        found.append(account.ledger.rest_j)
    assert min(found) >= 0 and found == sorted(found)  # what was shown is never taken back
    assert found[-1] == pytest.approx(200 * 0.25, abs=2.0)
