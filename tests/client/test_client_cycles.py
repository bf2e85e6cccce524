"""Paused, unloaded and resumed by the real keeper and supervisor: not a step more, less, or different.

CARBONTUI_CYCLES=20 pytest tests/client/test_client_cycles.py makes cycles.md; without it, one cycle of each.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path

import pytest
from house import Job, until
from later import IN_PROCESS, Later, needs
from replayed import events
from undisturbed import output

torch = Later("torch")
pytestmark = [needs("torch"), IN_PROCESS]
CYCLES = int(os.environ.get("CARBONTUI_CYCLES", "1"))
PAUSES = 2
RESULTS = Path(__file__).with_name("cycles.md")
SCRIPT = """\
import hashlib, os, sys, time, torch
import carbontui
from carbontui.client.checkpoint import Checkpoint, ShuffledIndices
end, path, most = sys.argv[1], sys.argv[2], int(sys.argv[3])
torch.set_num_threads(1)
rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
if world > 1:
    torch.distributed.init_process_group("gloo")
torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Dropout(0.1), torch.nn.Linear(32, 1))
model = torch.nn.parallel.DistributedDataParallel(model) if world > 1 else model
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 50, 0.9)
inputs = torch.randn(512, 16, generator=torch.Generator().manual_seed(2))
targets = inputs.sum(1, keepdim=True)
step = Checkpoint(path, model=model, optimizer=optimizer, scheduler=scheduler).resume()
for indices in ShuffledIndices(512, 16, seed=1, rank=rank, world=world).batches(step):
    loss = (model(inputs[indices]) - targets[indices]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step()
    step += 1
    time.sleep(0.02 if most == 0 else 0.0)
    over = torch.tensor([float(step >= most if most else os.path.exists(end))])
    if world > 1:
        torch.distributed.all_reduce(over)
    if over.item():
        break
    carbontui.report(loss=loss.item())
    carbontui.step()
if rank == 0:
    digest = hashlib.sha256()
    for value in [*model.state_dict().values(), *(v["exp_avg_sq"] for v in optimizer.state.values())]:
        digest.update(value.detach().numpy().tobytes())
    made = {int(v["step"]) for v in optimizer.state.values()}
    print(f"steps {step} made {sorted(made)} weights {digest.hexdigest()}", flush=True)
if world > 1:
    torch.distributed.destroy_process_group()
"""
SAID = re.compile(r"steps (\d+) made (\[.*\]) weights (\w+)")


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.timeout(1800)
def test_steps_and_weights_are_those_of_the_plain_run(house, ranks):
    script = house.root / "cycled.py"
    script.write_text(SCRIPT)
    end = house.root / "end"

    torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    command = [sys.executable, *(torchrun if ranks > 1 else []), script, end, house.root / "cycled.pt", 0]
    done = house.cli("run", "--detach", "--name", f"cycles{ranks}", "--", *command, check=True)
    job = Job(house, done.stdout.strip(), house.root / "marks")
    until(lambda: (s := job.served()) and s.clients == ranks and s.step > 0, 120, "steps")
    for _ in range(PAUSES):
        house.cli("pause", job.id, check=True)
        assert job.until_state("paused", timeout=60)["clients"] == ranks
        house.cli("resume", job.id, check=True)
        job.until_state("running", timeout=60)
    verdicts = []
    for _ in range(CYCLES):
        at = job.served().step if job.served() else 0
        until(lambda at=at: (s := job.served()) and s.clients == ranks and s.step > at + 5, 120, "steps")
        told = house.cli("rehearse", "--json", job.id, timeout=300)
        assert told.returncode == 0, told.stdout + told.stderr
        verdicts.append(json.loads(told.stdout))
    end.touch()
    assert job.until_exit(120)["code"] == 0
    steps, made, weights = SAID.search((job.dir / "run.log").read_text()).groups()
    assert SAID.search(plain(script, ranks, end, house.root / "plain.pt", steps)).groups() == (steps, made, weights)
    assert made == f"[{steps}]"
    until(lambda: "leaving" in (job.dir / "carbontui.log").read_text(), 60, "the books closed")
    paused = {change["want_gen"] for change in events(job, "state") if change["state"] == "paused"}
    acks = {(ack["want_gen"], ack["rank"]): ack["step"] for ack in events(job, "ack")}
    assert len(paused) == PAUSES
    assert all(acks[gen, rank] == acks[gen, 0] for gen in paused for rank in range(ranks)), "at one step, every rank"
    assert all(verdict["step"] == verdict["resumed_step"] and verdict["resumed_step_told"] for verdict in verdicts)
    if CYCLES >= 20:
        note(ranks, int(steps), verdicts)


def plain(script: Path, ranks: int, *args: object) -> str:
    if ranks == 1:
        return output(script.read_text(), *args)
    launcher = Path(__file__).with_name("forked_ranks.py")
    argv = [sys.executable, launcher, f"{ranks}", script, *map(str, args)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def note(ranks: int, steps: int, verdicts: list[dict]) -> None:
    """A line of cycles.md."""
    head = [
        "# Unload and resume, again and again",
        "",
        f"Made by test_client_cycles.py on {datetime.now(timezone.utc):%Y-%m-%d}, torch {torch.__version__} on CPU,",
        "2 shared vCPU, Linux: `carbontui learn unload` with the real keeper and supervisor. Seconds are medians, on a",
        f"machine with other work (load {os.getloadavg()[2]:.0f}); what was asked for gets no rest from the keeper.",
        "",
        "| training | cycles | optimizer steps | of the plain run | weights | leave | come back |",
        "|---|---|---|---|---|---|---|",
    ]
    rows = [line for line in (RESULTS.read_text().splitlines() if RESULTS.exists() else []) if line.startswith("| ")][
        1:
    ]
    name = "plain loop" if ranks == 1 else f"DDP, {ranks} ranks by torchrun"
    leave, back = (sorted(v[key] for v in verdicts)[len(verdicts) // 2] for key in ("checkpoint_s", "reload_s"))
    row = f"| {name} | {len(verdicts)} | {steps} | {steps} | bit-identical | {leave:.1f} s | {back:.1f} s |"
    rows = sorted([line for line in rows if not line.startswith(f"| {name} |")] + [row], reverse=True)
    RESULTS.write_text("\n".join([*head, *rows]) + "\n")
