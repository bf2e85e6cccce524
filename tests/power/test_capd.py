"""Caps without root: what capd does for a user's agent, what it refuses, and what it restores."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from house import until
from nvml_machine import machine_with  # noqa: F401
from nvmlsim import Sim
from test_limits_live import agent, doomed
from test_limits_live import until as until_async

from carbontui.power.backends.base import HELD, NOT_YET, REFUSED
from carbontui.power.backends.nvml import NvmlBackend
from carbontui.power.capd import wire
from carbontui.power.capd.core import DRIVER_CALLS_PER_S, Caller, Capd
from carbontui.power.capd.wire import SOON, CapdAnswer, CapdBeat, Limit, ask
from carbontui.power.limit.leases import LeaseStore

NOBODY = 65534


class Service:
    """A capd that may do what its callers may not."""

    def __init__(self, sim: Sim, tmp_path: Path) -> None:
        self.sim = sim
        self.socket = tmp_path / "run" / "capd.sock"
        self._env = {**os.environ, "NVMLSIM_ADMIN": "1", "CARBONTUI_LEASE_DIR": str(tmp_path / "root")}
        self.log = (tmp_path / "capd.log").open("w+")
        self.process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "carbontui.power.capd", "--socket", str(self.socket)]
        process = subprocess.Popen(command, env=self._env, stdout=self.log, stderr=self.log)
        until(self.answers, what="capd")
        return process

    def answers(self) -> bool:
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as link:
            link.connect(str(self.socket))
            link.sendall(b'{"t":"beat"}\n')
            return bool(link.recv(100))
        return False

    @property
    def server(self) -> int:
        """The guardian's child, which serves."""
        pid = self.process.pid
        return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])

    def kill(self) -> None:
        """Both at once, as by a loss of power."""
        if self.process.poll() is None:
            both = self.server, self.process.pid
            for number in (signal.SIGSTOP, signal.SIGKILL):
                for pid in both:
                    os.kill(pid, number)
        self.process.wait()

    def again(self) -> None:
        self.process = self._start()

    def said(self) -> str:
        return Path(self.log.name).read_text()


@pytest.fixture
def service(machine_with: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    """A machine with one board that the driver lets capd alone cap; this process has a model on it."""
    sim = machine_with()
    sim.load(1.0)
    sim.set("permission", 3)
    sim.process(os.getpid(), level=0.0)
    made = Service(sim, tmp_path)
    monkeypatch.setenv("CARBONTUI_CAPD", str(made.socket))
    yield made
    made.kill()


UUID = "GPU-51a00000-7c1d-4e55-9d3a-000000000000"


# --- a user's agent ---


async def test_an_agent_without_permission_caps_through_capd_and_gives_back(service: Service, tmp_path: Path) -> None:
    sim = service.sim
    async with agent(tmp_path) as handle:
        handle.watch(None, own_pids=(os.getpid(),))
        await until_async(lambda: handle.readings.devices[0].caps["limit"].support == "yes")
        assert handle.readings.devices[0].caps["limit"].why == "200-700 W; through capd"
        (outcome,) = await handle.set_limit(400)
        assert (outcome.ok, sim.get("limit_mw")) == (True, 400_000)
        await until_async(lambda: (handle.readings.devices[0].power_w or 999) <= 400)
        (outcome,) = await handle.set_limit(300)
        assert (outcome.ok, sim.get("limit_mw")) == (True, 300_000), "within the second, after a wait"
        (outcome,) = await handle.set_limit(None)
        assert outcome.code == "given_back" and sim.get("limit_mw") == 700_000
        await handle.set_limit(500)
    until(lambda: sim.get("limit_mw") == 700_000, what="the limit found")
    assert "500 W for uid" in service.said() and "restored" in service.said()


def test_everything_of_the_user_killed_the_limit_is_back_at_once(service: Service, monkeypatch) -> None:
    sim = service.sim
    service.sim.set("pids_hidden", 0)
    monkeypatch.setattr("test_limits_live.SUPERVISOR", OWN_SUPERVISOR)
    process, agent_pid = doomed()
    assert sim.get("limit_mw") == 400_000
    os.kill(process.pid, signal.SIGSTOP)
    os.kill(agent_pid, signal.SIGKILL)
    until(lambda: sim.get("limit_mw") == 700_000, 2, "the limit found")
    process.kill()
    process.wait()


OWN_SUPERVISOR = """
import asyncio, os, sys
from pathlib import Path
from carbontui.power.agent.handle import AgentHandle
async def main():
    handle = AgentHandle(log=lambda line: None, cwd=Path("/"), job="doomed")
    handle.watch(None, own_pids=(os.getppid(),))
    await handle.start()
    while not handle.readings.devices:
        await asyncio.sleep(0.01)
    (outcome,) = await handle.set_limit(400)
    print(outcome.code, handle.pid, flush=True)
    await asyncio.sleep(600)
asyncio.run(main())
"""


async def test_a_killed_capd_restores_at_its_start_and_the_cap_is_asked_for_again(
    service: Service, tmp_path: Path
) -> None:
    sim = service.sim
    lines: list[str] = []
    async with agent(tmp_path, lines) as handle:
        handle.watch(None, own_pids=(os.getpid(),))
        await handle.set_limit(400)
        service.kill()
        assert sim.get("limit_mw") == 400_000
        service.again()
        assert sim.get("limit_mw") in (700_000, 400_000), "restored before it answers, or capped again since"
        assert "left by an earlier capd" in service.said()
        await until_async(lambda: any("capd is back" in line for line in lines))
        await until_async(lambda: sim.get("limit_mw") == 400_000)
        assert not any("changed outside" in line for line in lines)
    assert sim.get("limit_mw") == 700_000


@pytest.mark.parametrize("role", ["server", "guardian"])
def test_a_killed_capd_leaves_no_limit_behind(service: Service, role: str) -> None:
    sim = service.sim
    with wire.connect(wire.socket_path()) as link:
        assert ask(link, Limit(UUID, 400_000)).ok and sim.get("limit_mw") == 400_000
        server = service.server
        os.kill(server if role == "server" else service.process.pid, signal.SIGKILL)
        until(lambda: sim.get("limit_mw") == 700_000, 10, "the limit as it was found")
    if role == "server":
        until(service.answers, 10, "the next capd")
        assert service.server != server and "killed by signal 9" in service.said()
        service.process.terminate()
    assert service.process.wait(10) == (0 if role == "server" else -9)
    until(lambda: not Path(f"/proc/{server}").exists(), 10, "the end of the server")


async def test_without_a_process_of_the_job_on_its_board_the_cap_waits_for_one(
    machine_with: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sim = machine_with()
    sim.set("permission", 3)
    made = Service(sim, tmp_path)
    monkeypatch.setenv("CARBONTUI_CAPD", str(made.socket))
    try:
        async with agent(tmp_path) as handle:
            handle.watch(None, own_pids=(os.getpid(),))
            (outcome,) = await handle.set_limit(400)
            assert (outcome.ok, outcome.code) == (False, "held") and "no process of yours" in outcome.text
            limit = handle.readings.devices[0].caps["limit"]
            assert limit.support in ("yes", "unknown"), "a plan may count on it"
            sim.process(os.getpid(), level=0.5)
            await until_async(lambda: sim.get("limit_mw") == 400_000)
    finally:
        made.kill()


def test_a_job_of_a_user_without_root_is_capped_like_any_other(machine_with: Callable, tmp_path: Path, house) -> None:
    sim = machine_with()
    sim.set("permission", 3)
    made = Service(sim, tmp_path)
    house.env |= sim.env() | {"CARBONTUI_CAPD": str(made.socket)}
    house.env.pop("CUDA_VISIBLE_DEVICES", None)
    try:
        job = house.start()
        job.until_steps()
        sim.process(job.pids()["child"], level=1.0)
        until(lambda: (job.status().get("gpus") or [{}])[0].get("memory_used_b"), what="the child's memory in status")
        capped = house.cli("cap", "300W", job.id)
        assert capped.returncode == 0, capped.stderr
        until(lambda: sim.get("limit_mw") == 300_000, what="the limit")
        house.cli("stop", "--now", "--yes", job.id, check=True)
        assert sim.get("limit_mw") == 700_000
    finally:
        made.kill()


# --- what capd decides, without a process of its own ---


class Bench:
    """A capd on the simulation's clock, whose callers and owners of processes are made up."""

    def __init__(self, sim: Sim, tmp_path: Path) -> None:
        self.sim = sim
        self.lines: list[str] = []
        self.owners: dict[int, int] = {}
        clock = lambda: sim.get("clock_s")  # noqa: E731
        self.capd = Capd(
            NvmlBackend(clock),
            LeaseStore(tmp_path / "root"),
            self.lines.append,
            clock=clock,
            owner=self.owners.get,
        )
        self.capd.open()

    def caller(self, uid: int) -> Caller:
        return Caller(uid, 4000 + uid)

    def asks(self, caller: Caller, request: wire.CapdRequest, after_s: float = 1.1) -> CapdAnswer:
        self.sim.advance(after_s)
        return self.capd.answer(caller, request)


@pytest.fixture
def bench(machine_with: Callable, tmp_path: Path) -> Callable[..., Bench]:
    def make(devices: int = 1) -> Bench:
        return Bench(machine_with(devices, frozen=True), tmp_path)

    return make


def on(board: Bench, uid: int) -> int:
    """A process on the first board that belongs to this uid."""
    process = subprocess.Popen(["sleep", "600"])
    board.sim.process(process.pid, level=0.5)
    board.owners[process.pid] = uid
    PROCESSES.append(process)
    return process.pid


PROCESSES: list[subprocess.Popen[bytes]] = []


@pytest.fixture(autouse=True)
def no_process_stays() -> Iterator[None]:
    yield
    while PROCESSES:
        process = PROCESSES.pop()
        process.kill()
        process.wait()


def test_only_a_board_that_is_wholly_the_callers_is_touched(bench: Callable[..., Bench]) -> None:
    board = bench()
    ada, bob = board.caller(1000), board.caller(1001)
    assert board.asks(ada, Limit(UUID, 400_000)).code == NOT_YET
    on(board, 1000)
    assert board.asks(bob, Limit(UUID, 400_000)).code == REFUSED
    assert board.asks(ada, Limit(UUID, 400_000)).ok and board.sim.get("limit_mw") == 400_000
    on(board, 1001)
    assert board.asks(ada, Limit(UUID, 300_000)).code == REFUSED
    board.capd.tick()
    assert board.sim.get("limit_mw") == 700_000, "somebody else uses the board now"
    assert board.asks(bob, Limit(UUID, 300_000)).code == REFUSED and board.sim.get("limit_mw") == 700_000


def test_hidden_processes_and_a_driver_that_does_not_say_mean_no(bench: Callable[..., Bench]) -> None:
    board = bench()
    ada = board.caller(1000)
    on(board, 1000)
    board.sim.set("pids_hidden", 1)
    assert board.asks(ada, Limit(UUID, 400_000)).code == REFUSED
    board.sim.set("pids_hidden", 0)
    board.sim.fault("nvmlDeviceGetComputeRunningProcesses_v3", 999)
    assert board.asks(ada, Limit(UUID, 400_000)).code == REFUSED
    assert board.sim.get("writes") == 0


def test_the_first_caller_holds_a_board_and_the_next_is_told_who(bench: Callable[..., Bench]) -> None:
    board = bench()
    first, second = board.caller(1000), board.caller(1000)
    on(board, 1000)
    assert board.asks(first, Limit(UUID, 400_000)).ok
    refused = board.asks(second, Limit(UUID, 300_000))
    assert refused.code == HELD and "uid 1000 (pid 5000)" in refused.why
    board.capd.gone(first)
    assert board.sim.get("limit_mw") == 700_000 and board.asks(second, Limit(UUID, 300_000)).ok


def test_a_limit_is_lowered_within_the_range_and_never_raised(bench: Callable[..., Bench]) -> None:
    board = bench()
    ada = board.caller(1000)
    on(board, 1000)
    board.sim.set("limit_mw", 500_000)  # an administrator's
    assert not board.asks(ada, Limit(UUID, 100_000)).ok
    assert board.asks(ada, Limit(UUID, 650_000)).ok and board.sim.get("limit_mw") == 500_000
    assert board.asks(ada, Limit(UUID, 300_000)).ok and board.sim.get("limit_mw") == 300_000
    assert board.asks(ada, Limit(UUID, 450_000)).ok and board.sim.get("limit_mw") == 450_000
    assert board.asks(ada, Limit(UUID, 700_000)).ok and board.sim.get("limit_mw") == 500_000
    assert not board.asks(ada, Limit("GPU-nobody", 300_000)).ok


def test_a_board_is_written_at_most_once_a_second_and_the_driver_asked_a_few_times(bench: Callable[..., Bench]) -> None:
    board = bench()
    ada = board.caller(1000)
    on(board, 1000)
    codes = [board.asks(ada, Limit(UUID, 300_000 + 1000 * n), after_s=0.01).code for n in range(100)]
    assert board.sim.get("writes") == 1 and codes.count(SOON) == 99
    asked = [board.asks(ada, Limit(UUID, 300_000), after_s=0.001).why for _ in range(100)]
    assert asked.count("too many requests") >= 100 - DRIVER_CALLS_PER_S


def test_what_an_earlier_capd_left_is_restored_at_the_start(bench: Callable[..., Bench], tmp_path: Path) -> None:
    board = bench()
    on(board, 1000)
    command = (
        "import sys; from pathlib import Path; from carbontui.power.capd.core import *\n"
        "from carbontui.power.backends.nvml import NvmlBackend\n"
        "capd = Capd(NvmlBackend(), LeaseStore(Path(sys.argv[1])), print,"
        " owner=lambda pid: 1000)\n"
        f"capd.open(); assert capd.answer(Caller(1000, 1), wire.Limit('{UUID}', 400_000)).ok; os._exit(0)"
    )
    subprocess.run([sys.executable, "-c", command, tmp_path / "root"], check=True, capture_output=True)
    assert board.sim.get("limit_mw") == 400_000
    Bench(board.sim, tmp_path)
    assert board.sim.get("limit_mw") == 700_000


# --- the socket ---


def test_a_caller_that_falls_silent_or_hangs_up_has_its_limit_restored(service: Service) -> None:
    sim = service.sim
    with wire.connect(wire.socket_path()) as link:
        assert ask(link, Limit(UUID, 400_000)).ok and sim.get("limit_mw") == 400_000
    until(lambda: sim.get("limit_mw") == 700_000, 2, "the limit after the hang-up")
    link = wire.connect(wire.socket_path())
    until(lambda: ask(link, Limit(UUID, 400_000)).ok, 60, "the second between two writes to a board", every=0.2)
    until(lambda: sim.get("limit_mw") == 700_000, wire.SILENCE_S + 60, "the limit after the silence")
    link.close()


def test_fuzz_neither_ends_it_nor_touches_a_board(service: Service) -> None:
    dice = random.Random(1)
    words = [
        b"limit",
        b"lock",
        b"beat",
        b"ask",
        b"uuid",
        b"limit_mw",
        b"mhz",
        UUID.encode(),
        b"t",
        b"null",
        b"-1",
        b"1e308",
    ]
    words += [
        b"{",
        b"}",
        b"[",
        b"]",
        b'"',
        b":",
        b",",
        b"\\u0000",
        b"\xff\xfe",
        b"700001",
        b"true",
        b"/etc/passwd",
        b"$(id)",
    ]
    valid = [b'{"t":"limit","uuid":"%s","limit_mw":0}' % UUID.encode(), b'{"t":"lock","uuid":"","mhz":-5}', b"[" * 3000]
    valid += [
        b'{"t":"limit","uuid":"GPU-x","limit_mw":400000,"path":"/etc"}',
        b'{"t":"limit","uuid":7,"limit_mw":400}',
    ]
    valid += [b'{"t":"limit","uuid":"%s","limit_mw":99999999999999999999}' % UUID.encode()]
    answered = 0
    while answered < 20_000:
        with contextlib.suppress(ConnectionError), socket.socket(socket.AF_UNIX) as link:
            link.settimeout(20)
            link.connect(str(service.socket))
            lines = []
            for _ in range(100):
                joined = b"".join(dice.choices(words, k=dice.randrange(12)))
                line = dice.choice(valid) if dice.random() < 0.2 else joined
                if dice.random() < 0.1 and line:
                    place = dice.randrange(len(line))
                    line = line[:place] + bytes([dice.randrange(256)]) + line[place + 1 :]
                lines.append(line.replace(b"\n", b" ") + b"\n")
            for start in range(0, 100, 10):
                link.sendall(b"".join(lines[start : start + 10]))
                told = b""
                while told.count(b"\n") < 10 and (data := link.recv(65536)):
                    told += data
                answered += told.count(b"\n")
            link.sendall(b"x" * 5000)  # a line without an end: it hangs up
            assert link.recv(10) == b""
    assert service.process.poll() is None
    with wire.connect(wire.socket_path()) as link:
        assert ask(link, CapdBeat()).ok
    assert service.sim.get("writes") == 0 and service.sim.get("locked_mhz") == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="another user is needed")
def test_another_user_cannot_touch_a_board_that_is_not_wholly_its_own(service: Service) -> None:
    for parent in service.socket.parents:
        with contextlib.suppress(OSError):
            parent.chmod(parent.stat().st_mode | 0o111)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            codes = set()
            for _ in range(10):
                with socket.socket(socket.AF_UNIX) as link:
                    link.connect(str(service.socket))
                    for n in range(20):
                        codes.add(ask(link, Limit(UUID, 200_000 + n)).code)
            os.write(writer, repr(sorted(codes)).encode())
        finally:
            os._exit(0)
    os.close(writer)
    told = os.read(reader, 1000).decode()
    os.close(reader)
    os.waitpid(child, 0)
    assert set(eval(told)) <= {REFUSED, SOON} and REFUSED in eval(told)
    assert service.sim.get("writes") == 0 and service.sim.get("locked_mhz") == 0
