"""Starts the keeper: `python -m carbontui.job.keeper`, its spec on standard input."""

import contextlib
import json
import os
import sys

from carbontui.job.keeper import command, orders
from carbontui.job.keeper.job_files import log
from carbontui.job.keeper.process import Keeper
from carbontui.system import isolation, life


def main() -> None:
    begun = int(sys.argv[sys.argv.index("--begun") + 1]) if "--begun" in sys.argv else None
    try:
        spec = json.load(sys.stdin)
    except ValueError:  # `run` has ended before it could say what the job is
        sys.exit(command.undo(begun, os.getcwd()) if begun else "no spec")  # noqa: PTH109
    environment = spec.pop("environment", None) or dict(os.environ)
    launch_env = spec.pop("surroundings", None) or isolation.launch_env()
    isolation.relax()
    isolation.keep_oom_score(launch_env)
    try:
        if life.locked(f"{spec['job_dir']}/{life.LOCK}") is None:
            sys.exit("another keeper has this job")
    except OSError as error:
        log(f"no lock can be had, two keepers would not see each other: {error}")
    with contextlib.suppress(OSError):  # a file system without links
        if not life.own(spec["job_dir"]):
            sys.exit("another keeper has this job")
    with contextlib.suppress(OSError):  # there for those who look, although nothing is started yet
        os.close(os.open(f"{spec['job_dir']}/{life.TRAINING_LOCK}", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600))
    orders.begin(spec["job_dir"])
    devnull = os.open(os.devnull, os.O_RDWR)
    os.dup2(devnull, 0)
    Keeper(spec, environment, launch_env).run(begun)


if __name__ == "__main__":
    main()
