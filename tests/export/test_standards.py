"""What a run owes to others: a model card's block, and what making the hardware emitted; by hand, or unknown."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

sys.path.insert(0, str(Path(__file__).parents[1] / "report"))
import runs

from carbontui import cli
from carbontui.reports import figures, formats, story


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    return runs.make(tmp_path_factory.mktemp("home"), gpus=2)


@pytest.fixture(scope="module")
def told(job):
    known = story.build(job, version="9.9")
    return replace(known, held_s=7200.0)


def test_a_model_card_has_one_block_whose_fields_name_their_rows(told):
    head, *lines = formats.model_card(told, "pre-training").splitlines()
    assert head == "co2_eq_emissions:"
    fields = dict(line.split(":", 1) for line in lines)
    values = {name.strip(): json.loads(rest.split("  # ")[0]) for name, rest in fields.items()}
    assert values["emissions"] == round(told.gco2_g, 6), "grams"
    assert values["training_type"] == "pre-training" and values["geographical_location"] == "DE (Germany)"
    assert values["hardware_used"] == "2 x H100" and "9.9" in values["source"]
    assert all("  # " in line for line in lines)
    assert '"unknown"' in formats.model_card(told, None) and '"unknown"' in formats.model_card(
        replace(told, gco2_g=None), "x"
    )


def test_what_making_the_hardware_emitted_is_what_a_calculation_by_hand_gives(told):
    by_hand = 2 * 2.0 * (164_000 + 2_500_000 / 8) / 44_676  # 2 boards, 2 hours
    assert formats.numbers(told)["embodied_g"] == pytest.approx(by_hand, abs=1e-5)


def test_boards_without_a_published_figure_have_no_embodied_emissions(told):
    other = msgspec.structs.replace(told.status.gpus[0], name="Some Board")
    strange = replace(told, status=msgspec.structs.replace(told.status, gpus=(other,)))
    assert strange.embodied is None and formats.numbers(strange)["embodied_g"] is None
    given = replace(strange, options=msgspec.structs.replace(strange.options, embodied=9.0))
    assert formats.numbers(given)["embodied_g"] == 9.0 * 2 * len(strange.status.gpus)


def test_embodied_stands_beside_the_account_and_never_in_it(told):
    line = next(figure for figure in figures.figures(told) if figure.label == "embodied")
    assert line.rests_on.startswith("not in emitted") and line.value == "43 g CO2"
    assert formats.numbers(told)["gco2_g"] == round(told.gco2_g, 6)


def test_each_goes_to_a_file_or_to_stdout(job, tmp_path):
    env = {"CARBONTUI_HOME": str(job.dir.parents[1])}
    done = CliRunner().invoke(cli.cli, ["report", job.id, "--model-card", "-"], env=env)
    assert done.exit_code == 0 and done.stdout.startswith("co2_eq_emissions:")
    card = tmp_path / "card.yaml"
    done = CliRunner().invoke(
        cli.cli, ["report", job.id, "--model-card", str(card), "--training-type", "fine-tuning"], env=env
    )
    assert done.exit_code == 0 and done.output == "" and "fine-tuning" in card.read_text()
    done = CliRunner().invoke(cli.cli, ["report", job.id, "--training-type", "x"], env=env)
    assert done.exit_code and "belongs to --model-card" in done.output


def test_the_page_has_dark_colours_and_fits_a_phone(told):
    page = formats.html(told)
    assert "prefers-color-scheme: dark" in page and "max-width: 700px" in page
