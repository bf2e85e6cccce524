"""Grams and money in one objective."""

import json

import click
import pytest
from click.testing import CliRunner

from carbontui.commands.solve import solve
from carbontui.commands.support.command import Failure
from carbontui.plan import problem


def test_the_mean_kwh_counts_by_the_shares_whatever_the_units():
    asked = problem.parse_weight("cost=3, carbon=7")
    assert asked == problem.Weight(0.7, 0.3)
    alpha, beta = asked.scaled([200.0, 400.0], [0.1, 0.5])
    assert beta * 300 == pytest.approx(0.7 * 300)
    assert alpha * 0.3 == pytest.approx(0.3 * 300)


def test_prices_around_zero_count_by_their_size_and_one_signal_alone_counts_alone():
    asked = problem.parse_weight("carbon=1,cost=1")
    assert asked.scaled([300.0], [-0.1, 0.1])[0] == pytest.approx(0.5 * 300 / 0.1)
    assert asked.scaled([300.0], []) == (0.0, 1.0)
    assert asked.scaled([0.0], [0.2]) == (1.0, 0.0)


@pytest.mark.parametrize("text", ["", "carbon", "carbon=x", "carbon=-1", "co2=1", "carbon=0,cost=0", "cost=1,cost=2"])
def test_a_weighting_that_is_none_says_how_to_write_one(text):
    with pytest.raises(ValueError, match=r"carbon=0\.7,cost=0\.3"):
        problem.parse_weight(text)


def test_solve_weighs_a_tariff_against_the_grid(tmp_path):
    tariff = tmp_path / "tariff.csv"
    tariff.write_text("days,from_utc,to_utc,price_eur_per_kwh\nall,00:00,24:00,0.40\nall,18:00,22:00,0.05\n")
    asked = ["--zone", "DE", "--work", "3h", "--budget", "24h", "--start", "2030-06-12T00:00:00Z", "--json"]

    def plan(*more):
        return json.loads(CliRunner().invoke(solve, [*asked, *more], standalone_mode=False).stdout)

    by = [plan("--price", str(tariff), "--weight", f"carbon={share},cost={1 - share}") for share in (1, 0.5, 0)]
    assert by[0]["cost"] >= by[1]["cost"] >= by[2]["cost"]
    assert by[0]["gco2"] <= by[1]["gco2"] <= by[2]["gco2"]
    assert by[0]["cost"] > by[2]["cost"]
    with pytest.raises(Failure, match="--price FILE"):
        CliRunner().invoke(solve, [*asked, "--weight", "carbon=1"], standalone_mode=False, catch_exceptions=False)
    with pytest.raises(click.BadParameter, match=r"carbon=0\.7"):
        CliRunner().invoke(solve, [*asked, "--weight", "green"], standalone_mode=False, catch_exceptions=False)


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("holiday,00:00,24:00,0.3", "line 2"),
        ("all,7,8,0.3", "'7'"),
        ("all,00:00,24:00,cheap", "cheap"),
        ("mon,00:00,24:00,0.3", "no line covers"),
    ],
)
def test_a_tariff_that_cannot_be_used_names_the_line(tmp_path, line, named):
    tariff = tmp_path / "tariff.csv"
    tariff.write_text(f"days,from_utc,to_utc,price_eur_per_kwh\n{line}\n")
    asked = ["--zone", "DE", "--work", "3h", "--price", str(tariff), "--start", "2030-06-12T00:00:00Z"]
    with pytest.raises(Failure, match=named):
        CliRunner().invoke(solve, asked, standalone_mode=False, catch_exceptions=False)
