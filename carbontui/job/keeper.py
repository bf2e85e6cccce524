"""The keeper: the small parent of training child and supervisor, from `run` to the job's end.

It holds argv, cwd and environment in memory, starts and restarts the child, writes its exit status, and replaces a
supervisor that died (EOF on the socket pair) or fell silent (6 s without a heartbeat; then it is killed first). It
decides nothing else. Standard library only, everything imported at its start, so that an upgrade of the package on
disk cannot hurt a running job.

Lines between keeper and supervisor, JSON: the keeper says {"t": "child", ...} at every change and when a supervisor
connects; the supervisor says beat, hold {until}, stop {now}, done.
"""

from __future__ import annotations

import calendar
import contextlib
import ctypes
import errno
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from typing import Any

from carbontui.client import inject
from carbontui.job import proc

SILENT_S = 6.0
ALONE_S = 60.0
"""Without any supervisor for this long a held child (not yet started, or unloaded) is started."""
FIRST_HOLD_S = 60.0
BACKOFF_MAX_S = 60.0
SHORT_LIFE_S = 30.0
LAST_WORD_S = 15.0
"""How long the supervisor may take to close the books after the child's end."""
_PR_SET_CHILD_SUBREAPER = 36


def log(text: str) -> None:
    """A line of carbontui.log (our stderr); a full disk must not hurt the job."""
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    with contextlib.suppress(OSError):
        os.write(2, f"{stamp} keeper: {text}\n".encode(errors="replace"))


def write_json(path: str, value: Any) -> None:
    """Atomically: a temporary file in the same directory, fsync, rename."""
    temporary = f"{path}.{os.getpid()}.tmp"
    with open(temporary, "w") as file:  # noqa: PTH123
        json.dump(value, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)  # noqa: PTH105


class Keeper:
    """One job's keeper; `run` returns when the job is over."""

    def __init__(self, spec: dict[str, Any], environment: dict[str, str]) -> None:
        self.spec = spec
        self.environment = environment
        self.dir: str = spec["job_dir"]
        self.marker = f"{self.dir}/resume.json"
        self.selector = selectors.DefaultSelector()
        self.child: subprocess.Popen[bytes] | None = None
        self.child_start: int | None = None
        self.starts = 0
        self.exit: dict[str, Any] | None = None
        self.unloaded = False
        self.hold_until: float | None = time.time() + FIRST_HOLD_S if spec.get("hold") else None
        self.supervisor: subprocess.Popen[bytes] | None = None
        self.link: socket.socket | None = None
        self.inbox = b""
        self.heard = time.monotonic()
        self.alive_since = 0.0
        self.alone_since = time.monotonic()
        self.backoff_s = 0.0
        self.respawn_at: float | None = 0.0
        self.stop_left: list[int] = []
        self.stop_gap_s = proc.STOP_GAP_S
        self.stop_next = 0.0
        self.stopped_by_person = False
        self.books_closed = False
        self.ended_at: float | None = None
        self.respawns = 0

    # --- the child ---

    def start_child(self) -> None:
        """Start the command (again, after an unload) in its own session, output to run.log."""
        resume = self.unloaded
        step = self.marker_facts().get("step")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.marker)  # noqa: PTH108
        environment = inject.environment(
            self.environment,
            hook_dir=f"{self.dir}/hook",
            socket=self.spec["socket"],
            job=self.spec["job"],
            marker=self.marker,
            resume=resume,
        )
        if resume and isinstance(step, int):
            environment["CARBONTUI_START_STEP"] = str(step)
        output = os.open(self.spec["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            self.child = subprocess.Popen(
                self.spec["argv"],
                cwd=self.spec["cwd"],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        except OSError as error:
            missing = error.errno in (errno.ENOENT, errno.ENOTDIR)
            with contextlib.suppress(OSError):
                os.write(output, f"carbontui: {self.spec['argv'][0]}: {error.strerror}\n".encode())
            self.finish(127 if missing else 126, None)
            return
        finally:
            os.close(output)
        self.child_start = proc.start_time(self.child.pid)
        self.starts += 1
        self.unloaded = False
        self.hold_until = None
        log(f"child {self.child.pid} started{' again' if resume else ''}")
        self.publish()

    def reap(self) -> None:
        """Collect every child of ours that ended; the subreaper flag brings orphans of the supervisor here too."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if self.child and pid == self.child.pid:
                self.child.returncode = os.waitstatus_to_exitcode(status)
                self.child_ended(self.child.returncode)
            elif self.supervisor and pid == self.supervisor.pid:
                self.supervisor.returncode = os.waitstatus_to_exitcode(status)
                self.supervisor_gone(f"ended with {self.supervisor.returncode}")

    def child_ended(self, code: int) -> None:
        self.child = None
        self.child_start = None
        marker = self.read_marker() if code == 0 and not self.stop_left else None
        if marker is not None and not self.spec.get("requeue"):
            self.unloaded = True
            self.hold_until = marker
            log("child unloaded")
            self.publish()
            return
        self.unloaded = marker is not None
        self.finish(code if code >= 0 else None, -code if code < 0 else None)

    def read_marker(self) -> float | None:
        """The not-before time (epoch seconds; 0 when none is given) of a resume marker; None without a marker."""
        facts = self.marker_facts()
        if not facts:
            return None
        try:
            moment = time.strptime(str(facts.get("not_before"))[:19], "%Y-%m-%dT%H:%M:%S")
        except ValueError:
            return 0.0
        return float(calendar.timegm(moment))

    def marker_facts(self) -> dict[str, Any]:
        """What the resume marker holds; empty without a readable one."""
        try:
            with open(self.marker) as file:  # noqa: PTH123
                facts = json.load(file)
        except (OSError, ValueError):
            return {}
        return facts if isinstance(facts, dict) else {}

    def finish(self, code: int | None, number: int | None) -> None:
        """The job's command is over for good: write the exit status once, atomically."""
        self.child = None
        self.exit = {
            "code": code,
            "signal": number,
            "at": time.time(),
            "stopped": self.stopped_by_person,
            "unloaded": self.unloaded,
        }
        self.stop_left = []
        self.ended_at = time.monotonic()
        log(f"child ended: {self.exit}")
        try:
            write_json(f"{self.dir}/exit.json", self.exit)
        except OSError as error:
            log(f"exit.json could not be written: {error}")
        self.publish()

    def stop(self, now: bool) -> None:
        """INT, then TERM, then KILL, to the child's whole process group; a held child never starts."""
        if self.exit:
            return
        self.stopped_by_person = True
        if self.child is None:
            self.finish(None, int(signal.SIGTERM))
            return
        self.stop_gap_s = proc.STOP_NOW_GAP_S if now else proc.STOP_GAP_S
        if not self.stop_left:
            self.stop_left = [int(s) for s in proc.STOP_ORDER]
            self.stop_next = time.monotonic()
        elif now:
            self.stop_next = min(self.stop_next, time.monotonic() + self.stop_gap_s)

    def advance_stop(self) -> None:
        if self.stop_left and self.child and time.monotonic() >= self.stop_next:
            number = self.stop_left.pop(0)
            log(f"signal {number} to the child's group {self.child.pid}")
            proc.signal_group(self.child.pid, number)
            if number != signal.SIGKILL:
                proc.signal_group(self.child.pid, signal.SIGCONT)  # a stopped process cannot obey
            self.stop_next = time.monotonic() + self.stop_gap_s

    # --- the supervisor ---

    def start_supervisor(self) -> None:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        try:
            self.supervisor = subprocess.Popen(
                [sys.executable, "-m", "carbontui.job.supervisor", self.dir, "--fd", str(theirs.fileno())],
                cwd=self.dir,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        except OSError as error:
            log(f"the supervisor could not be started: {error}")
            ours.close()
            self.back_off(0.0)
            return
        finally:
            theirs.close()
        self.link = ours
        self.inbox = b""
        self.heard = self.alive_since = time.monotonic()
        self.respawn_at = None
        self.selector.register(ours, selectors.EVENT_READ, self.hear)
        log(f"supervisor {self.supervisor.pid} started")
        self.publish()

    def hear(self) -> None:
        """Read what the supervisor says."""
        assert self.link is not None
        try:
            data = self.link.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.supervisor_gone("closed its end")
            return
        self.inbox = (self.inbox + data)[-65536:]
        *lines, self.inbox = self.inbox.split(b"\n")
        for line in lines:
            with contextlib.suppress(ValueError, TypeError, AttributeError):
                self.obey(json.loads(line))

    def obey(self, message: dict[str, Any]) -> None:
        self.heard = time.monotonic()
        self.alone_since = self.heard
        kind = message.get("t")
        if kind == "hold" and self.hold_until is not None and self.child is None and not self.exit:
            until = message.get("until")
            self.hold_until = float(until) if until is not None else 0.0
        elif kind == "stop":
            self.stop(bool(message.get("now")))
        elif kind == "done":
            self.books_closed = True

    def supervisor_gone(self, why: str) -> None:
        if self.link is not None:
            with contextlib.suppress(KeyError, ValueError):
                self.selector.unregister(self.link)
            self.link.close()
            self.link = None
        if self.supervisor is None:
            return
        if self.supervisor.poll() is None:
            # it closed its end but lives: it must not act beside its successor
            with contextlib.suppress(ProcessLookupError):
                self.supervisor.kill()
            self.supervisor.wait()
        log(f"supervisor {self.supervisor.pid} gone ({why})")
        self.supervisor = None
        self.alone_since = time.monotonic()
        if not self.books_closed:
            self.back_off(time.monotonic() - self.alive_since)

    def back_off(self, lived_s: float) -> None:
        self.backoff_s = (
            0.0 if lived_s >= SHORT_LIFE_S or not self.respawns else min(BACKOFF_MAX_S, max(0.5, self.backoff_s * 2))
        )
        self.respawns += 1
        if self.environment.get("CARBONTUI_NO_RESPAWN") == "1":
            self.respawn_at = None
            log("CARBONTUI_NO_RESPAWN=1: no new supervisor")
        else:
            self.respawn_at = time.monotonic() + self.backoff_s

    def publish(self) -> None:
        """Tell the supervisor and job.json how the child is."""
        if self.exit:
            state = "exited"
        elif self.child:
            state = "running"
        else:
            state = "unloaded" if self.unloaded else "waiting"
        facts: dict[str, Any] = {
            "t": "child",
            "state": state,
            "pid": self.child.pid if self.child else None,
            "start_time": self.child_start,
            "starts": self.starts,
            "hold_until": self.hold_until,
            "exit": self.exit,
            "keeper": os.getpid(),
        }
        if self.link is not None:
            with contextlib.suppress(OSError):
                self.link.send(json.dumps(facts).encode() + b"\n")
        job = {
            **self.spec["public"],
            "pids": {
                "keeper": [os.getpid(), proc.start_time(os.getpid())],
                "supervisor": [self.supervisor.pid, proc.start_time(self.supervisor.pid)] if self.supervisor else None,
                "child": [self.child.pid, self.child_start] if self.child else None,
            },
        }
        try:
            write_json(f"{self.dir}/job.json", job)
        except OSError as error:
            log(f"job.json could not be written: {error}")

    # --- the loop ---

    def tick(self) -> None:
        now = time.monotonic()
        if self.supervisor and now - self.heard > SILENT_S:
            with contextlib.suppress(ProcessLookupError):
                self.supervisor.kill()
            self.supervisor_gone("silent for 6 s, killed")
        if self.supervisor is None and self.respawn_at is not None and now >= self.respawn_at and not self.over():
            self.start_supervisor()
        if self.child is None and not self.exit:
            alone = self.supervisor is None and now - self.alone_since >= ALONE_S
            if self.hold_until is None or time.time() >= self.hold_until or alone:
                self.start_child()
        self.advance_stop()

    def over(self) -> bool:
        if self.ended_at is None:
            return False
        nobody = self.supervisor is None and self.respawn_at is None
        return self.books_closed or nobody or time.monotonic() - self.ended_at > LAST_WORD_S

    def wait_s(self) -> float:
        """Seconds until something is due; at most one second."""
        now = time.monotonic()
        due = [now + 1.0]
        if self.stop_left:
            due.append(self.stop_next)
        if self.supervisor is None and self.respawn_at is not None:
            due.append(self.respawn_at)
        if self.child is None and not self.exit and self.hold_until is not None:
            due.append(now + self.hold_until - time.time())
        return max(0.0, min(due) - now)

    def run(self) -> None:
        wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        # handlers, not SIG_IGN: an ignored signal would stay ignored in the training child
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGCHLD, signal.SIGTERM, signal.SIGUSR1):
            signal.signal(number, lambda *_: None)
        self.selector.register(wake_read, selectors.EVENT_READ, lambda: self.signalled(wake_read))
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        try:
            inject.build(f"{self.dir}/hook")
        except OSError as error:
            log(f"the hook directory could not be written, the script runs unsteered: {error}")
        self.tick()
        while not self.over():
            for key, _ in self.selector.select(self.wait_s()):
                key.data()
            self.reap()
            self.tick()
        log("leaving")
        self.publish()

    def signalled(self, wake_read: int) -> None:
        for number in os.read(wake_read, 256):
            if number == signal.SIGTERM:
                self.stop(now=False)
            elif number == signal.SIGUSR1:
                self.stop(now=True)


def main() -> None:
    spec = json.load(sys.stdin)
    environment = dict(os.environ)
    devnull = os.open(os.devnull, os.O_RDWR)
    os.dup2(devnull, 0)
    Keeper(spec, environment).run()


if __name__ == "__main__":
    main()
