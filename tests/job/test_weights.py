"""The same training with and without a dozen acknowledged pauses ends with bit-identical weights."""

import sys

from house import until

TRAIN = """\
import sys, torch
torch.manual_seed(3)
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Dropout(0.2), torch.nn.ReLU(), torch.nn.Linear(32, 4))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
import time
for step in range(600):
    loss = model(torch.randn(8, 16)).square().mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
    time.sleep(0.005)
print("weights", sum(p.double().sum().item() for p in model.parameters()).hex(), flush=True)
print("bytes", b"".join(p.detach().numpy().tobytes() for p in model.parameters()).hex()[:4096], flush=True)
"""


def test_a_dozen_pauses_leave_no_trace_in_the_weights(house):
    script = house.root / "train_torch.py"
    script.write_text(TRAIN)
    plain = house.cli("run", "--name", "plain", "--", sys.executable, script)
    assert plain.returncode == 0, plain.stderr
    job_id = house.cli("run", "--detach", "--name", "held", "--", sys.executable, script, check=True).stdout.strip()
    directory = house.home / "jobs" / job_id
    acknowledged = 0
    while acknowledged < 12 and not (directory / "exit.json").exists():
        done = house.cli("pause", job_id)
        acknowledged += done.stdout.startswith("paused at step")
        house.cli("resume", job_id)
    assert acknowledged >= 10
    until(lambda: (directory / "exit.json").exists(), 60, "the end")
    assert (directory / "run.log").read_text() == plain.stdout
