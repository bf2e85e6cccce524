"""Data-parallel training that can be paused, unloaded and resumed; every rank stops at the same step.

    torchrun --nproc-per-node 2 train_ddp.py --steps 2000
    carbontui run -- torchrun --nproc-per-node 2 train_ddp.py --steps 2000 --checkpoint ddp.pt

Without --checkpoint it needs no carbontui code at all: pausing works for any unchanged script. With it, carbontui
may unload the job for a long pause and start it again.
"""

from __future__ import annotations

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    parser = argparse.ArgumentParser(description="learn a random teacher network, data-parallel")
    parser.add_argument(
        "--steps", type=int, default=2000, help="total optimizer steps, including those before a resume"
    )
    parser.add_argument("--batch", type=int, default=64, help="samples per rank")
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--checkpoint", help="file to resume from; needs carbontui's client on the path")
    args = parser.parse_args()

    cuda = torch.cuda.is_available()
    dist.init_process_group("nccl" if cuda else "gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    device = torch.device("cuda", rank % torch.cuda.device_count()) if cuda else torch.device("cpu")
    torch.set_num_threads(1)

    torch.manual_seed(0)
    teacher = nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 8)).to(device)
    inputs = torch.randn(16384, 32, device=device)
    with torch.no_grad():
        targets = teacher(inputs)
    model = nn.Sequential(nn.Linear(32, args.width), nn.GELU(), nn.Linear(args.width, 8)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    step = 0
    if args.checkpoint:
        import carbontui
        from carbontui.client.checkpoint import Checkpoint, ShuffledIndices

        step = Checkpoint(args.checkpoint, model=model, optimizer=optimizer).resume()
        carbontui.report(total=args.steps)
        batches = ShuffledIndices(len(inputs), args.batch, seed=1, rank=rank, world=world).batches(step)
    else:
        draw = torch.Generator().manual_seed(rank)
        batches = iter(lambda: torch.randint(len(inputs), (args.batch,), generator=draw).tolist(), None)
    parallel = DistributedDataParallel(model)

    for indices in batches:
        if step >= args.steps:
            break
        loss = nn.functional.mse_loss(parallel(inputs[indices]), targets[indices])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        step += 1
        if rank == 0 and step % 100 == 0:
            print(f"step {step}/{args.steps} loss {loss.item():.5f}", flush=True)
        if args.checkpoint:
            carbontui.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
