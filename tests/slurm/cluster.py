"""A Slurm for tests: its own munge, controller and node daemons, all below one temporary folder.

Several nodes on one machine each have a host name of their own and, but for the first, a folder of sockets and a boot
of their own (`unshare --mount --uts`): as on real nodes, a socket of one is not there on another.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path

TRIXIE = "CARBONTUI_TRIXIE"
"""Variable that names a folder with a Debian trixie and its slurm-wlm; else one is made for the session (a minute)."""
DEBIAN = "http://deb.debian.org/debian"
COMMANDS = "slurmctld slurmd sbatch scancel squeue scontrol sinfo srun salloc sacct"
SYSTEMS = "/proc /sys /dev /tmp /var/tmp /run"
WRAPPER = """\
#!/bin/sh
# within it the command is its own
[ -e /.slurm-of-trixie ] && exec /usr/bin/env PATH={inside} {name} "$@"
exec nsenter --mount=/proc/{holder}/ns/mnt chroot {root} /usr/bin/env -C "$PWD" PATH={inside} {name} "$@"
"""
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "scancel", "squeue", "scontrol")
BOOT = "/proc/sys/kernel/random/boot_id"
SOCKETS = f"/tmp/carbontui-{os.getuid()}"
PATH = f"{os.environ['PATH']}:/usr/sbin:/sbin"
CONF = """\
ClusterName=ct
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ctld}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={dir}/munge/socket
CredType=cred/munge
StateSaveLocation={dir}/state
SlurmdSpoolDir={dir}/spool/%n
SlurmctldPidFile={dir}/ctld.pid
SlurmdPidFile={dir}/slurmd-%n.pid
SlurmctldLogFile={dir}/ctld.log
SlurmdLogFile={dir}/slurmd-%n.log
ProctrackType=proctrack/{proctrack}
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=batch_sched_delay=0,sched_min_interval=100000,sched_interval=2,bf_interval=5
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=8
MinJobAge=86400
InactiveLimit=0
MpiDefault=none
GresTypes=gpu
{nodes}
PartitionName=low Nodes={names} Default=YES State=UP MaxTime=INFINITE PriorityTier=1 PreemptMode=REQUEUE GraceTime=8
PartitionName=high Nodes={names} State=UP MaxTime=INFINITE PriorityTier=10 PreemptMode=OFF
"""


def missing() -> str:
    """Why no cluster can be brought up here; '' when one can."""
    if os.getuid() != 0:
        return "Slurm's daemons are started as root"
    absent = [name for name in PROGRAMS if shutil.which(name, path=PATH) is None]
    return f"not installed: {', '.join(absent)} (apt-get install slurm-wlm munge)" if absent else ""


class Trixie:
    """Slurm 24.11 of Debian trixie in a folder, with our files in it by mounts that only its own commands see: they end
    with the process that holds them, and nothing is left to undo. `path`: wrappers of these commands."""

    def __init__(self) -> None:
        self.dir = Path(tempfile.mkdtemp(prefix="ct-trixie-", dir="/var/tmp"))
        self.dir.chmod(0o755)
        self.root, self.path = Path(os.environ.get(TRIXIE) or self.dir / "root"), self.dir / "bin"
        if not (self.root / "usr/sbin/slurmctld").exists():
            more = "--include=slurm-wlm,python3"  # with the libraries of a Python
            made = ["debootstrap", "--variant=minbase", more, "trixie", str(self.root), DEBIAN]
            subprocess.run(made, check=True, stdout=subprocess.DEVNULL, timeout=400)
        (self.root / ".slurm-of-trixie").touch()
        shutil.copy("/etc/hosts", self.root / "etc/hosts")  # ranks find each other by this machine's name
        own = [sys.prefix, sys.base_prefix, *sys.path, str(Path(__file__).parents[2])]
        binds = [*SYSTEMS.split(), *dict.fromkeys(path for path in own if Path(path).is_dir())]
        script = " && ".join(f"mkdir -p {self.root}{path} && mount --rbind {path} {self.root}{path}" for path in binds)
        hold = ["unshare", "--mount", "sh", "-c", f"{script} && echo && exec sleep infinity"]
        self._holder = subprocess.Popen(hold, stdout=subprocess.PIPE)
        if self._holder.stdout is None or not self._holder.stdout.readline():
            raise OSError("nothing can be mounted")
        self.path.mkdir()
        inside = f"{sys.prefix}/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        for name in COMMANDS.split():
            text = WRAPPER.format(holder=self._holder.pid, root=self.root, inside=inside, name=name)
            (self.path / name).write_text(text)
            (self.path / name).chmod(0o755)

    def end(self) -> None:
        self._holder.kill()
        self._holder.wait()
        shutil.rmtree(self.dir, ignore_errors=True)


def no_trixie() -> str:
    """Why there can be no newer Slurm here; '' when there can."""
    if sys.base_prefix == "/usr":
        return "this Python is the system's: its files would hide Slurm's there"
    made = os.environ.get(TRIXIE) or shutil.which("debootstrap", path=PATH)
    return missing() or ("" if made else "not installed: debootstrap, which makes a Debian with Slurm 24.11")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Cluster:
    """Up between `start` and `end`; `run` calls one of Slurm's commands."""

    def __init__(
        self, proctrack: str = "linuxproc", nodes: int = 1, conf: str = "", gpus: int = 0, commands: Path | None = None
    ) -> None:
        """`gpus`: so many a node, each a file that is none; `commands`: the folder of those of Slurm, if another."""
        # munge looks at every folder above its socket, and works as a user of its own
        self.dir = Path(tempfile.mkdtemp(prefix="ct-slurm-"))
        self.dir.chmod(0o755)
        path = f"{commands}:{PATH}" if commands else PATH
        self.env = {**os.environ, "PATH": path, "SLURM_CONF": str(self.dir / "slurm.conf")}
        self.proctrack = proctrack
        self.commands = commands
        self.kind = "24.11" if commands else proctrack
        self.names = [f"n{i + 1}" for i in range(nodes)]
        self.conf = conf
        self.gpus = gpus
        self.node_daemons: dict[str, subprocess.Popen[bytes]] = {}
        self._daemons: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        for name in ("state", "spool", "munge"):
            (self.dir / name).mkdir()
        facts = {"host": socket.gethostname(), "ctld": free_port(), "dir": self.dir, "proctrack": self.proctrack}
        facts |= {"nodes": "\n".join(map(self._node_line, self.names)), "names": ",".join(self.names)}
        (self.dir / "slurm.conf").write_text(CONF.format(**facts) + self.conf)
        for number in range(self.gpus):
            (self.dir / f"gpu{number}").touch()
        every = f"Name=gpu File={self.dir}/gpu[0-{self.gpus - 1}]\n" if self.gpus else ""
        (self.dir / "gres.conf").write_text(every)
        key = self.dir / "munge" / "key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        for path in (self.dir / "munge", key):
            shutil.chown(path, "munge", "munge")
        munge = self.dir / "munge"
        self._daemon("runuser", "-u", "munge", "--", "munged", "-F", "--force", f"--socket={munge}/socket",
                     f"--key-file={key}", f"--pid-file={munge}/pid", f"--seed-file={munge}/seed",
                     f"--log-file={munge}/log")  # fmt: skip
        self._await((munge / "socket").exists, "munge's socket")
        self._daemon("slurmctld", "-D", "-c")
        for name in self.names:
            self.start_node(name)
        self._await(
            lambda: (
                self.run("sinfo", "-h", "-N", "-p", "low", "-o", "%T", check=False).split().count("idle")
                == len(self.names)
            ),
            "idle nodes",
            60.0,
        )

    def _node_line(self, name: str) -> str:
        host = socket.gethostname() if len(self.names) == 1 else name
        line = f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={free_port()} CPUs=32 RealMemory=500"
        return f"{line} Gres=gpu:{self.gpus}" if self.gpus else line

    def start_node(self, name: str) -> None:
        command = ["slurmd", "-D", "-N", name]
        if len(self.names) > 1:
            boot = self.dir / f"boot-{name}"
            boot.write_text(f"{uuid.uuid4()}\n")
            own_sockets = f"mkdir -p {SOCKETS} && mount -t tmpfs -o mode=700 tmpfs {SOCKETS}"
            apart = f"{own_sockets} && mount --bind {boot} {BOOT} && "
            if name == self.names[0]:  # it shares sockets and boot with the test, which looks at the job there
                apart = ""
            script = f"hostname {name} && {apart}exec {' '.join(command)}"
            command = ["unshare", "--mount", "--uts", "sh", "-c", script]
        self.node_daemons[name] = self._daemon(*command)

    def lose_node(self, name: str) -> None:
        """The node is gone at once, with all that runs on it, as when its power fails."""
        self.signal(self.freeze(name), signal.SIGKILL)  # frozen first: nobody may notice the others' end and tell of it

    def freeze(self, name: str) -> list[int]:
        """Stop all processes of a node, also those that others start meanwhile; their pids."""
        stopped: list[int] = []
        while fresh := [pid for pid in self.processes_of(name) if pid not in stopped]:
            self.signal(fresh, signal.SIGSTOP)
            stopped += fresh
        return stopped

    def signal(self, pids: list[int], number: int) -> None:
        """Send a signal to those that still live: a node has processes that end by themselves."""
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def processes_of(self, name: str) -> list[int]:
        """All processes in the node's own namespace; of the first node those of its daemon's host name."""
        space = os.readlink(f"/proc/{self.node_daemons[name].pid}/ns/uts")
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if os.readlink(entry / "ns/uts") == space:
                    found.append(int(entry.name))
        return found

    def _daemon(self, *command: str) -> subprocess.Popen[bytes]:
        log = (self.dir / "daemons.log").open("ab")
        daemon = subprocess.Popen(command, env=self.env, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.dir)
        self._daemons.append(daemon)
        return daemon

    def _await(self, true, what: str, timeout_s: float = 20.0) -> None:
        due = time.monotonic() + timeout_s
        while not true():
            if time.monotonic() > due:
                logs = [path.read_text(errors="replace")[-1500:] for path in sorted(self.dir.glob("*.log"))]
                raise RuntimeError(f"{what} did not come about within {timeout_s:.0f} s\n" + "\n".join(logs))
            time.sleep(0.1)

    def run(self, *command: str, check: bool = True, env: dict[str, str] | None = None) -> str:
        """A command's standard output."""
        env = {**self.env, **(env or {})}
        env["PATH"] = f"{self.commands}:{env['PATH']}" if self.commands else env["PATH"]
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
        if check and done.returncode:
            raise RuntimeError(f"{command}: {done.returncode}: {done.stderr}")
        return done.stdout

    def submit(self, script: str, *options: str, env: dict[str, str] | None = None) -> str:
        """Submit a batch script; its job id."""
        path = Path(tempfile.mkstemp(prefix="job-", suffix=".sh", dir=self.dir)[1])
        path.write_text("#!/bin/bash\n" + script)
        output = self.dir / "slurm-%j.out"
        told = self.run(
            "sbatch", "--parsable", f"--output={output}", "--open-mode=append", *options, str(path), env=env
        )
        return told.strip().partition(";")[0]

    def state(self, job: str) -> str:
        """RUNNING, COMPLETED, ...; '' when Slurm has forgotten the job."""
        shown = self.run("scontrol", "-o", "show", "job", job, check=False)
        return next((word.partition("=")[2] for word in shown.split() if word.startswith("JobState=")), "")

    def output(self, job: str) -> str:
        path = self.dir / f"slurm-{job}.out"
        return path.read_text() if path.exists() else ""

    def end(self) -> None:
        for job in self.run("squeue", "-h", "-o", "%i", check=False).split():
            self.run("scancel", job, check=False)
        for process in reversed(self._daemons):
            process.terminate()
        for process in self._daemons:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
                process.wait()
        shutil.rmtree(self.dir, ignore_errors=True)
