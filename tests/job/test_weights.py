"""The same training with and without a dozen acknowledged pauses ends with bit-identical weights."""

import sys

from house import Job, until
from later import IN_PROCESS, needs
from undisturbed import output

pytestmark = [needs("torch"), IN_PROCESS]

TRAIN = """\
import sys, torch
torch.manual_seed(3)
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Dropout(0.2), torch.nn.ReLU(), torch.nn.Linear(32, 4))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
import time
for step in range(400):
    loss = model(torch.randn(8, 16)).square().mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
    time.sleep(float(sys.argv[1]))
print("weights", sum(p.double().sum().item() for p in model.parameters()).hex(), flush=True)
print("bytes", b"".join(p.detach().numpy().tobytes() for p in model.parameters()).hex()[:4096], flush=True)
"""


def test_a_dozen_pauses_leave_no_trace_in_the_weights(house):
    script = house.root / "train_torch.py"
    script.write_text(TRAIN)
    plain = output(TRAIN, 0)
    started = house.cli("run", "--detach", "--name", "held", "--", sys.executable, script, 0.005, check=True)
    job = Job(house, started.stdout.strip(), house.root / "marks")
    until(lambda: job.status().get("clients") == 1, 60, "the training's first step")
    held_at = set()
    for _ in range(12):
        job.tell("pause")
        held_at.add(job.until_state("paused")["step"])
        job.tell("resume")
        job.until_state("running")
    assert len(held_at) >= 4, "on a busy machine a pause may follow before the training has had its turn; not always"
    job.until_exit(60)
    assert (job.dir / "run.log").read_text() == plain
