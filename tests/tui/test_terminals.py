"""The screen on a real pty: what it sends, and what it does when the terminal stalls, leaves, or can do little."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from fake import HOST_W, NOW, FakeSupervisor, past_levels, scene
from msgspec import structs

from carbontui import protocol, units

WAIT_S = 90.0
SHOW = (
    "import signal, sys\n"
    "from pathlib import Path\n"
    "if sys.argv[2:] == ['nohup']: signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
    "from carbontui import tui\n"
    "from carbontui.tui.model.feed import Target\n"
    "sys.exit(tui.run(Target('k7q2mz', 'charlm', Path(sys.argv[1]))))\n"
)


class Terminal:
    """A pty with the screen in it; everything it writes is counted and kept."""

    def __init__(self, command: list[str], env: dict[str, str], cols: int = 120, rows: int = 40) -> None:
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))
        self.seen = b""
        self._more = asyncio.Event()
        self.process = subprocess.Popen(
            command,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=env,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(slave)
        self.read(True)

    def read(self, on: bool) -> None:
        loop = asyncio.get_running_loop()
        if on:
            loop.add_reader(self.master, self._read)
        else:
            loop.remove_reader(self.master)

    def _read(self) -> None:
        try:
            data = os.read(self.master, 65536)
        except OSError:
            data = b""
        if not data:
            asyncio.get_running_loop().remove_reader(self.master)
        self.take(data)

    def take(self, data: bytes) -> None:
        self.seen += data
        self._more.set()

    async def until(self, true: Callable[[], object]) -> None:
        while not true():
            self._more.clear()
            await asyncio.wait_for(self._more.wait(), WAIT_S)

    async def quiet(self, seconds: float = 0.4) -> None:
        """Until nothing has come for a while: there is no other sign that a repaint is over."""
        while True:
            self._more.clear()
            try:
                await asyncio.wait_for(self._more.wait(), seconds)
            except (TimeoutError, asyncio.TimeoutError):
                return

    @property
    def words(self) -> str:
        return re.sub(rb"\x1b\[[0-9;?<>=]*[a-zA-Z]", b" ", self.seen).decode(errors="replace")

    async def exit(self) -> int:
        return await asyncio.wait_for(asyncio.to_thread(self.process.wait), WAIT_S)

    def hang_up(self) -> None:
        self.read(False)
        os.close(self.master)
        self.master = -1

    def close(self) -> None:
        if self.master >= 0:
            self.hang_up()
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


@asynccontextmanager
async def shown(tmp_path: Path, *args: str, **env: str) -> AsyncIterator[tuple[FakeSupervisor, Terminal]]:
    path = tmp_path / "s"
    environ = {k: v for k, v in os.environ.items() if k not in ("SSH_CONNECTION", "NO_COLOR", "COLORTERM")}
    environ |= {"TERM": "xterm-256color", "COLORTERM": "truecolor", "PYTHONUTF8": "1", **env}
    async with FakeSupervisor(path, scene()) as fake:
        fake.levels = past_levels()
        terminal = Terminal([sys.executable, "-c", SHOW, str(path), *args], environ)
        try:
            yield fake, terminal
        finally:
            terminal.close()
            await asyncio.sleep(0)


async def settled(terminal: Terminal) -> None:
    await terminal.until(lambda: b"RUNNING" in terminal.seen and b"epoch 2" in terminal.seen)
    await terminal.quiet(1.0)


def tick(fake: FakeSupervisor, n: int) -> None:
    """A second of a job that runs: watts, energy, steps and a line of output."""
    status = fake.snap.status
    gpus = tuple(structs.replace(g, power_w=round(246 + (n * 7) % 5, 1)) for g in status.gpus)
    power = sum(g.power_w or 0.0 for g in gpus) + HOST_W
    fake.log += f"\nstep {9800 + n * 3:>6} | loss {1.43 + (n % 7) / 1000:.4f} | lr 3.0e-04 | 3.1 it/s".encode()
    fake.push(
        status=fake.status(
            measured_at=units.iso(NOW + n),
            gpus=gpus,
            power_w=power,
            step=status.step + 3,
            energy_wall_kwh=status.energy_wall_kwh + power / 3.6e6,
        )
    )


async def test_a_second_of_a_running_job_costs_at_most_two_kilobytes(tmp_path: Path) -> None:
    async with shown(tmp_path) as (fake, terminal):
        await settled(terminal)
        before = len(terminal.seen)
        ticks = 6
        for n in range(1, ticks + 1):
            tick(fake, n)
            await terminal.quiet(0.7)
        spent = (len(terminal.seen) - before) / ticks
        assert 100 < spent <= 2000


async def test_a_page_opens_for_twelve_kilobytes_and_then_costs_what_changes(tmp_path: Path) -> None:
    async with shown(tmp_path) as (fake, terminal):
        await settled(terminal)
        assert len(terminal.seen) <= 25_000
        for n, key in enumerate(("?", "w", "d"), 1):
            before = len(terminal.seen)
            os.write(terminal.master, key.encode())
            await terminal.until(lambda before=before: len(terminal.seen) > before + 1000)
            await terminal.quiet(1.5)
            opened = len(terminal.seen)
            tick(fake, n)
            await terminal.quiet(1.5)
            assert opened - before <= 12_000 and len(terminal.seen) - opened <= 1500, key
            before = len(terminal.seen)
            os.write(terminal.master, b"\x1b")
            await terminal.until(lambda before=before: len(terminal.seen) > before + 1000)
            await terminal.quiet(1.5)
            assert len(terminal.seen) - before <= 12_000, f"back from {key}"


async def test_nothing_new_costs_nothing(tmp_path: Path) -> None:
    async with shown(tmp_path) as (fake, terminal):
        await settled(terminal)
        before = len(terminal.seen)
        for _ in range(3):
            fake.push(status=fake.snap.status)
            await terminal.quiet(1.0)
        assert len(terminal.seen) == before


async def test_q_detaches_and_says_how_to_come_back(tmp_path: Path) -> None:
    async with shown(tmp_path) as (fake, terminal):
        await settled(terminal)
        os.write(terminal.master, b"q")
        assert await terminal.exit() == 0
        await terminal.quiet()
        assert "charlm continues; return to it with: carbontui attach k7q2mz" in terminal.words
        assert not fake.commands


async def test_a_hang_up_ends_the_screen(tmp_path: Path) -> None:
    async with shown(tmp_path) as (_, terminal):
        await settled(terminal)
        terminal.hang_up()
        assert await terminal.exit() == -signal.SIGHUP


async def test_a_hang_up_without_the_signal_is_noticed(tmp_path: Path) -> None:
    async with shown(tmp_path, "nohup") as (_, terminal):
        await settled(terminal)
        terminal.hang_up()
        assert await terminal.exit() == 129


async def test_a_terminal_that_stops_reading_holds_up_the_screen_alone(tmp_path: Path) -> None:
    async with shown(tmp_path) as (fake, terminal):
        await settled(terminal)
        terminal.read(False)
        for n in range(200):
            tick(fake, n)
            await asyncio.sleep(0.002)
        fake.push(status=fake.status(reason=protocol.Reason("deadline", "THE NEWEST OF ALL")))
        terminal.read(True)
        await terminal.until(lambda: "NEWEST" in terminal.words)
        os.write(terminal.master, b"q")
        assert await terminal.exit() == 0


@pytest.mark.parametrize("term", ["xterm", "linux", "vt100", "screen-256color", "tmux-256color"])
async def test_terminals_of_all_kinds_show_the_screen(tmp_path: Path, term: str) -> None:
    async with shown(tmp_path, TERM=term, COLORTERM="") as (_, terminal):
        await settled(terminal)
        assert "RUNNING" in terminal.words and "frontier" in terminal.words
        if term != "xterm":
            assert b"38;2;" not in terminal.seen


async def test_a_dumb_terminal_gets_lines(tmp_path: Path) -> None:
    async with shown(tmp_path, TERM="dumb") as (fake, terminal):
        await terminal.until(lambda: b"running: as planned" in terminal.seen)
        assert b"\x1b" not in terminal.seen
        fake.push(status=scene("done").status)
        assert await terminal.exit() == 0
        await terminal.quiet()
        assert "emitted: 865 g" in terminal.words


async def test_a_pipe_gets_lines_and_ctrl_c_detaches(tmp_path: Path) -> None:
    async with FakeSupervisor(tmp_path / "s", scene()) as fake:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", SHOW, str(tmp_path / "s")),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        assert process.stdout is not None
        try:
            first = await asyncio.wait_for(process.stdout.readline(), WAIT_S)
            assert b"running: as planned" in first
            process.send_signal(signal.SIGINT)
            rest, errors = await asyncio.wait_for(process.communicate(), WAIT_S)
            assert process.returncode == 0
            assert b"detached; the training goes on" in rest
            assert errors.strip() == b"carbontui: standard input is not a terminal: one line per change"
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
        assert not fake.commands


def test_the_screen_loads_nothing_heavy() -> None:
    code = (
        "import sys, carbontui.tui.app, carbontui.tui.plain\n"
        "import carbontui.tui.screens.dashboard, carbontui.tui.screens.jobs\n"
        "print([m for m in ('torch', 'numpy', 'httpx', 'pynvml', 'carbontui.job', 'carbontui.plan', 'carbontui.grid')"
        " if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_question_does_not_load_the_event_loop() -> None:
    code = "import sys, carbontui.link; print('asyncio' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
