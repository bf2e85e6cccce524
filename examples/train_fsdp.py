"""FSDP2: a sharded model that can be unloaded, through torch's distributed checkpoint.

carbontui run -- torchrun --nproc-per-node=2 train_fsdp.py --checkpoint saved
"""

from __future__ import annotations

import argparse
import hashlib
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard

max_iters = 120


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--checkpoint", help="folder to resume from; needs carbontui's client on the path")
    args = parser.parse_args()
    cuda = torch.cuda.is_available()
    dist.init_process_group("nccl" if cuda else "gloo")
    if cuda:
        torch.cuda.set_device(dist.get_rank() % torch.cuda.device_count())
    torch.set_num_threads(1)
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 8)).to("cuda" if cuda else "cpu")
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    inputs = torch.randn(256, 8, generator=torch.Generator().manual_seed(5)).to("cuda" if cuda else "cpu")

    step = 0
    if args.checkpoint:
        import carbontui
        from carbontui.client import marker

        newest = Path(args.checkpoint, "newest")

        @carbontui.on_checkpoint
        def save() -> None:
            weights, moments = get_state_dict(model, optimizer)
            dcp.save({"model": weights, "optimizer": moments}, checkpoint_id=Path(args.checkpoint, str(step)))
            if dist.get_rank() == 0:
                marker.write_atomic(str(newest), str(step).encode())
            dist.barrier()

        if newest.exists():
            step = int(newest.read_text())
            weights, moments = get_state_dict(model, optimizer)
            dcp.load({"model": weights, "optimizer": moments}, checkpoint_id=Path(args.checkpoint, str(step)))
            set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=moments)
        carbontui.report(total=max_iters)

    while step < max_iters:
        if "CARBONTUI_SOCKET" in os.environ:
            time.sleep(0.02)  # a step of this size takes almost no time: make a pause visible
        batch = inputs[torch.randint(256, (8,), generator=torch.Generator().manual_seed(step))]
        optimizer.zero_grad()
        (model(batch) - batch).square().mean().backward()
        optimizer.step()
        step += 1
        if args.checkpoint:
            carbontui.step()

    whole = b"".join(p.full_tensor().detach().cpu().numpy().tobytes() for p in model.parameters())
    os.write(1, f"weights {hashlib.sha256(whole).hexdigest()}\nsteps {step}\n".encode())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
