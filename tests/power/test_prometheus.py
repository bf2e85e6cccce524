"""Debian's Prometheus scrapes a job's textfile through node-exporter, and answers what our dashboard asks."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from house import until
from nvml_machine import machine_with  # noqa: F401

DASHBOARD = Path(__file__).parents[2] / "examples" / "grafana-carbontui.json"
ASKED = [
    target["expr"] for panel in json.loads(DASHBOARD.read_text())["panels"] for target in panel["targets"]
]  # fmt: skip
OF_A_JOB = [expr for expr in ASKED if "capd" not in expr]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@pytest.fixture
def scraped(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """(node-exporter's folder, address of the Prometheus that scrapes it every second)."""
    programs = [shutil.which(name) for name in ("prometheus", "prometheus-node-exporter")]
    if None in programs:
        pytest.skip("no prometheus and node-exporter installed")
    folder, exporter, server = tmp_path / "textfiles", f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    folder.mkdir()
    jobs = [{"job_name": "node", "scrape_interval": "1s", "static_configs": [{"targets": [exporter]}]}]
    (tmp_path / "prometheus.yml").write_text(json.dumps({"scrape_configs": jobs}))
    alone = ["--collector.disable-defaults", "--collector.textfile", f"--collector.textfile.directory={folder}"]
    files = [f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/tsdb"]
    begun = [
        subprocess.Popen([programs[1], *alone, f"--web.listen-address={exporter}"], stderr=subprocess.DEVNULL),
        subprocess.Popen([programs[0], *files, f"--web.listen-address={server}"], stderr=subprocess.DEVNULL),
    ]
    yield folder, f"http://{server}/api/v1/query"
    for one in begun:
        one.terminate()
        one.wait()


def answer(address: str, expr: str) -> list[dict]:
    """What it answers; nothing while it starts."""
    try:
        told = httpx.get(address, params={"query": expr.replace("$name", ".+")}, trust_env=False).json()
    except httpx.HTTPError:
        return []
    assert told["status"] == "success", told
    return list(told["data"]["result"])


def test_a_real_prometheus_answers_every_question_of_the_dashboard(house, machine_with, scraped):
    folder, address = scraped
    sim = machine_with()
    sim.load(1.0)
    house.env |= sim.env()
    house.env.pop("CUDA_VISIBLE_DEVICES", None)
    job = house.start("--intensity", "300", "--work", "1h", "--budget", "1x", "--metrics", str(folder))
    names = until(
        lambda: re.findall(r"(?m)^# TYPE (\S+)", "".join(f.read_text() for f in folder.glob("*.prom"))), 30, "f"
    )
    for expr in (*set(names), *OF_A_JOB):
        until(lambda expr=expr: answer(address, expr), 40, expr)
    for expr in set(ASKED) - set(OF_A_JOB):
        assert answer(address, expr) == []
    (told,) = answer(address, "node_textfile_scrape_error")
    assert float(told["value"][1]) == 0.0 and all(f.stat().st_mode & 0o777 == 0o644 for f in folder.glob("*.prom"))
    assert {one["metric"]["carbontui_job"] for one in answer(address, "carbontui_job_info")} == {job.id}
