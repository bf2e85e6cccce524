"""A job at several machines: its account is the sum of its places, each by its own grid, and nothing of one is the
other's."""

import json
import sqlite3
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from states import FULL, board, inputs, job_state

from carbontui import protocol, units
from carbontui.grid.types import Row
from carbontui.job.files import places
from carbontui.job.files.journal import Journal
from carbontui.job.supervisor.core.state.boards import Boards
from carbontui.job.supervisor.core.state.decision import Decision, Desired
from carbontui.job.supervisor.core.state.measured import Mean, Measured
from carbontui.job.supervisor.core.state.override import Overrides
from carbontui.job.supervisor.core.state.progress import Progress
from carbontui.job.supervisor.core.view.provenance import sources
from carbontui.job.supervisor.core.view.status import status as status_of
from carbontui.job.supervisor.record.accounting import Accounting
from carbontui.job.supervisor.record.disk import Recorder
from carbontui.job.supervisor.record.handover import Handover, basis, elsewhere
from carbontui.job.supervisor.record.restoring import restore
from carbontui.job.supervisor.record.so_far import baseline, totals_so_far
from carbontui.job.terms import spec
from carbontui.job.terms.clock import Clock
from carbontui.protocol import Account, Amounts, Why, statement
from carbontui.reports import formats, story

sys.path.append(str(Path(__file__).parents[2] / "examples"))
import audit

RUNNING = Decision("running", Why("plan", statement("plan_full", until_s=None)), FULL)
NOTHING = Account(so_far=Amounts(elapsed_s=0.0, steps=0, energy_gpu_kwh=0.0, energy_wall_kwh=0.0, gco2_g=None))


class Machine:
    """One stay of a job at a machine: its supervisor's accounting on the journal that came with the job."""

    def __init__(self, folder, job, *, pue=1.0, boot="boot"):
        self.job = replace(job, spec=structs.replace(job.spec, dir=str(folder), pue=pue))
        self.journal = Journal(folder / "journal.db")
        self.account = Accounting(self.job.spec, Clock(), self.journal, boot)
        self.moved = restore(self.account)
        self.at = max(job.start_s, self.account.elapsed.until_s)

    def live(self, state, seconds, watts, steps=0):
        done = self.account.elapsed.steps_done
        for second in range(seconds):
            self.account.add("GPU-a", self.at, self.at + 1, watts, "counter", state, 0.0, gpu=True)
            self.account.elapsed.drew(watts, state, gpu=True)
            self.at += 1
            self.account.pass_time(self.at, 1.0, state, steps=done + round(steps * (second + 1) / seconds))

    def totals(self):
        return totals_so_far(self.account, self.job, inputs(self.at, boards=(board(),)))

    def leave(self):
        """As a supervisor that is told to."""
        seen, found = inputs(self.at, boards=(board(),)), self.totals()
        state = replace(self.job, totals=found)
        self.account.write(everything=True)
        self.account.keep()
        before_g, flat = self.account.carried_over.gco2_g, baseline(self.account, state, seen)
        self.journal.keep("accounts", basis(state, seen, flat, before_g, NOTHING))
        self.journal.close()
        return found


def move(folder, job, place_totals):
    """places.json of a job that is now at the last of these (host, zone, since)."""
    folder.mkdir(parents=True, exist_ok=True)
    known = tuple(places.Stay(host, zone, since=since, bytes=1000, took_s=2.0) for host, zone, since in place_totals)
    places.write(folder, places.Places(len(place_totals), holder=True, leased=False, places=known))


def rows(start_s, values, dur_s=900.0):
    first = start_s // dur_s * dur_s
    return [Row(first + index * dur_s, dur_s, value) for index, value in enumerate(values)]


def work():
    return job_state(progress=Progress(work_s=9000.0), decision=RUNNING)


def test_what_was_used_before_a_move_stays_by_its_own_grid(tmp_path):
    job = work()
    here = Machine(tmp_path, job)
    here.account.realised(rows(job.start_s, [400.0]), "average", "DE's")
    here.live("running", 100, 600.0, steps=50)
    before = here.leave()
    assert before.places == () and before.moves_cost is None
    move(tmp_path, job, [("n1", "DE", job.start_s), ("n2", "SE", job.start_s + 110.0)])
    there = Machine(tmp_path, job)
    assert there.moved and there.account.place_totals.since_s == job.start_s + 110.0
    # SE's values of the whole day, the hour of before the move among them
    there.account.realised(rows(job.start_s - 3600.0, [20.0] * 40), "average", "SE's")
    there.at = job.start_s + 110.0
    there.live("switching", 10, 300.0)
    there.live("running", 90, 600.0, steps=70)
    found = there.totals()
    one, two = found.places
    assert (one.host, one.zone, one.steps) == ("n1", "DE", 50) and (two.host, two.zone, two.steps) == ("n2", "SE", 70)
    # ten seconds on the way, in which the machine that was left idled
    way_kwh = found.moves_cost.energy_wall_kwh
    assert 0.0 < way_kwh < units.joules_to_kwh(1100.0)
    assert one.energy_wall_kwh == pytest.approx(before.wall_kwh + way_kwh, abs=2e-9)
    assert before.gco2_g == pytest.approx(units.joules_to_kwh(60e3) * 400.0)
    assert one.gco2_g == pytest.approx(before.gco2_g + way_kwh * 400.0, abs=2e-6)
    assert found.moves_cost.gco2_g == pytest.approx(way_kwh * 400.0, abs=1e-6)
    assert two.gco2_g == pytest.approx(units.joules_to_kwh(57e3) * 20.0, abs=1e-6)
    assert found.gco2_g == pytest.approx(one.gco2_g + two.gco2_g, abs=2e-6)
    assert found.wall_kwh == pytest.approx(one.energy_wall_kwh + two.energy_wall_kwh, abs=2e-9)
    # run-now does the same work where it was done; the move itself saves nothing, and costs what it drew
    cost_g = units.joules_to_kwh(3000.0) * 20.0 + way_kwh * 400.0
    assert found.avoided_g == pytest.approx(-cost_g, rel=0.01)


def test_the_journal_keeps_the_rows_of_before_and_later_looks_find_the_same(tmp_path):
    job = work()
    here = Machine(tmp_path, job)
    here.account.realised(rows(job.start_s, [400.0]), "average", "DE's")
    here.live("running", 100, 600.0, steps=50)
    here.leave()
    at_s = job.start_s + 100.0
    move(tmp_path, job, [("n1", "DE", job.start_s), ("n2", "SE", at_s)])
    there = Machine(tmp_path, job)
    there.account.realised(rows(job.start_s - 7200.0, [20.0] * 40), "average", "SE's")
    there.live("running", 100, 600.0, steps=50)
    told = there.leave()
    with sqlite3.connect(tmp_path / "journal.db") as db:
        by_place = db.execute(
            "select (select source from grid where start <= t0 order by start desc limit 1), sum(joules)"
            " from energy group by t0 >= ?",
            (at_s,),
        ).fetchall()
    assert by_place == [("DE's", 60e3), ("SE's", 60e3)], "a stranger to the package finds each joule's own zone"
    found = audit.audit(tmp_path / "journal.db")
    assert (found["energy_wall_kwh"], found["gco2_g"]) == pytest.approx((told.wall_kwh, told.gco2_g), rel=1e-6)
    heir = Machine(tmp_path, job)
    assert not heir.moved
    again = heir.totals()
    assert (again.places, again.gco2_g) == (told.places, pytest.approx(told.gco2_g, abs=1e-6))
    heir.account.realised(rows(job.start_s - 7200.0, [30.0] * 40), "average", "SE's")
    revised = heir.totals()
    assert revised.places[0] == told.places[0] and revised.places[1].gco2_g > told.places[1].gco2_g


spent = st.tuples(
    st.sampled_from(["running", "paused", "throttled", "unloaded", "switching"]), st.integers(1, 200), st.floats(0, 900)
)
stay = st.tuples(
    st.lists(spent, min_size=1, max_size=3),
    st.floats(5, 900),
    st.floats(1, 2),
    st.integers(-30, 900),
    st.integers(0, 9),
)


@given(place_totals=st.lists(stay, min_size=2, max_size=4), kind=st.sampled_from(["held", "given-back"]))
@settings(max_examples=40, deadline=None)
def test_the_account_is_the_sum_of_its_places_whatever_happens(tmp_path_factory, place_totals, kind):
    folder, job = tmp_path_factory.mktemp("job"), work()
    job = replace(job, spec=structs.replace(job.spec, boundary=kind))
    been, grams, kwh = [], 0.0, 0.0
    at_s = job.start_s
    for index, (parts, value, pue, gap_s, steps) in enumerate(place_totals):
        been.append((f"n{index}", f"Z{index}", at_s))
        if index:
            move(folder, job, been)
        machine = Machine(folder, job, pue=pue)
        assert machine.moved is bool(index)
        machine.at = max(machine.at, at_s)
        machine.account.realised(rows(job.start_s - 3600.0, [value] * 60), "average", f"Z{index}'s")
        for state, seconds, watts in parts:
            machine.live(state, seconds, watts, steps)
        found = machine.leave()
        at_s = machine.at + gap_s
    assert [place.zone for place in found.places] == [f"Z{index}" for index in range(len(place_totals))]
    kwh = sum(place.energy_wall_kwh for place in found.places)
    grams = sum(place.gco2_g for place in found.places)
    assert found.wall_kwh == pytest.approx(kwh, rel=1e-6, abs=1e-8)
    assert found.gco2_g == pytest.approx(grams, rel=1e-6, abs=1e-5)
    assert sum(place.steps for place in found.places) == machine.account.elapsed.steps_kept
    for place, (_, value, *_) in zip(found.places, place_totals, strict=True):
        assert place.gco2_g == pytest.approx(place.energy_wall_kwh * value, rel=1e-6, abs=1e-5)
    assert found.moves_cost.bytes == 1000 * len(place_totals) and found.moves_cost.s == 2.0 * len(place_totals)
    covered = found.coverage
    assert covered.metered_s + covered.gap_s == pytest.approx(machine.at - job.start_s, abs=0.01)


def test_a_report_adds_up_over_the_machines_and_each_lever_by_its_own_grid(tmp_path):
    job = work()
    been = [("n1", "DE", job.start_s)]
    here = Machine(tmp_path, job)
    here.account.realised(rows(job.start_s, [400.0] * 4), "average", "DE's")
    here.live("running", 100, 600.0, steps=50)
    here.live("paused", 50, 100.0)
    here.leave()
    move(tmp_path, job, [*been, ("n2", "SE", here.at + 20.0)])
    there = Machine(tmp_path, job, pue=1.2)
    there.account.realised(rows(job.start_s - 7200.0, [20.0] * 40), "average", "SE's")
    there.at = here.at + 20.0
    there.live("running", 100, 600.0, steps=50)
    there.live("paused", 50, 100.0)
    found = there.leave()
    spec.save(there.job.spec)
    seen = inputs(there.at, boards=(board(),))
    told = status_of(replace(there.job, totals=found), seen, host="n2", pids=protocol.Pids(None, None, None, None))
    run = story.build(SimpleNamespace(id=job.spec.job, dir=tmp_path), status=told)
    for name in ("kwh", "gco2_g"):
        whole = getattr(run, {"kwh": "energy_wall_kwh"}.get(name, name))
        assert sum(getattr(part, name) for part in run.by_state) == pytest.approx(whole, rel=1e-6)
        assert sum(getattr(part, name) for part in run.by_device) == pytest.approx(whole, rel=1e-6)
    assert run.split.emitted_g == pytest.approx(found.gco2_g, rel=1e-6)
    assert run.split.avoided_g == pytest.approx(found.avoided_g, rel=1e-6)
    parked_g = units.joules_to_kwh(5000.0) * 400.0 + units.joules_to_kwh(5000.0 * 1.2) * 20.0
    assert run.split.parked_g == pytest.approx(-parked_g, rel=1e-6)
    assert run.chart.emitted_g[-1] == pytest.approx(found.gco2_g, rel=1e-6)
    assert run.chart.run_now_g[-1] == pytest.approx(found.run_now_g, rel=1e-6)
    numbers = formats.numbers(run)
    known = sources(replace(there.job, totals=found), seen, told)
    assert known["places"].how == known["gco2_g"].how and known["moves_cost"].how == "estimated"
    assert sum(place["gco2_g"] for place in numbers["places"]) == pytest.approx(numbers["gco2_g"], abs=2e-6)
    assert numbers["moves_cost"]["bytes"] == 2000
    page = formats.markdown(run)
    assert "## By machine" in page and "| n1 | DE | 50 |" in page and "| moves |" in page


def test_work_deadline_and_orders_go_on_and_what_was_measured_there_does_not(tmp_path):
    work_there = Progress(steps_total=1000, step=400, ref_steps=200.0, ref_time_s=100.0, ref_wall_s=100.0)
    held = protocol.Override("cap", 300.0, None, "me@tty")
    job = job_state(dir=str(tmp_path), progress=work_there, override=Overrides(held, 7, None), budget="3x",
                    measured=Measured(full_w={"GPU-a": Mean(600.0, 50)}, reload_s=Mean(9.0, 3)),
                    boards=Boards(named=("GPU-a",)), asked=Desired(limit_w=300.0, gen=4))  # fmt: skip
    deadline_s = job.budget_deadline_s
    assert deadline_s == job.start_s + 3 * 500.0

    def supervisor():
        book = Journal(tmp_path / "journal.db")
        account = Accounting(job.spec, Clock(), book, "boot")
        return Handover(book, account, Recorder(book, Clock()), lambda part: nullcontext(), tmp_path)

    here = supervisor()
    here.keep(job, inputs(boards=(board(),)))
    here.journal.close()
    fresh = job_state(dir=str(tmp_path), budget="3x")
    heir = supervisor().restore(fresh, job.start_s + 100.0, 1.0)
    assert (heir.measured, heir.boards.named) == (job.measured, ("GPU-a",)), "here it would go on as it was"
    move(tmp_path, job, [("n1", "DE", job.start_s), ("n2", "SE", job.start_s + 110.0)])
    there = supervisor().restore(fresh, job.start_s + 110.0, 1.0)
    assert (there.measured, there.boards, there.asked, there.plan) == (Measured(), Boards(), Desired(), None)
    assert there.override == job.override and there.budget_deadline_s == deadline_s
    assert (there.progress.step, there.progress.left_s) == (400, 300.0), "at the speed of there until it is measured"
    # three times as fast
    faster = structs.replace(there.progress, ref_steps=60.0, ref_time_s=10.0, ref_wall_s=10.0)
    after = replace(there, progress=faster)
    assert (after.progress.left_s, after.budget_deadline_s) == (100.0, deadline_s)


def test_hours_of_work_are_as_many_steps_on_another_machine(tmp_path):
    there = elsewhere(job_state(progress=Progress(work_s=1000.0, step=400, ref_steps=200.0, ref_time_s=100.0,
                                                   ref_wall_s=100.0)))  # fmt: skip
    assert there.progress.left_s == 800.0
    faster = structs.replace(there.progress, ref_steps=60.0, ref_time_s=15.0, ref_wall_s=15.0)
    assert faster.left_s == 400.0


def test_a_machine_that_was_lost_with_its_books_is_not_guessed(tmp_path):
    job = work()
    here = Machine(tmp_path, job)
    here.account.realised(rows(job.start_s, [400.0]), "average", "DE's")
    here.live("running", 100, 600.0, steps=50)
    here.leave()
    start = job.start_s
    move(tmp_path, job, [("n1", "DE", start), ("n2", "SE", start + 100.0), ("n1", "DE", start + 400.0)])
    back = Machine(tmp_path, job)
    back.at = start + 400.0
    back.live("running", 100, 600.0, steps=40)
    found = back.totals()
    assert [place.gco2_g is None for place in found.places] == [False, True, False]
    assert found.places[1].energy_wall_kwh is None and found.places[1].steps is None
    assert found.gco2_g == pytest.approx(found.places[0].gco2_g + found.places[2].gco2_g, abs=1e-5)


def test_a_job_that_never_moved_keeps_nothing_of_it(tmp_path):
    alone = Machine(tmp_path, work())
    alone.live("running", 10, 600.0)
    alone.leave()
    with sqlite3.connect(tmp_path / "journal.db") as db:
        books = json.loads(db.execute("select value from state where key='books'").fetchone()[0])
    assert not {"left", "moves", "moving_j"} & set(books)
