"""Train a character-level transformer on the source of Python's standard library: real text, nothing to download.

    python train_charlm.py --steps 300
    carbontui run -- python train_charlm.py --steps 300

It needs no carbontui code: a run under carbontui is paused at the end of an optimizer step. If carbontui can be
imported, the script reports the loss and the number of steps, for the screen. With --checkpoint it writes its state
when it is done or terminated (SIGTERM), and resumes from there the next time.
"""

from __future__ import annotations

import argparse
import math
import os
import signal
import sys
import time
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

try:
    import carbontui
except ImportError:
    carbontui = None

CONTEXT = 64


def corpus(limit: int) -> torch.Tensor:
    """Bytes of the standard library's top-level modules, in order of their names, as a vector of 0..127."""
    folder = Path(os.__file__).parent
    parts: list[bytes] = []
    size = 0
    for file in sorted(folder.glob("*.py")):
        data = bytes(b for b in file.read_bytes() if b < 128)
        parts.append(data)
        size += len(data)
        if size >= limit:
            break
    return torch.frombuffer(bytearray(b"\n".join(parts)[:limit]), dtype=torch.uint8).long()


class Block(nn.Module):
    """Causal self-attention and a feed-forward layer, each with a residual connection."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.feed(self.norm2(x))


class CharLM(nn.Module):
    """Next-character model over 128 symbols; (batch, length) ids in, (batch, length, 128) logits out."""

    def __init__(self, width: int, layers: int, heads: int) -> None:
        super().__init__()
        self.symbol, self.place = nn.Embedding(128, width), nn.Embedding(CONTEXT, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 128)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        places = torch.arange(ids.shape[1], device=ids.device)
        return self.head(self.norm(self.blocks(self.symbol(ids) + self.place(places))))


def progress(step: int, steps: int, loss: float, started: float, first: int) -> None:
    """A progress line that overwrites itself."""
    rate = (step - first) / max(1e-9, time.monotonic() - started)
    bar = ("#" * (20 * step // steps)).ljust(20, ".")
    left = (steps - step) / rate if rate > 0 else 0
    print(
        f"\r{100 * step // steps:3d}% [{bar}] {step}/{steps} loss {loss:.3f} {rate:.1f} it/s, {left:.0f} s left ",
        end="",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="train a small character-level transformer")
    parser.add_argument("--steps", type=int, default=500, help="total optimizer steps, including those before a resume")
    parser.add_argument("--d-model", type=int, default=96, help="width of the model")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--checkpoint", type=Path, help="file to resume from, written at the end and on SIGTERM")
    parser.add_argument("--log-every", type=int, default=10, help="steps between two prints")
    parser.add_argument("--pace", type=float, default=0.0, help="seconds a step takes at least, for a replayed day")
    parser.add_argument(
        "--threads", type=int, default=1, help="CPU threads; a model this small gains nothing from more"
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()

    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    text = corpus(2_000_000)
    held_out, text = text[:50_000], text[50_000:]
    model = CharLM(args.d_model, args.layers, args.heads).to(args.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    # batches come from their own generator, so that its state alone gives the position in the data
    draw = torch.Generator().manual_seed(args.seed)
    step = 0
    if args.checkpoint and args.checkpoint.exists():
        state = torch.load(args.checkpoint, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        draw.set_state(state["draw"])
        step = state["step"]
        print(f"goes on from step {step} of {args.checkpoint}")

    def save() -> None:
        state = {
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "draw": draw.get_state(),
            "step": step,
        }
        part = args.checkpoint.with_suffix(".part")
        torch.save(state, part)
        part.replace(args.checkpoint)

    told_to_end = False

    def end(*_: object) -> None:
        nonlocal told_to_end
        told_to_end = True

    if args.checkpoint:
        signal.signal(signal.SIGTERM, end)

    def batch(source: torch.Tensor, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        starts = torch.randint(len(source) - CONTEXT - 1, (args.batch, 1), generator=generator)
        window = source[starts + torch.arange(CONTEXT + 1)].to(args.device)
        return window[:, :-1], window[:, 1:]

    parameters = sum(p.numel() for p in model.parameters())
    print(f"{parameters:,} parameters on {args.device}, {len(text):,} characters, {args.steps} steps", flush=True)
    started, first, loss_value, late_s = time.monotonic(), step, math.nan, 0.0
    if carbontui:
        carbontui.report(total=args.steps)
    # a replayed day begins with the first step: not before its plan can be heard
    due = time.monotonic() + 10.0
    while args.pace and carbontui and carbontui.level() is None and time.monotonic() < due:
        time.sleep(0.02)
    while step < args.steps and not told_to_end:
        began = time.monotonic()
        inputs, targets = batch(text, draw)
        loss = F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        if args.pace:
            # a step that was late is made up for by the next ones
            time.sleep(max(0.0, args.pace - late_s - (time.monotonic() - began)))
            late_s = max(0.0, late_s + time.monotonic() - began - args.pace)
        optimizer.step()
        step += 1
        if step % args.log_every == 0 or step == args.steps:
            loss_value = loss.item()
            progress(step, args.steps, loss_value, started, first)
            if carbontui:
                carbontui.report(loss=loss_value)
    took = time.monotonic() - started
    print()
    if args.checkpoint:
        save()
    if told_to_end:
        print(f"told to end at step {step}")
        sys.exit(143)
    if args.pace:
        print(f"done: loss {loss_value:.3f} after {step} steps")
        return
    with torch.no_grad():
        inputs, targets = batch(held_out, torch.Generator().manual_seed(0))
        loss = F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())
    print(f"held-out loss {loss.item():.3f} after {step} steps, {1000 * took / max(1, step - first):.2f} ms per step")


if __name__ == "__main__":
    main()
