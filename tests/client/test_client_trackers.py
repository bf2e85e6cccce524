"""The job's account inside the training: carbontui.metrics(), and the script's own tracker."""

import json
import sys

import pytest
from house import until

import carbontui
from carbontui.client.api import gate
from carbontui.client.frameworks import trackers

FIGURES = {"power_w": 612.0, "energy_wall_kwh": 1.5, "gco2_g": 450.0, "level": "cap 300 W", "state": "throttled"}


@pytest.fixture
def told(monkeypatch):
    monkeypatch.setattr(gate, "figures", dict(FIGURES))


def test_without_a_supervisor_there_is_nothing_to_tell():
    assert carbontui.metrics() == {}


def test_what_is_told_is_a_copy(told):
    carbontui.metrics()["power_w"] = 0
    assert carbontui.metrics() == FIGURES


def test_the_script_is_told_what_status_tells(house):
    house.env["CARBONTUI_HOST_W"] = "100"
    script = house.root / "t.py"
    script.write_text(
        "import carbontui, json, time\n"
        "carbontui.report(total=100000)\n"
        "for i in range(100000):\n"
        "    time.sleep(0.02)\n"
        "    carbontui.step()\n"
        "    found = carbontui.metrics()\n"
        "    if found.get('energy_wall_kwh'):\n"
        "        print(json.dumps(found), flush=True)\n"
        "        break\n"
        "time.sleep(60)\n"
    )
    done = house.cli("run", "--detach", "--name", "m", "--", sys.executable, str(script), check=True)
    (log,) = house.home.glob(f"jobs/{done.stdout.strip()}/run.log")
    found = json.loads(until(lambda: log.read_text().strip(), 60, "the figures"))
    assert found["state"] in ("starting", "running") and found["energy_wall_kwh"] > 0
    status = json.loads(house.cli("status", "m", "--json").stdout)
    assert status["energy_wall_kwh"] >= found["energy_wall_kwh"] and "gco2_g" not in found
    house.cli("stop", "m", "--now", "--yes")


class FakeRun:
    def __init__(self):
        self.rows = []

    def log(self, data, step=None, commit=None):
        self.rows.append((data, step, commit))


def test_a_trackers_own_row_gets_the_figures_and_only_now_and_then(told):
    module = type(sys)("wandb_run")
    module.Run = type("Run", (FakeRun,), {"log": FakeRun.log})
    trackers.on_wandb(module)
    run = module.Run()
    run.log({"loss": 1.0}, step=5)
    run.log({"loss": 0.9}, step=6)
    (ours, step, commit), *theirs = run.rows
    assert ours["carbontui/gco2_g"] == 450.0 and ours["carbontui/level"] == "cap 300 W"
    assert (step, commit) == (5, False) and theirs == [({"loss": 1.0}, 5, None), ({"loss": 0.9}, 6, None)]


def test_a_fault_of_ours_never_reaches_the_script(told):
    module = type(sys)("wandb_run")

    class Run(FakeRun):
        def log(self, data, step=None, commit=None):
            if any(name.startswith("carbontui/") for name in data):
                raise RuntimeError("quota")
            super().log(data, step, commit)

    module.Run = Run
    trackers.on_wandb(module)
    run = module.Run()
    run.log({"loss": 1.0})
    assert run.rows == [({"loss": 1.0}, None, None)]


def test_tensorboard_gets_them_at_the_scripts_own_step(told, tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import writer as module

    plain = module.SummaryWriter.add_scalar
    try:
        trackers.on_tensorboard(module)
        with module.SummaryWriter(str(tmp_path)) as writer:
            writer.add_scalar("loss", 1.0, 7)
            writer.add_scalar("loss", 0.5, 8)
    finally:
        module.SummaryWriter.add_scalar = plain
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    found = [(one.step, one.value) for one in events.Scalars("carbontui/gco2_g")]
    assert found == [(7, 450.0)] and len(events.Scalars("loss")) == 2


def test_mlflow_gets_them_in_the_same_run(told, tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    from mlflow.tracking import fluent

    plain = (fluent.log_metric, fluent.log_metrics)
    try:
        mlflow.set_tracking_uri(f"file://{tmp_path}/runs")
        trackers.on_mlflow(fluent)
        with mlflow.start_run() as run:
            fluent.log_metric("loss", 1.0, step=3)
        found = mlflow.get_run(run.info.run_id).data.metrics
    except Exception as error:  # a store that this build of mlflow does not bring
        pytest.skip(f"mlflow cannot keep a run here: {error}")
    finally:
        fluent.log_metric, fluent.log_metrics = plain
    assert found["carbontui/gco2_g"] == 450.0 and found["loss"] == 1.0
