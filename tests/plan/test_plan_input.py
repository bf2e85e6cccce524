"""Bad input is one line that names the field, exit 2, never a traceback."""

import json
import re

import pytest
from click.testing import CliRunner
from test_plan_schema_examples import EXAMPLE_1

from carbontui.commands.solve import solve as verb
from carbontui.commands.support.command import Failure
from carbontui.plan.problem import ProblemError, problem_from_dict


def broken(path, value):
    data = json.loads(json.dumps(EXAMPLE_1))
    spot = data
    for key in path[:-1]:
        spot = spot[key]
    if value is KeyError:
        del spot[path[-1]]
    else:
        spot[path[-1]] = value
    return data


@pytest.mark.parametrize(
    ("path", "value", "named"),
    [
        (("slots", "dur_s"), [], "slots.dur_s"),
        (("slots", "dur_s"), [1800, 0, 3600], "slots.dur_s[1]"),
        (("slots", "dur_s"), [1.0] * 30_000, "slots.dur_s"),
        (("slots", "ci_g_per_kwh"), [400, 600], "slots.ci_g_per_kwh"),
        (("slots", "ci_g_per_kwh"), [400, float("nan"), 100], "slots.ci_g_per_kwh[1]"),
        (("slots", "ci_g_per_kwh"), [400, -1, 100], "slots.ci_g_per_kwh[1]"),
        (("slots", "ci_g_per_kwh"), [400, "600", 100], "slots.ci_g_per_kwh[1]"),
        (("slots", "ci_g_per_kwh"), [400, 1e300, 100], "slots.ci_g_per_kwh[1]"),
        (("slots", "price_per_kwh"), [float("inf")] * 3, "slots.price_per_kwh[0]"),
        (("slots", "when"), [1, 2, 3], "slots.when"),
        (("levels",), [], "levels"),
        (("levels", 1, "speed"), 0, "levels"),
        (("levels", 1, "power_w"), -5, "levels[1].power_w"),
        (("levels", 1, "speed"), True, "levels[1].speed"),
        (("levels", 0, "name"), 7, "levels[0].name"),
        (("levels", 0, "watts"), 7, "levels[0].watts"),
        (("switch", "time_s"), [[0, 60]], "switch.time_s"),
        (("switch", "time_s"), [[0, -60], [20, 0]], "switch.time_s[0][1]"),
        (("switch", "power_w"), [[0, None], [300, 0]], "switch.power_w[0][1]"),
        (("switch", "time_s"), [["x", 60], [20, 0]], "switch.time_s[0][0]"),
        (("switch", "time_s"), [[0, 60], [20, []]], "switch.time_s[1][1]"),
        (("switch", "power_w"), [[{}, 300], [300, 0]], "switch.power_w[0][0]"),
        (("switch", "power_w"), [[0, 300], [300, None]], "switch.power_w[1][1]"),
        (("switch", "power_w"), [[0, 300], [300, float("nan")]], "switch.power_w[1][1]"),
        (("min_run_slots",), 0, "min_run_slots"),
        (("min_pause_slots",), 1.5, "min_pause_slots"),
        (("max_resumes",), -1, "max_resumes"),
        (("initial", "level"), 2, "initial.level"),
        (("initial", "age_slots"), -1, "initial.age_slots"),
        (("work_s",), -1, "work_s"),
        (("work_s",), KeyError, "work_s"),
        (("pue",), 0, "pue"),
        (("alpha",), -1, "alpha"),
        (("deadline",), 9, "deadline"),
        (("schema",), "carbontui.problem/9", "schema"),
        (("slots",), [1], "slots"),
    ],
)
def test_each_fault_is_named(path, value, named, tmp_path):
    data = broken(path, value)
    with pytest.raises(ProblemError) as error:
        problem_from_dict(data)
    assert error.value.where == named
    assert "\n" not in str(error.value)


def test_the_command_says_it_in_one_line_with_exit_2(tmp_path):
    path = tmp_path / "problem.json"
    path.write_text(json.dumps(broken(("slots", "ci_g_per_kwh"), [1, float("nan"), 2])))
    result = CliRunner().invoke(verb, [str(path)], standalone_mode=False)
    assert isinstance(result.exception, Failure)
    assert result.exception.code == 2
    assert "slots.ci_g_per_kwh[1]" in result.exception.message
    for text in ("", "{", "[]", '{"slots": {}}', "\x00", "[" * 100_000):
        path.write_text(text)
        result = CliRunner().invoke(verb, [str(path)], standalone_mode=False)
        assert isinstance(result.exception, Failure), text[:20]
        assert result.exception.code == 2


def test_the_command_plans_a_file(tmp_path):
    path = tmp_path / "problem.json"
    path.write_text(json.dumps(problem_from_dict(EXAMPLE_1).to_dict()))
    result = CliRunner().invoke(verb, [str(path), "--json", "--frontier"])
    answer = json.loads(result.stdout)
    assert answer["levels"] == [1, 0, 1]
    assert answer["gco2"] == pytest.approx(205.2)
    assert [point["finish_s"] for point in answer["frontier"]] == [3600.0, 7260.0]
    assert answer["frontier"][-1]["levels"] == [[1, 1], [0, 1], [1, 1]]
    shown = CliRunner().invoke(verb, [str(path), "--frontier"]).stdout
    assert "205 g" in shown
    assert "best window" in shown


@pytest.mark.parametrize("asked", [["--work", "8h"], ["--zone", "DE"], ["--zone", "Nowhere", "--work", "8h"], []])
def test_what_is_missing_is_said(asked):
    result = CliRunner().invoke(verb, asked, standalone_mode=False)
    assert isinstance(result.exception, Failure)
    assert result.exception.code == 2


def test_work_beyond_a_deadline_that_is_too_near_meets_the_grid_of_its_hours():
    asked = ["--zone", "DE", "--work", "8h", "--start", "2030-04-12T12:00:00Z", "--json", "--budget"]
    fits, late = (json.loads(CliRunner().invoke(verb, [*asked, budget]).stdout) for budget in ("8h", "4h"))
    assert (fits["late_s"], late["late_s"]) == (0, 4 * 3600)
    assert late["gco2"] == pytest.approx(fits["gco2"])
    assert {rival["late_s"] for rival in late["baselines"] if rival["name"] == "run now"} == {4 * 3600}
    assert "4 h 00 late" in late["explanation"]


def test_a_made_up_job_shows_its_frontier():
    asked = ["--zone", "DE", "--work", "6h", "--budget", "3x", "--start", "2030-04-12T16:20:00Z"]
    asked += ["--watts", "650W"]
    shown = CliRunner().invoke(verb, asked).stdout
    assert "typical days of DE" in shown
    assert "Frontier" in shown
    assert "•" in shown
    assert re.search(r"wait \d+ h \d\d · cap \d+ W \d+ h \d\d", shown), "how long each level is held"
    answer = json.loads(CliRunner().invoke(verb, [*asked, "--json"]).stdout)
    assert answer["late_s"] == 0
    assert answer["certified"]
    grams = [point["gco2_g"] for point in answer["frontier"]]
    assert grams == sorted(grams, reverse=True)


def test_an_hour_has_a_price_on_the_command_line(monkeypatch, tmp_path):
    """8 h in FR within 3x: 1.7 % of the CO2 are not worth half a day."""
    monkeypatch.setenv("CARBONTUI_HOME", str(tmp_path))
    asked = ["--zone", "FR", "--work", "8h", "--budget", "3x", "--start", "2026-11-26T17:30:00Z", "--json"]
    asked += ["--watts", "300W"]
    usual, least = (json.loads(CliRunner().invoke(verb, [*asked, *more]).stdout) for more in ([], ["--patience", "0%"]))
    assert (usual["patience_pct"], usual["price_of_time_g_per_h"]) == (2.0, pytest.approx(0.255, abs=0.01))
    assert least["price_of_time_g_per_h"] == 0 and least["finish_s"] - usual["finish_s"] > 12 * 3600
    assert least["gco2"] < usual["gco2"] < 1.02 * least["gco2"]
    assert usual["frontier"] == least["frontier"], "it is of CO2 alone"
    within = usual["earliest_within"]
    assert [one["share_of_saving"] for one in within] == [0.9, 0.95, 0.99]
    assert within[0]["finish_s"] < 10 * 3600 < within[2]["finish_s"] < 24 * 3600
    monkeypatch.setenv("CARBONTUI_PATIENCE", "0")
    assert json.loads(CliRunner().invoke(verb, asked).stdout)["finish_s"] == least["finish_s"]
    wrong = CliRunner().invoke(verb, [*asked, "--patience", "two"], standalone_mode=False)
    assert isinstance(wrong.exception, Failure) and wrong.exception.code == 2
