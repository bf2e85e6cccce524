"""Where an epoch's data would come in another order, an unload waits for the end of the epoch."""

from __future__ import annotations

import json

from later import IN_PROCESS, needs

pytestmark = [needs("torch"), IN_PROCESS]
SCRIPT = """
import hashlib, sys, torch, carbontui
from carbontui import Checkpoint
torch.set_num_threads(1)
torch.manual_seed(3)
data = torch.utils.data.TensorDataset(torch.randn(48, 8))
loader = torch.utils.data.DataLoader(data, batch_size=4, shuffle=True)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Dropout(0.1), torch.nn.Linear(16, 8))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
step = Checkpoint("run.pt", model=model, optimizer=optimizer).resume()
for epoch in range(step // len(loader), 40):
    for number, (x,) in enumerate(loader):
        (model(x) - x).square().mean().backward()
        if (number + 1) % {each} == 0:
            optimizer.step()
            optimizer.zero_grad()
            step += 1
            carbontui.step()
weights = b"".join(one.detach().numpy().tobytes() for one in model.parameters())
print("ended", step, hashlib.sha256(weights).hexdigest())
"""
EPOCH = 12
"""Steps of an epoch."""


def pause_within_an_epoch(supervisor):
    (at,) = supervisor.pause()
    while at % EPOCH in (0, EPOCH - 1):
        supervisor.want("run")
        supervisor.wait(lambda: supervisor.last().state == "running", what="steps")
        (at,) = supervisor.pause()
    return at


def test_an_unload_waits_for_the_epochs_end_and_no_batch_is_lost(launch, finish, supervisor, tmp_path):
    script = SCRIPT.format(each=1)
    alone = finish(launch(script))
    process = launch(script)
    at = pause_within_an_epoch(supervisor)
    supervisor.wait(lambda: supervisor.last().state == "paused")
    assert supervisor.last().epoch_left == (EPOCH - at % EPOCH, EPOCH)
    supervisor.want("unload", epoch_end=True)
    assert "ended" not in finish(process)
    marker = tmp_path / "marker.json"
    left = json.loads(marker.read_text())["step"]
    assert left == (at // EPOCH + 1) * EPOCH, "where the epoch ended that it was in"
    marker.unlink()
    supervisor.want("run")
    assert finish(launch(script, resume=True)).splitlines()[-1] == alone.splitlines()[-1]


def test_nothing_is_said_of_an_epoch_that_ends_between_two_steps(launch, finish, supervisor):
    process = launch(SCRIPT.format(each=5))
    supervisor.pause()
    supervisor.wait(lambda: supervisor.last().state == "paused")
    assert supervisor.last().can_unload and supervisor.last().epoch_left is None
    supervisor.want("run")
    finish(process)
