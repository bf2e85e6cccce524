"""The job's account inside the training: carbontui.metrics()."""

import json
import sys

import pytest
from house import until

import carbontui
from carbontui.client.api import gate

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
