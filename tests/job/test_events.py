"""What happened to a job, in words."""

import sqlite3

import pytest
from states import NOW_S

from carbontui import units
from carbontui.job.files import history
from carbontui.job.files.history import HistoryError
from carbontui.job.files.journal import Journal
from carbontui.plan.evaluation import evaluate
from carbontui.plan.planner import solve
from carbontui.plan.problem import Problem, ProblemLevel
from carbontui.plan.results import windows
from carbontui.plan.rivals import baselines
from carbontui.text import figures
from carbontui.text.statements import event_line

TIME = figures.named_clock(NOW_S, NOW_S)


@pytest.mark.parametrize(
    ("kind", "facts", "text"),
    [
        ("override", {"verb": "cap", "by": "ada@pts/1", "value_w": 300.0, "until": "18:00"},
         "ada@pts/1 capped it at 300 W per GPU, until 18:00"),
        ("override", {"verb": "resume", "by": "ada@pts/1"}, "ada@pts/1 went back to the plan"),
        ("budget", {"by": "bob", "budget": "18h"}, "bob set the budget to 18h"),
        ("budget", {"by": "bob", "budget": units.iso(NOW_S)}, f"bob set the budget to {TIME}"),
        ("budget", {"by": "bob", "carbon": 1200.0}, "bob set carbon budget 1200"),
        ("hours", {"by": "bob", "text": "it will not run 22:00 to 06:00"}, "bob: it will not run 22:00 to 06:00"),
        ("state", {"state": "paused", "text": "paused by the plan"}, "paused by the plan"),
        ("state", {"state": "running", "text": "processes are coming up"}, "running: processes are coming up"),
        ("state", {"state": "throttled", "text": "capped at 300 W per GPU"}, "capped at 300 W per GPU"),
        ("state", {"state": "throttled", "level_kind": "duty", "text": "slowed to half"}, "slowed to half"),
        ("plan", {"why": "slot", "finish": "2027-01-15T10:00:00Z", "gco2_g": 1200.0}, None),
    ],
)  # fmt: skip
def test_an_event_is_one_line_that_says_who_and_what(kind, facts, text):
    told = event_line(NOW_S, kind, facts)
    assert told.text == text if text else "new plan (slot): done" in told.text and "1.20 kg to come" in told.text


def test_a_new_plan_says_what_the_whole_job_comes_to_under_it():
    facts = {"why": "slot", "finish": "2027-01-15T10:00:00Z", "gco2_g": 200.0, "whole_g": 1200.0}
    told = event_line(NOW_S, "plan", facts)
    assert told.text.endswith(", 1.20 kg in all") and (told.gco2_g, told.whole_g) == (200.0, 1200.0)


@pytest.mark.parametrize("facts", [{}, {"verb": "dance", "by": 3}, {"finish": "x", "why": 1, "gco2_g": None}])
def test_what_cannot_be_read_is_left_out(facts):
    assert event_line(NOW_S, "override", facts) is None and event_line(NOW_S, "plan", facts) is None
    assert event_line(NOW_S, "ack", facts) is None


def test_the_past_is_told_from_the_journal_the_newest_kept(tmp_path):
    book = Journal(tmp_path / "journal.db")
    for n in range(6):
        book.event(NOW_S + n, NOW_S, "budget", by="ada", budget=f"{n + 1}x")
        book.event(NOW_S + n, NOW_S, "plan", why="slot", finish="2027-01-15T10:00:00Z", gco2_g=1.0)
        book.event(NOW_S + n, NOW_S, "ack", rank=0)
    book.commit()
    found = history.events(tmp_path / "journal.db", NOW_S + 1, 3, False)
    assert [one.text for one in found] == [f"ada set the budget to {n}x" for n in (4, 5, 6)]
    assert len(history.events(tmp_path / "journal.db", NOW_S + 1, 99, True)) == 10
    with pytest.raises(HistoryError):
        history.events(tmp_path / "gone.db", 0.0, 3, False)
    assert sqlite3.connect(tmp_path / "journal.db").execute("select count(*) from event").fetchone() == (18,)


def test_windows_add_up_to_the_plan_and_what_they_gain_to_what_it_saves():
    levels = (ProblemLevel("pause", 90.0, 0.0), ProblemLevel("full", 600.0, 1.0))
    ci = (100.0, 100.0, 900.0, 900.0, 100.0, 100.0)
    problem = Problem((900.0,) * 6, ci, levels, ((0.0, 5.0), (2.0, 0.0)), ((300.0, 300.0),) * 2, 3300.0, 1, host_w=20.0)
    plan = solve(problem)
    now = next(one for one in baselines(problem) if one.name == "run now")
    found = windows(problem, plan.levels, now.gco2)
    assert [(one.level, one.start_s, one.end_s) for one in found][:2] == [(1, 0.0, 1800.0), (0, 1800.0, 3600.0)]
    did = evaluate(problem, plan.levels)
    assert sum(one.gco2 for one in found) == pytest.approx(did.gco2)
    assert sum(one.kwh for one in found) == pytest.approx(did.kwh)
    assert found[-1].end_s == pytest.approx(did.finish_s)
    assert sum(one.gain for one in found) == pytest.approx(now.gco2 - did.gco2) and now.gco2 > did.gco2
    assert found[1].ci_g_per_kwh == 900.0 and found[1].gain == -found[1].gco2, "what is parked costs, and does no work"
