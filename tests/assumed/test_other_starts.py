"""The same work at other hours and under other budgets, on what is expected of its grid."""

import pytest

from carbontui.account.compare import Work
from carbontui.assumed.job import assumed, within_budgets
from carbontui.commands.support.offers import UNBORN, of_machine
from carbontui.grid.types import GridForecast
from carbontui.job.terms.spec import Options
from carbontui.plan.problem import ProblemError
from carbontui.power.messages import Capability, Reading, Readings
from carbontui.protocol import FrontierPoint
from carbontui.text.plan import unused

NOW_S = 1_800_000_000.0
WORK = Work(7200.0, 500.0, 100.0, 1, 300.0)


def outlook(*by_hour, price=()):
    mean = tuple(value for value in by_hour for _ in range(4))
    prices = tuple(value for value in price for _ in range(4))
    return GridForecast(
        "DE", "average_direct", NOW_S, 900.0, mean, mean, mean, 0, "a test", "forecast", NOW_S, price=prices
    )


def test_a_looser_budget_never_emits_more_and_a_dirty_hour_is_waited_out():
    seen = outlook(600, 600, 100, 100, 100, 100, 600, 600)
    job = assumed(500.0, caps=True, running=False)
    rows = within_budgets(job, WORK, seen, (1.0, 1.5, 2.0, 3.0), NOW_S)
    grams = [row.gco2_g for row in rows]
    assert grams == sorted(grams, reverse=True) and grams[-1] < 0.3 * grams[0]
    assert rows[0].gco2_g == pytest.approx(1.2 * 600, rel=0.01), "1x leaves no room: at full speed now"
    assert all(row.time_s <= factor * 7200.0 + 1 for row, factor in zip(rows, (1.0, 1.5, 2.0, 3.0), strict=True))
    assert "certified" in rows[0].how
    with pytest.raises(ProblemError):
        within_budgets(job, WORK, seen, (9.0,), NOW_S)


def machine(*boards, **terms):
    return of_machine(Options(**dict.fromkeys(UNBORN, ""), argv=(), created_s=0.0, **terms), Readings(devices=boards))[
        0
    ]


def test_without_a_board_no_cap_is_compared_and_patience_waits_for_less():
    flat, falling = outlook(*(600,) * 6), outlook(600, 600, 590, 590, 590, 590)
    least, usual = (machine(boundary="given-back", patience=pct) for pct in (0.0, 2.0))
    assert len({row.time_s for row in within_budgets(least, WORK, flat, (1.0, 3.0), NOW_S)}) == 1
    least, usual = (within_budgets(job, WORK, falling, (3.0,), NOW_S)[0] for job in (least, usual))
    assert usual.time_s < 7300.0 < least.time_s and usual.gco2_g > least.gco2_g


@pytest.mark.parametrize(
    ("later_s", "gco2_g", "said"),
    [(13 * 3600.0, 99.0, "allowed, not used: 13 h 00 more would save 1 %"), (0.0, 99.0, "the same plan"),
     (3600.0, 100.0, "the same plan")],
)  # fmt: skip
def test_a_budget_that_changes_no_plan_says_what_is_left_unused(later_s, gco2_g, said):
    planned, allowed = FrontierPoint(3600.0, 100.0, 0.0, 1.0), FrontierPoint(3600.0 + later_s, gco2_g, 0.0, 1.0)
    assert unused(allowed, planned) == said
    assert unused(None, planned) == unused(allowed, None) == "the same plan"


@pytest.mark.parametrize(
    ("support", "may_cap", "caps"),
    [((), True, False), (("no_permission",), True, False), (("yes",), True, True), (("yes",), False, False),
     (("yes", "not_supported"), True, False)],
)  # fmt: skip
def test_what_a_budget_would_give_is_asked_of_the_boards_that_are_here(support, may_cap, caps):
    """None, without permission, by root or capd, --no-cap, and one of two that takes none."""
    boards = [
        Reading(index=k, uuid=f"GPU-{k}", name="board", limit_found_w=250.0, caps={"limit": Capability(one)})
        for k, one in enumerate(support)
    ]
    levels = machine(*boards, cap=may_cap).shape.levels
    assert any("cap" in level.name for level in levels) is caps
    assert max(level.power_w for level in levels) == (250.0 * len(boards) or 65.0)
