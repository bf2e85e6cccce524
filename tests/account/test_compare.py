"""The same work elsewhere: rough rules that are called so, and nothing invented where a figure is missing."""

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

sys.path.insert(0, str(Path(__file__).parents[1] / "report"))
import runs

from carbontui import cli
from carbontui.account import compare
from carbontui.account.compare import BoardSpec, Work
from carbontui.verbs.compare import boards

OLD = BoardSpec("Old", "old", 16, 500.0, 10.0, 50.0, 250.0)
NEW = BoardSpec("New", "new", 80, 1000.0, 20.0, 200.0, 500.0)
PLAIN = BoardSpec("Plain", "plain", 8, 250.0, 10.0, None, 100.0)
WORK = Work(3600.0, 200.0, 100.0, 1, 300.0)


def on(work=WORK, told=None, precision="fp16"):
    rows = compare.on_boards(work, OLD, [OLD, NEW, PLAIN], precision=precision, told=told or {})
    return {row.name: row for row in rows}


def test_speed_is_the_rule_watts_keep_their_share_of_the_limit():
    new = on()["new"]
    assert new.speed == pytest.approx(0.7 * 4 + 0.3 * 2) and new.how == "rough rule"
    assert new.kwh == pytest.approx((200 * 2 + 100) * 3600 / new.speed / 3.6e6)
    assert new.gco2_g == pytest.approx(new.kwh * 300) and on()["old"].how == "measured"


def test_what_a_person_knows_stands_above_the_rule():
    assert on(told={"New": 1.5})["new"][1:3] == (1.5, 2400.0) and on(told={"New": 1.5})["new"].how == "speed as given"


def test_what_is_not_known_or_does_not_fit_is_left_out():
    assert set(on()) == {"old", "new"} and set(on(precision="fp32")) == {"old", "new", "plain"}
    assert set(on(WORK._replace(memory_used_b=40 * 10**9))) == {"new"}
    assert on(WORK._replace(intensity=None))["new"].gco2_g is None


def test_boards_of_fifty_kinds_are_found_by_the_drivers_name_or_a_short_one():
    every = boards()
    assert len(every) >= 50 and all(board.tdp_w > 0 and board.bandwidth_gbs > 0 for board in every)
    for name in ("NVIDIA H100 80GB HBM3", "H100 SXM5 80GB", "GeForce RTX 4090", "rtx 4090"):
        assert compare.known(name, every) is not None
    assert compare.known("Simulated GPU", every) is None


def test_the_verb_ranks_boards_and_countries_and_says_that_it_moves_nothing(tmp_path):
    job = runs.make(tmp_path)
    env = {"CARBONTUI_HOME": str(tmp_path)}

    def carbontui(*words):
        return CliRunner().invoke(cli.cli, ["compare", job.id, *words], env=env)

    done = carbontui("--gpu", "H100 SXM5 80GB")
    assert done.exit_code == 0 and "<- here" in done.output and "moves no job" in done.output
    assert "rough rule" in done.output and "measured" in done.output
    zones = carbontui("--zones")
    assert zones.exit_code == 0 and "(Ember)" in zones.output and "not with this job's own" in zones.output
    rows = json.loads(carbontui("--zones", "--json").output)
    assert len(rows) > 150 and 0 < rows[0]["gco2_g"] <= rows[-1]["gco2_g"]
    for words in ((), ("--gpu", "abacus"), ("--gpu", "T4", "--speedup", "T4"), ("--gpu", "T4", "--speedup", "x=2")):
        refused = carbontui(*words)
        assert refused.exit_code != 0 and len(refused.output.splitlines()) == 1, words
