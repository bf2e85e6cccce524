"""One training three ways: alone; paused and resumed; unloaded at given steps and started again. Same result?"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from fake_supervisor import FakeSupervisor

from carbontui.client import inject

HERE = Path(__file__).parent
LONG_S = 400.0
"""Longer than any of these trainings takes to import its framework on a machine that is busy with others."""


class Outcome:
    """What a training printed: `weights HEX` and `steps N` by its own count."""

    def __init__(self, out: str, code: int) -> None:
        self.out, self.code = out, code
        self.weights = sorted(set(re.findall(r"weights ([0-9a-f]+)", out)))
        self.steps = [int(n) for n in re.findall(r"^steps (\d+)", out, re.MULTILINE)]


class Training:
    """A command in a folder of its own, with the hook and a supervisor that the test plays."""

    def __init__(self, folder: Path, hook: Path, supervisor: FakeSupervisor, script: Path, *args: str, ranks: int = 1):
        self.folder, self.hook, self.supervisor, self.ranks = folder, hook, supervisor, ranks
        self.script, self.args = script, [str(arg) for arg in args]
        self.marker = folder / "resume.json"
        self.torchrun, self.job = True, "test"
        folder.mkdir(parents=True, exist_ok=True)

    def environment(self, *, resume: bool = False, step: int = 0, socket: str | Path | None = None) -> dict[str, str]:
        base = {key: value for key, value in os.environ.items() if not key.startswith("CARBONTUI_")}
        base["PYTHONUNBUFFERED"] = ""  # else a rank's line may come in the middle of another's
        base |= {"OMP_NUM_THREADS": "1", "KERAS_HOME": str(self.folder), "HF_HUB_OFFLINE": "1", "JAX_PLATFORMS": "cpu"}
        env = inject.environment(
            base,
            hook_dir=self.hook,
            socket=socket or self.supervisor.path,
            job=self.job,
            marker=self.marker,
            resume=resume,
        )
        if step:
            env["CARBONTUI_START_STEP"] = str(step)
        return env

    def command(self, leave_at: int | None) -> list[str]:
        before = [str(HERE / "leaving.py"), str(leave_at)] if leave_at is not None else []
        argv = [*before, str(self.script), *self.args]
        if self.ranks > 1 and self.torchrun:
            launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
            return [*launcher, f"--nproc-per-node={self.ranks}", *argv]
        return [sys.executable, *argv]

    def start(self, leave_at: int | None = None, **env) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.command(leave_at),
            env=self.environment(**env),
            cwd=self.folder,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    def alone(self) -> Outcome:
        """Without carbontui."""
        env = {k: v for k, v in self.environment().items() if not k.startswith("CARBONTUI_") and k != "PYTHONPATH"}
        done = subprocess.run(
            self.command(None), env=env, cwd=self.folder, text=True, capture_output=True, timeout=LONG_S, check=False
        )
        return Outcome(done.stdout + done.stderr, done.returncode)

    def finish(self, process: subprocess.Popen[str], timeout_s: float = LONG_S) -> Outcome:
        out, _ = process.communicate(timeout=timeout_s)
        if self.supervisor.alive:
            self.supervisor.wait(lambda: not self.supervisor.live(), 30, "the end of the connections")
        return Outcome(out, process.returncode)

    def paused(self) -> tuple[Outcome, set[int]]:
        """Paused some steps in: it is asked for beforehand, since many trainings here are over in a moment. The
        outcome, and the steps at which the ranks stood."""
        gen = self.supervisor.want("pause")
        process = self.start()
        try:
            self.supervisor.wait(
                lambda: all(self.supervisor.acked(gen, r) for r in range(self.ranks)), LONG_S, "the pause on every rank"
            )
            held = {self.supervisor.acked(gen, r).step for r in range(self.ranks)}
            self.supervisor.want("run")
            return self.finish(process), held
        finally:
            process.kill()

    def unloaded(self, after: int) -> tuple[int, Outcome]:
        """Unloaded by the supervisor once `after` steps are done, started again, to the end; the exit code of the first
        life, and what the second came to. Held on the way there: a training reports its steps once a second, in which
        many of these are over."""
        process = self.start()
        try:
            at = self.supervisor.pause(self.ranks, LONG_S)
            while max(at) < after:
                self.supervisor.want("run")
                self.supervisor.wait(lambda: self.supervisor.last().state == "running", LONG_S, "steps")
                at = self.supervisor.pause(self.ranks, LONG_S)
            gen = self.supervisor.want("unload")
            self.supervisor.wait(
                lambda: all(self.supervisor.acked(gen, r) for r in range(self.ranks)), LONG_S, "the unload"
            )
            first = self.finish(process)
        finally:
            process.kill()
        self.supervisor.want("run")
        step = json.loads(self.marker.read_text())["step"]
        self.marker.unlink()
        return first.code, self.finish(self.start(resume=True, step=step))

    def lives(self, *leave_at: int) -> Iterator[Outcome]:
        """Unloaded after so many steps of each life, then to the end."""
        step, nobody = 0, self.supervisor.path.with_name("nobody.sock")
        for number, steps in enumerate((*leave_at, 0)):
            life = self.start(steps, resume=number > 0, step=step, socket=nobody)
            out, _ = life.communicate(timeout=LONG_S)
            yield Outcome(out, life.returncode)
            if not self.marker.exists():
                return
            step = json.loads(self.marker.read_text())["step"]
            self.marker.unlink()
