"""A Slurm of one node for tests: its own munge, controller and node daemon, all below one temporary folder."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "scancel", "squeue", "scontrol")
PATH = f"{os.environ['PATH']}:/usr/sbin:/sbin"
CONF = """\
ClusterName=ct
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ctld}
SlurmdPort={slurmd}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={dir}/munge/socket
CredType=cred/munge
StateSaveLocation={dir}/state
SlurmdSpoolDir={dir}/spool
SlurmctldPidFile={dir}/ctld.pid
SlurmdPidFile={dir}/slurmd.pid
SlurmctldLogFile={dir}/ctld.log
SlurmdLogFile={dir}/slurmd.log
ProctrackType=proctrack/{proctrack}
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=batch_sched_delay=0,sched_min_interval=100000,bf_interval=5
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=8
InactiveLimit=0
MpiDefault=none
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 CPUs=32 RealMemory=500 State=UNKNOWN
PartitionName=low Nodes=n1 Default=YES State=UP MaxTime=INFINITE PriorityTier=1 PreemptMode=REQUEUE GraceTime=8
PartitionName=high Nodes=n1 State=UP MaxTime=INFINITE PriorityTier=10 PreemptMode=OFF
"""


def missing() -> str:
    """Why no cluster can be brought up here; '' when one can."""
    if os.getuid() != 0:
        return "Slurm's daemons are started as root"
    absent = [name for name in PROGRAMS if shutil.which(name, path=PATH) is None]
    return f"not installed: {', '.join(absent)} (apt-get install slurm-wlm munge)" if absent else ""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Cluster:
    """Up between `start` and `end`; `run` calls one of Slurm's commands."""

    def __init__(self, proctrack: str = "linuxproc") -> None:
        # munge looks at every folder above its socket, and works as a user of its own
        self.dir = Path(tempfile.mkdtemp(prefix="ct-slurm-"))
        self.dir.chmod(0o755)
        self.env = {**os.environ, "PATH": PATH, "SLURM_CONF": str(self.dir / "slurm.conf")}
        self.proctrack = proctrack
        self._daemons: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        for name in ("state", "spool", "munge"):
            (self.dir / name).mkdir()
        facts = {"host": socket.gethostname(), "ctld": free_port(), "slurmd": free_port(), "dir": self.dir}
        facts |= {"proctrack": self.proctrack}
        (self.dir / "slurm.conf").write_text(CONF.format(**facts))
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
        self._daemon("slurmd", "-D", "-N", "n1")
        self._await(lambda: "idle" in self.run("sinfo", "-h", "-o", "%T", check=False), "an idle node", 60.0)

    def _daemon(self, *command: str) -> None:
        log = (self.dir / "daemons.log").open("ab")
        self._daemons.append(
            subprocess.Popen(command, env=self.env, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.dir)
        )

    def _await(self, true, what: str, timeout_s: float = 20.0) -> None:
        due = time.monotonic() + timeout_s
        while not true():
            if time.monotonic() > due:
                logs = [path.read_text(errors="replace")[-1500:] for path in sorted(self.dir.glob("*.log"))]
                raise RuntimeError(f"{what} did not come about within {timeout_s:.0f} s\n" + "\n".join(logs))
            time.sleep(0.1)

    def run(self, *command: str, check: bool = True, env: dict[str, str] | None = None) -> str:
        """A command's standard output."""
        done = subprocess.run(
            command, env={**self.env, **(env or {})}, capture_output=True, text=True, timeout=60, check=False
        )
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
