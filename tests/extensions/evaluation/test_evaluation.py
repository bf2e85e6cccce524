"""The evaluation: repeatable from a seed, complete, and its figures are those of the schedules it names."""

import hashlib
import json

import pytest
from click.testing import CliRunner

from carbontui.assumed.job import Grid, assumed, boundaries
from carbontui.extensions.evaluation import evaluation, evaluation_report
from carbontui.extensions.evaluation.commands import evaluate as verb
from carbontui.extensions.evaluation.generated import generated
from carbontui.grid import recorded, typical
from carbontui.plan.evaluation import evaluate
from carbontui.units import from_iso

SMALL = evaluation.EvaluationScope(hours=(4,), slacks=(2.0,), held_w=(None, 250.0), starts=1)


@pytest.fixture(scope="module")
def zone():
    return evaluation.zone_evaluated("GB", SMALL, 3)


def test_the_same_seed_gives_the_same_grid_and_forecasts_and_another_seed_others():
    once, again, other = generated("GB", 3), generated("GB", 3), generated("GB", 4)
    rows = once[0].rows
    assert once == again
    assert rows != other[0].rows
    days = typical.recorded()["GB"]
    typically = [days.at(row.start_s)[0] for row in rows]
    mean = sum(row.value for row in rows) / len(rows)
    assert mean == pytest.approx(sum(typically) / len(typically), rel=0.1)
    with pytest.raises(ValueError, match="typical days"):
        generated("XX", 1)


def test_every_figure_is_that_of_the_schedule_on_the_grid_beside_it(zone, tmp_path):
    assert hashlib.sha256(zone["csv"].encode()).hexdigest() == zone["sha256"]
    path = tmp_path / "grid.csv"
    path.write_text(zone["csv"])
    grid = Grid(recorded.load(path))
    assert {(group["boundary"], group["caps"]) for group in zone["groups"]} == {
        (boundary, caps) for boundary in ("given-back", "held 250 W") for caps in (False, True)
    }
    for group in zone["groups"]:
        held_w = group["host_w"] or None
        shape = evaluation.on_own_machine(assumed(evaluation.FULL_W, caps=group["caps"], running=False), held_w)
        for job in group["jobs"]:
            start = from_iso(job["start"])
            edges = boundaries(start, start + group["hours"] * 3600 * group["slack"], group["slot_s"])
            problem = shape.problem(edges, grid, group["hours"] * 3600.0)
            for name, row in job["policies"].items():
                did = evaluate(problem, [level for level, count in row["levels"] for _ in range(count)])
                assert did.gco2 == pytest.approx(row["gco2_g"], abs=1e-3), name
                assert did.late_s == 0, name
                assert row["gco2_g"] >= job["policies"]["perfect foresight"]["gco2_g"] * (1 - 1e-3), name


def test_a_held_machine_is_charged_also_while_the_job_waits(zone):
    grams = {
        group["boundary"]: group["jobs"][0]["policies"]["window, CATS"]["gco2_g"]
        for group in zone["groups"]
        if not group["caps"]
    }
    assert grams["held 250 W"] > grams["given-back"]


def test_the_command_writes_the_same_figures_as_it_did_before(tmp_path, monkeypatch):
    small = evaluation.EvaluationScope(hours=(4,), slacks=(1.5,), held_w=(None,), starts=1, zones=("PL",))
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
    summary = found[0]["groups"][0]["summary"]
    assert found[0]["groups"][0]["lateness_s"] == 3600, "as late as Energy-Charts"
    assert set(summary["ours"]) >= {"saving_pct", "mean_pct", "median_pct", "worst_pct", "late", "switches"}


def test_a_picture_draws_what_is_below_zero_to_the_left():
    drawn = evaluation_report.bars("of <jobs>", [("a & b", -5.0), ("ours", 10.0)])
    assert "&lt;jobs&gt;" in drawn
    assert "a &amp; b" in drawn
