"""What users read of a statement: one sample of each form that a template cannot show by itself."""

import time

import pytest
from drawn import NOW_S, drawn

from carbontui import units
from carbontui.protocol import statement, written
from carbontui.text import figures

DUE = figures.named_clock(NOW_S + 7500.0, NOW_S)
UNLOAD = {"step_stated": True, "loss_before": 2.5, "loss_after": 2.4, "saved_b": 2_000_000}


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (written("as the driver has it"), "as the driver has it"),
        (statement("pause_asked", silent=()), "accepted, waiting for the current step to end"),
        (
            statement("pause_asked", silent=(statement("silent", names=("n2", "rank 3 (n4)")),)),
            "accepted, waiting for the current step to end; silent: n2, rank 3 (n4)",
        ),
        (statement("paused", step=14_400, until_s=None, silent=()), "paused at step 14,400"),
        (statement("job_is", state="throttled"), "the job is capped"),
        (
            statement("unload_works", step=14_400, save_s=2.0, restart_s=20.0, **UNLOAD),
            "it works: left at step 14,400 and resumed there; its data is the script's own matter; "
            "loss 2.5 before, 2.4 after; 22 s without a step (checkpoint 2 s, 2 MB; restart 20 s)",
        ),
        (
            statement("not_calibrated", last=statement("calibration_measures", text="settling", share=0.4)),
            "not calibrated yet: settling, 40 % done",
        ),
        # a budget of the screen's slider is a time of the wire; where it is typed, the time it means is added
        (statement("budget_set", budget="2027-01-15T10:05Z", until_s=NOW_S + 7500.0, late=()), f"budget until {DUE}"),
        (statement("budget_set", budget="3h", until_s=NOW_S + 7500.0, late=()), f"budget 3h, until {DUE}"),
        (statement("cause_budget", budget="2027-01-15T10:05Z", by="ada"), f"budget {DUE} by ada"),
        (statement("money", value=1234.5, currency=""), "1,234.50"),
    ],
)
def test_a_statement_is_drawn_with_its_figures(said, words):
    assert drawn(said) == words


def test_a_code_without_wording_is_an_error_of_ours():
    with pytest.raises(KeyError):
        drawn(statement("no_such_code"))


def test_the_hour_that_an_autumn_has_twice_names_its_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    day, hours = units.from_iso("2026-10-25T00:00:00Z"), (-0.5, 0.5, 1.5, 2.5)
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
        time.tzset()
        told = [figures.clock(day + hour * 3600.0, day - 86400.0) for hour in hours]
        names = [figures.clock_names(day + from_h * 3600.0, day + to_h * 3600.0) for from_h, to_h in ((-9, 30), (3, 9))]
    time.tzset()
    assert names == ["CEST, CET from Sun 02:00", "CET"]
    assert told == ["Sun 01:30", "Sun 02:30 CEST", "Sun 02:30 CET", "Sun 03:30"]
