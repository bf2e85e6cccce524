"""What a person overrides is counted with, and labelled as theirs, in a real job."""

import json

import pytest
from click.testing import CliRunner
from house import until

from carbontui import cli


def test_a_persons_intensity_and_boards_are_counted_with_and_called_theirs(house):
    given = [
        "--intensity",
        "250",
        "--gpu",
        "T4",
        "--boards",
        "2",
        "--utilisation",
        "0.5",
        "--no-cap",
        "--steps",
        "100000",
    ]
    job = house.start(*given, name="mine")

    def flat_out_is_known():
        told = job.served()
        return told and told.estimate and told.estimate.energy_wall_kwh

    until(flat_out_is_known, 60, "the watts at full speed")
    job.let_end()
    job.until_over()
    status = json.loads(house.cli("status", "mine", "--json").stdout)
    assert [board["name"] for board in status["gpus"]] == ["T4", "T4"]
    assert status["intensity"]["zone"] == "yours" and status["intensity"]["value_g_per_kwh"] == 250.0
    assert status["energy_gpu_kwh"] > 0
    assert status["gco2_g"] == pytest.approx(250.0 * status["energy_wall_kwh"], abs=1e-6)
    source = status["provenance"]
    assert source["gpus.0.power_w"] == {
        "how": "estimated",
        "source": "yours: 70 W x 0.5",
        "age_s": pytest.approx(0, abs=60),
        "ahead": "",
    }
    assert source["energy_gpu_kwh"]["how"] == "estimated" and "sensor" not in source["energy_gpu_kwh"]["source"]
    report = house.cli("report", "mine", "--md").stdout
    assert "yours: 250 gCO2/kWh at all hours" in report
    compared = house.cli("compare", "mine")
    assert compared.returncode == 0 and "T4 " in compared.stdout and "<- here" in compared.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--intensity", "0"], "--intensity"),
        (["--intensity", "9999"], "--intensity"),
        (["--gpu", "abacus"], "no published TDP for 'abacus'"),
        (["--utilisation", "0.5"], "share of a TDP"),
        (["--board-w", "250", "--utilisation", "1.5"], "--utilisation"),
        (["--board-w", "0"], "--board-w"),
        (["--price-per-kwh", "0.3"], "needs its currency"),
        (["--zone", "Atlantis"], "--zone"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line_before_anything_starts(tmp_path, words, said):
    for verb in (["run"], ["estimate", "--yes"]):
        refused = CliRunner().invoke(cli.cli, [*verb, *words, "--", "true"], env={"CARBONTUI_HOME": str(tmp_path)})
        assert refused.exit_code != 0 and said in refused.output and len(refused.output.splitlines()) == 1, verb
    assert not list(tmp_path.glob("jobs/*"))
