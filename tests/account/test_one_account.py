"""One account: whatever is asked about one job, the same figures are told, to the digits shown."""

import csv
import io
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from house import until

sys.path.insert(0, str(Path(__file__).parents[1] / "power"))
sys.path.insert(0, str(Path(__file__).parents[1] / "job"))
from nvml_machine import machine_with  # noqa: F401
from recompute import recompute

from carbontui import units
from carbontui.protocol import STATUS_SCHEMA
from carbontui.text import figures

pytestmark = pytest.mark.timeout(300)
SUMS = ("energy_gpu_kwh", "energy_wall_kwh", "gco2_g", "avoided_g")


def adds_up(told):
    """so far + ahead = whole, so far = the fields above, whole = at the end, and no second without a place."""
    used, ahead, whole = (told["account"][part] for part in ("so_far", "ahead", "whole"))
    assert {name: used[name] for name in SUMS} == {name: told[name] for name in SUMS}
    assert (ahead is None) is (whole is None) is (told["at_end"] is None)
    for name, digits in {"elapsed_s": 3, "steps": 0, **dict.fromkeys(SUMS[:2], 9), "gco2_g": 6, "run_now_g": 6}.items():
        if whole is not None and None not in (used[name], ahead[name]):
            assert round(used[name] + ahead[name], digits) == whole[name], name
    if whole is not None:
        for name in ("gco2_g", "energy_wall_kwh", "run_now_g", "avoided_g"):
            assert whole[name] == told["at_end"][name]
    covered, apart = told["coverage"], sum(one["elapsed_s"] for one in told["excluded"])
    assert covered["metered_s"] + covered["gap_s"] + apart == pytest.approx(covered["lived_s"], abs=0.01)
    assert used["elapsed_s"] == pytest.approx(covered["lived_s"] - apart, abs=0.01)


@pytest.mark.long
def test_every_output_tells_the_same_account_of_an_eventful_job(
    house,
    machine_with,  # noqa: F811
):
    sim = machine_with(1)
    sim.load(1.0, device=0)
    metrics = house.root / "metrics"
    metrics.mkdir()
    grid = house.root / "grid.csv"
    grid.write_text("time_utc,carbon_g_per_kwh\n" + "".join(
        f"{units.iso(at)[:19]}Z,{200 + index}\n"
        for index, at in enumerate(range(_quarter() - 20 * 900, _quarter() + 96 * 900, 900))
    ))  # fmt: skip
    house.env |= sim.env() | {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "0"}
    given = ["--budget", "3x", "--steps", "100000", "--grid", grid, "--zone", "DE", "--metrics", metrics]
    job = house.start("--try", *given, "--host-w", "100", "--pue", "1.2", name="all")
    adds_up(job.status())
    house.cli("boost", job.id, check=True)
    until(lambda: (s := job.served()) and s.state == "running" and s.clients and s.step > 100, 60, "the real start")
    until(lambda: job.served().at_end is not None, 60, "its end")
    adds_up(job.status())
    house.cli("cap", "300W", job.id, check=True)
    job.until_state("throttled")
    job.until_steps(300)
    house.cli("pause", job.id, check=True)
    job.until_state("paused")
    os.kill(job.pids()["supervisor"], signal.SIGKILL)
    job.until_connected()
    house.cli("boost", job.id, check=True)
    job.until_state("running")
    job.until_steps(300)
    adds_up(job.status())
    job.let_end()
    job.until_exit()
    job.until_over()

    told = json.loads(house.cli("status", job.id, "--json", check=True).stdout)
    adds_up(told)
    used = told["account"]["so_far"]
    assert told["schema"] == STATUS_SCHEMA and used["run_now_g"] is not None
    assert round(used["run_now_g"] - used["gco2_g"], 6) == used["avoided_g"]
    (apart,) = told["excluded"]
    assert apart["reason"] == "try" and apart["steps"] >= 20 and apart["energy_wall_kwh"] > 0
    numbers = json.loads(house.cli("report", job.id, "--json", check=True).stdout)
    assert numbers["account"] == told["account"] and numbers["excluded"] == told["excluded"]
    assert {name: numbers[name] for name in SUMS} == {name: told[name] for name in SUMS}
    parts = [part["seconds"] for part in numbers["by_state"]] + [part["s"] for part in numbers["gaps"]]
    assert sum(parts) + apart["elapsed_s"] == pytest.approx(numbers["elapsed_s"], abs=0.15)
    assert sum(part["kwh"] for part in numbers["by_state"]) == pytest.approx(told["energy_wall_kwh"], abs=1e-8)
    stranger = recompute(job.dir / "journal.db", grid)
    for name in ("energy_wall_kwh", "gco2_g", "run_now_g"):
        assert used[name] == pytest.approx(stranger[name], rel=2e-3), name
    audit = [sys.executable, Path(__file__).parents[2] / "examples" / "audit.py", job.dir / "journal.db"]
    audited = json.loads(subprocess.run(audit, check=True, capture_output=True).stdout)
    for name in ("energy_wall_kwh", "gco2_g"):
        assert audited[name] == pytest.approx(used[name], rel=1e-3), "a supervisor was killed on the way"
    assert re.search(r"^driver: nvml \S+", house.cli("report", job.id, "--methods", check=True).stdout, re.MULTILINE)

    rows = list(csv.DictReader(io.StringIO(house.cli("report", job.id, "--csv", "-", check=True).stdout)))
    assert f"{sum(float(row['kwh']) for row in rows):.9f}" == f"{told['energy_wall_kwh']:.9f}"
    assert f"{sum(float(row['gco2_g']) for row in rows):.6f}" == f"{told['gco2_g']:.6f}"
    assert sum(float(row["run_now_gco2_g"]) for row in rows) == pytest.approx(used["run_now_g"], abs=1e-4)
    carbon = next(csv.DictReader(io.StringIO(house.cli("report", job.id, "--codecarbon", "-", check=True).stdout)))
    assert carbon["energy_consumed"] == f"{told['energy_wall_kwh']:.9f}"
    assert f"{float(carbon['emissions']) * 1000:.6f}" == f"{told['gco2_g']:.6f}"
    (group,) = json.loads(house.cli("history", "--json", check=True).stdout)
    assert (group["energy_wall_kwh"], group["gco2_g"], group["avoided_g"], group["unknown"]) == (
        told["energy_wall_kwh"], told["gco2_g"], told["avoided_g"], 0,
    )  # fmt: skip
    compared = json.loads(house.cli("compare", job.id, "--json", "--gpu", "H100 SXM5 80GB", check=True).stdout)
    (here,) = (row for row in compared if row.get("here"))
    assert (here["kwh"], here["gco2_g"]) == (told["energy_wall_kwh"], told["gco2_g"])
    assert here["time_s"] == used["elapsed_s"]
    exposed = "".join(path.read_text() for path in metrics.glob("*.prom"))
    assert "# TYPE carbontui_job_emissions_grams gauge" in exposed
    (grams,) = re.findall(r"^carbontui_job_emissions_grams\{.*\} (\S+)$", exposed, re.MULTILINE)
    assert float(grams) == told["gco2_g"]

    energy, emitted = figures.kwh(told["energy_wall_kwh"]), figures.grams(told["gco2_g"])
    for words in (["status"], ["report"], ["report", "--md"], ["report", "--html", "-"], ["receipt"], ["explain"]):
        text = house.cli(words[0], job.id, *words[1:], check=True).stdout
        assert energy in text and emitted in text, words


def _quarter():
    import time

    return int(time.time()) // 900 * 900
