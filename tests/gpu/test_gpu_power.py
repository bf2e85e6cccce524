"""On a real NVIDIA GPU: readings, counter against integrated power, parked watts, pause latency with kernels in flight.

Changes no GPU setting: every agent here is a monitor that does not even probe. Figures go to the file that
CARBONTUI_GPU_FIGURES names (JSON, one object), with date and GPU model.
"""

from __future__ import annotations

import asyncio
import datetime
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from carbontui.power.handle import AgentHandle
from carbontui.power.messages import Reading, Sample
from carbontui.power.meter import Meter


def gpu_name() -> str:
    """Name of the first GPU that both the driver and torch can use, asked in a process of its own; '' without one."""
    if not Path("/dev/nvidia0").exists():
        return ""
    probe = "import torch; print(torch.cuda.get_device_name(0) if torch.cuda.is_available() else '')"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


NAME = gpu_name()
pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300), pytest.mark.skipif(not NAME, reason="no NVIDIA GPU here")]

LOAD = """
import sys, time, torch
n, busy_s, period_s = 8192, float(sys.argv[1]), float(sys.argv[2])
a = torch.randn(n, n, device="cuda", dtype=torch.bfloat16)
torch.cuda.synchronize()
print("ready", flush=True)
while True:
    end = time.monotonic() + busy_s
    while time.monotonic() < end:
        for _ in range(4):
            a @ a
        torch.cuda.synchronize()
    time.sleep(max(0.0, period_s - busy_s))
"""
TRAIN = """
import torch, carbontui
model = torch.nn.Sequential(*[torch.nn.Linear(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(24)])
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
x = torch.randn(4096, 8192, device="cuda", dtype=torch.bfloat16)
while True:
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
"""


def note(**figures: float) -> None:
    target = os.environ.get("CARBONTUI_GPU_FIGURES")
    if target:
        path = Path(target)
        found = json.loads(path.read_text()) if path.exists() else {}
        found |= {"gpu": NAME, "date": str(datetime.date.today()), **{k: round(v, 4) for k, v in figures.items()}}
        path.write_text(json.dumps(found, indent=2) + "\n")


class Load:
    """A process with kernels busy_s of every period_s."""

    def __init__(self, busy_s: float, period_s: float) -> None:
        command = [sys.executable, "-c", LOAD, str(busy_s), str(period_s)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> Load:
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"
        return self

    def __exit__(self, *_exc: object) -> None:
        self.process.kill()
        self.process.wait()


async def collect(tmp_path: Path, seconds: float, *, fast: bool = False) -> tuple[list[Sample], Reading]:
    """Samples of the first GPU over some seconds, and its last reading."""
    handle = AgentHandle(log=print, cwd=tmp_path, job="gpu-test", monitor=True)
    await handle.start()
    handle.set_fast(fast)
    due = time.monotonic() + 20
    while not handle.readings.devices:
        assert time.monotonic() < due
        await asyncio.sleep(0.05)
    handle.drain()
    await asyncio.sleep(seconds)
    reading = handle.readings.devices[0]
    samples = [sample for sample in handle.drain() if sample.uuid == reading.uuid]
    await handle.close()
    return samples, reading


def metered(samples: list[Sample], *, counter: bool) -> tuple[float, set[str]]:
    """Mean watts, and how they were metered."""
    meter = Meter()
    for sample in samples:
        fields = {f: getattr(sample, f) for f in sample.__struct_fields__}
        meter.add(Sample(**fields) if counter else Sample(**{**fields, "energy_uj": None}))
    return meter.joules() / (samples[-1].mono_s - samples[0].mono_s), set(meter.by_method())


async def test_every_field_reads_or_says_why(tmp_path: Path) -> None:
    _, reading = await collect(tmp_path, 2)
    assert reading.power_w is not None and 5 < reading.power_w < 2000
    for field in ("limit_w", "memory_used_b", "util", "temp_c", "sm_mhz"):
        assert getattr(reading, field) is not None or reading.why[field]
    assert reading.caps["limit"].support != "yes", "a monitor does not even ask"


@pytest.mark.parametrize("load", [(1.0, 1.0), (0.075, 0.25), (0.5, 1.7)], ids=["steady", "bursty", "slow bursts"])
async def test_counter_against_integrated_power(tmp_path: Path, load: tuple[float, float]) -> None:
    with Load(*load):
        await asyncio.sleep(3)
        samples, reading = await collect(tmp_path, 20, fast=True)
    by_counter, how = metered(samples, counter=True)
    by_power, _ = metered(samples, counter=False)
    mark = f"{load[0]:g}of{load[1]:g}s"
    note(**{f"counter_w_{mark}": by_counter, f"integrated_w_{mark}": by_power})
    assert how == {"counter"}
    assert by_power == pytest.approx(by_counter, rel=0.10 if reading.power_kind == "avg1s" else 0.3)


async def test_parked_draws_more_than_bare_and_far_less_than_busy(tmp_path: Path) -> None:
    bare, _ = metered((await collect(tmp_path, 8))[0], counter=True)
    with Load(0.0, 1e6):
        await asyncio.sleep(3)
        parked, _ = metered((await collect(tmp_path, 8))[0], counter=True)
    with Load(1.0, 1.0):
        await asyncio.sleep(5)
        busy, _ = metered((await collect(tmp_path, 8))[0], counter=True)
    with Load(1.0, 2.0):
        await asyncio.sleep(5)
        half, _ = metered((await collect(tmp_path, 10))[0], counter=True)
    note(bare_w=bare, parked_w=parked, busy_w=busy, duty_half_w=half)
    assert parked < 0.5 * busy
    assert parked < half < busy


def test_pause_with_kernels_in_flight(house) -> None:
    (house.root / "gpu_train.py").write_text(TRAIN)
    started = house.cli("run", "--detach", "--no-cap", "--", sys.executable, "gpu_train.py", check=True)
    job = started.stdout.strip()

    def status() -> dict:
        return json.loads(house.cli("status", job, "--json").stdout)

    def until(state: str) -> float:
        began = time.monotonic()
        while status()["state"] != state:
            assert time.monotonic() - began < 90, status()
            time.sleep(0.05)
        return time.monotonic() - began

    while status()["step"] < 20:
        time.sleep(0.2)
    pauses = []
    for _ in range(5):
        began = time.monotonic()
        house.cli("pause", job, check=True)
        until("paused")
        pauses.append(time.monotonic() - began)
        step = status()["step"]
        time.sleep(4)
        now = status()
        assert now["step"] == step
        assert now["gpus"][0]["memory_used_b"] > 2**30, "the model stays in memory"
        note(paused_job_w=now["gpus"][0]["power_w"])
        house.cli("resume", job, check=True)
        until("running")
        time.sleep(1)
    note(pause_command_to_paused_s=sorted(pauses)[2])
    house.cli("stop", "--now", "--yes", job, check=True)
