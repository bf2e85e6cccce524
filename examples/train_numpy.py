"""Train a small character model with NumPy on the source of Python's standard library: for a machine without PyTorch.

    python train_numpy.py --steps 300
    carbontui run -- python train_numpy.py --steps 300

A bag of the last characters, one hidden layer, plain gradient descent. It calls `carbontui.step()` after each step.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

# a model this small gains nothing from more threads
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

try:
    import carbontui
except ImportError:
    carbontui = None

SYMBOLS, CONTEXT, WIDTH, BATCH, RATE = 128, 8, 32, 32, 0.5


def corpus(limit: int = 500_000) -> np.ndarray:
    """Bytes of the standard library's top-level modules, in order of their names."""
    files = sorted(Path(os.__file__).parent.glob("*.py"))
    text = b"\n".join(file.read_bytes() for file in files[:12])[:limit]
    return np.frombuffer(bytes(byte & 127 for byte in text), dtype=np.uint8).astype(np.int64)


def main() -> None:
    parser = argparse.ArgumentParser(description="train a small character model with NumPy")
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--pace", type=float, default=0.0, help="seconds a step takes at least, for a replayed day")
    args = parser.parse_args()
    draw = np.random.default_rng(1)
    first = draw.normal(0, 0.1, (CONTEXT * SYMBOLS, WIDTH))
    second = draw.normal(0, 0.1, (WIDTH, SYMBOLS))
    places = np.arange(CONTEXT) * SYMBOLS
    text = corpus()
    print(f"{first.size + second.size:,} parameters, NumPy, {len(text):,} characters, {args.steps} steps", flush=True)
    if carbontui:
        carbontui.report(total=args.steps)
    # a replayed day begins with the first step: not before its plan can be heard
    due = time.monotonic() + 10.0
    while args.pace and carbontui and carbontui.level() is None and time.monotonic() < due:
        time.sleep(0.02)
    late_s = 0.0
    for step in range(1, args.steps + 1):
        began = time.monotonic()
        starts = draw.integers(0, len(text) - CONTEXT - 1, BATCH)
        symbols = text[starts[:, None] + np.arange(CONTEXT)] + places
        wanted = text[starts + CONTEXT]
        hidden = np.tanh(first[symbols].sum(1))
        scores = hidden @ second
        chances = np.exp(scores - scores.max(1, keepdims=True))
        chances /= chances.sum(1, keepdims=True)
        loss = float(-np.log(chances[np.arange(BATCH), wanted]).mean())
        chances[np.arange(BATCH), wanted] -= 1.0
        back = (chances @ second.T) * (1 - hidden**2) / BATCH
        second -= RATE * hidden.T @ chances / BATCH
        np.subtract.at(first, symbols, RATE * back[:, None, :])
        # a step that was late is made up for by the next ones
        time.sleep(max(0.0, args.pace - late_s - (time.monotonic() - began)))
        late_s = max(0.0, late_s + time.monotonic() - began - args.pace) if args.pace else 0.0
        if step % 10 == 0 or step == args.steps:
            print(f"\r{100 * step // args.steps:3d}% {step}/{args.steps} loss {loss:.3f} ", end="", flush=True)
            if carbontui:
                carbontui.report(loss=loss)
        if carbontui:
            carbontui.step()
    print(f"\ndone: loss {loss:.3f} after {args.steps} steps", flush=True)


if __name__ == "__main__":
    main()
