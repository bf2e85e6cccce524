"""The same training twice: plain, and with the training kit (carbontui.train). Compare what each used.

    carbontui run --name plain -- python train_efficient.py --plain
    carbontui run --name kit -- python train_efficient.py
    carbontui report kit --against plain

Both see the same batches in the same order and end with the same loss: the kit computes each batch in parts that fit
the memory, in mixed precision where there is a GPU, while the next batch is being copied.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from pathlib import Path

import torch
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parent))
from train_charlm import CONTEXT, CharLM, corpus

import carbontui
from carbontui import train


def loss_of(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def batches(text: torch.Tensor, batch: int, steps: int):
    """(inputs, targets) on the CPU; the order depends on the seed alone."""
    windows = len(text) - CONTEXT - 1
    for indices in train.ResumableBatches(windows, batch, batches=steps, seed=1):
        window = text[torch.tensor(indices)[:, None] + torch.arange(CONTEXT + 1)]
        yield window[:, :-1], window[:, 1:]


def peak_memory_mib(device: str) -> float:
    if device.startswith("cuda"):
        return torch.cuda.max_memory_allocated() / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description="the same training plainly and with carbontui.train")
    parser.add_argument("--plain", action="store_true", help="without the kit")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--micro", type=int, default=32)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    torch.manual_seed(1)
    torch.set_num_threads(1)
    model = CharLM(96, 2, 4).to(args.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    text = corpus(200_000)
    source = batches(text, args.batch, args.steps)
    precision = train.Precision(args.device)
    carbontui.report(total=args.steps)
    began = time.monotonic()
    if args.plain:
        source = ((inputs.to(args.device), targets.to(args.device)) for inputs, targets in source)
    else:
        source = train.on_device(source, args.device)
    for done, (inputs, targets) in enumerate(source, 1):
        if args.plain:
            loss = loss_of(model(inputs), targets)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
        else:
            loss = train.step(model, optimizer, loss_of, (inputs, targets), args.micro, precision)
        carbontui.step()
        memory = peak_memory_mib(args.device)
        carbontui.report(loss=float(loss.detach()), metrics={"peak memory, MiB": memory})
        if done % 10 == 0:
            print(f"step {done}: loss {float(loss.detach()):.6f}, peak {memory:.0f} MiB", flush=True)
    print(f"{'plain' if args.plain else f'kit ({precision.name})'}: {time.monotonic() - began:.1f} s", flush=True)


if __name__ == "__main__":
    main()
