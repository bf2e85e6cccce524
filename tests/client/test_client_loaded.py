"""What a plain training loads of the client stays little."""

from __future__ import annotations

import json
from pathlib import Path

from later import needs
from test_size import lines_of_code

LINES_MOST = 1_893
"""Sixty per cent of what a plain loop loaded when its total was still found inside it (3,155)."""
LOOP = """
import json, sys, time, torch
from torch.utils.data import DataLoader, TensorDataset
layer = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
for epoch in range(3):
    for (batch,) in DataLoader(TensorDataset(torch.ones(40, 4)), 2):
        layer(batch).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(0.03)
ours = {one for one in (getattr(m, "__file__", None) for m in list(sys.modules.values())) if one}
print(json.dumps([one for one in ours if "/carbontui/" in one or one.endswith("/sitecustomize.py")]))
"""


@needs("torch")
def test_a_plain_loop_loads_few_lines(supervisor, launch, finish):
    loaded = {Path(one) for one in json.loads(finish(launch(LOOP)))}
    assert {one.name for one in loaded} >= {"sitecustomize.py", "link.py", "places.py", "sight.py"}
    assert sum(lines_of_code(one.read_text()) for one in loaded) <= LINES_MOST
    assert supervisor.last().guess[0] == 60
