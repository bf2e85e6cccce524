"""A launcher of ranks that loads torch once and forks: torchrun starts an agent and each rank anew."""

from __future__ import annotations

import os
import runpy
import socket
import sys


def main(world: int, script: str) -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": f"{free.getsockname()[1]}", "WORLD_SIZE": f"{world}"}
    for rank in range(world):
        if os.fork() == 0:
            os.environ["RANK"] = f"{rank}"
            runpy.run_path(script, run_name="__main__")
            return 0
    return max(os.waitstatus_to_exitcode(os.wait()[1]) for _ in range(world))


if __name__ == "__main__":
    del sys.argv[0]
    sys.exit(main(int(sys.argv.pop(0)), sys.argv[0]))
