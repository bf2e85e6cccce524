"""Backtests on small recorded grids: honest about the past, never late, bounded by perfect foresight."""

from __future__ import annotations

import gzip
import json
import math
from dataclasses import replace

import pytest
from click.testing import CliRunner

from carbontui import units
from carbontui.assumed.job import Grid, assumed, boundaries
from carbontui.commands.support.command import Failure
from carbontui.extensions.evaluation import run as backtest
from carbontui.extensions.evaluation.commands import backtest as verb
from carbontui.extensions.evaluation.issued import DayAhead, OwnForecast, PublishedForecast, issue_value, load_issues
from carbontui.extensions.evaluation.policies import Case, Knowledge, rolling
from carbontui.grid import choose, recorded
from carbontui.grid.issues import Issue
from carbontui.grid.types import Row, Series
from carbontui.plan.evaluation import evaluate
from carbontui.plan.problem import ProblemError

START = units.from_iso("2030-01-01T00:00:00Z")


def value(hour):
    return round(300 + 150 * math.sin(hour / 24 * 2 * math.pi) + 40 * math.sin(hour * 1.7), 3)


def grid(hours=24 * 30, of=value, lateness_s=0.0):
    rows = tuple(Row(START + 3600 * h, 3600.0, of(h)) for h in range(hours))
    return Grid(Series("XX", "average_direct", rows, "made for a test"), lateness_s)


def issues(hours=24 * 30, error=1.0):
    return [
        Issue(
            issued_at_s=START + 86400 * day,
            times_s=[START + 3600 * (24 * day + h) for h in range(96)],
            values=[value(24 * day + h) * error for h in range(96)],
        )
        for day in range(hours // 24)
    ]


@pytest.fixture(scope="module")
def report():
    job = assumed(650.0, caps=False, running=False)
    return backtest.run(grid(), job, 4 * 3600.0, 2.0, 6, seed=3, issues=issues(), own=False)


def test_every_outcome_is_what_the_judge_says_and_nobody_is_late(report):
    for name, outcomes in report.outcomes.items():
        for case, outcome in zip(report.cases, outcomes, strict=True):
            assert evaluate(case.problem, outcome.levels) == outcome.figures
            assert outcome.figures.late_s == 0, name
            assert not outcome.figures.violations, name


def test_nothing_beats_perfect_foresight_and_a_perfect_forecast_matches_it(report):
    table = report.summary()
    for name, outcomes in report.outcomes.items():
        for best, outcome in zip(report.outcomes["perfect foresight"], outcomes, strict=True):
            assert outcome.figures.gco2 >= best.figures.gco2 * (1 - 1.1e-3), name
    assert table["run now"]["captured_pct"] == 0
    assert table["perfect foresight"]["captured_pct"] == pytest.approx(100)
    assert table["rolling, published forecast"]["captured_pct"] == pytest.approx(100, abs=1.5)


def test_the_same_seed_gives_the_same_starts_and_another_one_others(report):
    job = assumed(650.0, caps=False, running=False)
    again = backtest.run(grid(), job, 4 * 3600.0, 2.0, 6, seed=3, issues=issues(), own=False)
    other = backtest.run(grid(), job, 4 * 3600.0, 2.0, 6, seed=4, issues=issues(), own=False)
    assert [c.edges for c in again.cases] == [c.edges for c in report.cases]
    assert again.summary() == report.summary()
    assert [c.edges for c in other.cases] != [c.edges for c in report.cases]


def test_a_forecast_is_made_from_nothing_later_than_now():
    edges = [START + 3600 * h for h in range(200, 212)]

    def future_changed(hour):
        return value(hour) if hour <= 200 else 9.0

    for expect in (
        PublishedForecast(grid(), issues()),
        PublishedForecast(grid(of=future_changed), issues()),
    ):
        assert expect(edges)[0] == pytest.approx(value(200))
    later = Issue(issued_at_s=START + 3600 * 201, times_s=[START], values=[1.0])
    assert PublishedForecast(grid(), [*issues()[:9], later])(edges) == PublishedForecast(grid(), issues()[:9])(edges)
    assert PublishedForecast(grid(of=future_changed), issues())(edges) == PublishedForecast(grid(), issues())(edges)


def test_the_present_error_of_a_forecast_fades():
    edges = [START + 3600 * h for h in range(200, 240)]
    corrected = PublishedForecast(grid(), issues(error=1.2))(edges)
    assert abs(corrected[1] - value(201)) < 0.1 * value(201), "20 % too high as published"
    assert corrected[-1] == pytest.approx(1.2 * value(238), rel=0.02)


def test_an_issue_that_ends_goes_on_with_its_last_day():
    issue = issues()[0]
    assert issue_value(issue, START + 3600 * 100) == issue_value(issue, START + 3600 * 76)


def test_slots_average_fine_data_and_hold_coarse_data():
    fine = Grid(Series("XX", "average_direct", tuple(Row(START + 900 * i, 900.0, float(i)) for i in range(8)), "made"))
    assert fine.slots([START, START + 3600, START + 7200]) == [1.5, 5.5]
    assert fine.slots([START + 450, START + 900]) == [0.0]
    holed = Series("XX", "average_direct", (Row(START, 900.0, 1.0), Row(START + 1800, 900.0, 2.0)), "holed")
    assert not Grid(holed).covers(START, START + 2700)
    with pytest.raises(ProblemError):
        Grid(holed).slots([START, START + 2700])


def test_the_command_prints_every_start(tmp_path):
    actual = tmp_path / "actual.csv"
    lines = ["time_utc,carbon_g_per_kwh"] + [f"{units.iso(START + 3600 * h)},{value(h)}" for h in range(24 * 12)]
    actual.write_text("\n".join(lines))
    asked = ["--actual", str(actual), "--work", "3h", "--starts", "3", "--no-own"]
    answer = json.loads(CliRunner().invoke(verb, [*asked, "--json"], standalone_mode=False).stdout)
    assert len(answer["starts"]) == 3 and answer["lateness_s"] == 3600
    for options, late_h, source, said in (
        (["--lateness", "30h"], 30, "given", "late (as given)"),
        (["--zone", "pjm"], 2, "Electricity Maps", "late (as Electricity Maps usually is)"),
        (["--zone", "GB", "--lateness", "2h"], 2, "given", "late (as given)"),
        ([], 1, "", "late (assumed: no --zone)"),
    ):
        late = json.loads(CliRunner().invoke(verb, [*asked, *options, "--json"], standalone_mode=False).stdout)
        assert (late["lateness_s"], late["lateness_from"]) == (late_h * 3600, source)
        assert said in CliRunner().invoke(verb, [*asked, *options], standalone_mode=False).stdout.replace("\n", " ")
    first = answer["starts"][0]
    assert first["perfect_foresight_g"] <= first["run_now_g"]
    assert set(first["policies"]) == set(answer["summary"])
    assert all(row["late_s"] == 0 for row in first["policies"].values())
    assert "perfect foresight" in CliRunner().invoke(verb, asked, standalone_mode=False).stdout


@pytest.mark.parametrize(
    ("name", "content", "named"),
    [
        ("actual", "time_utc,value\n2030-01-01T00:00:00Z,NaN\n", "NaN"),
        ("actual", "", "time_utc"),
        ("issued", "issue_utc,target_utc\n", "issue_utc"),
        ("issued", "issue_utc,target_utc,forecast\n2030-01-01T00:00:00Z,2030-01-01T00:00:00Z,x\n", "line 2"),
    ],
)
def test_bad_files_are_one_line(tmp_path, name, content, named):
    good = tmp_path / "good.csv"
    good.write_text("\n".join(["time_utc,value"] + [f"{units.iso(START + 3600 * h)},300" for h in range(500)]))
    bad = tmp_path / "bad.csv"
    bad.write_text(content)
    files = {"actual": str(good), "issued": str(good)} | {name: str(bad)}
    asked = ["--actual", files["actual"], "--no-own", *(["--issued", str(bad)] if name == "issued" else [])]
    result = CliRunner().invoke(verb, asked, standalone_mode=False)
    assert isinstance(result.exception, Failure)
    assert result.exception.code == 2
    assert named in result.exception.message


def test_the_own_forecast_rolls_without_being_late_and_without_looking_ahead():
    job = assumed(650.0, caps=True, running=False)
    report = backtest.run(grid(24 * 75), job, 3 * 3600.0, 2.0, 2, seed=1)
    name = "rolling, own forecast"
    assert all(outcome.figures.late_s == 0 for outcome in report.outcomes[name])
    assert report.summary()[name]["captured_pct"] > 50
    edges = [START + 3600 * h for h in range(24 * 70, 24 * 70 + 8)]
    changed = grid(24 * 75, of=lambda hour: value(hour) if hour <= 24 * 70 else 7.0)
    assert OwnForecast(grid(24 * 75), [])(edges) == OwnForecast(changed, [])(edges)


@pytest.mark.parametrize("late_h", [1, 6.5])
def test_of_a_late_grid_only_what_had_ended_so_long_before_is_known(late_h):
    now = 24 * 70
    last = now - math.ceil(late_h) - 1  # the newest hour that had ended late_h before now
    edges = [START + 3600 * h for h in range(now, now + 8)]
    for since, same in ((last + 1, True), (last, False)):
        late = grid(24 * 75, lambda hour, since=since: value(hour) if hour < since else 9.0, 3600 * late_h)
        whole = grid(24 * 75, lateness_s=3600 * late_h)
        for kind in (OwnForecast, PublishedForecast):
            assert (kind(late, issues(24 * 71))(edges) == kind(whole, issues(24 * 71))(edges)) is same, (kind, since)
        assert (late.delayed().at(edges[0] + 60) == value(last)) is same
    assert choose.lateness("GB") < choose.lateness("DE") < choose.lateness("US-MIDA-PJM")


def test_a_file_that_is_too_short_says_how_much_is_missing():
    with pytest.raises(ProblemError, match=r"holds 20 days; .* needs 60 days of history before it; --no-own"):
        backtest.run(grid(24 * 20), assumed(650.0, caps=True, running=False), 8 * 3600.0, 2.0, 2, seed=1)


def test_running_now_is_a_schedule_and_captures_nothing_where_nothing_can_be(report):
    first = report.to_dict()["starts"][0]["policies"]["run now"]
    assert first["levels"] == [[2, 4 * 2]], "full, in half-hour slots"
    job = assumed(650.0, caps=False, running=False)
    flat = backtest.run(grid(of=lambda hour: 300.0), job, 4 * 3600.0, 2.0, 2, own=False)
    assert {row["captured_pct"] for row in flat.summary().values()} == {None}


def test_forecast_files_of_a_spreadsheet_are_read_and_broken_ones_named(tmp_path):
    text = "issue_utc,target_utc,forecast\n2030-01-01T00:00:00Z,2030-01-01T01:00:00Z,300\n"
    path, packed = tmp_path / "issued.csv", tmp_path / "issued.csv.gz"
    path.write_text(text, encoding="utf-8-sig")
    assert load_issues(path)[0]["values"] == [300.0]
    whole = gzip.compress(text.encode() * 50)
    for broken, at in (
        (whole[:-20], packed),
        (whole[:20] + b"\xff" * 20 + whole[40:], packed),
        (b"\xff\xfe\x00", path),
    ):
        at.write_bytes(broken)
        with pytest.raises(ProblemError, match="issued"):
            load_issues(at)
        with pytest.raises(ValueError, match="issued"):
            recorded.load(at)


def test_a_decision_depends_on_nothing_that_was_not_known_yet():
    fine = [Row(START + 900 * q, 900.0, value(q / 4)) for q in range(96 * 12)]
    job = assumed(650.0, caps=False, running=False)

    def levels(rows):
        made = Grid(Series("XX", "average_direct", tuple(rows), "made"))
        known = Knowledge(made, PublishedForecast(made, issues(24 * 12)))
        edges = [START + 3600.0 * hour for hour in range(200, 216)]
        return rolling(Case(tuple(edges), job.problem(edges, made, 5 * 3600.0)), known)

    first = levels(fine)
    for hour in (201, 204, 209):
        known_until = START + 3600 * hour + 900
        other = [row if row.start_s < known_until else Row(row.start_s, 900.0, 900 - row.value) for row in fine]
        assert levels(other)[: hour - 199] == first[: hour - 199]


def test_prices_are_known_a_day_ahead_from_the_evening_on():
    price = Grid(Series("XX", "price", tuple(Row(START + 3600 * h, 3600.0, float(h)) for h in range(24 * 5)), "made"))
    noon, evening = START + 86400 + 17 * 3600, START + 86400 + 18 * 3600
    ahead = [3600.0 * h for h in range(12)]
    seen = DayAhead(price)([noon + s for s in ahead])
    assert seen[:7] == [41.0, 42.0, 43.0, 44.0, 45.0, 46.0, 47.0]
    assert seen[7:] == [24.0, 25.0, 26.0, 27.0], "beyond what is published: the same hour of the last known day"
    assert DayAhead(price)([evening + s for s in ahead]) == [float(42 + h) for h in range(11)]


def test_a_backtest_by_price_saves_money_also_where_prices_are_negative(tmp_path):
    actual, price, tariff = (tmp_path / name for name in ("actual.csv", "price.csv", "tariff.csv"))
    hours = range(24 * 12)
    actual.write_text("time_utc,value\n" + "\n".join(f"{units.iso(START + 3600 * h)},{value(h)}" for h in hours))
    rows = (f"{units.iso(START + 3600 * h)},{50 - 100 * (h % 24 in (2, 3, 4, 5))}" for h in hours)
    price.write_text("time_utc,price_usd_per_mwh\n" + "\n".join(rows))
    tariff.write_text("days,from_utc,to_utc,price_eur_per_kwh\nall,00:00,24:00,0.30\nweekday,22:00,06:00,0.10\n")
    asked = ["--actual", str(actual), "--work", "3h", "--starts", "3", "--slack", "8", "--no-own", "--json"]

    def answer(*more):
        return json.loads(CliRunner().invoke(verb, [*asked, *more], standalone_mode=False).stdout)

    by_cost = answer("--price", str(price), "--objective", "cost")
    assert by_cost["currency"] == "USD"
    best = by_cost["starts"][0]["policies"]["perfect foresight"]
    assert best["cost"] == pytest.approx(-0.05 * best["kwh"], rel=0.02), "in the hours that pay for use"
    weighed = answer("--price", str(price), "--weight", "carbon=0.7,cost=0.3")
    by_carbon = answer("--price", str(price))
    total = lambda found, figure: sum(one["policies"]["perfect foresight"][figure] for one in found["starts"])  # noqa: E731
    assert total(by_cost, "cost") <= total(weighed, "cost") <= total(by_carbon, "cost")
    assert total(by_carbon, "gco2_g") <= total(weighed, "gco2_g") <= total(by_cost, "gco2_g")
    assert answer("--price", str(tariff), "--objective", "cost")["currency"] == "EUR"
    with pytest.raises(Failure, match="--price FILE"):
        CliRunner().invoke(verb, [*asked, "--objective", "cost"], standalone_mode=False, catch_exceptions=False)


def test_a_carbon_budget_goes_before_patience_and_wrong_work_is_done_in_time():
    seen = grid()
    known = Knowledge(seen, PublishedForecast(seen, issues()))
    start = START + 10 * 86400 - 3 * 3600.0
    edges = boundaries(start, start + 24 * 3600.0, 3600.0)
    patient = replace(assumed(650.0, caps=True, running=False), patience_pct=20.0).problem(edges, seen, 8 * 3600.0)
    case = Case(tuple(edges), patient)

    def did(**taken):
        return evaluate(replace(patient, price_of_time=0.0), rolling(case, known, **taken))

    free = did()
    asked = did(most_g=0.9 * free.gco2)
    assert asked.gco2 < 0.9 * free.gco2 and asked.finish_s > free.finish_s, "hours were what it cost"
    for taken in ({"work": 1.5}, {"work": 0.5}, {"speed": 1.05}):
        told = did(**taken)
        assert told.late_s == 0 and told.gco2 > 0
    assert did(work=1.0, speed=1.0) == free


@pytest.mark.parametrize(
    "words",
    [
        ["backtest"],
        ["backtest", "--actual", "/dev/zero"],
        ["backtest", "--actual", "/no/such.csv"],
        ["backtest", "--actual", "x", "--budget", "0.5x"],
        ["evaluate", "--seed", "１"],
    ],
)
def test_wrong_input_is_refused_in_one_line(refused, words):
    refused(words)


def test_a_file_without_end_is_read_only_so_far(refused):
    assert "more than" in refused(["backtest", "--actual", "/dev/zero", "--work", "8h"])
