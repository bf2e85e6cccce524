"""What other tools read of a run: the same numbers, in their columns."""

import csv
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

sys.path.insert(0, str(Path(__file__).parents[1] / "report"))
import runs

from carbontui import cli
from carbontui.account.boundary import KINDS
from carbontui.job.terms import spec
from carbontui.reports import export, formats, story
from carbontui.text import sources


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    return runs.make(tmp_path_factory.mktemp("home"), gpus=2, slurm_job="4711.0", name="train|er")


@pytest.fixture(scope="module")
def told(job):
    return story.build(job)


def test_a_row_of_emissions_csv_adds_up_and_agrees_with_the_status(job, told):
    row, status = export.codecarbon_row(told), job.status()
    assert float(row["energy_consumed"]) == status.energy_wall_kwh and row["emissions"] == f"{status.gco2_g / 1000:.9f}"
    parts = sum(float(row[f"{name}_energy"] or 0) for name in ("cpu", "gpu", "ram"))
    assert parts == pytest.approx(status.energy_wall_kwh, abs=1e-8)
    assert row["ram_power"] == row["ram_energy"] == "", "nobody read the memory: empty, not 0 W"
    away_s = sum(part.seconds for part in told.by_state if part.name == "unloaded")  # its boards were given back
    mean_w = float(row["gpu_energy"]) * 3.6e6 / (told.elapsed_s - away_s)
    assert float(row["gpu_power"]) == pytest.approx(mean_w, rel=1e-3) and row["gpu_model"] == "H100"
    assert row["gpu_count"] == "2" and row["pue"] == "1.2"


@pytest.mark.parametrize("boundary", KINDS)
@pytest.mark.parametrize("host_w", [None, 250.0])
def test_parts_add_up_to_the_total_whatever_counts(tmp_path, boundary, host_w):
    made = story.build(runs.make(tmp_path, gpus=2, boundary=boundary, host_w=host_w))
    row = export.codecarbon_row(made)
    parts = {name: float(row[f"{name}_energy"] or 0) for name in ("cpu", "gpu", "ram")}
    assert f"{sum(parts.values()):.9f}" == row["energy_consumed"] and min(parts.values()) >= 0
    boards_kwh, counted_s = made.energy_gpu_kwh * made.options.pue, sum(phase[1] for phase in runs.DAY)
    assert row["experiment_id"].startswith(f"{boundary}: energy {sources.called(boundary)}")
    idle_s = (counted_s - 3600) if boundary == "always-on" else 0  # unloaded, nothing of such a machine counts
    assert parts["gpu"] == pytest.approx(boards_kwh - 2 * runs.IDLE_W * runs.PUE * idle_s / 3.6e6, abs=1e-6)


def test_rows_are_added_to_a_file_of_these_columns_and_to_no_other(job, told, tmp_path):
    file = tmp_path / "emissions.csv"
    env = {"CARBONTUI_HOME": str(job.dir.parents[1])}
    for _ in range(2):
        done = CliRunner().invoke(cli.cli, ["report", job.id, "--codecarbon", str(file)], env=env)
        assert done.exit_code == 0 and done.output == ""
    with file.open(newline="") as opened:
        rows = list(csv.DictReader(opened))
    assert (
        len(rows) == 2
        and rows[0] == rows[1] == export.codecarbon_row(told)
        and tuple(rows[0]) == export.CODECARBON_COLUMNS
    )
    other = tmp_path / "other.csv"
    other.write_text("timestamp,project_name\n")
    with pytest.raises(export.NotThatFile, match="other columns"):
        export.append(other, told)
    assert other.read_text() == "timestamp,project_name\n"
    other.write_bytes(b"\xff\xfe no text\n")
    for alien in (other, Path("/dev/full")):  # the latter is read without an end
        with pytest.raises(export.NotThatFile, match="other columns"):
            export.append(alien, told)


def test_the_json_names_the_job_and_step_of_slurm(told):
    assert formats.numbers(told)["slurm_job"] == "4711.0"


@pytest.mark.parametrize(
    ("environment", "job"),
    [
        ({}, None),
        ({"SLURM_JOB_ID": "12"}, "12"),
        ({"SLURM_JOB_ID": "12", "SLURM_STEP_ID": "3"}, "12.3"),
        ({"SLURM_JOB_ID": "12", "SLURM_STEP_ID": "4294967291"}, "12"),
        ({"SLURM_JOB_ID": "x; rm"}, None),
    ],
)
def test_a_job_knows_which_step_of_slurm_it_is(environment, job):
    assert spec.slurm_job(environment) == job
