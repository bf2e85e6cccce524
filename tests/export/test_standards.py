"""What a run owes to others: a model card's block, SCI, Annex XI; equal to a calculation by hand, or unknown."""

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
from carbontui.reports import export, figures, formats, story


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    return runs.make(tmp_path_factory.mktemp("home"), gpus=2)


@pytest.fixture(scope="module")
def told(job):
    known = story.build(job, version="9.9")
    return replace(known, held_s=7200.0)


def with_metrics(told, **metrics):
    return replace(told, status=msgspec.structs.replace(told.status, metrics=metrics))


def test_a_model_card_has_one_block_whose_fields_name_their_rows(told):
    head, *lines = export.model_card(told, "pre-training").splitlines()
    assert head == "co2_eq_emissions:"
    fields = dict(line.split(":", 1) for line in lines)
    values = {name.strip(): json.loads(rest.split("  # ")[0]) for name, rest in fields.items()}
    assert values["emissions"] == round(told.gco2_g, 6), "grams"
    assert values["training_type"] == "pre-training" and values["geographical_location"] == "DE (Germany)"
    assert values["hardware_used"] == "2 x H100" and "9.9" in values["source"]
    assert all("  # " in line for line in lines)
    assert '"unknown"' in export.model_card(told, None) and '"unknown"' in export.model_card(
        replace(told, gco2_g=None), "x"
    )


def test_sci_is_what_a_calculation_by_hand_gives(told):
    found = json.loads(export.sci(told, "step"))
    made_g = 2 * 2.0 * (164_000 + 2_500_000 / 8) / 44_676  # 2 boards, 2 hours
    assert found["E"]["value"] == pytest.approx(told.energy_wall_kwh)
    assert found["M"]["value"] == pytest.approx(made_g, abs=1e-5)
    assert found["R"]["value"] == told.account.so_far.steps and found["functional_unit"] == "step"
    by_hand = (found["E"]["value"] * found["I"]["value"] + made_g) / found["R"]["value"]
    assert found["sci"]["value"] == pytest.approx(by_hand, rel=1e-6)
    assert all(found[part]["from"] for part in ("E", "I", "M", "R", "sci"))
    assert json.loads(export.sci(told, "run"))["sci"]["value"] == pytest.approx(told.gco2_g + made_g)


def test_a_token_is_counted_where_the_script_says_so_and_else_unknown(told):
    silent = json.loads(export.sci(told, "token"))
    assert silent["R"]["value"] == silent["sci"]["value"] == "unknown" and "R not known" in silent["sci"]["from"]
    spoken = json.loads(export.sci(with_metrics(told, tokens=1e6), "token"))
    assert spoken["R"]["value"] == 1e6 and spoken["R"]["from"].startswith("snapshot metrics.tokens")


def test_boards_without_a_published_figure_have_no_embodied_emissions(told):
    other = msgspec.structs.replace(told.status.gpus[0], name="Some Board")
    strange = replace(told, status=msgspec.structs.replace(told.status, gpus=(other,)))
    found = json.loads(export.sci(strange, "run"))
    assert found["M"]["value"] == found["sci"]["value"] == "unknown"
    assert strange.embodied is None and formats.numbers(strange)["embodied_g"] is None
    given = replace(strange, options=msgspec.structs.replace(strange.options, embodied=9.0))
    assert json.loads(export.sci(given, "run"))["M"]["value"] == 9.0 * 2 * len(strange.status.gpus)


def test_annex_xi_has_time_energy_method_and_the_flops_of_the_script(told):
    found = json.loads(export.annex_xi(told))
    assert found["training_time_s"]["value"] == round(told.elapsed_s, 3)
    assert found["energy_kwh"]["value"] == pytest.approx(told.energy_wall_kwh)
    assert "measured" in found["method"] and found["compute_flops"] == "unknown"
    assert json.loads(export.annex_xi(with_metrics(told, total_flos=2e18)))["compute_flops"]["value"] == 2e18


def test_embodied_stands_beside_the_account_and_never_in_it(told):
    line = next(figure for figure in figures.figures(told) if figure.label == "embodied")
    assert line.rests_on.startswith("not in emitted") and line.value == "43 g CO2"
    assert formats.numbers(told)["gco2_g"] == round(told.gco2_g, 6)


def test_each_goes_to_a_file_or_to_stdout(job, tmp_path):
    env = {"CARBONTUI_HOME": str(job.dir.parents[1])}
    done = CliRunner().invoke(cli.cli, ["report", job.id, "--sci", "-", "--per", "run"], env=env)
    assert done.exit_code == 0 and json.loads(done.stdout)["functional_unit"] == "run"
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
