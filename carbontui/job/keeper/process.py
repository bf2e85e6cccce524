"""The keeper: the small parent of training child and supervisor, from `run` to the job's end.

It holds argv, cwd and environment in memory, starts and restarts the child, writes its exit status, and replaces a
supervisor that died (EOF on the socket pair) or hangs (6 s without a heartbeat; then killed first). It decides nothing
else. Standard library only, all imported at its start, so that an upgrade on disk cannot affect a running job.
"""

import contextlib
import os
import selectors
import signal
import subprocess
import time
from functools import partial
from typing import Any

from carbontui.client import inject
from carbontui.job.keeper import command, job_files, messages, orders, permit, signals
from carbontui.job.keeper import resume as resuming
from carbontui.job.keeper.command import UNKNOWN, Adopted, exit_status
from carbontui.job.keeper.job_files import JobFile, log
from carbontui.job.keeper.resume import ESTIMATE_OVER, TRY_MOST_S, TRY_OVER, DryRun, over
from carbontui.job.keeper.signals import Freezer
from carbontui.job.keeper.stop import StopOrder, StopSocket
from carbontui.job.keeper.supervisor_handle import TURNS, OwnSleep, SupervisorHandle
from carbontui.system import proc

FIRST_HOLD_S = 60.0
LAST_WORD_S = 15.0
"""How long the supervisor may take to close the accounts after the child's end."""
FAULT_PAUSE_S = 1.0


class Keeper:
    """One job's keeper; `run` returns when the job is over."""

    def __init__(self, spec: dict[str, Any], environment: dict[str, str], launch_env: dict[str, Any]) -> None:
        self.spec = spec
        self.environment = environment
        """The command's environment, which differs from ours."""
        self.launch_env = launch_env
        self.dir: str = spec["job_dir"]
        self.marker = f"{self.dir}/resume.json"
        self.resumed = f"{self.dir}/resumed.json"
        """The marker of the last unload, kept for a restart."""
        self.selector = selectors.DefaultSelector()
        self.child: subprocess.Popen[bytes] | Adopted | command.BegunChild | None = None
        self.child_start: int | None = None
        job_files.reserve_exit(self.dir)
        self.job_file = JobFile(spec, log)
        self.exit: dict[str, Any] | None = None
        again = spec.get("again") or {}  # left by the previous keeper: state and starts
        self.starts = int(again.get("starts") or 0)
        self.permit = permit.PermitHandle(self.dir, self.selector, log, self.publish)
        self.unloaded = again.get("state") == "unloaded" or (self.starts > 0 and not self.permit.may_start)
        self.trial = DryRun(trying=bool(again.get("trying") if again else spec.get("try")))
        hold = bool(spec.get("hold")) and not self.trial.trying
        self.wait = resuming.StartHold(resuming.first_hold(self.marker, again.get("state"), FIRST_HOLD_S, hold=hold))
        self.started_mono = 0.0
        self.rest = resuming.Rest()
        self.supervisor = SupervisorHandle(self.dir, self.selector, log, take=self.take_order, changed=self.publish)
        self.stop_socket = StopSocket(spec["door"], self.selector, log, apply_order=self.apply_order, facts=self.facts)
        self.freezer = Freezer(log, self.publish)
        self.relay = signals.SignalRelay(self.deliver)
        self.stopping = StopOrder(log, f"{self.marker}.end")
        self.signals: set[int] = set()
        """External signals for the command: one that exits after such a signal has saved and may continue elsewhere."""
        self.leader_code: int | None = None
        """Exit code of a child that ended while others of its process group have not yet obeyed the stop."""
        self.stopped_by_person = False
        self.ended_by = ""  # the sender of the signal that ended a command that was not running
        self.no_resume_reason = ""
        """Why the command is not resumed after its next exit, even if it leaves a marker; '' if it may be."""
        self.killed_before = command.out_of_memory()[0]
        """Processes of our cgroup that the kernel had killed for their memory, before the command was started."""
        self.accounts_closed = False
        self.ended_at: float | None = None
        self.own_sleep = OwnSleep(time.monotonic())
        self.ordered = orders.size(self.dir)
        """Up to where orders.log has been looked through for a stop."""

    # --- the child ---

    def start_child(self) -> None:
        """Start the command (again, after an unload) in its own session, output to run.log."""
        with contextlib.suppress(OSError):
            os.replace(self.marker, self.resumed)  # noqa: PTH105
        # also for a training lost while it ran: the checkpoint of its last unload still exists
        again = not self.trial.anew and (self.unloaded or (self.started_mono == 0.0 and self.starts > 0))
        last = job_files.read_json(self.resumed) if again else {}
        resume = again and (self.unloaded or bool(last))
        left, trying = last if resume else None, self.trial.trying
        argv, environment = resuming.start_of(self.spec, self.environment, self.marker, left, trying=trying)
        if self.starts == 0:
            command.count_first(self.dir)
        try:
            child = command.start(self.spec, argv, environment, self.launch_env, log, again=self.starts > 0)
        except command.CannotStart as error:
            self.finish(error.code, None)
            return
        self.killed_before = command.out_of_memory()[0]
        self.started(child, resumed=resume)

    def started(self, child: subprocess.Popen[bytes] | command.BegunChild, *, resumed: bool) -> None:
        """The command runs, as our child."""
        self.child, self.child_start = child, proc.start_time(child.pid)
        self.started_mono = time.monotonic()
        self.starts += 1
        self.unloaded = False
        self.wait.begin(None)
        self.trial.started(resumed=resumed)
        log(f"child {child.pid} started{' again' if resumed else ''}")
        self.publish()

    def take_up(self, pid: int, start: int) -> None:
        """Take up the training of a keeper that is gone, as it is."""
        self.child, self.child_start = Adopted(pid, start, self.dir, self.selector), start
        self.started_mono = time.monotonic() - proc.age_s(start)
        log(f"child {pid} taken up")

    def reap(self) -> None:
        """Reap every child of ours that ended; as a subreaper we also get orphans of the supervisor."""
        if isinstance(self.child, Adopted) and self.child.ended():
            self.child_ended(self.child.returncode or 0)
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
            for ours in (self.supervisor, self.permit.helper):
                if ours.process and pid == ours.process.pid:
                    code = ours.process.returncode = os.waitstatus_to_exitcode(status)
                    ours.gone(f"ended with {code}", respawn=not self.accounts_closed)

    def child_ended(self, code: int) -> None:
        self.freezer.let_go("the child has ended")
        if self.child and self.stopping.under_way and proc.group_alive(self.child.pid):
            # a shell exits first; its background processes ignore INT and would keep training despite the stop
            self.leader_code = code
            return
        self.child = self.child_start = None
        if not self.permit.may_run and not self.stopped_by_person:
            self.wait_again(time.time(), permit.LEASE_OVER, unloaded=True)
            return
        former = partial(resuming.earlier, self.marker, self.resumed), partial(resuming.forget, self.marker)
        if not self.stopped_by_person and (again := self.trial.begins_again(code, *former)):
            self.wait_again(None, again, unloaded=not self.trial.anew)
            return
        marker = resuming.not_before(self.marker) if code in (0, UNKNOWN) and not self.stopped_by_person else None
        if marker is None and not self.stopped_by_person:
            self.no_resume_reason = ""  # it has ended by itself
        elif self.no_resume_reason:
            marker = None  # it has exited for good, with its checkpoint
        if marker is not None and (self.trial.kept or not self.spec.get("requeue")):
            self.unloaded = True
            patience_s = 0.0 if self.supervisor.over else FIRST_HOLD_S
            self.wait.begin(resuming.at(marker, patience_s))
            self.stopping.end()
            asked = self.trial.asked or self.permit.away
            rests = "" if asked else self.rest.after(self.started_mono, time.monotonic())
            self.trial.left()
            log(rests or "child unloaded")
            self.publish()
            return
        if not self.stopped_by_person and self.trial.waits_again():
            self.wait_again(time.time() + FIRST_HOLD_S, over(TRY_OVER, code))
            return
        if self.stopped_by_person and self.spec.get("estimate"):
            command.say(self.spec, over(ESTIMATE_OVER, code))
        self.unloaded = marker is not None
        self.finish(*exit_status(code))

    def wait_again(self, until: float | None, why: str, *, unloaded: bool = False) -> None:
        """Prepare to start the command again, as for the first time or after an unload; its output says why."""
        self.stopping.end()
        self.unloaded = unloaded
        self.wait.begin(until)
        log(why)
        command.say(self.spec, why)
        self.publish()

    def end_start(self) -> None:
        """End a try, or a start that has not resumed from its checkpoint."""
        if self.child is not None and not self.stopped_by_person and self.trial.ends():
            self.freezer.let_go("this start is to end")
            if self.stopping.begin(time.monotonic(), hurry=False, quiet=True):
                self.publish()

    def finish(self, code: int | None, number: int | None) -> None:
        """The job's command has ended for good: write the exit status once, atomically."""
        self.child = None
        some: dict[str, Any] = {"budget": self.no_resume_reason, "ended_by": self.ended_by}
        if (code, number) in command.KILLED:
            kills, limit_b = command.out_of_memory()
            some |= {"out_of_memory": kills > self.killed_before, "memory_limit_b": limit_b}
        interrupted = self.stopped_by_person and bool(self.no_resume_reason)
        some |= {"signals": sorted(self.signals), "interrupted": interrupted}
        stopped = self.stopped_by_person or bool(self.no_resume_reason)
        self.exit = job_files.exit_record(code, number, stopped=stopped, unloaded=self.unloaded)
        self.exit |= {name: value for name, value in some.items() if value} | (self.permit.ended or {})
        self.stopping.end()
        self.ended_at = time.monotonic()
        log(f"child ended: {self.exit}")
        try:
            job_files.write_exit(self.dir, self.exit)
        except OSError as error:
            log(f"exit.json could not be written: {error}")
        with contextlib.suppress(OSError):
            os.unlink(f"{self.dir}/environment.json")  # noqa: PTH108 - nothing is to be started again
        resuming.clear(self.marker, self.spec["job"], self.exit)
        self.publish()

    def stop(self, now: bool, why: str = "") -> None:
        """INT, then TERM, then KILL, to the child's whole process group; a held child never starts."""
        if self.exit or self.permit.away == "gone":
            return
        self.stopped_by_person, self.no_resume_reason = True, why
        if self.child is None:
            self.unloaded = False  # nobody is to start it again
            self.finish(None, int(signal.SIGTERM))
            return
        self.freezer.let_go("the job is to end")
        if self.stopping.begin(time.monotonic(), hurry=now, quiet=bool(self.spec.get("estimate"))):
            self.publish()  # a paused training must return to its loop to end in its own way

    # --- orders of the supervisor ---

    def take_order(self, line: bytes) -> None:
        """One line of the supervisor; one that this version does not understand is left."""
        if (order := messages.decode_order(line)) is not None:
            self.apply_order(order)

    def apply_order(self, order: messages.Order) -> None:
        if isinstance(order, messages.Hold) and self.wait.until is not None and self.child is None and not self.exit:
            self.wait.begin(0.0 if order.until is None else order.until)
        elif isinstance(order, messages.Freeze) and self.child is not None and not self.stopping.under_way:
            self.freezer.hold(self.child.pid, order.lease_s, time.monotonic())
        elif isinstance(order, messages.Thaw):
            self.freezer.let_go("the supervisor said so")
        elif isinstance(order, messages.Stop):
            self.stop(order.now, order.why)
        elif isinstance(order, messages.Leave) and not self.starts and not self.exit and self.spec.get("requeue"):
            self.unloaded = resuming.left(self.marker, order.until)  # else it waits here
            if self.unloaded:
                self.finish(0, None)
        elif isinstance(order, messages.Last):
            self.no_resume_reason = order.why
        elif isinstance(order, messages.Retry | messages.FallBack):
            self.trial.apply_order(order)
            self.publish()
        elif isinstance(order, messages.EndStart):
            self.end_start()
        elif isinstance(order, messages.HandOver) and not (self.ready and order.starts in (None, self.starts)):
            log("not handed over: it has been started again since it was copied")
        elif isinstance(order, messages.OfPlaces):
            self.permit.apply_order(order)
        elif isinstance(order, messages.RelayedSignal):
            self.relay.relayed(order.number, order.pid, time.monotonic())
        elif isinstance(order, messages.AccountsClosed):
            self.accounts_closed = True

    @property
    def away(self) -> bool:
        """It is on another machine, or on its way there: nothing of ours writes to its files here."""
        where = self.permit.away
        return where == "gone" or (where == "leaving" and self.child is None and not self.exit)

    @property
    def ready(self) -> bool:
        """For that nothing of ours runs."""
        return self.away and self.supervisor.process is None

    def facts(self) -> messages.ChildFacts:
        """The state of the child."""
        return messages.ChildFacts(
            state="exited" if self.exit else "running" if self.child else "unloaded" if self.unloaded else "waiting",
            pid=self.child.pid if self.child else None,
            start_time=self.child_start,
            starts=self.starts,
            stopping=self.stopped_by_person,
            frozen=self.freezer.frozen,
            freeze_why=self.freezer.why,
            exit=self.exit,
            keeper=os.getpid(),
            ready=self.ready,
            **self.trial.facts(),
            **self.permit.facts(),
        )

    def publish(self) -> None:
        """Report the state of the child to the supervisor and job.json."""
        facts = self.facts()
        self.supervisor.say(facts)
        self.job_file.write(facts, self.supervisor.pid)

    # --- the loop ---

    def tick(self) -> None:
        now = time.monotonic()
        self.move(now)
        self.supervisor.tick(now, wanted=not self.away and not self.over())
        self.freezer.tick(now)
        self.stop_socket.tick(now)
        self.job_file.rewrite(now)
        self.receive_signals()
        self.relay.tick(now)
        due = self.permit.may_start and self.wait.over(now) and now >= self.rest.until
        if due and self.child is None and not self.exit:
            self.start_child()
        if self.child and self.trial.trying and now - self.started_mono > TRY_MOST_S:
            self.end_start()
        if self.child:
            self.stopping.advance(self.child.pid, now)
        if self.leader_code is not None and self.child:
            given_up = not self.stopping.under_way and now >= self.stopping.next
            if given_up or not proc.group_alive(self.child.pid):
                self.stopping.end()
                self.child_ended(self.leader_code)

    def move(self, now: float) -> None:
        """See that the command runs only where it may, and that the supervisor of an unloaded one leaves for a move."""
        self.permit.tick(now)
        if self.away and not self.exit:
            self.supervisor.leave()
        if self.child is not None and not self.permit.may_run:
            self.permit.fence(self.child.pid)
        elif self.child is None and self.permit.ended and not self.exit:
            self.finish(None, None)

    def over(self) -> bool:
        leaves = self.permit.ended == {}
        if leaves or self.ended_at is None:
            return leaves
        return self.accounts_closed or self.supervisor.over or time.monotonic() - self.ended_at > LAST_WORD_S

    def wait_s(self) -> float:
        """Seconds until something is due; at most one and a half: the beat of a supervisor that lives comes first."""
        now = time.monotonic()
        due = [now + 1.5]
        due += [self.stopping.next] if self.stopping.under_way else []
        supervisor = None if self.away else self.supervisor.due
        due += [at for at in (supervisor, self.freezer.due(), self.relay.due()) if at is not None]
        if self.child is None and not self.exit and self.wait.until is not None and self.permit.may_start:
            due.append(max(self.rest.until, self.wait.mono))
        return max(0.0, min(due) - now)

    def run(self, begun: int | None = None) -> None:
        """Until the job is over. `begun`: the command's pid, if it runs already, as our child."""
        wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self.selector.register(wake_read, selectors.EVENT_READ, lambda: os.read(wake_read, 256))
        waiting = signals.block()
        if waiting is not None:
            self.selector.register(waiting, selectors.EVENT_READ, self.receive_signals)
        signals.take_orphans()
        if child := (self.spec.get("again") or {}).get("child"):
            self.take_up(*child)
        elif begun:
            command.count_first(self.dir)
            command.close_pipes(self.spec)
            self.started(command.BegunChild(begun), resumed=False)
            self.reap()
        else:
            try:
                inject.link(self.dir)
            except OSError as error:
                log(f"the hook directory could not be written, the script runs unsteered: {error}")
        while not self.over():
            try:
                self.tick()
                self.receive(self.wait_s())
                if slept_s := self.own_sleep.since_last(time.monotonic()):
                    self.wake_up(slept_s)
                self.reap()
            except Exception as error:
                # survive any exception: without a keeper there is no exit status and no restart
                log(f"error in the keeper, which continues: {type(error).__name__}: {error}")
                time.sleep(FAULT_PAUSE_S)
        log("leaving")
        self.publish()
        self.stop_socket.close()

    def receive(self, wait_s: float) -> None:
        """Take what comes within this time."""
        for key, _ in self.selector.select(wait_s):
            key.data()

    def wake_up(self, slept_s: float) -> None:
        """After a sleep of our own: clocks begin anew, and what was said meanwhile is heard before we judge."""
        self.supervisor.reset_deadline()
        self.permit.helper.reset_deadline()
        self.freezer.extend(slept_s)
        self.stopping.next += slept_s
        self.wait.extend(slept_s)
        self.ended_at = self.ended_at and self.ended_at + slept_s
        for _ in range(TURNS):
            self.receive(0.0)
        given, self.ordered = orders.since(self.dir, self.ordered)
        for order in (one for one in given if one.verb == "stop"):  # the supervisor that took it may be gone
            self.stop(bool(order.args.get("now")))

    def receive_signals(self) -> None:
        """External signals are meant for the command, once each; a stop order comes over a socket."""
        for found in signals.taken():
            log(f"signal {found.number} from {found.sender} ({found.pid})")
            if found.sender in signals.TO_ALL and found.number in signals.PASSED_ON:
                self.signals.add(found.number)
            self.relay.caught(found, time.monotonic())
            if self.child is None and found.sender in signals.TO_ALL:
                self.deliver(found)

    def deliver(self, caught: signals.Caught) -> None:
        """Pass a signal on; if the command is held or unloaded, a terminating signal ends the job."""
        self.signals.add(caught.number)
        if self.child is not None:
            log(f"signal {caught.number} passed on to the child's group {self.child.pid}")
            self.freezer.let_go("a signal has come for it")
            proc.signal_group(self.child.pid, caught.number)
        elif caught.number in (signal.SIGINT, signal.SIGTERM):
            self.ended_by = caught.sender
            self.stop(now=False)
