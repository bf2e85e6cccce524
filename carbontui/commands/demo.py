"""`demo`: a real small training under a plan, against a recorded German day, in about 45 seconds."""

import importlib.util
import sys
import time

import click
from msgspec.structs import replace

from carbontui import link, paths, units
from carbontui.commands import run
from carbontui.commands.support.command import Finite, refused
from carbontui.grid import recorded
from carbontui.job.life import launch
from carbontui.job.terms import spec as options
from carbontui.power.backends.simulated import SimulatedSpec
from carbontui.power.curves import public

WORK_S, DAY_S = 10 * 3600.0, 24 * 3600.0
SECONDS, ASIDE_S = 45.0, 5.0
"""Wall seconds of it all, and those of them before the first step and after the last; the day's clock goes with the
steps of the training, so a busy machine takes longer."""
START = "2020-04-14T16:00:00Z"
"""A Tuesday evening in April 2020: the peak is ahead, then a night and a sunny noon; that evening's forecast was off
by 9 %, inside its band throughout."""
PACE_S = 0.06
"""A step takes this long. The models need a tenth of it on an idle core, so a busy machine keeps up."""

SIMULATED = SimulatedSpec(parked_w=90.0)
"""It draws as much with the model in its memory as a plan takes any data-centre GPU to draw until it has paused."""


def has_boards() -> bool:
    """Whether a real GPU answers an agent: a hung driver must not hang the demo."""
    from carbontui.commands.support import offers

    return bool(offers.readings().devices)


def day(name: str, seconds: float, *, real: bool = False, boards: int = 1) -> options.Options:
    """A job of 10 h within 24 h of the recorded day, in about so many seconds. Raises LaunchError."""
    charlm = ("charlm", "--d-model", "48", "--layers", "1", "--batch", "8")
    model, *small = charlm if importlib.util.find_spec("torch") else ("numpy",)
    train = str(paths.shipped(f"examples/train_{model}.py"))
    speed = DAY_S / (seconds - ASIDE_S)
    steps = round(WORK_S / speed / PACE_S)
    origin = time.time()
    home = launch.claim(name, (), numbered=True)
    return options.Options(
        **home,
        argv=(sys.executable, train, "--steps", str(steps), "--pace", str(PACE_S), *small),
        cwd=home["dir"],
        created_s=origin,
        by=link.whoami(),
        zone="DE",
        grid=str(recorded.example_path()),
        budget="24h",
        work_s=WORK_S,
        steps=steps,
        ref_rate=steps / WORK_S,
        # on a real board a limit would be real while the hours are replayed
        cap=not real,
        replay=options.Replay(start_s=units.from_iso(START), speed=speed, wall_origin_s=origin, bound=True),
        simulated=None if real else replace(SIMULATED, count=boards, points=public.simulated(SIMULATED.full_w)),
    )


@click.command()
@click.option("--seconds", type=Finite(20, 3600), default=SECONDS, help="About how long it takes.")
@click.option("--detach", is_flag=True, help="Return at once and print the job's id.")
def demo(seconds: float, detach: bool) -> None:
    """Train a small model for 10 h within 24 h, on a recorded German day, replayed.

    Watts are real where a GPU of NVIDIA or AMD is found, else of a simulated GPU that follows the training's own steps.
    The model is a small transformer where PyTorch is installed, else one in NumPy.
    """
    with refused("", launch.LaunchError):
        spec = day("demo", seconds, real=has_boards())
        numpy = 'NumPy model (PyTorch: pip install "carbontui[demo]")'
        model = numpy if spec.argv[1].endswith("numpy.py") else "PyTorch model"
        click.echo(
            f"{spec.steps} steps of a small {model} stand for 10 h of training; 24 h of recorded German grid data, "
            f"replayed {DAY_S / (seconds - ASIDE_S):.0f} times faster than real time, take about {seconds:.0f} s",
            err=True,
        )
        run.start_and_follow(spec, detach=detach, hold=False, left_code=0)
