"""Runs loops of the corpus without carbontui, and counts their steps: python tests/corpus/count.py [NAME ...]

Without names all are run. It fails if one has other steps than the list says. A step is what the client counts as one:
the return of an outermost optimizer step; of several optimizers that take turns one counts (client/hooks.py).
"""

from __future__ import annotations

import argparse
import json
import runpy
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import corpus

LIMIT_S = 600.0


class Tally:
    """Counts in the process of a loop."""

    def __init__(self) -> None:
        from carbontui.client.hooks import Leader

        self.leader = Leader()
        self.steps = self.calls = self.depth = 0
        self.began: dict[Any, int] = {}
        self.passes: set[int] = set()
        """Steps done when a pass over a loader began that has made steps."""

    def before(self, *_: Any) -> None:
        self.depth += 1

    def after(self, stepper: Any, *_: Any) -> None:
        self.depth -= 1
        if not self.depth:
            self.calls += 1
            self.steps += self.leader.worth(stepper)

    def watch(self) -> None:
        import torch
        from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
        from torch.utils.data import dataloader

        register_optimizer_step_pre_hook(self.before)
        register_optimizer_step_post_hook(self.after)
        scaled = torch.amp.GradScaler.step

        def step(scaler: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            self.before()
            result = scaled(scaler, optimizer, *args, **kwargs)
            self.after(optimizer)
            return result

        torch.amp.GradScaler.step = step
        kind = dataloader._BaseDataLoaderIter
        inner = kind.__next__

        def following(batches: Any) -> Any:
            """The next batch. If steps were made since the last, these are passes of a training."""
            began = self.began.setdefault(batches, self.steps)
            if self.steps > began:
                self.passes.add(began)
            return inner(batches)

        kind.__next__ = following

    def watch_keras(self) -> None:
        """Keras has optimizers of its own."""
        import keras

        inner = keras.Optimizer.apply

        def apply(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            result = inner(optimizer, *args, **kwargs)
            self.before()
            self.after(optimizer)
            return result

        keras.Optimizer.apply = apply


def child(script: str, result: str) -> None:
    tally = Tally()
    tally.watch()
    if "keras" in Path(script).stem:
        tally.watch_keras()
    sys.argv = [script]
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as left:  # of a command line's library
        if left.code:
            raise
    starts = sorted(tally.passes)
    second = starts[2] if len(starts) > 2 else tally.steps if len(starts) == 2 else 0
    counted = {"steps": tally.steps, "calls": tally.calls, "passes": len(starts), "second_pass_ends": second}
    Path(result).write_text(json.dumps(counted))


def count(loop: corpus.Loop) -> dict[str, float]:
    """Its steps, calls of step(), passes over a loader, the step at which the second ends, and seconds."""
    with tempfile.TemporaryDirectory(prefix="corpus-") as place:
        result = Path(place, "count.json")
        start = time.monotonic()
        done = subprocess.run(
            [sys.executable, __file__, "--child", loop.path, result],
            env=corpus.environment(),
            cwd=place,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"{loop.name} failed:\n{done.stderr}")
        return {**json.loads(result.read_text()), "seconds": time.monotonic() - start}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    wrong = 0
    for loop in corpus.chosen(args.names) if args.names else corpus.read():
        if loop.missing:
            print(f"{loop.name:24} needs {', '.join(loop.missing)}")
            continue
        try:
            found = count(loop)
        except RuntimeError as error:
            print(error)
            wrong += 1
            continue
        same = found["steps"] == loop.steps or not loop.steps
        wrong += not same
        figures = " ".join(f"{name} {value:g}" for name, value in found.items())
        print(f"{loop.name:24} {figures}{'' if same else f'   THE LIST SAYS {loop.steps}'}", flush=True)
    raise SystemExit(bool(wrong))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(*sys.argv[2:])
    else:
        main()
