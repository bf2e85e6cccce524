"""Grid events: what is refused, what is taken, whose watts go first, that no deadline is broken, and the receipt."""

from __future__ import annotations

import hashlib
import json
import time
from itertools import count

import pytest
from msgspec import structs

from carbontui import units
from carbontui.extensions.site import events
from carbontui.extensions.site.events import EventError, GridEvent
from carbontui.extensions.site.ledger import Ledger, LedgerEntry
from carbontui.extensions.site.receipt import JobRows, JoulesRow, counted_once, receipt, rows_of
from carbontui.extensions.site.sharing import SiteBudget
from carbontui.headroom import Claim
from carbontui.job.files import store
from carbontui.job.files.journal import Journal

NOW_S = 1_800_000_000.0
HOUR_S = 3600.0


def asked(**fields) -> bytes:
    known = {"id": "e1", "start": units.iso(NOW_S + 60), "duration_s": HOUR_S, "within_s": 30, "shed_w": 600}
    return json.dumps({name: value for name, value in {**known, **fields}.items() if value is not None}).encode()


MALFORMED = {
    b"": "truncated",
    b"no": "not a grid event",
    b"[]": "Expected `object`, got `array`",
    b"\xff\xfe": "not a grid event",
    b"[" * 3000: "not a grid event",
    asked(shed_W=5): "unknown field `shed_W`",
    asked(id=None): "missing required field `id`",
    asked(start=None): "missing required field `start`",
    asked(id="../e"): "letters, digits",
    asked(id="x" * 65): "letters, digits",
    asked(start="tomorrow"): "is not a time",
    asked(start="2027-01-15T18:00:00"): "has no zone",
    asked(start=units.iso(NOW_S - 2 * HOUR_S)): "in the past",
    asked(start=units.iso(NOW_S + 400 * 86400)): "more than a year ahead",
    asked(duration_s=0): "duration_s is 0",
    asked(duration_s="1h"): "Expected `float`",
    asked(within_s=-1): "within_s is -1",
    asked(within_s=2 * HOUR_S): "within_s is 7200",
    asked(ramp_s=-5): "ramp_s is -5",
    asked(shed_w=-100): "shed_w is -100",
    asked(shed_w=None): "either shed_w or target_w",
    asked(target_w=100): "either shed_w or target_w",
    asked(shed_w=None, target_w=-1): "target_w is -1",
    asked().replace(b"600", b"1e400"): "not a grid event",
    asked().replace(b"600", b"NaN"): "not a grid event",
}


@pytest.mark.parametrize(("data", "said"), MALFORMED.items(), ids=count())
def test_a_malformed_event_is_refused_by_name(data, said):
    with pytest.raises(EventError) as error:
        events.parse(data, NOW_S, "me")
    assert said in str(error.value) and "\n" not in str(error.value)


def test_an_event_that_has_begun_elsewhere_begins_here_when_it_is_told():
    begun = events.parse(asked(start=units.iso(NOW_S - 600), target_w=None), NOW_S, "me")
    assert (begun.start_s, begun.end_s) == (NOW_S, NOW_S + 3000) and begun.state(NOW_S) == "active"


def test_an_event_that_has_begun_keeps_its_start_and_what_it_is_measured_against():
    first = events.parse(asked(start=units.iso(NOW_S)), NOW_S, "me")
    first = structs.replace(first, baseline_w=900.0, baseline_method="plan", jobs=("a",))
    new = events.parse(asked(start=units.iso(NOW_S + 300), duration_s=9000.0, shed_w=50.0), NOW_S + 200, "me")
    known = events.changed(first, new)
    assert (known.start_s, known.end_s, known.most_w, known.jobs) == (NOW_S, NOW_S + 9300, 850.0, ("a",))
    with pytest.raises(EventError, match="e1 is known already, and over"):
        events.changed(first, structs.replace(new, taken_s=first.end_s + 1))


def test_the_command_line_takes_cancels_and_refuses_events_in_one_line(house):
    file = house.root / "event.json"
    begin = time.time() + HOUR_S

    def site(*args, **fields):
        file.write_bytes(asked(start=units.iso(begin), **fields))
        done = house.cli("site", *args)
        assert len(done.stderr.splitlines()) == (done.returncode != 0), done.stderr
        return done

    assert site("--event", "event.json").returncode == 0
    assert site("--event", "event.json", shed_w=100.0).returncode == 0
    assert [one["asked_w"] for one in json.loads(site("--json").stdout)["events"]] == [100.0], "changed under its id"
    over = site("--event", "event.json", id="e2")
    assert over.returncode == 2 and "overlaps with e1" in over.stderr and "site --cancel e1" in over.stderr
    assert site("--event", "none.json").returncode == 2
    assert site("--event", "event.json", id="e3", oops=1).returncode == 2
    assert site("--event", "event.json", "--cap", "1kW").returncode == 2
    assert "nothing was asked" in site("--receipt", "e1").stderr
    assert site("--receipt", "e9").returncode == 3
    shown = json.loads(site("--json").stdout)["events"]
    assert [(one["id"], one["state"], one["can_shed_w"]) for one in shown] == [("e1", "pending", None)]
    assert site("--cancel", "e1").returncode == 0
    again = site("--cancel", "e1")
    assert again.returncode == 3 and "event e1 is cancelled" in again.stderr
    assert site("--cancel", "e9").returncode == 3
    same = site("--event", "event.json")
    assert same.returncode == 2 and "event e1 is known already, and cancelled" in same.stderr
    total = site("--event", "event.json", id="e2", shed_w=None, target_w=400.0)
    assert "grid event e2, to come: 400 W at most by all GPUs, " in total.stdout and "fewer" not in total.stdout
    shown = json.loads(site("--json").stdout)["events"]
    assert {one["id"]: one["state"] for one in shown} == {"e1": "cancelled", "e2": "pending"}
    assert "e1" not in house.cli("site").stdout, "what will never begin is not told as one to come, nor as one ending"


def test_an_event_cancelled_before_it_began_does_not_hide_the_next_one():
    one, other = (
        events.parse(asked(id=name, start=units.iso(NOW_S + begin)), NOW_S, "me")
        for name, begin in (("e1", HOUR_S), ("e2", 3 * HOUR_S))
    )
    assert events.current([events.cancelled(one, NOW_S + 60), other], NOW_S + 61).id == "e2"


def job(name: str, **fields) -> Claim:
    known = {"full_w": 700.0, "least_w": 200.0, "floor_w": 100.0, "wants_w": 700.0, "held_w": 700.0}
    return Claim(job=name, **{"promised_w": 200.0, "expected_w": 700.0, **known, **fields})


class Site:
    """Jobs of a machine that exchange their claims once a second, and draw what they may."""

    def __init__(self, folder, *claims: Claim) -> None:
        self.ledger = Ledger(folder, administrator=folder / "none", alive=lambda *_: True, boot_id="b")
        self.claims = {claim.job: claim for claim in claims}
        self.allowed = {claim.job: claim.full_w for claim in claims}
        self.now_s = NOW_S

    @property
    def drawn_w(self) -> float:
        return sum(self.allowed.values())

    def pass_time(self, seconds: int, turn=None) -> list[float]:
        """Watts drawn in each second. `turn(second)` may change the claims before."""
        drawn = []
        for second in range(seconds):
            self.now_s += 1.0
            if turn is not None:
                turn(second)
            for number, (name, claim) in enumerate(self.claims.items()):
                mine = LedgerEntry(
                    claim=structs.replace(claim, held_w=self.allowed[name]), boot_id="b",
                    beat_mono_s=self.now_s, supervisor=(number + 1, 1),
                )  # fmt: skip
                share = self.ledger.exchange(mine, self.now_s)
                self.allowed[name] = claim.wants_w if share is None else min(claim.wants_w, share.now_w)
            drawn.append(self.drawn_w)
        return drawn


def test_eight_jobs_reach_it_at_once_hold_it_and_come_back(tmp_path):
    """A replay of the exchange, second by second; one job ends and another begins in between."""
    site = Site(tmp_path, *(job(f"j{number}") for number in range(8)))
    site.ledger.add(events.parse(asked(duration_s=300, shed_w=0.3 * 5600), NOW_S, "me"))
    assert set(site.pass_time(59)) == {5600.0}

    def turn(second: int) -> None:
        if second == 100:
            del site.claims["j3"], site.allowed["j3"]
            site.ledger.forget("j3")
        if second == 150:
            site.claims["j8"], site.allowed["j8"] = job("j8"), 100.0

    drawn = site.pass_time(300, turn)
    held = drawn[2:100] + drawn[110:150] + drawn[160:]  # from three seconds after its start
    assert max(held) <= 3920 * 1.001 and min(held) >= 3920 * 0.98
    back = site.pass_time(62)
    assert back[0] < back[30] < back[-1] == 5600 and max(b - a for a, b in zip(back, back[1:], strict=False)) < 60
    assert len({round(watts) for watts in site.allowed.values()}) == 1


def test_caps_come_before_pauses_and_pauses_go_to_those_with_most_slack(tmp_path):
    slack = {"a": 9e3, "b": 9e4, "c": 3e4, "d": None}
    site = Site(tmp_path, *(job(name, slack_s=left, promised_w=100.0) for name, left in slack.items()))
    site.ledger.add(events.parse(asked(shed_w=2000), NOW_S, "me"))
    site.pass_time(70)
    assert set(site.allowed.values()) == {200.0}
    site.ledger.cancel("e1", site.now_s)
    site.pass_time(70)
    site.ledger.add(events.parse(asked(id="e2", start=units.iso(site.now_s), shed_w=2200), site.now_s, "me"))
    site.pass_time(10)
    paused = {name for name, watts in site.allowed.items() if watts <= 100.0}
    assert paused == {"d", "b"} and site.drawn_w <= 600.0


def test_what_a_deadline_needs_is_not_shed_and_a_hard_budget_still_holds(tmp_path):
    site = Site(tmp_path, job("free"), job("tight", promised_w=700.0), job("some", promised_w=450.0))
    site.ledger.add(events.parse(asked(shed_w=None, target_w=600), NOW_S, "me"))
    site.pass_time(70)
    assert site.allowed == {"free": 200.0, "tight": 700.0, "some": 450.0}
    site.ledger.set_budget(SiteBudget(cap_w=900.0, ramp_w_per_s=1e6))
    site.pass_time(5)
    assert site.drawn_w <= 900.0
    site.ledger.set_budget(None)
    site.pass_time(5)
    assert site.allowed["tight"] == 700.0
    site.ledger.cancel("e1", site.now_s)
    site.pass_time(70)
    assert site.drawn_w == 2100.0


@pytest.fixture
def metered(tmp_path, monkeypatch):
    """write(job, spans of (begin, end, watts, state)): a job's journal with them."""
    monkeypatch.setenv("CARBONTUI_HOME", str(tmp_path))

    def write(name: str, *spans, steps=(), boards=1) -> None:
        folder = tmp_path / "jobs" / name
        folder.mkdir(parents=True, exist_ok=True)
        record = {"job": name, "name": name, "socket": "s", "log": "l", "started": NOW_S - 30 * 86400, "argv": ["true"]}
        here = {"host": store.here().host, "boot": store.here().boot, "pids": {}}
        (folder / "job.json").write_text(json.dumps({**record, **here}))
        options = {"job": name, "name": name, "dir": str(folder), "cwd": "/", "log": "/l", "argv": ["true"]}
        (folder / "spec.json").write_text(json.dumps({**options, "socket": str(folder / "s"), "created_s": NOW_S}))
        journal = Journal(folder / "journal.db")
        for begin, end, watts, state in spans:
            journal.event(begin, begin, "state", state="throttled" if state == "event" else state)
            at = begin
            while at < end:
                for board in range(boards):
                    journal.energy(at, min(at + 10, end), f"GPU-{name}{board}", watts * 10 / boards, "counter", state)
                journal.energy(at, min(at + 10, end), "cpu", 999.0, "counter", state)
                at += 10
        for at, step in steps:
            journal.steps(at, step, None, None, None)
        journal.commit()

    return write


def test_the_receipt_is_by_the_journals_and_its_hash_can_be_made_again(metered):
    event = GridEvent(
        id="e1", start_s=NOW_S, end_s=NOW_S + 600, within_s=30, ramp_s=60, shed_w=600,
        baseline_w=1400.0, baseline_method=events.BASELINE_PLAN,
    )  # fmt: skip
    pace = [(NOW_S - 100 + 10 * n, 10 * n) for n in range(11)] + [(NOW_S + 20 * n, 100 + 10 * n) for n in range(1, 31)]
    metered("a", (NOW_S - 100, NOW_S, 700, "running"), (NOW_S, NOW_S + 600, 400, "event"), steps=pace)
    metered("b", (NOW_S - 100, NOW_S + 10, 700, "running"), (NOW_S + 10, NOW_S + 600, 400, "event"), boards=2)
    found = receipt(event, list(store.jobs()), NOW_S + 900)

    assert found["reached_s"] == 11.0 and found["steps_lost"] == 0 and found["unmetered_s"] == 0
    assert [one["w"] for one in found["delivered"]] == [550.0, *[600.0] * 9]
    assert found["delivered_wh"] == pytest.approx((50 * 600 + 10 * 300 + 540 * 600) / 3600, abs=0.01)
    a, b = found["jobs"]
    assert a["capped_s"] == 600 and b["capped_s"] == 590 and a["delay_s"] == pytest.approx(290, abs=11)
    assert b["delay_s"] is None
    lines = []
    for job_rows in rows_of(store.jobs(), NOW_S - 900, NOW_S + 600):
        lines += [json.dumps([job_rows.job, *row]) + "\n" for row in (*job_rows.energy, *job_rows.steps)]
    assert hashlib.sha256("".join(lines).encode()).hexdigest() == found["sha256"]


def test_a_receipt_lists_the_jobs_of_the_event_and_steps_lost_in_it(metered):
    event = GridEvent(id="e1", start_s=NOW_S, end_s=NOW_S + 300, within_s=30, ramp_s=60, shed_w=600, baseline_w=1400.0)
    metered("before", (NOW_S - 600, NOW_S - 300, 700, "running"))
    lost_before = [(NOW_S - 90, 50), (NOW_S - 80, 20), (NOW_S + 10, 60), (NOW_S + 20, 57)]
    metered("during", (NOW_S - 100, NOW_S + 300, 700, "running"), steps=lost_before)
    found = receipt(event, list(store.jobs()), NOW_S + 900)
    assert [(one["job"], one["steps_lost"]) for one in found["jobs"]] == [("during", 3)] and found["steps_lost"] == 3


def test_minutes_that_nobody_metered_are_not_sold_as_delivered(metered):
    event = GridEvent(id="e1", start_s=NOW_S, end_s=NOW_S + 300, within_s=30, ramp_s=60, shed_w=600, baseline_w=1400.0)
    metered("a", (NOW_S - 100, NOW_S + 60, 700, "running"), (NOW_S + 180, NOW_S + 300, 700, "running"))
    found = receipt(event, list(store.jobs()), NOW_S + 900)
    assert [one["w"] for one in found["delivered"]] == [700.0, None, None, 700.0, 700.0]
    assert found["unmetered_s"] == 120.0 and found["delivered_wh"] == pytest.approx(35.0)


def test_a_board_that_two_jobs_have_booked_whole_counts_once():
    def job(name, *rows):
        return JobRows(name, name, tuple(JoulesRow(*row, "running") for row in rows), (), ())

    whole, late = (0.0, 10.0, "GPU-a", 1000.0, "counter"), (5.0, 15.0, "GPU-a", 1000.0, "counter")
    of_it, other = (0.0, 10.0, "GPU-b", 300.0, "split"), (0.0, 10.0, "GPU-b", 700.0, "split")
    first, second = counted_once([job("a", whole, of_it), job("b", late, other)])
    assert (first.joules(0.0, 15.0), second.joules(0.0, 15.0)) == (1300.0, 1200.0)
