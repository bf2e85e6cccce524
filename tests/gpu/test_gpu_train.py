"""The training kit on a real NVIDIA GPU: parts of a batch, and the example."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from gpu_machine import MARKS, NAME, note

if not NAME:
    pytest.skip("no NVIDIA GPU that torch can use", allow_module_level=True)
import torch

from carbontui import train

pytestmark = MARKS
EXAMPLE = Path(__file__).parents[2] / "examples" / "train_efficient.py"
WIDTH, BATCH, MICRO = 2048, 4096, 256


def model_of(dtype: torch.dtype = torch.float32) -> torch.nn.Module:
    torch.manual_seed(0)
    layers = [torch.nn.Linear(WIDTH, WIDTH), torch.nn.GELU()] * 4
    return torch.nn.Sequential(*layers, torch.nn.Linear(WIDTH, 10)).to("cuda", dtype)


def batch_of(dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, torch.Tensor]:
    dice = torch.Generator(device="cuda").manual_seed(1)
    inputs = torch.randn(BATCH, WIDTH, device="cuda", generator=dice, dtype=dtype)
    return inputs, torch.randint(0, 10, (BATCH,), device="cuda", generator=dice)


def trained(micro: int, steps: int, dtype: torch.dtype = torch.float64) -> tuple[torch.Tensor, float]:
    """Weights after some steps, and the peak of the memory in MiB."""
    model, batch = model_of(dtype), batch_of(dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    for _ in range(steps):
        train.step(model, optimizer, torch.nn.CrossEntropyLoss(), batch, micro=micro)
    return torch.cat(
        [p.detach().flatten() for p in model.parameters()]
    ).cpu(), torch.cuda.max_memory_allocated() / 2**20


def test_parts_of_a_batch_train_like_the_whole_in_less_memory() -> None:
    whole, whole_mib = trained(BATCH, 20)
    parts, parts_mib = trained(MICRO, 20)
    assert float((whole - parts).norm() / whole.norm()) < 1e-9
    assert parts_mib < whole_mib
    note(whole_batch_mib=whole_mib, micro_batch_mib=parts_mib)


def test_the_example_saves_memory_and_ends_with_the_loss_of_its_plain_form() -> None:
    losses, peaks = {}, {}
    for form in ((), ("--plain",)):
        done = subprocess.run(
            [sys.executable, str(EXAMPLE), *form, "--steps", "40"], capture_output=True, text=True, check=True
        )
        last = next(line for line in done.stdout.splitlines() if line.startswith("step 40")).split()
        losses[form], peaks[form] = float(last[3].rstrip(",")), float(last[5])
    assert losses[()] == pytest.approx(losses[("--plain",)], rel=0.02)
    assert peaks[()] < peaks[("--plain",)]
    note(example_kit_mib=peaks[()], example_plain_mib=peaks[("--plain",)])
