"""Starts the supervisor under the name that keepers of every version use: `python -m carbontui.job.supervisor DIR`."""

import asyncio
import gc
import signal
import sys
from pathlib import Path

from carbontui.job.supervisor.loop import Supervisor
from carbontui.job.terms import spec
from carbontui.system import isolation

CYCLES = 10_000
"""Objects made before cycles among them are looked for. What a tick makes is freed by itself; the few cycles (a
traceback, a task) may wait for some minutes, where Python's own 700 look three times in four ticks."""


async def supervise(options: spec.Options, fd: int | None) -> None:
    supervisor = Supervisor(options, fd)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, supervisor.stop)
    await supervisor.run()


def main() -> None:
    fd = int(sys.argv[sys.argv.index("--fd") + 1]) if "--fd" in sys.argv else None
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    directory = Path(sys.argv[1])
    try:
        options = spec.load(directory)
    except (OSError, ValueError) as error:
        sys.exit(f"supervisor: {directory / 'spec.json'} cannot be read, training goes on unsteered: {error}")
    gc.set_threshold(CYCLES)
    asyncio.run(supervise(options, fd))


if __name__ == "__main__":
    isolation.tell_what_lacks("supervisor")
    main()
