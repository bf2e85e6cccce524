"""A job's move to another machine: what is copied, by Debian's rsync over the user's ssh, and what its keeper is asked.

Until the hand-over, which is one durable write of the keeper here, any failure leaves the job where it is: the keeper
holds it back only while this process says so every few seconds.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, TypeVar

from carbontui import protocol, units
from carbontui.client import version
from carbontui.extensions.moves import lease, receiving
from carbontui.extensions.moves.receiving import CheckAnswer, CheckAsk, StageAsk, Staged
from carbontui.job.files import launch_file, places, store
from carbontui.job.keeper.messages import ChildFacts, HandOver, MoveTo
from carbontui.job.life import launch, stopping
from carbontui.job.terms import records, spec
from carbontui.power.agent.view import SAYS
from carbontui.slurm import commands
from carbontui.system import proc, ssh
from carbontui.text import figures

T = TypeVar("T")
BEAT_S = 3.0
REACH_S = 45.0
UNLOAD_S = 600.0
TRAINS_S = 600.0
STAGE_S = 600.0
"""Bounds of the phases: for the keeper to reach the machine, for the checkpoint, for the first step there, and for
what has arrived to be read again."""
COPY_S = 2 * 86400.0
"""Of one copy, which rsync itself gives up after a minute in which nothing comes."""
OURS = ".carbontui"
LEFT_HERE = ("hook", "keeper.*", "*.lock", "*.part", "exit.room", ".*")
"""Of the job's directory: what each machine makes for itself."""
GONE_WRONG = {11: "its disk is full or refuses a file", 12: "the line was lost", 30: "the line hangs", 255: "ssh"}
"""Exit codes of rsync (rsync(1), EXIT VALUES), and of the ssh below it."""


class NotMoved(RuntimeError):
    """The job stays where it is, or is not heard of; one line."""


class Cargo(NamedTuple):
    """What of the working directory goes along: name, bytes and mtime (ns) of each file."""

    files: list[tuple[str, int, int]]
    by_git: bool
    leads_out: list[str]
    """Links to what is not below it: copied as links."""

    @property
    def bytes(self) -> int:
        return sum(size for _, size, _ in self.files)


def cargo(cwd: str) -> Cargo:
    """Every file below `cwd` that git does not ignore; without git, every file. Checkpoints of unloads go their own
    way."""
    named, files, leads_out, real = launch.not_ignored(cwd), [], [], os.path.realpath(cwd)
    for name in dict.fromkeys(_below(cwd) if named is None else named):
        with contextlib.suppress(OSError):
            if OURS not in Path(name).parts:
                info = os.lstat(f"{cwd}/{name}")
                files.append((name, info.st_size, info.st_mtime_ns))
                if stat.S_ISLNK(info.st_mode) and not f"{os.path.realpath(f'{cwd}/{name}')}/".startswith(f"{real}/"):
                    leads_out.append(name)
    return Cargo(files, named is not None, leads_out)


def _below(cwd: str) -> Iterator[str]:
    for folder, folders, names in os.walk(cwd):
        links = [name for name in folders if os.path.islink(f"{folder}/{name}")]  # noqa: PTH114
        for name in names + links:
            yield os.path.relpath(f"{folder}/{name}", cwd)


class Transfer:
    """One move of `job` to `host`. Use it as a context manager: unless it has been handed over, leaving it lets the job
    go on here."""

    def __init__(
        self, job: store.Job, host: ssh.SshHost, lease_s: float | None, ask: Callable[[Any, type[Any]], Any]
    ) -> None:
        """`lease_s`: for how long it is that machine's without a word from here; None: for good. `ask`: the answer of
        its supervisor, of this kind."""
        self.job, self.host, self.lease_s, self._ask = job, host, lease_s, ask
        try:
            self.options = spec.load(job.dir)
        except (OSError, ValueError) as error:
            raise NotMoved(f"job {job.id}: {error}") from None
        self.known = places.read(job.dir)
        self.cargo = Cargo([], by_git=False, leads_out=[])
        self.there = CheckAnswer("", "", "", 0, 0)
        self.status = job.status()
        self._order = MoveTo()
        self._left = threading.Event()
        self._beats = threading.Thread(target=self._beat, daemon=True)
        self._began_s = self._start_s = 0.0
        self._sent_b = self._starts = 0
        self._joules: float | None = None

    def __enter__(self) -> Transfer:
        return self

    def __exit__(self, *_: object) -> None:
        self._left.set()
        if self._order.to and not places.read(self.job.dir).moved_to:
            stopping.facts(self.job, MoveTo())

    # --- before anything changes ---

    def check(self) -> None:
        """Whether it can be moved, and what will be copied. Raises NotMoved."""
        if why := self.why_not():
            raise NotMoved(f"job {self.job.id} cannot be moved: {why}")
        self.cargo = cargo(self.options.cwd)
        path = self.environment().get("PATH", "")
        files = tuple(self.cargo.files)
        asked = CheckAsk(version.full(), self.options.cwd, str(Path.home()), self.options.argv[0], path, files)
        self.there = self.answered("check", asked, CheckAnswer, ssh.ANSWER_S * 3, ask=True)
        sent = {name for name, *_ in files}
        if strange := [name for name, _ in self.there.changed if name not in sent]:
            self.refuse(f"it names a file that it was not asked about: {units.printable(strange[0])[:80]}")
        changed = [
            name
            for name, known in self.there.changed
            if known is None or known != receiving.digest(self.options.cwd, name)
        ]
        if changed:
            more = f" and {len(changed) - 3} more" if len(changed) > 3 else ""
            names = units.printable(", ".join(changed[:3]))
            where = units.printable(self.there.cwd)[:200]
            self.refuse(f"{names}{more} in {where} there would be overwritten, and was changed there")
        needs = self.there.copy_b + sum(_size(path) for path in self.checkpoints()) * 2 + _size(str(self.job.dir))
        if self.there.free_b < needs + launch.ROOM_B:
            free = figures.size(self.there.free_b)
            self.refuse(f"{free} are free there, {figures.size(needs + launch.ROOM_B)} are needed")

    def environment(self) -> Mapping[str, str]:
        """Of the command."""
        kept = launch_file.load(self.job.dir)
        assert kept is not None
        environment: dict[str, str] = kept["environment"]
        return environment

    def why_not(self) -> str:
        """Why this job moves nowhere; '' if it can."""
        job, options = self.job, self.options
        if self.known.moved_to:
            return f"it is on {self.known.moved_to}: carbontui move {job.id} user@host, there"
        if job.exit is not None or not job.live:
            return f"it is over or lost ({job.status().state})"
        if options.nodes is not None:
            return "it runs on several nodes"
        if options.scheduler or options.requeue or commands.in_step(os.environ):
            return "its scheduler decides where it runs"
        if options.reads_once:
            return "it reads a pipe, which a start elsewhere could not read"
        if options.replay is not None:
            return "it replays a recorded grid"
        if not launch_file.kept(job.dir):
            return "no environment of it is kept (--no-spool, or no local disk)"
        self.status = self._ask(protocol.StatusAsk(1), protocol.StatusAnswer).status
        facts = stopping.facts(job)
        if facts is None:
            return "its monitor process does not answer"
        if facts.trying or facts.reached:
            return "it runs as a try, before its start" if facts.trying else "it is being moved already"
        if facts.state == "running":
            able = self._ask(protocol.AbilitiesAsk(1), protocol.AbilitiesAnswer)
            self._start_s = able.start_s
            for row in able.rows:
                if (row.device, row.aspect) == ("training", "unload"):
                    cannot = row.support != SAYS["yes"]
                    return f"it cannot unload: {row.why}" if cannot else self._no_fit(able.unload_s)
            return "it has shown no training step yet"
        return ""

    def _no_fit(self, unload_s: float) -> str:
        """Why the lease is too short for an unload, which begins after the end of a step; '' if it is not."""
        rate = self.status.rate_steps_per_s
        takes_s = unload_s + (2.0 / rate if rate else 0.0)
        least_s = lease.least_lease_s(takes_s)
        if self.lease_s is None or self.lease_s >= least_s:
            return ""
        given = f"CARBONTUI_LEASE_S={self.lease_s:g}"
        return f"an unload may take {takes_s:.0f} s, which does not fit into {given}: {least_s:.0f} or more"

    def refuse(self, why: str) -> NoReturn:
        """Raises NotMoved: the job stays."""
        raise NotMoved(f"job {self.job.id} stays: {self.host.name}: {why}")

    def checkpoints(self) -> list[str]:
        """Files and folders that the pointer of its last unload names."""
        body = records.read_json(self.job.dir / "resume.json.checkpoint") or {}
        earlier = [one.get("path") for one in body.get("earlier") or () if isinstance(one, dict)]
        named = [body.get("path"), *earlier, *(body.get("folders") or ())]
        inside = f"{self.job.dir}/"
        paths = dict.fromkeys(path for path in named if isinstance(path, str) and not path.startswith(inside))
        return [path for path in paths if os.path.lexists(path)]

    def said(self) -> str:
        """'412 files, 1.2 GB (3.1 MB to copy) to n2:/home/me/run, zone SE'"""
        count, whole, left = len(self.cargo.files), figures.size(self.cargo.bytes), figures.size(self.there.copy_b)
        which = "all but what git ignores" if self.cargo.by_git else "no git there: every file"
        zone = f"zone {self.there.zone}" if self.there.zone else self.there.zone_why
        where, out = f"{self.host.name}:{self.there.cwd}", self.cargo.leads_out
        first = f"{out[0]}{f' and {len(out) - 1} more' if out[1:] else ''}" if out else ""
        links = f"; what these links lead to is not copied: {units.printable(first)[:200]}" if out else ""
        return f"{count} files of {self.options.cwd}, {whole} ({which}; {left} to copy), to {where}; {zone}{links}"

    # --- until the hand-over ---

    def prepare(self) -> None:
        """Have the keeper reach the machine by itself, and copy while training goes on. Raises NotMoved."""
        self._say(
            MoveTo(
                self.host.name,
                tuple(self.host.by_itself(["receive", "hold", self.job.id])),
                os.environ.get("SSH_AUTH_SOCK", ""),
                # also by the machine it returns to, which would else take back what it has not yet been granted
                release=self.known.leased,
            )
        )
        self._beats.start()
        facts = self._until(lambda now: bool(now.reached), REACH_S, "its monitor process cannot reach it")
        if facts.reached != "yes":
            self.refuse(f"its monitor cannot reach it by itself ({facts.reached}): it needs a key without a passphrase")
        self.copy_files()

    def unload(self) -> None:
        """Have it unloaded at its next step. Raises NotMoved."""
        before = self._ask(protocol.StatusAsk(1), protocol.StatusAnswer).status
        self._began_s = time.time()
        self._say(self._order._replace(unload=True))
        self._starts = self._until(lambda now: now.ready, UNLOAD_S, "it has not unloaded").starts
        self.status = after = store.snapshot(self.job.dir) or before
        if before.energy_wall_kwh is not None and after.energy_wall_kwh is not None:
            self._joules = (after.energy_wall_kwh - before.energy_wall_kwh) * units.J_PER_KWH

    def copy_all(self) -> None:
        """The rest, and what only an unload has written; it is read again there. Raises NotMoved."""
        self.cargo = cargo(self.options.cwd)
        self.copy_files()
        for path in self.checkpoints():
            folder, name = os.path.split(path)
            self._rsync(f"{folder}/", self._follow(folder), [name])
        rules = [word for pattern in LEFT_HERE for word in ("--exclude", pattern)]
        self._rsync(f"{self.job.dir}/", self.there.staging, None, "--delete", *rules)
        given = StageAsk(
            self.there.cwd,
            str(Path.home()),
            self.known.token + 1,
            peer=self.status.host,
            host=self.status.host,
            zone=receiving.zone_of(self.options),
            boot=proc.boot_id(),
            since=self.options.created_s,
            until=self._began_s,
            bytes=self._sent_b,
            joules=self._joules,
        )
        self.answered("stage", given, Staged, STAGE_S)
        if self._order.release:
            within_s = max(REACH_S, self.known.lease_s * lease.RENEWED) * 2
            self._until(lambda _: not places.read(self.job.dir).leased, within_s, "its last place does not let it go")

    def hand_over(self) -> None:
        """One durable write here, and it is the other machine's. Raises NotMoved."""
        zone = receiving.zone_of(self.options)
        terms = self.lease_s is not None, self.lease_s or places.LEASE_S, self._start_s
        order = HandOver(zone, self.options.created_s, self._began_s, self.status.step or 0, *terms, self._starts)
        self._left.set()
        self._beats.join()  # what comes after the hand-over is no part of this move
        if not stopping.carry_out(self.job, order, lambda: bool(places.read(self.job.dir).moved_to)):
            self.refuse("its monitor process could not hand it over")

    def until_trains(self) -> protocol.Status:
        """Its status there, once it trains, waits as planned, or is over. Raises NotMoved if it comes back, or nothing
        is heard of it."""
        due, step, last = time.monotonic() + TRAINS_S, self.status.step or 0, ""
        while time.monotonic() < due:
            if places.read(self.job.dir).holder:
                told = ""
                with contextlib.suppress(ssh.SshError):
                    told = " / ".join(self.host.answer(["log", "-n", "3", self.job.id]).splitlines())
                said = units.printable(f": {told}" if told else "")[:300]
                raise NotMoved(f"job {self.job.id} stays: it did not start on {self.host.name}{said}")
            with contextlib.suppress(ssh.SshError):
                for status in self.host.statuses(self.job.id):
                    last = status.state
                    held = status.state in ("waiting", "unloaded", "paused") and status.next is not None
                    if (status.step or 0) > step or held or status.state == "done":
                        return status
            time.sleep(0.5)
        raise NotMoved(f"job {self.job.id} is {self.host.name}'s now ({last or 'not heard'}), and has made no step yet")

    # --- parts ---

    def copy_files(self) -> None:
        """What differs of the working directory. Raises NotMoved."""
        self._rsync(f"{self.options.cwd}/", self.there.cwd, [name for name, *_ in self.cargo.files])

    def _follow(self, path: str) -> str:
        return receiving.follow(path, {self.options.cwd: self.there.cwd, str(Path.home()): self.there.home})

    def _rsync(self, of: str, to: str, names: list[str] | None, *more: str) -> None:
        listed = [] if names is None else ["--files-from=-", "--from0"]
        given = b"" if names is None else b"\0".join(map(os.fsencode, names))
        with tempfile.NamedTemporaryFile() as log:
            words = ["rsync", "-rlptHS", "--partial", "--timeout=60", "--mkpath", "-e", self.host.rsh, *listed, *more]
            words += [f"--log-file={log.name}", "--log-file-format=", "--info=progress2"]
            try:
                done = subprocess.run(
                    [*words, "--", of, f"{self.host.name}:{to}/"],
                    input=given,
                    stdout=sys.stderr if sys.stderr.isatty() else subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    check=False,
                    timeout=COPY_S,
                )
            except FileNotFoundError:
                raise NotMoved(f"job {self.job.id} stays: rsync is not installed here") from None
            except subprocess.TimeoutExpired as late:
                self.refuse(f"the copy has not ended within {late.timeout:.0f} s")
            self._sent_b += _sent(log.read())
        if done.returncode not in (0, 24):  # 24: a file vanished meanwhile, as a training's may
            fault = [one for one in done.stderr.decode(errors="replace").splitlines() if one.startswith("rsync: ")]
            why = GONE_WRONG.get(done.returncode, f"exit code {done.returncode}")
            self.refuse(f"the copy failed ({why}){': ' + units.printable(fault[0])[7:200] if fault else ''}")

    def answered(self, step: str, asked: NamedTuple, kind: type[T], within_s: float, *, ask: bool = False) -> T:
        """What `receive STEP` there answers. Raises NotMoved."""
        try:
            given = json.dumps(asked._asdict()).encode() + b"\n"
            text = self.host.answer(["receive", step, self.job.id], given, within_s, ask=ask)
        except ssh.SshError as error:
            raise NotMoved(f"job {self.job.id} stays: {error}") from None
        try:
            return records.decode(text, kind)
        except ValueError as error:
            raise NotMoved(f"job {self.job.id} stays: {self.host.misunderstood(text)} ({error})") from None

    def _say(self, order: MoveTo) -> None:
        self._order = order
        stopping.facts(self.job, order)

    def _beat(self) -> None:
        while not self._left.wait(BEAT_S):
            stopping.facts(self.job, self._order)

    def _until(self, predicate: Callable[[ChildFacts], bool], within_s: float, why: str) -> ChildFacts:
        due = time.monotonic() + within_s
        while True:
            facts = stopping.facts(self.job)
            if facts is not None and facts.exit is not None:
                raise NotMoved(f"job {self.job.id} has ended meanwhile")
            if facts is not None and predicate(facts):
                return facts
            if time.monotonic() >= due:
                self.refuse(f"{why} within {within_s:.0f} s")
            time.sleep(0.1)


def _size(path: str) -> int:
    """Bytes of a file, or of all files of a folder."""
    if not os.path.isdir(path):  # noqa: PTH112
        return os.path.getsize(path) if os.path.exists(path) else 0  # noqa: PTH110, PTH202
    return sum(_size(entry.path) for entry in os.scandir(path))


def _sent(stats: bytes) -> int:
    """Bytes over the wire, as rsync's log says: 'sent 1,234 bytes  received 56 bytes ...'."""
    sent = re.search(rb"\bsent ([0-9,.]+) bytes", stats)
    return int(re.sub(rb"[,.]", b"", sent[1])) if sent else 0
