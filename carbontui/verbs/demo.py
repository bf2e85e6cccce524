"""`demo`: a real small training under a plan against a recorded German week, in about ninety seconds."""

from __future__ import annotations

import contextlib
import importlib.util
import re
import subprocess
import sys
import time
from pathlib import Path

import click

from carbontui import link, paths, units
from carbontui.grid import recorded
from carbontui.job import launch, store
from carbontui.job import spec as options
from carbontui.power.backends.simulated import SimulatedSpec
from carbontui.power.curves import public
from carbontui.verbs import run
from carbontui.verbs.support.command import Failure, Finite, refused

WORK_S = 24 * 3600.0
BUDGET = "2x"
FLAT_OUT_WALL_S = 42.0
"""Wall seconds of the training at full speed; with the budget of 2x the demo takes about twice that."""
START = "2020-04-23T13:00:00Z"
"""A Thursday afternoon in April 2020: intensity varies widely over the next two days, and the forecast shows it."""
MEASURE_STEPS = 30
HEADROOM = 1.15
"""The measurement runs on an idle machine; under the supervisor and a screen a step takes a little longer."""


def measure(script: Path) -> tuple[float, float]:
    """(seconds per step, seconds before the first step) of the example on this machine."""
    command = [sys.executable, str(script), "--steps", str(MEASURE_STEPS)]
    begun = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=300, check=False)
    took = time.monotonic() - begun
    match = re.search(r"([0-9.]+) ms per step", done.stdout)
    if done.returncode or not match:
        tail = (done.stderr or done.stdout).strip().splitlines()[-1:]
        raise Failure(f"the example did not run: {' '.join(tail)}", 1)
    per_step = float(match[1]) / 1000
    return per_step, max(1.0, took - MEASURE_STEPS * per_step)


def has_nvidia() -> bool:
    """Whether a real NVIDIA board answers; asked in a separate process, as a hung driver must not hang the demo."""
    code = "import pynvml as n; n.nvmlInit(); raise SystemExit(0 if n.nvmlDeviceGetCount() else 1)"
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        asked = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=10, check=False)
        return asked.returncode == 0
    return False


@click.command(short_help="Train a small model under a plan, in 90 s, to see it work.")
@click.option("--seconds", type=Finite(20, 3600), default=FLAT_OUT_WALL_S * 2, help="About how long it takes.")
@click.option("--detach", is_flag=True, help="Return at once and print the job's id.")
def demo(seconds: float, detach: bool) -> None:
    """Train a small model under a 24 h plan (budget 2x) on a recorded German week, replayed.

    Watts are real where an NVIDIA GPU is found, else of a simulated GPU that follows the training's own steps.
    """
    if importlib.util.find_spec("torch") is None:
        raise Failure('the demo trains with PyTorch: pip install "carbontui[demo]"', 2)

    running = next((job for job in store.jobs() if job.name == "demo" and job.live and not job.foreign), None)
    if running is not None:
        raise Failure(f"a demo is already running; see it: carbontui attach {running.id}", 2)
    script = paths.example("train_charlm.py")
    click.echo("measuring a step on this machine ...", err=True)
    per_step, startup = measure(script)
    flat_wall_s = seconds / 2
    steps = max(50, round(flat_wall_s / (per_step * HEADROOM)))
    speed = WORK_S / (steps * per_step * HEADROOM)
    origin = time.time() + startup
    with refused("", launch.LaunchError):
        home = run.claim("demo", ())
        real = has_nvidia()
        spec = options.Options(
            **home,
            argv=(sys.executable, str(script), "--steps", str(steps)),
            cwd=home["dir"],
            created_s=origin,
            by=link.whoami(),
            zone="DE",
            grid=str(recorded.example_path()),
            budget=BUDGET,
            work_s=WORK_S,
            steps=steps,
            ref_rate=steps / WORK_S,
            # on a real board a limit would be real while the hours are replayed
            cap=not real,
            replay=options.Replay(start_s=units.from_iso(START), speed=speed, wall_origin_s=origin),
            simulated=None if real else SimulatedSpec(points=public.simulated(SimulatedSpec().full_w)),
        )
        click.echo(
            f"{steps} steps stand for 24 h of training, replayed {speed:.0f} times faster than real time on recorded "
            f"German grid data; about {startup + seconds:.0f} s to go",
            err=True,
        )
        run.start_and_follow(spec, detach=detach, hold=False, left_code=0)
