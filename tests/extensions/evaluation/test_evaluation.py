"""The evaluation: repeatable from a seed, complete, and its figures are those of the schedules it names."""

import hashlib
import json

import pytest
from click.testing import CliRunner

from carbontui.assumed.job import boundaries
from carbontui.extensions.evaluation import evaluation, evaluation_report
from carbontui.extensions.evaluation.commands import evaluate as verb
from carbontui.plan.evaluation import evaluate
from carbontui.power.curves import public
from carbontui.units import from_iso

GB = evaluation.shipped()[1]
SMALL = evaluation.EvaluationScope(
    jobs=((4, 2.0),), held_w=(None, 250.0), starts=2, seeds=1, board_starts=0, variant_starts=0, grids=(GB,)
)


@pytest.fixture(scope="module")
def found():
    return evaluation.evaluation(SMALL, 3)


def test_every_figure_is_that_of_the_schedule_on_the_grid_beside_it(found):
    assert found["data"]["GB 2023"] == {
        "file": "grid-gb-2023.csv.gz",
        "sha256": hashlib.sha256(GB.path.read_bytes()).hexdigest(),
    }
    grid = evaluation.grid_of(GB, SMALL)
    assert {(group["boundary"], group["caps"]) for group in found["groups"]} == {
        (boundary, caps) for boundary in ("given-back", "held 250 W") for caps in (False, True)
    }
    for group in found["groups"]:
        shape = evaluation.job_of(evaluation.Setting(4, 2.0, group["host_w"] or None, group["caps"], 2.0))
        assert len(group["jobs"]) == 2
        for job in group["jobs"]:
            start = from_iso(job["start"])
            edges = boundaries(start, start + group["hours"] * 3600 * group["slack"], group["slot_s"])
            problem = shape.problem(edges, grid, group["hours"] * 3600.0)
            for name, row in job["policies"].items():
                did = evaluate(problem, [level for level, count in row["levels"] for _ in range(count)])
                assert did.gco2 == pytest.approx(row["gco2_g"], abs=1e-3), name
                assert did.finish_s == pytest.approx(row["finish_s"], abs=0.1), name
                assert did.late_s == 0, name
                assert row["gco2_g"] >= job["policies"]["perfect foresight"]["gco2_g"] * (1 - 1e-3), name


def test_a_held_machine_is_charged_also_while_the_job_waits(found):
    grams = {
        group["boundary"]: sum(job["policies"]["window, CATS"]["gco2_g"] for job in group["jobs"])
        for group in found["groups"]
        if not group["caps"]
    }
    assert grams["held 250 W"] > grams["given-back"]


def test_what_is_saved_is_divided_by_the_hours_of_delay():
    now, capped = {"gco2_g": 100.0, "finish_s": 3600.0}, {"gco2_g": 70.0, "finish_s": 9000.0}
    rest = {"late_s": 0.0, "switches": 0, "cost": 1.0}
    found = evaluation.summary([{"policies": {"run now": now | rest, "ours": capped | rest}}] * 2)
    assert (found["ours"]["delay_h"], found["ours"]["saved_g_per_delay_h"]) == (1.5, 20.0)
    assert (found["run now"]["delay_h"], found["run now"]["saved_g_per_delay_h"]) == (0.0, None)


def test_the_curve_of_each_published_training_takes_part():
    for number, training in enumerate(public.shapes()):
        problem = evaluation.job_of(evaluation.Setting(24, 2.0, None, True, 2.0, number)).shape
        off, pause, full, *caps = problem.levels
        assert (off.power_w, full.power_w, full.speed) == (0.0, evaluation.FULL_W, 1.0)
        assert pause.speed == 0.0
        assert len(caps) == sum(training.at(share) is not None for share in public.SHARES)
        assert all(cap.power_w <= full.power_w and 0.3 < cap.speed <= 1.0 for cap in caps)
        assert {len(problem.levels)} == {
            len(problem.switch_s),
            *map(len, problem.switch_s),
            *map(len, problem.switch_w),
        }
    boards = {s.training for s in evaluation.settings(evaluation.QUICK) if s.training is not None}
    assert len(boards) == len(public.shapes()) == 24


def test_prices_budgets_and_errors_are_weighed_on_the_same_starts():
    scope = evaluation.EvaluationScope(
        jobs=(evaluation.DAY,), held_w=(None,), starts=1, seeds=2, board_starts=0, grids=(GB,)
    )
    whole = evaluation.evaluation(scope, 3)
    by = {"command": "evaluate", "date": "2026-11-28", "machine": "two cores", "took_s": 1.0}
    text = evaluation_report.markdown(whole | by, cpu_s=1.0)
    assert "| caps taken for 5 % slower |  | " in text and "## By seed" in text
    found = {(one["variant"], one["caps"]): one for one in whole["variants"]}
    assert {name for name, _ in found} == set(evaluation.VARIANTS) - {""}
    assert all(job["most_g"] > 0 for job in found["at most 80 % of running now's CO2", True]["jobs"])
    assert [job["seed"] for job in found["cost", True]["jobs"]] == [3, 4]
    of = {name: evaluation.summary(found[name, True]["jobs"], (1.0, 0.0))["ours"]["mean_pct"] for name, _ in found}
    assert of["cost"] >= of["half CO2, half cost"] and of["cost"] >= of["caps taken for 1 % faster"]


def test_the_command_writes_the_same_figures_as_it_did_before(tmp_path, monkeypatch):
    small = evaluation.EvaluationScope(jobs=((4, 1.5),), held_w=(None,), starts=1, board_starts=0, variant_starts=0)
    monkeypatch.setattr(evaluation, "QUICK", small)
    found = []
    for name in ("one", "two"):
        CliRunner().invoke(verb, ["--quick", "--seed", "5", "--out", str(tmp_path / name)], catch_exceptions=False)
        found.append(json.loads((tmp_path / name / "evaluation.json").read_text()))
    for one in found:
        for key in ("date", "machine", "took_s", "command", "out"):
            assert one.pop(key)
    assert found[0] == found[1]
    text = (tmp_path / "one" / "evaluation.md").read_text()
    assert "carbontui evaluate --quick --seed 5" in text
    assert all(name in text for name in found[0]["policies"])
    assert (tmp_path / "one" / "evaluation-caps.svg").read_text().startswith("<svg")
    assert {(group["data"], group["lateness_s"]) for group in found[0]["groups"]} == {
        ("DE 2020", 3600),
        ("GB 2023", 1800),
    }, "as late as Energy-Charts and NESO"


def test_a_picture_draws_what_is_below_zero_to_the_left():
    drawn = evaluation_report.bars("of <jobs>", [("a & b", -5.0), ("ours", 10.0)])
    assert "&lt;jobs&gt;" in drawn
    assert "a &amp; b" in drawn
