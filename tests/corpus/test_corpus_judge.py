"""The judge of the corpus is fair: what is right, what is wrong without notice, what an interval excuses."""

from __future__ import annotations

import math

import judge
from judge import Moment


def run(*moments: Moment) -> judge.Verdict:
    return judge.verdict(moments, truth=100, due=40)


def test_a_total_is_judged_by_the_first_report_when_it_is_due():
    late = run(Moment(10), Moment(39, 50), Moment(41, 101), Moment(100, 101))
    assert late.right and late.first == 39 and late.right_share == 0.61
    assert late.totals == ((39, 50, ""), (41, 101, ""))
    assert not run(Moment(41, 50), Moment(60, 100)).right
    assert not run(Moment(50), Moment(100)).right


def test_a_total_that_is_passed_is_wrong_and_one_far_off_near_the_end():
    assert run(Moment(51, 50)).wrong
    assert not run(Moment(100, 99)).wrong, "it was right"
    assert not run(Moment(51, 52)).wrong, "there is time to notice"
    assert run(Moment(61, 90)).wrong
    assert not run(Moment(61, 96)).wrong
    assert not run(Moment(61)).wrong, "no total is no wrong one"


def test_an_interval_over_the_truth_makes_a_total_no_claim():
    wide = run(Moment(50, 150, low=50, high=150), Moment(80, 150, low=80, high=math.inf))
    assert not wide.wrong and wide.covered == 1 and wide.width == 1
    narrow = run(Moment(50, 150, low=140, high=160), Moment(80, 150, low=90, high=160))
    assert not narrow.wrong and narrow.covered == 0.5
    assert run(Moment(80, 150, low=140, high=160)).wrong


def test_a_status_is_read_with_and_without_an_interval():
    plain = {"step": 5, "steps_total": None, "guess": {"steps": 50, "source": "a bar", "agreed": False}}
    assert judge.moment(plain) == Moment(5, 50, "a bar")
    assert judge.moment({"step": 5, "steps_total": None, "guess": None}) == Moment(5)
    assert judge.moment({"step": 5, "steps_total": 70}) == Moment(5, 70, "told")
    bounds = {"steps": 50, "source": "epochs", "agreed": True, "low": 40, "high": None, "at_most": False}
    assert judge.moment({"step": 5, "steps_total": 50, "guess": bounds}) == Moment(5, 50, "epochs", 40, math.inf)
    most = {"steps": 50, "source": "epochs", "agreed": False, "at_most": True}
    assert judge.moment({"step": 5, "steps_total": None, "guess": most}) == Moment(5, 50, "epochs", 5, 50)
