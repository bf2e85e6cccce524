"""When to move so that the work left emits least."""

from __future__ import annotations

import math

from carbontui.verbs.support.cleaner import STEP_S, Outlook, moment

HOUR = 3600.0
FLAT = Outlook(0.0, HOUR, (400.0,) * 24)


def test_it_moves_at_once_to_a_cleaner_grid_and_stays_beside_a_dirtier_one():
    assert moment(FLAT, Outlook(0.0, HOUR, (100.0,) * 24), 0.0, 6 * HOUR, math.inf) == 0.0
    assert moment(FLAT, Outlook(0.0, HOUR, (500.0,) * 24), 0.0, 6 * HOUR, math.inf) is None
    assert moment(FLAT, FLAT, 0.0, 6 * HOUR, math.inf) is None, "a move costs a minute of work"


def test_it_waits_for_the_hour_from_which_the_other_grid_is_cleaner():
    later = Outlook(0.0, HOUR, (*(800.0,) * 3, *(50.0,) * 21))
    assert moment(FLAT, later, 0.0, 6 * HOUR, math.inf) == 3 * HOUR
    assert moment(FLAT, later, 0.0, 6 * HOUR, by_s=2 * HOUR) == 2 * HOUR - STEP_S
    assert moment(FLAT, later, 0.0, 2 * HOUR, math.inf) is None, "the work ends before"


def test_what_is_not_known_moves_nothing():
    assert moment(Outlook(0.0, STEP_S, ()), FLAT, 0.0, HOUR, math.inf) is None
    assert moment(FLAT, Outlook(0.0, STEP_S, (None,)), 0.0, HOUR, math.inf) is None
