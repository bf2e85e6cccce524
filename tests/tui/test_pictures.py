"""Pure parts of the screen: folding, axes, cells, words, and the plain narrator."""

from __future__ import annotations

import io
from itertools import pairwise
from pathlib import Path

import pytest
from acting import target
from fake import NOW, START, scene
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from msgspec.structs import replace
from rich.cells import cell_len

from carbontui import protocol, units
from carbontui.commands import status as status_command
from carbontui.text import figures, situation
from carbontui.tui.model import budget, state_text
from carbontui.tui.model.lists import JobList, ListedJob
from carbontui.tui.model.view_state import PastLevels, ViewState, fold
from carbontui.tui.plain import PlainNarrator
from carbontui.tui.terminal.keys import until_args
from carbontui.tui.widgets import boards
from carbontui.tui.widgets.boards import WattRows
from carbontui.tui.widgets.cells import fit
from carbontui.tui.widgets.levels import level_in_force, planned
from carbontui.tui.widgets.scale import TimeScale, hours, means, nice_top, window
from carbontui.tui.widgets.tables import JobTable
from carbontui.tui.widgets.timeline import WattChart, with_scale


def view_state(name: str = "running") -> ViewState:
    found = fold(None, scene(name))
    assert found is not None
    return found


def test_a_delta_replaces_sections_and_a_gap_is_noticed() -> None:
    first = view_state()
    second = fold(first, protocol.Delta(2, status=structs.replace(first.status, step=5)))
    assert second is not None and second.status.step == 5 and second.plan is first.plan
    assert fold(first, protocol.Delta(3)) is None
    assert fold(None, protocol.Delta(1)) is None
    gone = fold(second, protocol.Delta(3, plan=None, frontier=None))
    assert gone is not None and gone.plan is None and gone.frontier is None


def test_a_tail_cuts_and_appends() -> None:
    first = view_state()
    assert first.series.watts is not None
    tail = protocol.SeriesTail(60, units.iso(NOW + 9), (1.0, 2.0), {"GPU-0": (1.0, 2.0)})
    second = fold(first, protocol.Delta(2, series_tail=tail))
    assert second is not None and second.series.watts is not None
    assert second.series.watts.total_w == first.series.watts.total_w[:60] + (1.0, 2.0)
    assert second.now_s == NOW + 9


def test_the_axis_holds_the_whole_job_and_stands_still() -> None:
    now = view_state()
    later = fold(now, structs.replace(scene("running", 1, NOW + 3600), seq=9))
    assert later is not None
    for columns in (20, 70, 190):
        view = window(now, columns)
        assert view.start_s <= START and view.time(columns) >= units.from_iso(now.plan.deadline)  # type: ignore[union-attr]
        assert window(later, columns) == view


def test_planned_levels_stand_in_their_columns() -> None:
    shown = view_state()
    assert shown.plan is not None
    view = TimeScale(START, 900.0, 200)
    found = planned(shown.plan, view, NOW)
    first_pause = next(x for x, info in enumerate(found) if info and info.kind == "pause")
    assert view.time(first_pause) == units.from_iso("2020-04-16T02:00:00Z")
    assert found[view.column(NOW) - 1] is None
    end = max(x for x, info in enumerate(found) if info)
    assert view.time(end + 1) == units.from_iso(shown.plan.finish)


def test_columns_are_means_of_what_they_cover() -> None:
    view = TimeScale(0.0, 30.0, 4)
    assert means((1.0, 3.0, None, None, 7.0), 0.0, 15.0, view) == (2.0, None, 7.0, None)


@settings(max_examples=100, deadline=None)
@given(st.floats(1e-3, 1e9))
def test_a_scale_ends_on_a_round_number_not_far_above(value: float) -> None:
    top = nice_top(value)
    assert value * 0.999 <= top <= value * 2.01


@settings(max_examples=60, deadline=None)
@given(st.floats(1, 10**5), st.integers(10, 200))
def test_hours_never_touch(span: float, columns: int) -> None:
    labels = hours(TimeScale(NOW, span, columns))
    assert all(a + len(word) < b for (a, word), (b, _) in pairwise(labels))


@pytest.mark.parametrize(
    ("columns", "span_s", "labels"),
    [
        (100, 3 * 3600.0, ["17 Apr", "19 Apr"]),
        (100, 12 * 3600.0, ["20 Apr", "27 Apr", "4 May", "11 May"]),
        (100, 1.2 * 86400.0, ["May", "Jun", "Jul"]),
        (60, 7 * 86400.0, ["Jul", "Oct", "Jan", "Apr"]),
    ],
)
def test_far_deadlines_have_dates_and_months(columns: int, span_s: float, labels: list[str]) -> None:
    told = [word for _, word in hours(TimeScale(NOW, span_s, columns))]
    assert [word for word in told if word in labels][: len(labels)] == labels, told
    assert all(one != other for one, other in pairwise(told)), "never the same word twice in a row"


@settings(max_examples=200, deadline=None)
@given(st.floats(1.0, 5000.0), st.integers(2, 30), st.sampled_from((0.0, 50.0, 250.0)))
def test_every_tick_of_an_axis_is_round(high: float, rows: int, base: float) -> None:
    top = nice_top(high, rows, base)
    ticks = ["".join(text for text, _ in row).strip(" ≈") for row in with_scale([[] for _ in range(rows)], top, base)]
    said = [float(tick) for tick in ticks if tick]
    assert high <= top * 1.001 and (high < 20 or all(tick % 10 == 0 for tick in said)), (top, said)


def test_an_axis_of_minutes_has_its_times_too() -> None:
    assert len(hours(TimeScale(NOW, 2.0, 70))) >= 2


TEXT = st.text(alphabet=st.sampled_from("aZ 漢字é\u0301🙂\x1b\n█"), max_size=30)


@settings(max_examples=200, deadline=None)
@given(TEXT, st.integers(1, 40))
def test_rows_are_exactly_as_wide_as_the_screen(text: str, width: int) -> None:
    row = fit([(text, "text")], width)
    assert sum(cell_len(char) for char, _ in row) == width
    assert not any(char < " " for char, _ in row)


def test_marks_follow_provenance() -> None:
    real, demo = view_state().status, view_state("demo").status
    assert state_text.mark(real, "energy_wall_kwh") == "~"
    assert state_text.mark(real, "power_w") == ""
    assert state_text.mark(demo, "power_w") == "S"
    assert state_text.mark(demo, "gco2_g") == "R"
    assert set(figures.MARKS.values()) == set(figures.MEANING)


def test_since_the_past_was_asked_for_what_holds_now_has_held() -> None:
    """In a replay an hour may pass between the two; it was painted at full speed in the middle of a cap."""
    past = PastLevels(NOW - 7200.0, 60.0, ("pause",) * 60)
    kinds = [level_in_force(view_state(), past, NOW - ago_s) for ago_s in (7000.0, 3700.0, 3500.0, 0.0)]
    assert kinds == ["pause", "pause", "cap", "cap"]
    assert level_in_force(view_state(), None, NOW - 60.0) is None, "nothing was asked for yet"


def test_an_estimate_has_the_same_mark_on_every_page_and_line() -> None:
    status = structs.replace(view_state().status, gpus=(), power_w=13.0)
    status = structs.replace(status, provenance={**status.provenance, "power_w": protocol.Provenance("estimated", "")})
    bars, chart, table = WattRows(), WattChart(), JobTable()
    bars.view_state = chart.view_state = replace(view_state(), status=status)
    table.listed = JobList().now((ListedJob(target(Path("s")), status),))
    for drawn in (bars.draw(60, 1), chart.draw(60, 8), table.draw(60, 3)):
        assert " 13 W ~" in "\n".join("".join(text for text, _ in row) for row in drawn)
    assert " 13 W ~" in status_command.listed(status)
    capped = protocol.Level("cap 100 W", "cap", 100.0, 0.5, cap_w=100.0, assumed=True)
    assert situation.level("cap 100 W", (capped,)) == "cap 100 W ~"


def test_a_grid_event_is_a_band_over_the_watts_and_in_their_title() -> None:
    now = view_state()
    event = protocol.GridEventStatus("dr1", units.iso(NOW + 600), units.iso(NOW + 4200))
    chart = WattChart()
    chart.view_state = replace(now, status=structs.replace(now.status, grid_event=event))
    title, first, *_ = ("".join(text for text, _ in row) for row in chart.draw(100, 8))
    assert "grid event 21:34–22:34" in title and "━" in first
    chart.view_state = now
    assert not any("━" in text for row in chart.draw(100, 8) for text, _ in row)


def test_a_live_job_on_a_grid_file_names_the_file_and_is_no_replay() -> None:
    live, series = view_state().status, view_state().series
    on_file = live.provenance | {"intensity": protocol.Provenance("replay", "grid: my.csv")}
    assert state_text.banner(structs.replace(live, provenance=on_file), series) == "grid: my.csv"
    assert state_text.banner(live, series) == ""
    assert "REPLAY" in state_text.banner(view_state("demo").status, series)


def test_a_job_that_is_over_says_when_and_a_replayed_one_does_not_say_when_in_april() -> None:
    over, replayed = view_state("done").status, structs.replace(view_state("demo").status, state="done")
    assert situation.ended_at(over, NOW) == "21:24" and situation.ended_at(over, NOW + 10 * 86400) == "15 Apr 21:24"
    recorded = over.provenance | {"intensity": protocol.Provenance("replay", "grid.csv")}
    assert situation.ended_at(structs.replace(over, provenance=recorded), NOW) == "21:24"
    assert situation.ended_at(replayed, NOW) == "" and situation.ended_at(view_state().status, NOW) == ""


@pytest.mark.parametrize(("age", "said"), [(0, ""), (4.9, ""), (7, "5 s"), (25, "20 s"), (59, "30 s"), (130, "2 min")])
def test_age_moves_in_coarse_steps(age: float, said: str) -> None:
    assert state_text.age(age) == said


@pytest.mark.parametrize(
    ("left_s", "said"),
    [(120.0, "21:35"), (3600.0, "22:30"), (10 * 3600.0, "Thu 07:40"), (20 * 3600.0 + 1, "Thu 17:50")],
)
def test_the_slider_leaves_slack_over_the_predicted_finish(left_s: float, said: str) -> None:
    """At least five minutes or 2 % of the way, to the next five minutes of the clock."""
    due_s = budget.with_slack(NOW + left_s, NOW)
    assert state_text.clock(due_s, NOW) == said
    assert units.from_iso(budget.as_budget(due_s)) == due_s


def test_the_slider_moves_to_another_deadline_with_every_step() -> None:
    due = [300.0, 600.0, 600.0, 900.0, 1200.0]
    assert [budget.moved(due, 1, 600.0, steps) for steps in (1, 2, 9, -1, -9)] == [3, 4, 4, 0, 0]
    assert budget.moved(due, 2, 850.0, 1) == 3 and budget.moved(due, 2, 850.0, -1) == 1
    assert budget.moved(due, 4, 5000.0, 1) is None, "a budget looser than all of them is not tightened by →"


def test_how_long_is_a_duration_or_a_time() -> None:
    assert until_args("1h30m", NOW) == {"for_s": 5400.0}
    assert until_args(" 22:00 ", NOW) == {"until": units.iso(NOW + 2160.0)} and until_args("next", NOW) == {
        "until": "next"
    }


def test_the_narrator_says_each_change_once() -> None:
    out = io.StringIO()
    narrator = PlainNarrator(out)
    snap = scene("demo")
    shown = fold(None, snap)
    narrator.tell(shown)
    first = out.getvalue()
    assert "running: as planned: the evening peak is over" in first
    assert "(simulated)" in first and "next: pause at Thu 02:00" in first
    assert "note: SIMULATED GPU · REPLAY 2057×" in first and "1.80x the time at full speed, deadline Fri 01:15" in first
    status = snap.status
    shown = fold(shown, protocol.Delta(2, status=structs.replace(status, step=status.step + 1)))
    narrator.tell(shown)
    assert out.getvalue() == first
    paused = structs.replace(
        status,
        state="paused",
        level="pause",
        reason=protocol.Reason("override", "a user paused it"),
        override=protocol.Override("pause", None, None, "ada@pts/3"),
        notices=("limit lease left behind",),
    )
    shown = fold(shown, protocol.Delta(3, status=paused))
    narrator.tell(shown)
    new = out.getvalue()[len(first) :].splitlines()
    assert [line[6:] for line in new] == [
        "paused: a user paused it; 307 W (simulated); next: pause at Thu 02:00, in 4 h 36",
        "override: pause by ada@pts/3, until cleared",
        "note: limit lease left behind",
    ]
    assert fold(shown, protocol.Delta(9)) is None
    narrator.tell(fold(shown, protocol.Delta(4, status=scene("done").status)))
    assert "energy: 4.65 kWh (estimated)" in out.getvalue(), "no page explains a mark here"
    assert "emitted: 865 g CO₂" in out.getvalue() and "deadline" in out.getvalue()
    assert all(ord(char) < 0x2500 for char in out.getvalue())


def test_a_board_says_what_slows_it_and_shows_its_watts_so_far() -> None:
    def summary(name: str) -> list[str]:
        shown = view_state(name)
        return ["".join(text for text, _ in row) for row in boards.rows(shown.status.gpus, shown.series.watts, 118)]

    head, board, parked = summary("running")
    assert "last 30 min 0-250 W" in head and "246 / 250  ██ " in board
    assert board.split()[6:] == ["58", "1410", "97", "%", "61.0", "GiB", "its", "power", "limit"] and " 76 W" in parked
    assert "not busy" in summary("paused")[1] and summary("done") == []
