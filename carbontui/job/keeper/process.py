"""The keeper: the small parent of training child and supervisor, from `run` to the job's end.

It holds argv, cwd and environment in memory, starts and restarts the child, writes its exit status, and replaces a
supervisor that died (EOF on the socket pair) or fell silent (6 s without a heartbeat; then it is killed first). It
decides nothing else. Standard library only, everything imported at its start, so that an upgrade of the package on
disk cannot hurt a running job.
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
import subprocess
import sys
import time
from typing import Any

from carbontui import isolation, proc
from carbontui.client import inject
from carbontui.job.keeper.messages import ChildFacts, Done, Freeze, Hold, Order, Stop, Thaw
from carbontui.job.keeper.sigstop import Freezer
from carbontui.job.keeper.supervisor_handle import SupervisorHandle

ALONE_S = 60.0
"""Without a supervisor's word for this long a held child (not yet started, or unloaded) is started."""
FIRST_HOLD_S = 60.0
LAST_WORD_S = 15.0
"""How long the supervisor may take to close the books after the child's end."""
FAULT_PAUSE_S = 1.0
FIRST_COUNT = f"{isolation.ROOT}/carbontui/power/first_count.py"
EXIT_ROOM_B = 512
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

    def __init__(self, spec: dict[str, Any], environment: dict[str, str], surroundings: dict[str, Any]) -> None:
        self.spec = spec
        self.environment = environment
        """The command's: ours is another."""
        self.surroundings = surroundings
        self.dir: str = spec["job_dir"]
        self.marker = f"{self.dir}/resume.json"
        self.selector = selectors.DefaultSelector()
        self.child: subprocess.Popen[bytes] | None = None
        self.child_start: int | None = None
        self.starts = 0
        self.reserve()
        self.exit: dict[str, Any] | None = None
        self.unloaded = False
        self.hold_until: float | None = time.time() + FIRST_HOLD_S if spec.get("hold") else None
        self.word_at = time.monotonic()
        """When a supervisor last said how long a held child waits: the hold's lease."""
        self.supervisor = SupervisorHandle(
            self.dir, dict(os.environ), self.selector, log, obey=self.obey, changed=self.publish
        )
        self.freezer = Freezer(log, self.publish)
        self.stop_left: list[int] = []
        self.stop_gap_s = proc.STOP_GAP_S
        self.stop_next = 0.0
        self.leader_code: int | None = None
        """Exit code of a child that ended while others of its process group have yet to obey the stop."""
        self.stopped_by_person = False
        self.books_closed = False
        self.ended_at: float | None = None

    # --- the child ---

    def reserve(self) -> None:
        """Room for the exit status while there is some: it is written even when the disk is full by then."""
        with contextlib.suppress(OSError), open(f"{self.dir}/exit.room", "wb") as room:  # noqa: PTH123
            room.write(b" " * EXIT_ROOM_B)
            os.fsync(room.fileno())

    def write_exit(self) -> None:
        """Over the room kept for it (JSON does not mind the spaces that are left), then renamed."""
        data = json.dumps(self.exit).encode()
        room = os.open(f"{self.dir}/exit.room", os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            os.pwrite(room, data.ljust(EXIT_ROOM_B), 0)
            os.fsync(room)
        finally:
            os.close(room)
        os.replace(f"{self.dir}/exit.room", f"{self.dir}/exit.json")  # noqa: PTH105

    def start_child(self) -> None:
        """Start the command (again, after an unload) in its own session, output to run.log."""
        resume = self.unloaded
        step = self.marker_facts().get("step")
        with contextlib.suppress(OSError):
            os.unlink(self.marker)  # noqa: PTH108
        environment = inject.environment(
            self.environment,
            hook_dir=f"{self.dir}/hook",
            socket=self.spec["socket"],
            job=self.spec["job"],
            marker=self.marker,
            log=self.spec["log"],
            resume=resume,
        )
        if resume and isinstance(step, int):
            environment["CARBONTUI_START_STEP"] = str(step)
        if self.starts == 0:
            self.count_first()
        output = self.open_log()
        try:
            self.child = subprocess.Popen(
                self.spec["argv"],
                cwd=self.spec["cwd"],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                preexec_fn=lambda: isolation.give(self.surroundings),
            )
        except OSError as error:
            missing = error.errno in (errno.ENOENT, errno.ENOTDIR)
            # the folder may have gone since the first start
            what = self.spec["argv"][0] if os.path.isdir(self.spec["cwd"]) else f"the folder {self.spec['cwd']}"  # noqa: PTH112
            with contextlib.suppress(OSError):
                os.write(output, f"carbontui: {what}: {error.strerror}\n".encode(errors="replace"))
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

    def count_first(self) -> None:
        """Have the boards' energy counters read now: the agent comes a second later. Nobody waits for it."""
        with contextlib.suppress(OSError):
            subprocess.Popen(
                [sys.executable, "-I", "-S", FIRST_COUNT, f"{self.dir}/first-count.json"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )

    def open_log(self) -> int:
        """run.log; nowhere when it cannot be opened (its folder is gone, no inode is left): training matters more."""
        try:
            return os.open(self.spec["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        except OSError as error:
            log(f"run.log cannot be opened, the output of this start is lost: {error}")
            return os.open(os.devnull, os.O_WRONLY)

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
            elif self.supervisor.process and pid == self.supervisor.process.pid:
                code = self.supervisor.process.returncode = os.waitstatus_to_exitcode(status)
                self.supervisor.gone(f"ended with {code}", respawn=not self.books_closed)

    def child_ended(self, code: int) -> None:
        self.freezer.let_go("the child has ended")
        if self.child and self.stop_left and proc.group_alive(self.child.pid):
            # a shell goes first; what it ran in the background ignores INT and would train on, stopped or not
            self.leader_code = code
            return
        self.child = None
        self.child_start = None
        marker = self.read_marker() if code == 0 and not self.stopped_by_person else None
        if marker is not None and not self.spec.get("requeue"):
            self.unloaded = True
            self.hold_until, self.word_at = marker, time.monotonic()
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
        whole, dot, rest = str(facts.get("not_before")).removesuffix("Z").partition(".")
        try:
            moment = time.strptime(whole, "%Y-%m-%dT%H:%M:%S")
            return calendar.timegm(moment) + float(f"0{dot}{rest}")
        except ValueError:
            return 0.0

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
            self.write_exit()
        except OSError as error:
            log(f"exit.json could not be written: {error}")
        self.publish()

    def stop(self, now: bool) -> None:
        """INT, then TERM, then KILL, to the child's whole process group; a held child never starts."""
        if self.exit:
            return
        self.stopped_by_person = True
        if self.child is None:
            self.unloaded = False  # nobody is to start it again
            self.finish(None, int(signal.SIGTERM))
            return
        self.stop_gap_s = proc.STOP_NOW_GAP_S if now else proc.STOP_GAP_S
        self.freezer.let_go("the job is to end")
        if not self.stop_left:
            self.stop_left = [int(s) for s in proc.STOP_ORDER]
            self.stop_next = time.monotonic()
            self.publish()  # a training that is held must come back to its loop to end in its own way
        elif now:
            self.stop_next = min(self.stop_next, time.monotonic() + self.stop_gap_s)

    def advance_stop(self) -> None:
        if self.stop_left and self.child and time.monotonic() >= self.stop_next:
            number = self.stop_left.pop(0)
            log(f"signal {number} to the child's group {self.child.pid}")
            # torchrun's ranks have sessions of their own: at the last step nobody below the child is forgotten
            below = proc.descendants(self.child.pid) if number == signal.SIGKILL else []
            proc.signal_group(self.child.pid, number)
            for pid in below:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, number)
            if number != signal.SIGKILL:
                proc.signal_group(self.child.pid, signal.SIGCONT)  # a stopped process cannot obey
            self.stop_next = time.monotonic() + self.stop_gap_s

    # --- the supervisor's word ---

    def obey(self, order: Order) -> None:
        if isinstance(order, Hold) and self.hold_until is not None and self.child is None and not self.exit:
            self.hold_until = 0.0 if order.until is None else order.until
            self.word_at = time.monotonic()
        elif isinstance(order, Freeze) and self.child is not None and not self.stop_left:
            self.freezer.hold(self.child.pid, order.lease_s, time.monotonic())
        elif isinstance(order, Thaw):
            self.freezer.let_go("the supervisor said so")
        elif isinstance(order, Stop):
            self.stop(order.now)
        elif isinstance(order, Done):
            self.books_closed = True

    def publish(self) -> None:
        """Tell the supervisor and job.json how the child is."""
        if self.exit:
            state = "exited"
        elif self.child:
            state = "running"
        else:
            state = "unloaded" if self.unloaded else "waiting"
        facts = ChildFacts(
            state=state,
            pid=self.child.pid if self.child else None,
            start_time=self.child_start,
            starts=self.starts,
            hold_until=self.hold_until,
            stopping=self.stopped_by_person,
            frozen=self.freezer.frozen,
            freeze_why=self.freezer.why,
            exit=self.exit,
            keeper=os.getpid(),
        )
        self.supervisor.say(facts)
        serving = self.supervisor.pid
        job = {
            **self.spec["public"],
            "pids": {
                "keeper": [os.getpid(), proc.start_time(os.getpid())],
                "supervisor": [serving, proc.start_time(serving)] if serving else None,
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
        self.supervisor.tick(now, wanted=not self.over())
        self.freezer.tick(now)
        if self.child is None and not self.exit:
            alone = now - self.word_at >= ALONE_S
            if self.hold_until is None or time.time() >= self.hold_until or alone:
                self.start_child()
        self.advance_stop()
        if self.leader_code is not None and self.child:
            given_up = not self.stop_left and now >= self.stop_next
            if given_up or not proc.group_alive(self.child.pid):
                self.stop_left = []
                self.child_ended(self.leader_code)

    def over(self) -> bool:
        if self.ended_at is None:
            return False
        return self.books_closed or self.supervisor.over or time.monotonic() - self.ended_at > LAST_WORD_S

    def wait_s(self) -> float:
        """Seconds until something is due; at most one second."""
        now = time.monotonic()
        due = [now + 1.0]
        if self.stop_left:
            due.append(self.stop_next)
        due += [at for at in (self.supervisor.due, self.freezer.due()) if at is not None]
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
        while not self.over():
            try:
                self.tick()
                for key, _ in self.selector.select(self.wait_s()):
                    key.data()
                self.reap()
            except Exception as error:
                # whatever went wrong: a keeper that leaves takes the exit status and every restart with it
                log(f"a fault of the keeper, which goes on: {type(error).__name__}: {error}")
                time.sleep(FAULT_PAUSE_S)
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
    environment = spec.pop("environment", None) or dict(os.environ)
    surroundings = spec.pop("surroundings", None) or isolation.surroundings()
    isolation.relax()
    devnull = os.open(os.devnull, os.O_RDWR)
    os.dup2(devnull, 0)
    Keeper(spec, environment, surroundings).run()
