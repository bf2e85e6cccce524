"""Checkpoint, unload, come back: the weights of a disturbed run equal those of an undisturbed one, bit for bit."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

TRAIN = """
import hashlib, os, sys, time, torch
import carbontui
from carbontui.client.checkpoint import Checkpoint, ShuffledIndices
torch.set_num_threads(1)
torch.manual_seed(3)
steps, path = int(sys.argv[1]), sys.argv[2]
model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Dropout(0.2), torch.nn.Linear(32, 4))
opt = torch.optim.AdamW(model.parameters(), lr=1e-2)
schedule = torch.optim.lr_scheduler.StepLR(opt, 50, 0.9)
data = torch.randn(256, 16, generator=torch.Generator().manual_seed(5))
saved = Checkpoint(path, model=model, optimizer=opt, scheduler=schedule)
step = saved.resume()
print("starts at", step, os.environ.get("CARBONTUI_RESUME"), flush=True)
for indices in ShuffledIndices(len(data), batch=8, seed=1).batches(step):
    if step == steps:
        break
    time.sleep(0.002)
    loss = model(data[indices]).square().mean()
    opt.zero_grad(); loss.backward(); opt.step(); schedule.step()
    step += 1
    carbontui.step()
digest = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest()
print("weights", digest, flush=True)
"""


def weights(out: str) -> str:
    return out.split("weights ")[1].split()[0]


def test_disturbed_weights_are_bit_identical(supervisor, launch, finish, tmp_path):
    marker = tmp_path / "marker.json"
    alone = subprocess.run(
        [sys.executable, "-c", TRAIN, "700", str(tmp_path / "alone.pt")], capture_output=True, text=True, check=True
    )
    supervisor.want("run")
    target, resume, unloads = str(tmp_path / "run.pt"), False, 0
    while True:
        process = launch(TRAIN, "700", target, resume=resume)
        start = len(supervisor.ranks)
        supervisor.wait(lambda start=start: len(supervisor.live()) and len(supervisor.ranks) > start, 60)
        if unloads == 2:
            break
        for _ in range(3):
            supervisor.pause()
            supervisor.want("run", duty=0.5)
        gen = supervisor.want("unload", not_before="2030-01-01T00:00:00.000Z")
        supervisor.wait(lambda gen=gen: supervisor.acked(gen))
        ack = supervisor.acked(gen)
        supervisor.want("run")
        finish(process)
        told = json.loads(marker.read_text())
        assert told["not_before"] == "2030-01-01T00:00:00.000Z"
        obs = supervisor.last()
        assert told["step"] == ack.step == obs.start_step + obs.step
        marker.unlink()
        resume, unloads = True, unloads + 1
    out = finish(process)
    assert f"starts at {told['step']} 1" in out
    assert not marker.exists()
    assert weights(out) == weights(alone.stdout)


def test_a_failing_checkpoint_keeps_training(supervisor, launch, finish, tmp_path):
    process = launch(
        """
        import carbontui, time
        @carbontui.on_checkpoint
        def save():
            raise RuntimeError("disk is full")
        for _ in range(200):
            time.sleep(0.01)
            carbontui.step()
        print("came through")
        """
    )
    supervisor.wait(lambda: supervisor.last() and supervisor.last().can_unload)
    gen = supervisor.want("unload")
    supervisor.wait(lambda: supervisor.acked(gen))
    supervisor.wait(lambda: supervisor.last().state == "paused")
    supervisor.want("run")
    out = finish(process)
    assert "disk is full" in out and "came through" in out
    assert not (tmp_path / "marker.json").exists()


def test_unload_without_a_checkpoint_function_holds_the_model(supervisor, launch, finish, tmp_path):
    process = launch("import carbontui, time\nfor _ in range(200):\n    time.sleep(0.01)\n    carbontui.step()\n")
    supervisor.wait(lambda: supervisor.last())
    assert not supervisor.last().can_unload
    gen = supervisor.want("unload")
    supervisor.wait(lambda: supervisor.acked(gen) and supervisor.last().state == "paused")
    supervisor.want("run")
    finish(process)
    assert not (tmp_path / "marker.json").exists()


def test_kill_at_any_moment_leaves_a_readable_checkpoint(tmp_path):
    """A few kills here, 200 in tests/soak."""
    from kill_checkpoint import kills

    assert kills(tmp_path, 6, seed=1) == 6


def test_indices_depend_on_seed_and_step_alone():
    from carbontui.client.checkpoint import ShuffledIndices

    whole = ShuffledIndices(23, batch=4, seed=2).batches()
    first = [next(whole) for _ in range(12)]
    later = ShuffledIndices(23, batch=4, seed=2).batches(7)
    assert [next(later) for _ in range(5)] == first[7:]
    assert len({i for batch in first[:5] for i in batch}) == 20
    shares = [next(ShuffledIndices(23, batch=2, seed=2, rank=r, world=2).batches()) for r in (0, 1)]
    assert shares[0] + shares[1] == first[0]
    with pytest.raises(ValueError, match="does not fit"):
        ShuffledIndices(3, batch=4)


def test_a_checkpoint_of_another_make_up_is_refused(tmp_path: Path):
    import torch

    from carbontui.client import api
    from carbontui.client.checkpoint import Checkpoint

    model = torch.nn.Linear(2, 2)
    first = Checkpoint(tmp_path / "a.pt", model=model)
    first.save(step=3)
    other = Checkpoint(tmp_path / "a.pt", model=model, ema=model)
    with pytest.raises(ValueError, match="not \\['ema', 'model'\\]"):
        other.resume()
    api.gate.savers.clear()
