"""The pure half of the site budget: who gets how much, and what is never given."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carbontui.extensions.site.sharing import Ramp, SiteBudget, allot, settle
from carbontui.headroom import Claim


def claim(job: str, **fields) -> Claim:
    known = {"full_w": 700.0, "least_w": 200.0, "floor_w": 90.0, "wants_w": 700.0}
    return Claim(job=job, **{**known, **fields})


def test_jobs_that_all_want_everything_get_the_same_watts_per_board():
    two = claim("b", boards=2, full_w=1400.0, least_w=400.0, floor_w=180.0, wants_w=1400.0)
    gets = allot([claim("a"), two], 1200.0)
    assert round(gets["a"]) == 400 and round(gets["b"]) == 800


def test_what_one_does_not_want_the_others_have():
    gets = allot([claim("a", wants_w=300.0), claim("b")], 1000.0)
    assert (round(gets["a"]), round(gets["b"])) == (300, 700)


def test_where_not_all_can_run_those_with_the_least_slack_do():
    jobs = [claim("a", slack_s=90_000.0), claim("b", slack_s=1000.0), claim("c", slack_s=50_000.0)]
    gets = allot(jobs, 450.0)
    assert gets["b"] >= 200.0 and gets["a"] == gets["c"] == 90.0


def test_a_boost_has_its_watts_first_and_the_others_make_room():
    gets = allot([claim("a", held_w=700.0), claim("b", boost_s=5.0), claim("c", held_w=300.0)], 1000.0)
    assert gets["b"] == 700.0 and gets["a"] + gets["c"] <= 300.0 + 1e-6


def test_a_job_that_nobody_steers_counts_in_full():
    gets = allot([claim("a", gone=True, held_w=90.0), claim("b")], 1000.0)
    assert round(gets["b"]) == 300


def test_where_no_limit_can_be_set_and_nothing_paused_it_cannot_be_kept():
    stiff = claim("a", least_w=700.0, floor_w=700.0, held_w=700.0)
    _, share = settle(stiff, [claim("b", least_w=700.0, floor_w=700.0, held_w=700.0)], SiteBudget(cap_w=1200.0), 1e9)
    assert not share.kept and share.least_sum_w == 1400.0


def test_what_others_still_hold_is_not_taken():
    mine, share = settle(claim("a", held_w=90.0), [claim("b", held_w=700.0)], SiteBudget(cap_w=1000.0), 1e9)
    assert share.now_w == mine.held_w == 300.0
    giving, share = settle(claim("b", held_w=700.0), [mine], SiteBudget(cap_w=1000.0), 1e9)
    assert share.now_w == pytest.approx(500.0) and giving.held_w == 700.0  # counted until the boards are down


def test_no_faster_than_the_ramp_and_not_into_what_cannot_be_drawn():
    budget = SiteBudget(cap_w=5000.0, ramp_w_per_s=50.0)
    _, share = settle(claim("a", held_w=300.0), [], budget, 50.0)
    assert share.now_w == 350.0
    _, share = settle(claim("a", held_w=90.0), [], budget, 50.0)
    assert share.now_w == 90.0  # 110 W to its lowest limit: it waits for them
    _, share = settle(claim("a", held_w=90.0), [], budget, 110.0)
    assert share.now_w == 200.0
    assert Ramp(0.0, 0.0).at(2.0, budget, 110.0).left_w == 100.0
    assert Ramp(0.0, 0.0).at(900.0, budget, 110.0).left_w == 250.0


CLAIMS = st.lists(
    st.builds(
        lambda boards, parked, least, full, wants, held, boost, slack, gone: Claim(
            job="",
            boards=boards,
            full_w=boards * full,
            least_w=boards * least,
            floor_w=boards * parked,
            wants_w=boards * wants,
            held_w=boards * min(held, full),
            boost_s=boost,
            slack_s=slack,
            gone=gone,
        ),
        st.integers(1, 8),
        st.floats(50, 120),
        st.floats(150, 300),
        st.floats(300, 700),
        st.floats(0, 700),
        st.floats(0, 700),
        st.one_of(st.none(), st.floats(0, 100)),
        st.one_of(st.none(), st.floats(0, 1e6)),
        st.booleans(),
    ),
    min_size=1,
    max_size=8,
).map(lambda found: [Claim(**{**{f: getattr(c, f) for f in c.__struct_fields__}, "job": str(i)})
                     for i, c in enumerate(found)])  # fmt: skip


@given(CLAIMS, st.floats(200, 6000), st.floats(0, 2000))
def test_nobody_takes_what_is_not_free_and_all_compute_the_same(claims, cap_w, rise_w):
    gets = allot(claims, cap_w)
    least = sum(c.full_w if c.gone else min(c.floor_w, c.wants_w) for c in claims)
    total = sum(gets.values()) + sum(c.full_w for c in claims if c.gone)
    assert total <= max(cap_w, least) + 1e-3
    assert allot(list(reversed(claims)), cap_w) == gets
    for i, mine in enumerate(claims):
        if mine.gone:
            continue
        others = claims[:i] + claims[i + 1 :]
        after, share = settle(mine, others, SiteBudget(cap_w=cap_w), rise_w)
        assert share.now_w <= max(mine.held_w, cap_w - sum(c.counts_w for c in others)) + 1e-3
        assert after.held_w <= mine.held_w + rise_w + 1e-6
        assert share.now_w <= mine.wants_w + 1e-6 or share.now_w <= mine.held_w
