"""capd by hand: how soon limits are back, 100,000 fuzzed and 1,000 unauthorised requests, and what all of ours costs.

    python tests/bench/bench_capd.py [--out results/capd.md] [--part restore|fuzz|cpu]

On the simulated libnvidia-ml. `cpu` is a whole job of an ordinary script on 1 and on 8 boards with capd beside it:
keeper, supervisor, agent, worker and capd together, after its first half minute; the training itself is not counted.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import os
import platform
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "nvmlsim")]

from house import House, until
from nvmlsim import Sim, build

from carbontui.power.capd import wire
from carbontui.power.capd.wire import Limit, Lock
from carbontui.system import proc

UUID = "GPU-51a00000-7c1d-4e55-9d3a-000000000000"
NOBODY = 65534
CPU_S = 60.0
WARM_S = 30.0
FUZZED, UNAUTHORISED = 100_000, 1_000


class Capd:
    """One capd that may do what its callers may not."""

    def __init__(self, folder: Path) -> None:
        self.socket = folder / "run" / "capd.sock"
        self._env = {**os.environ, "NVMLSIM_ADMIN": "1", "CARBONTUI_LEASE_DIR": str(folder / "root")}
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-I", "-m", "carbontui.power.capd", "--socket", str(self.socket)]
        self.process = subprocess.Popen(command, env=self._env, stdout=subprocess.DEVNULL)

    def ready(self) -> None:
        os.environ["CARBONTUI_CAPD"] = str(self.socket)

        def answers() -> bool:
            with contextlib.suppress(OSError), wire.connect(wire.socket_path()) as link:
                link.sendall(b'{"t":"beat"}\n')
                return bool(link.recv(100))
            return False

        until(answers, what="capd")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@contextlib.contextmanager
def holding(sim: Sim) -> Iterator[subprocess.Popen[bytes]]:
    """A caller that holds 400 W, with a process of its own on the board."""
    code = (
        "import time\nfrom carbontui.power.capd import wire\n"
        "link = wire.connect(wire.socket_path())\n"
        f"print(wire.ask(link, wire.Limit('{UUID}', 400_000)).ok, flush=True)\ntime.sleep(600)"
    )
    sim.process(os.getpid(), level=0.5)
    caller = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert caller.stdout is not None
    assert caller.stdout.readline() == b"True\n"
    assert sim.get("limit_mw") == 400_000
    try:
        yield caller
    finally:
        caller.kill()
        caller.wait()


def back(sim: Sim, began: float) -> float:
    while sim.get("limit_mw") != 700_000:
        assert time.monotonic() - began < 20, "the limit never came back"
        time.sleep(0.0005)
    return time.monotonic() - began


def restores(sim: Sim, capd: Capd) -> list[str]:
    hung_up, restarted, both = [], [], []
    for _ in range(20):
        time.sleep(1.1)
        with holding(sim) as caller:
            caller.send_signal(signal.SIGKILL)
            hung_up.append(back(sim, time.monotonic()))
    for kill_caller, times in ((False, restarted), (True, both)):
        for _ in range(10):
            time.sleep(1.1)
            with holding(sim) as caller:
                capd.kill()
                if kill_caller:
                    caller.kill()
                began = time.monotonic()
                capd.start()
                times.append(back(sim, began))
            capd.ready()
    started = min(_seconds([sys.executable, "-I", "-c", "pass"]) for _ in range(5))
    told = [
        f"| limit back after {what} | {statistics.median(times):.3f} | {max(times):.3f} | {bar} |"
        for what, times, bar in (
            ("the caller was killed (20)", hung_up, "0.1"),
            ("capd was killed, from the start of the next (10)", restarted, "1"),
            ("both were killed, from the start of the next capd (10)", both, "at its start"),
        )
    ]
    return [
        "| seconds | median | worst | bar |",
        "|---" * 4 + "|",
        *told,
        "",
        f"An empty Python takes {started:.3f} s here.",
    ]


def _seconds(command: list[str]) -> float:
    began = time.monotonic()
    subprocess.run(command, check=True)
    return time.monotonic() - began


WORDS = [
    *(b"limit lock beat ask uuid limit_mw mhz t null -1 1e308 { } [ ] : , true /etc/passwd $(id) 700001 2000".split()),
    UUID.encode(), b'"', b"\\u0000", b"\xff\xfe",
]  # fmt: skip
VALID = [
    b'{"t":"limit","uuid":"%s","limit_mw":0}' % UUID.encode(),
    b'{"t":"limit","uuid":"%s","limit_mw":99999999999999999999}' % UUID.encode(),
    b'{"t":"limit","uuid":"%s","limit_mw":900000}' % UUID.encode(),
    b'{"t":"limit","uuid":"GPU-x","limit_mw":400000,"path":"/etc"}',
    b'{"t":"lock","uuid":"","mhz":-5}',
    b'{"t":"ask"}',
    b"[" * 3000,
]


def fuzz(sim: Sim, capd: Capd) -> list[str]:
    """No process of ours on the board: nothing may be written at all."""
    sim.reap()
    dice, sent, writes = random.Random(1), 0, sim.get("writes")
    began = time.monotonic()
    while sent < FUZZED:
        with contextlib.suppress(ConnectionError, TimeoutError), socket.socket(socket.AF_UNIX) as link:
            link.settimeout(20)
            link.connect(str(capd.socket))
            for _ in range(100):
                lines = []
                for _ in range(10):
                    line = (
                        dice.choice(VALID)
                        if dice.random() < 0.3
                        else b"".join(dice.choices(WORDS, k=dice.randrange(12)))
                    )
                    if line and dice.random() < 0.3:
                        place = dice.randrange(len(line))
                        line = line[:place] + bytes([dice.randrange(256)]) + line[place + 1 :]
                    lines.append(line.replace(b"\n", b" ") + b"\n")
                link.sendall(b"".join(lines))
                told = b""
                while told.count(b"\n") < 10 and (data := link.recv(65536)):
                    told += data
                sent += 10
            if dice.random() < 0.5:
                link.sendall(b"x" * dice.randrange(1, 9000))  # a line without an end
    took = time.monotonic() - began
    assert capd.process.poll() is None
    told = f"{sent:,} fuzzed lines in {took:.0f} s: {sim.get('writes') - writes:.0f} writes, "
    lines = [f"- {told}{sim.get('locked_mhz'):.0f} MHz locked, capd alive"]
    if os.geteuid() == 0:
        lines.append(_unauthorised(sim, capd))
    return lines


def _unauthorised(sim: Sim, capd: Capd) -> str:
    """Another uid, on a board that a process of root uses."""
    sim.process(os.getpid(), level=0.5)
    for folder in (capd.socket.parent.parent, capd.socket.parent.parent.parent):
        folder.chmod(0o711)
    writes, reader_writer = sim.get("writes"), os.pipe()
    if os.fork() == 0:
        try:
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            ok = asked = 0
            while asked < UNAUTHORISED:
                with contextlib.suppress(ConnectionError), socket.socket(socket.AF_UNIX) as link:
                    link.connect(str(capd.socket))
                    for n in range(20):
                        ok += wire.ask(link, Limit(UUID, 200_000 + n) if n % 2 else Lock(UUID, 210 + n)).ok
                        asked += 1
            os.write(reader_writer[1], f"{asked:,} requests of another uid: {ok} granted".encode())
        finally:
            os._exit(0)
    os.close(reader_writer[1])
    told = os.read(reader_writer[0], 1000).decode()
    os.wait()
    return f"- {told}, {sim.get('writes') - writes:.0f} writes, {sim.get('locked_mhz'):.0f} MHz locked"


def cpu(folder: Path, library: Path) -> list[str]:
    rows = [
        f"| % of a core over {CPU_S:.0f} s | keeper | supervisor | agent | worker | capd | all of ours | bar |",
        "|---" * 8 + "|",
    ]
    for devices, bar in ((1, 0.6), (8, 0.7)):
        place = folder / f"cpu{devices}"
        place.mkdir()
        sim = Sim(library, place / "state", devices, frozen=False)
        os.environ |= sim.env()
        sim.set("permission", 3)
        for device in range(devices):
            sim.set("permission", 3, device)
            sim.load(0.9, device=device)
        capd = Capd(place)
        capd.ready()
        house = House(place, None)
        house.env |= {**sim.env(), "CARBONTUI_CAPD": str(capd.socket)}
        house.env.pop("CUDA_VISIBLE_DEVICES", None)
        try:
            # steps of 0.1 s, reported as they come; a plan with caps on a grid of typical days
            job = house.start("--zone", "DE", "--work", "10h", "--budget", "2x", pause=0.1)
            job.until_steps()
            for device in range(devices):
                sim.process(job.pids()["child"], device=device)
            time.sleep(WARM_S)
            pids = {**job.pids(), "agent": job.status()["pids"]["agent"], "capd": capd.process.pid}
            known = {role: pids[role] for role in ("keeper", "supervisor", "agent", "capd")}

            before, began = spent(known), time.monotonic()
            time.sleep(CPU_S)
            took = time.monotonic() - began
            share = {role: max(0.0, 100 * (seconds - before[role]) / took) for role, seconds in spent(known).items()}
            cells = [f"{share[role]:.2f}" for role in ("keeper", "supervisor", "agent", "worker", "capd")]
            rows.append(
                f"| {devices} board{'s'[: devices > 1]} | {' | '.join(cells)} | {sum(share.values()):.2f} | {bar} |"
            )
            house.cli("stop", "--now", "--yes", job.id)
        finally:
            house.end()
            capd.kill()
    return rows


def spent(known: dict[str, int]) -> dict[str, float]:
    """CPU seconds of our processes by role; a worker comes and goes."""
    now = {role: _cpu_s(pid) for role, pid in known.items()}
    others = [pid for pid in proc.descendants(known["keeper"]) if "carbontui.job.worker" in _cmdline(pid)]
    return {**now, "worker": sum(map(_cpu_s, others))}


def _cpu_s(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _cmdline(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text()
    return ""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--part", choices=("restore", "fuzz", "cpu"), help="this part alone")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    lines = [
        "# capd, and what all of ours costs",
        "",
        f"{datetime.date.today()}, {platform.machine()}, {os.cpu_count()} shared vCPU (Xeon), Python "
        f"{platform.python_version()}, simulated libnvidia-ml. Load when measuring began {os.getloadavg()[0]:.1f}.",
    ]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        library = build(folder)
        if library is None:
            sys.exit("no C compiler (cc)")
        os.environ |= {"CARBONTUI_LEASE_DIR": str(folder / "leases"), "LD_LIBRARY_PATH": str(library.parent)}
        if options.part != "cpu":
            sim = Sim(library, folder / "state", 1, frozen=False)
            os.environ |= sim.env()
            sim.set("permission", 3)
            capd = Capd(folder)
            try:
                capd.ready()
                lines += ["", *restores(sim, capd)] if options.part in (None, "restore") else []
                sim = Sim(library, folder / "state2", 1, frozen=False)
                capd.kill()
                os.environ |= sim.env()
                sim.set("permission", 3)
                capd = Capd(folder / "two")
                capd.ready()
                lines += ["", *fuzz(sim, capd)] if options.part in (None, "fuzz") else []
            finally:
                capd.kill()
        if options.part in (None, "cpu"):
            lines += ["", *cpu(folder, library)]
    text = "\n".join(lines) + "\n"
    print(text)
    if options.out:
        options.out.write_text(text)


if __name__ == "__main__":
    main()
