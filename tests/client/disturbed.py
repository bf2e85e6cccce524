"""One training under every disturbance; its weights must not show it."""

from __future__ import annotations

import json
from pathlib import Path

from fake_supervisor import FakeSupervisor
from leaks import Leaks
from undisturbed import output

TRAIN = """
import hashlib, os, sys, threading, time, torch
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
    if "CARBONTUI_SOCKET" in os.environ:
        time.sleep(0.002)
    loss = model(data[indices]).square().mean()
    opt.zero_grad(); loss.backward(); opt.step(); schedule.step()
    step += 1
    carbontui.step()
digest = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest()
print("threads", threading.active_count(), "fds", len(os.listdir("/proc/self/fd")))
print("weights", digest, flush=True)
"""


def weights(out: str) -> str:
    return out.split("weights ")[1].split()[0]


def disturb(supervisor, launch, finish, folder: Path, *, steps: int, unloads: int, pauses: int, kills: int) -> str:
    """Train `steps` with that many unloads; pauses and kills of the supervisor are per life of the process. Returns
    the last output after comparing weights with those of an undisturbed run."""
    marker, target = folder / "marker.json", str(folder / "run.pt")
    told: dict[str, object] = {"step": 0}
    current: FakeSupervisor = supervisor
    for life in range(unloads + 1):
        before = len(current.ranks)
        process = launch(TRAIN, str(steps), target, resume=life > 0)
        current.wait(lambda c=current, n=before: len(c.ranks) > n and c.live() and c.live()[-1].obs, 60, "a client")
        assert current.live()[-1].obs[0].start_step == told["step"]
        leaks = Leaks()
        for i in range(max(pauses, kills)):
            if i < kills:
                if i % 2:
                    current.pause()
                at = current.last()
                current.kill()
                current = FakeSupervisor(supervisor.path)
                current.wait(lambda c=current: c.last(), what="the client back")
                if i % 2:
                    assert current.last().state == "paused" and at is not None
            if i < pauses:
                current.pause()
                current.want("run", duty=0.5 if i % 3 == 0 else None)
            leaks.sample(process.pid)
        leaks.check()
        current.want("run")
        if life == unloads:
            break
        gen = current.want("unload", not_before="2030-01-01T00:00:00.000Z")
        current.wait(lambda c=current, gen=gen: c.acked(gen), what="the unload")
        ack = current.acked(gen)
        current.want("run")
        finish(process)
        told = json.loads(marker.read_text())
        obs = current.last()
        assert obs.state == "unloading"
        assert told["not_before"] == "2030-01-01T00:00:00.000Z"
        assert told["step"] == ack.step == obs.start_step + obs.step
        marker.unlink()
    out = finish(process, timeout_s=300)
    obs = current.last()
    assert obs.start_step + obs.step == steps, "no step lost"
    if current is not supervisor:
        current.kill()
    assert f"starts at {told['step']} {1 if unloads else None}" in out
    assert not marker.exists()
    assert weights(out) == weights(output(TRAIN, steps, folder / "alone.pt"))
    assert "threads 2 " in out
    return out
