"""The same work elsewhere: rules of thumb that are labelled so, and nothing invented where a figure is missing."""

import json
import re
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from msgspec import structs

sys.path.insert(0, str(Path(__file__).parents[1] / "report"))
sys.path.insert(0, str(Path(__file__).parents[1] / "grid"))
import runs
from grid_site import good, served

from carbontui import cli, config
from carbontui.account import compare
from carbontui.account.compare import BoardSpec, Work, boards
from carbontui.grid import opening
from carbontui.grid.settings import GridSettings
from carbontui.protocol import Estimate
from carbontui.reports import elsewhere, story

OLD = BoardSpec("Old", "old", 16, 500.0, 50.0, 250.0)
NEW = BoardSpec("New", "new", 80, 1000.0, 200.0, 500.0)
PLAIN = BoardSpec("Plain", "plain", 8, 250.0, None, 100.0)
WORK = Work(3600.0, 200.0, 100.0, 1, 300.0)


def on(work=WORK):
    return {row.name: row for row in compare.on_boards(work, OLD, [OLD, NEW, PLAIN])}


def test_speed_is_the_rule_watts_keep_their_share_of_the_limit():
    new = on()["new"]
    assert new.speed == pytest.approx(0.7 * 4 + 0.3 * 2) and new.how == "rule of thumb"
    assert new.kwh == pytest.approx((200 * 2 + 100) * 3600 / new.speed / 3.6e6)
    assert new.gco2_g == pytest.approx(new.kwh * 300) and on()["old"].how == "as given" and on()["old"].here


def test_the_jobs_row_is_its_account_and_the_others_scale_from_run_now():
    used = compare.Used(5000.0, 0.4, 120.0, "estimated")
    rows = on(WORK._replace(used=used))
    assert rows["old"][:5] == ("old", 1.0, 5000.0, 0.4, 120.0) and rows["old"].how == "estimated" and rows["old"].here
    assert rows["new"].kwh == on()["new"].kwh and not rows["new"].here


def test_what_is_not_known_or_does_not_fit_is_left_out():
    assert set(on()) == {"old", "new"}, "of the plain one no speed in half precision is known"
    assert set(on(WORK._replace(memory_used_b=40 * 10**9))) == {"new"}
    assert on(WORK._replace(intensity=None))["new"].gco2_g is None


def test_boards_of_fifty_kinds_are_found_by_the_drivers_name_or_a_short_one():
    every = boards()
    assert len(every) >= 50 and all(board.tdp_w > 0 and board.bandwidth_gbs > 0 for board in every)
    for name in (
        "NVIDIA H100 80GB HBM3",
        "H100 SXM5 80GB",
        "GeForce RTX 4090",
        "rtx 4090",
        "B200",
        "AMD Instinct MI300X",
    ):
        assert compare.known(name, every) is not None
    assert compare.known("Simulated GPU", every) is None
    named = [board.name for board in every] + [board.short for board in every]
    assert len(named) == len(set(named)) + sum(board.name == board.short for board in every)


def test_the_verb_ranks_boards_and_countries_and_says_that_it_moves_nothing(tmp_path):
    job = runs.make(tmp_path)
    env = {"CARBONTUI_HOME": str(tmp_path), "CARBONTUI_OFFLINE": "1"}

    def carbontui(*words):
        return CliRunner().invoke(cli.cli, ["compare", job.id, *words], env=env)

    done = carbontui("--gpu", "H100 SXM5 80GB")
    assert done.exit_code == 0 and "<- here" in done.output and "moves no job" in done.output
    assert "rule of thumb" in done.output and "measured" in done.output
    zones = carbontui("--zones")
    assert zones.exit_code == 0 and "(Ember)" in zones.output and "not with this job's own" in zones.output
    (own,) = (line for line in zones.output.splitlines() if "<- here" in line)
    assert own.startswith("DE Germany"), "a rank without the job's own country tells nothing"
    rows = json.loads(carbontui("--zones", "--json").output)
    assert len(rows) > 150 and 0 < rows[0]["gco2_g"] <= rows[-1]["gco2_g"]
    for words in ((), ("--gpu", "abacus")):
        refused = carbontui(*words)
        assert refused.exit_code != 0 and len(refused.output.splitlines()) == 1, words


def test_zones_are_ranked_by_one_kind_of_value_alone(tmp_path, monkeypatch):
    job = runs.make(tmp_path)  # its account is of average_direct
    live = {
        "average_direct": {"DE Germany": (300.0, "now"), "FR France": (30.0, "now")},
        "average_lifecycle": {"NO1 Oslo": (9.0, "now"), "SE Sweden": (11.0, "now"), "FI Finland": (12.0, "now")},
        "marginal": {"GB United Kingdom": (700.0, "now")},
    }
    monkeypatch.setattr(opening, "now_on", lambda settings: live)

    def zones(*words):
        done = CliRunner().invoke(
            cli.cli, ["compare", job.id, "--zones", *words], env={"CARBONTUI_HOME": str(tmp_path)}
        )
        assert done.exit_code == 0, done.output
        return done.output

    shown = zones("--all").splitlines()
    assert shown[1].startswith("FR France") and shown[2].startswith("DE Germany") and "<- here" in shown[2]
    assert not any("Oslo" in line or "(Ember)" in line for line in shown)
    assert any("4 zones with another signal" in line for line in shown)
    rows = json.loads(zones("--json"))
    assert [row["name"] for row in rows[:2]] == ["FR France", "DE Germany"] and len(rows) == 2
    assert rows[1]["here"] and sum(row["here"] for row in rows) == 1


def test_a_job_without_a_gpu_is_not_told_what_a_gpu_would_do(tmp_path):
    job = runs.make(tmp_path, gpus=0)
    env = {"CARBONTUI_HOME": str(tmp_path), "CARBONTUI_OFFLINE": "1"}

    def carbontui(*words):
        return CliRunner().invoke(cli.cli, ["compare", job.id, *words], env=env)

    for words in ((), ("--gpu", "T4")):
        refused = carbontui(*words)
        assert refused.exit_code and "used no GPU" in refused.output and "H100" not in refused.output, words
    assert carbontui("--zones").exit_code == 0 and carbontui("--budgets", "--intensity", "300").exit_code == 0
    assert "H100" in carbontui("--gpu", "T4", "--board-w", "70", "--all").output


def test_the_verb_refuses_what_it_does_not_know(tmp_path):
    job = runs.make(tmp_path)

    def run(*words):
        return CliRunner().invoke(cli.cli, ["compare", job.id, *words], env={"CARBONTUI_HOME": str(tmp_path)})

    for words, said in (
        (["--zones", "--budgets"], "exclude each other"),
        (["--budgets", "--zone", "Atlantis"], "is not known"),
    ):
        done = run("--gpu", "A100 SXM4 80GB", *words)
        assert done.exit_code != 0 and said in done.output and "Traceback" not in done.output


def test_budgets_use_the_jobs_zone_and_say_when_more_time_saves_nothing(tmp_path):
    job = runs.make(tmp_path)

    def run(*words):
        env = {"CARBONTUI_HOME": str(tmp_path), "CARBONTUI_OFFLINE": "1"}
        return CliRunner().invoke(cli.cli, ["compare", job.id, *words], env=env)

    flat = run("--budgets", "--intensity", "300")
    assert flat.exit_code == 0 and "estimated: yours: 300" in flat.output
    assert "1.5x, 2x, 3x" in flat.output, "one plan, one line"
    assert re.search(r"−\d+ % CO2, \d.* later; certified", run("--budgets").output), "hours stand beside percent"
    uncapped = CliRunner().invoke(
        cli.cli,
        ["compare", runs.make(tmp_path, job="cdefgh", cap=False).id, "--budgets"],
        env={"CARBONTUI_HOME": str(tmp_path), "CARBONTUI_OFFLINE": "1"},
    )
    assert uncapped.exit_code == 0 and "learn speed" in flat.output and "learn speed" not in uncapped.output
    rows = json.loads(run("--budgets", "--json").output)
    assert [row["name"] for row in rows] == ["1x", "1.5x", "2x", "3x"]
    # by the hour, some budgets have one plan, and one line
    (own,) = (line for line in run("--budgets").output.splitlines() if "<- here" in line)
    assert "2x" in own.partition(" h ")[0].replace(",", "").split()
    recorded = runs.make(tmp_path, job="bcdefg", grid="/a/grid.csv")
    refused = CliRunner().invoke(cli.cli, ["compare", recorded.id, "--budgets"], env={"CARBONTUI_HOME": str(tmp_path)})
    assert refused.exit_code != 0 and "recorded grid; name the current zone" in refused.output


def test_work_without_a_metered_or_forecast_watt_is_compared_with_nothing(tmp_path):
    """As an estimate leaves it where no meter was found: eight hours of nothing."""
    job = runs.make(tmp_path, estimate=True)
    run = story.build(job)
    nothing = Estimate(work_s=28800.0, work_lo_s=28000.0, work_hi_s=29000.0, energy_wall_kwh=0.0)
    run = replace(run, status=structs.replace(run.status, estimate=nothing))
    with pytest.raises(elsewhere.NothingToCompare, match="its watts are not known"):
        elsewhere.work_of(run, config.Settings(), given=False)


def test_watts_of_a_board_may_be_a_persons_where_none_were_measured(tmp_path):
    job = runs.make(tmp_path)
    env = {"CARBONTUI_HOME": str(tmp_path), "CARBONTUI_OFFLINE": "1"}

    def energy(*words):
        asked = ["compare", job.id, "--gpu", "T4", "--json", *words]
        return next(one["kwh"] for one in json.loads(CliRunner().invoke(cli.cli, asked, env=env).output) if one["here"])

    half, whole = energy("--board-w", "250", "--utilisation", "0.5"), energy("--board-w", "250")
    assert whole == pytest.approx(2 * half)
    assert whole != pytest.approx(energy())


def test_a_grid_of_now_is_asked_of_its_source_and_nothing_is_asked_offline(tmp_path, monkeypatch):
    monkeypatch.setenv("CARBONTUI_HOME", str(tmp_path))
    with served(good("neso", time.time())) as url:
        settings = GridSettings(base_urls={"neso": url})
        found = opening.now_on(settings, ["GB", "AQ"])
    ((zone, (value, how)),) = found["average_direct"].items()
    assert zone == "GB United Kingdom" and list(found) == ["average_direct"]
    assert 0 < value < 1000 and how.startswith("now, average")
    assert opening.now_on(GridSettings(offline=True)) == {}
