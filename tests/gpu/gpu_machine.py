"""What every test on a real NVIDIA GPU needs: the board, loads, metered watts, and a file for the figures.

Nothing here changes a setting of a GPU: every agent is a monitor that does not even probe. Figures go to the file
that CARBONTUI_GPU_FIGURES names (JSON, one object), with date, GPU model and driver:

    CARBONTUI_GPU_FIGURES=tests/bench/results/gpu.json pytest tests/gpu
"""

from __future__ import annotations

import asyncio
import datetime
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from carbontui.power.agent.handle import AgentHandle
from carbontui.power.messages import Reading, Sample
from carbontui.power.metering.meter import Meter

PROBE = """
import torch
if torch.cuda.is_available():
    torch.zeros(1, device="cuda")  # named and counted is not yet usable
    print(torch.cuda.get_device_name(0))
    print("GPU-" + str(torch.cuda.get_device_properties(0).uuid))
    print(torch.__version__)
"""


def first_gpu() -> list[str]:
    """Name, UUID and torch version for the GPU that torch takes first, asked in a process of its own; [] without."""
    if not [*Path("/dev").glob("nvidia[0-9]*"), *Path("/dev").glob("dxg")]:
        return []
    done = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, check=False)
    return done.stdout.split("\n")[:3] if done.returncode == 0 and done.stdout else []


NAME, UUID, TORCH = first_gpu() or ("", "", "")
MARKS = [
    pytest.mark.gpu,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not NAME, reason="no NVIDIA GPU that torch can use"),
]

LOAD = """
import sys, time, torch
n, busy_s, period_s, model_gib = 8192, float(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
model = torch.empty(int(model_gib * 2**30), device="cuda", dtype=torch.uint8)
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
import torch
width, batch, layers = 8192, 4096, 12
kind = {"device": "cuda", "dtype": torch.bfloat16}
model = torch.nn.Sequential(*[torch.nn.Linear(width, width, **kind) for _ in range(layers)])
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
x = torch.randn(batch, width, **kind)
while True:
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()  # nothing waits for the device: launches run ahead of it by many kernels
"""
MODEL_B = 2**30
"""TRAIN holds more than this."""


def note(**figures: float) -> None:
    """Keep figures; without a file they are only printed."""
    rounded = {key: round(value, 4) for key, value in figures.items()}
    print(f"{NAME}: {rounded}")
    target = os.environ.get("CARBONTUI_GPU_FIGURES")
    if target:
        path = Path(target)
        found = json.loads(path.read_text()) if path.exists() else {}
        found |= {"gpu": NAME, "date": str(datetime.date.today()), "torch": TORCH, **rounded}
        path.write_text(json.dumps(found, indent=2) + "\n")


class Load:
    """A process with `model_gib` in memory and kernels busy_s of every period_s."""

    def __init__(self, busy_s: float, period_s: float, model_gib: float = 0.0) -> None:
        command = [sys.executable, "-c", LOAD, str(busy_s), str(period_s), str(model_gib)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> Load:
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"
        return self

    def __exit__(self, *_exc: object) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


@asynccontextmanager
async def watching(tmp_path: Path, *, fast: bool = False) -> AsyncIterator[AgentHandle]:
    """A real agent that only watches."""
    handle = AgentHandle(log=print, cwd=tmp_path, job="gpu-test", monitor=True)
    await handle.start()
    try:
        handle.change(fast=fast)
        due = time.monotonic() + 30
        while not any(reading.uuid == UUID for reading in handle.readings.devices):
            assert time.monotonic() < due, f"{UUID} is not among {[r.uuid for r in handle.readings.devices]}"
            await asyncio.sleep(0.05)
        yield handle
    finally:
        await handle.close()


async def collect(tmp_path: Path, seconds: float, *, fast: bool = False) -> tuple[list[Sample], Reading]:
    """Samples of the GPU over some seconds, and its last reading."""
    async with watching(tmp_path, fast=fast) as handle:
        handle.drain()
        await asyncio.sleep(seconds)
        (reading,) = (reading for reading in handle.readings.devices if reading.uuid == UUID)
        return [sample for sample in handle.drain() if sample.uuid == UUID], reading


def metered(samples: list[Sample], *, counter: bool = True) -> tuple[float, set[str]]:
    """Mean watts, and how they were metered."""
    meter = Meter()
    for sample in samples:
        meter.add(sample if counter else msgspec.structs.replace(sample, energy_uj=None))
    return meter.joules() / (samples[-1].mono_s - samples[0].mono_s), set(meter.by_method())


def spread(name: str, values: list[float]) -> dict[str, float]:
    """Median and worst of a figure, as `note` takes them."""
    return {f"{name}_median": statistics.median(values), f"{name}_worst": max(values)}
