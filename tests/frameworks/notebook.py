"""Runs a notebook of three cells, as `jupyter execute` does, and prints what its cells printed."""

from __future__ import annotations

import nbformat
from nbclient import NotebookClient

CELLS = """
import hashlib, os, time, torch
max_iters = 120
torch.manual_seed(1)
torch.set_num_threads(1)
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
#
inputs = torch.randn(64, 8)
for i in range(max_iters):
    if "CARBONTUI_SOCKET" in os.environ:
        time.sleep(0.03)
    optimizer.zero_grad()
    (model(inputs) - inputs).square().mean().backward()
    optimizer.step()
#
weights = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
print("weights", hashlib.sha256(weights).hexdigest())
print("steps", max_iters)
"""

if __name__ == "__main__":
    made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS.split("#\n")])
    NotebookClient(made, timeout=300, kernel_name="python3").execute()
    for cell in made.cells:
        for output in cell.outputs:
            print(output.get("text", ""), end="", flush=True)
