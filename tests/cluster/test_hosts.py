"""One job on three machines without a scheduler: each other one is an sshd with host name and sockets of its own."""

from __future__ import annotations

import os
import signal
import socket
import sys
import tempfile
from pathlib import Path

import pytest
from house import House, until
from later import needs
from sshd import WHY_NOT, Sshd, client

from carbontui import link, protocol
from carbontui.job.files import store

SOCKETS = f"/tmp/carbontui-{os.getuid()}"
TRAIN = """\
import os, subprocess, sys, time
rank = int(os.environ.get("RANK", -1))
if rank < 0:
    # as a launcher over ssh does: a rank here and one on each, with the variables that carbontui has set
    passed = [n for n in os.environ if n.startswith("CARBONTUI_") or n in ("PYTHONPATH", "MASTER_PORT")]
    told = [f"{n}={os.environ[n]}" for n in passed]
    common = ["env", *told, "MASTER_ADDR=127.0.0.1", "WORLD_SIZE=3", "GLOO_SOCKET_IFNAME=lo"]
    line = lambda r: [*common, f"RANK={r}", sys.executable, *sys.argv]
    import shlex
    far = [
        subprocess.Popen(["ssh", "-T", host, shlex.join(line(r))], stdin=subprocess.DEVNULL)
        for r, host in ((1, "b"), (2, "c"))
    ]
    sys.exit(subprocess.call(line(0)) or max(one.wait() for one in far))
import torch
import torch.distributed as dist
import carbontui
torch.set_num_threads(1)
dist.init_process_group("gloo")
model = torch.nn.Linear(4, 4)
marks = open(f"{sys.argv[1]}.{rank}", "a", buffering=1)
step, end = 0, torch.zeros(1)
while not end.item():
    loss = model(torch.randn(8, 4)).square().mean()
    model.zero_grad()
    loss.backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.data -= 0.01 * parameter.grad
    if rank == 0:
        end.fill_(os.path.exists(sys.argv[1] + ".end"))
    dist.broadcast(end, 0)
    time.sleep(0.02)
    step += 1
    marks.write(f"{step}\\n")
    carbontui.step()  # an optimizer would take a second more to load, on each machine
dist.barrier()
dist.destroy_process_group()
"""


@pytest.fixture
def far(tmp_path):
    if WHY_NOT or os.getuid() != 0:
        pytest.skip(WHY_NOT or "namespaces are made as root")
    with tempfile.TemporaryDirectory(prefix="ct-", dir="/var/tmp") as root:
        house = House(Path(root), None)
        told = {name: house.env[name] for name in ("CARBONTUI_HOME", "CARBONTUI_LEASE_DIR")}
        servers = {}
        for name in ("b", "c"):
            (Path(root) / name).mkdir()
            apart = f'hostname {name} && mkdir -p {SOCKETS} && mount -t tmpfs -o mode=700 tmpfs {SOCKETS} && exec "$@"'
            servers[name] = Sshd(Path(root) / name, told, ("unshare", "--mount", "--uts", "sh", "-c", apart, "sh"))
        client(Path(root) / "bin", servers)
        house.env["PATH"] = f"{root}/bin:{house.env['PATH']}"
        yield house, servers
        for server in servers.values():
            server.stop()
        house.end()


@needs("torch")
@pytest.mark.long
@pytest.mark.timeout(300)
def test_all_machines_stop_at_one_step_and_a_lost_wire_is_said_and_ends_the_pause(far):
    house, servers = far
    script, marks = house.root / "ranks.py", house.root / "marks"
    script.write_text(TRAIN)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        house.env["MASTER_PORT"] = str(free.getsockname()[1])
    house.cli("run", "--detach", "--hosts", "b,c", "--work", "10h", "--", sys.executable, script, marks, check=True)
    (record,) = (house.home / "jobs").glob("*/job.json")
    job = store.load(record.parent)

    def served() -> protocol.Status | None:
        try:
            return link.ask(job.socket, protocol.StatusAsk(1)).status
        except (link.LinkError, AttributeError):
            return None

    def tell(verb: str) -> str:
        return link.ask(job.socket, protocol.Cmd(1, verb, {}), 15.0).text

    def steps() -> list[int]:
        return [len(Path(f"{marks}.{rank}").read_text().split()) for rank in (0, 1, 2)]

    until(lambda: (s := served()) and s.clients == 3, 90, "all ranks")
    tell("pause")
    until(lambda: served().state == "paused", 60, "the pause")
    held = steps()
    assert held[0] == held[1] == held[2] > 0
    assert {gpu.node for gpu in served().gpus} <= {"b", "c", served().host}

    # one wire is cut and its machine cannot be reached: said, and once the lease there has ended all train on
    server = servers["c"]
    assert server.process is not None
    agents = [
        int(entry.name)
        for entry in Path("/proc").glob("[0-9]*")
        if b"carbontui.nodes.node" in _arguments(entry)
        and str(job.socket).encode() in _arguments(entry)
        and (entry / "ns" / "uts").readlink() == Path(f"/proc/{server.process.pid}/ns/uts").readlink()
    ]
    assert agents
    os.kill(server.process.pid, signal.SIGSTOP)  # whoever calls again waits
    try:
        for pid in agents:
            os.kill(pid, signal.SIGKILL)
        until(lambda: (s := served()) and "silent: c" in s.reason.text, 60, "word of the silent machine")
        assert steps() == held
        until(lambda: min(steps()) > max(held) + 5, 60, "steps on all machines")
        assert "the lease of the pause has ended" in served().reason.text
        tell("resume")
    finally:
        os.kill(server.process.pid, signal.SIGCONT)
    until(lambda: served().clients == 3, 60, "the machine back")
    Path(f"{marks}.end").touch()
    until(lambda: store.load(record.parent).exit, 60, "the end")
    assert len(set(steps())) == 1


def _arguments(entry: Path) -> bytes:
    try:
        return (entry / "cmdline").read_bytes()
    except OSError:
        return b""


@pytest.mark.parametrize(
    ("hosts", "said", "code"),
    [
        ("-oProxyCommand=x", "does not begin with a dash", 2),
        ("a:job", "names a job", 2),
        (" , ", "names no other machine", 2),
        ("no-such-machine.invalid", "--hosts: no-such-machine.invalid: ", 1),
    ],
)
def test_a_machine_that_cannot_be_is_one_line_before_anything_starts(house, hosts, said, code):
    if WHY_NOT:
        pytest.skip(WHY_NOT)
    done = house.cli("run", "--detach", f"--hosts={hosts}", "--", sys.executable, "-c", "0")
    assert done.returncode == code and said in done.stderr and len(done.stderr.strip().splitlines()) == 1
    assert not list(house.home.glob("jobs/*/job.json"))


def test_a_machine_without_carbontui_is_said(far, monkeypatch, capsys):
    from carbontui.job.life import launch, machines

    house, _ = far
    monkeypatch.setenv("PATH", house.env["PATH"])
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    with pytest.raises(launch.LaunchError, match="b has no carbontui at /no/such/python"):
        machines.named("b")
