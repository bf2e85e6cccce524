"""The training kit on a real NVIDIA GPU: parts, precision, copies ahead, and a trial that leaves nothing behind."""

from __future__ import annotations

import hashlib
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


def test_mixed_precision_learns_as_plain_does() -> None:
    losses = {}
    for enabled in (False, True):
        model, batch = model_of(), batch_of()
        optimizer, precision = torch.optim.SGD(model.parameters(), lr=0.1), train.Precision("cuda", enabled)
        found = [
            train.step(model, optimizer, torch.nn.CrossEntropyLoss(), batch, precision=precision) for _ in range(30)
        ]
        losses[precision.name] = [float(loss) for loss in found]
    assert "float32" in losses and len(losses) == 2
    (mixed,) = (found for name, found in losses.items() if name != "float32")
    assert mixed[-1] < mixed[0] and mixed[-1] == pytest.approx(losses["float32"][-1], rel=0.05)


def test_batches_are_copied_ahead_whole_and_in_order() -> None:
    source = [(torch.full((64, 1024), float(k)), {"labels": torch.full((64,), k)}) for k in range(50)]
    busy = torch.randn(4096, 4096, device="cuda")
    for k, (inputs, rest) in enumerate(train.on_device(iter(source), "cuda")):
        busy = (busy @ busy).clamp(-1, 1)  # the next copy runs beside it
        assert inputs.is_cuda and bool((inputs == k).all()) and bool((rest["labels"] == k).all())


def _bits(value: object) -> object:
    if isinstance(value, torch.Tensor):
        plain = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
        return hashlib.sha256(plain.numpy().tobytes()).hexdigest()
    if isinstance(value, dict):
        return {str(name): _bits(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_bits(part) for part in value]
    return repr(value)


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
