"""capd lowers power limits for users who are not root, on boards that only they use. `python -m carbontui.power.capd`.

The only privileged process of carbontui. It lowers a limit, within the driver's range and below the original one, for a
caller identified by the kernel (SO_PEERCRED) whose uid owns every process on the board. One caller at a time holds a
board. Its changes are restored when the caller disconnects or falls silent, when another user's process appears on the
board, and at its own start; a guardian starts it again when it is killed. It runs no command, opens no path that a
caller names, and reads nothing from a caller but bounded lines.
"""

import argparse
import asyncio
import contextlib
import ctypes
import os
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path

from carbontui.power.backends import base
from carbontui.power.backends.base import DeviceError
from carbontui.power.capd import wire
from carbontui.power.capd.core import Caller, Capd
from carbontui.power.limit.leases import LeaseStore
from carbontui.power.messages import encode
from carbontui.system import untrusted

CONNECTIONS, CONNECTIONS_OF_ONE = 128, 16
OUT_MAX = 65536
TICK_S = 0.25
PR_SET_PDEATHSIG = 1
AGAIN_S = 1.0
"""At least this long between two starts."""
LISTEN_FD = 3
"""The socket passed by systemd (sd_listen_fds)."""


class CapdServer:
    """The socket of a Capd: bounded lines in, one answer each; never waits for a caller."""

    def __init__(self, capd: Capd) -> None:
        self._capd = capd
        self._callers: list[Caller] = []

    async def serve(self, path: Path) -> None:
        """Serve until SIGTERM or SIGINT; then restore everything. Raises OSError, DeviceError before it serves."""
        stopped = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stopped.set)
        listener = listen(path)
        self._capd.open()
        # not start_unix_server: it would remove the socket in the end, which may be systemd's
        server = await asyncio.start_server(self._call, sock=listener, limit=wire.LINE_MAX)
        try:
            while not stopped.is_set():
                self._capd.tick()
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(stopped.wait(), TICK_S)
        finally:
            server.close()
            self._capd.close()

    async def _call(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, until it closes, falls silent, says too much, or does not read its answers."""
        link = writer.get_extra_info("socket")
        pid, uid, _gid = struct.unpack("3i", link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        same = sum(caller.uid == uid for caller in self._callers)
        if len(self._callers) >= CONNECTIONS or same >= CONNECTIONS_OF_ONE:
            writer.close()
            return
        caller = Caller(uid, pid)
        self._callers.append(caller)
        try:
            while writer.transport.get_write_buffer_size() <= OUT_MAX:
                line = await asyncio.wait_for(reader.readline(), wire.SILENCE_S)
                if not line.endswith(b"\n"):
                    return
                writer.write(encode(self._answer(caller, line)))
        except (OSError, ValueError, asyncio.TimeoutError):
            pass  # reset, a line over the limit, or silence
        finally:
            self._callers.remove(caller)
            writer.transport.abort()
            self._capd.gone(caller)

    def _answer(self, caller: Caller, line: bytes) -> wire.CapdAnswer:
        try:
            return self._capd.answer(caller, untrusted.decode(line, wire.CapdRequest))  # type: ignore[arg-type]
        except ValueError:
            return wire.CapdAnswer(False, base.INVALID, "not a request")
        except Exception as error:
            # survive any exception: this process must still restore the limits of other callers
            return wire.CapdAnswer(False, base.UNKNOWN, f"a fault of capd ({type(error).__name__})")


def listen(path: Path) -> socket.socket:
    """The socket passed by systemd, else a new one at `path` that every user may connect to. Raises OSError."""
    if os.environ.get("LISTEN_PID") == str(os.getpid()) and os.environ.get("LISTEN_FDS") == "1":
        return socket.socket(fileno=LISTEN_FD)
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    if path.parent.stat().st_uid != os.geteuid():
        raise PermissionError(f"{path.parent} does not belong to uid {os.geteuid()}: somebody else could answer there")
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(os.fspath(path))
    path.chmod(0o666)
    listener.listen(CONNECTIONS)
    return listener


def guarded(serve: Callable[[], int]) -> int:
    """Serve in a child, and start another when it is killed: its start restores the limits that were left. When the
    guardian is killed instead, the child ends as by SIGTERM, and restores them itself. The child's exit code."""
    guardian, pid, stopping = os.getpid(), 0, False

    def pass_on(number: int, frame: object) -> None:
        nonlocal stopping
        stopping = True
        if pid:
            os.kill(pid, signal.SIGTERM)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, pass_on)
    while True:
        began_s = time.monotonic()
        pid = os.fork()
        if pid == 0:
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, signal.SIG_DFL)
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
            if os.environ.get("LISTEN_PID") == str(guardian):
                os.environ["LISTEN_PID"] = str(os.getpid())
            if os.getppid() != guardian:
                return 1
            return serve()
        if stopping:
            os.kill(pid, signal.SIGTERM)
        _, status = os.waitpid(pid, 0)
        pid = 0
        if os.WIFEXITED(status) or stopping:
            return os.waitstatus_to_exitcode(status)
        print(f"killed by signal {os.WTERMSIG(status)}; starting again", flush=True)
        time.sleep(max(0.0, began_s + AGAIN_S - time.monotonic()))


def main(argv: list[str] | None = None) -> int:
    """Parse, open the driver, serve until SIGTERM."""
    parser = argparse.ArgumentParser(prog="carbontui.power.capd")
    parser.add_argument("--socket", type=Path, default=wire.SOCKET)
    options = parser.parse_args(argv)
    return guarded(lambda: _serve(options))


def _serve(options: argparse.Namespace) -> int:
    from carbontui.power.backends.several import Several, families

    capd = Capd(Several(*families()), LeaseStore(), lambda line: print(line, flush=True))
    try:
        asyncio.run(CapdServer(capd).serve(options.socket))
    except (OSError, DeviceError) as error:
        print(f"carbontui capd: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
