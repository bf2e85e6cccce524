"""The resume marker of an unloaded command, and the arguments and environment of its next start."""

import calendar
import contextlib
import os
import shutil
import time
from collections.abc import Callable, Mapping
from typing import Any

from carbontui.client import inject
from carbontui.job.keeper import job_files
from carbontui.job.keeper.messages import FallBack, Retry
from carbontui.job.keeper.supervisor_handle import RENEWED_S

TRY_MOST_S = 300.0
"""The supervisor ends a try; without a supervisor the keeper ends it after this."""
TRY_OVER = "the try was ended here on purpose; the real start comes later"
ESTIMATE_OVER = "the estimate was ended here on purpose"
INTERRUPTED = " (anything it said to the interrupt is above)"


def over(said: str, code: int) -> str:
    """The line that closes the command's output: with an exit code, its reaction may look like a crash."""
    return said + (INTERRUPTED if code else "")


class DryRun:
    """Whether the running start is a try or a resume on trial, and what follows if it fails."""

    def __init__(self, *, trying: bool) -> None:
        self.trying = trying
        """The running process is a try."""
        self.over = False
        """The try is being ended."""
        self.retry = False
        """A failed resume is restarted, finally without a checkpoint."""
        self.retried = ""
        """How the last restarted resume failed."""
        self.fall_back = False
        """A failed resume is restarted as long as there is an earlier checkpoint."""
        self.fell_back = ""
        """How the last resume restarted that way failed."""
        self.anew = False
        """The next start ignores the checkpoint."""
        self.resumed = False
        """The running process resumed from a checkpoint."""
        self.rehearsing = False
        """A rehearsal was requested since the last start."""

    def facts(self) -> dict[str, Any]:
        """The facts reported to the supervisor."""
        names = ("retry", "retried", "fall_back", "fell_back", "trying")
        return {name: getattr(self, name) for name in names}

    @property
    def kept(self) -> bool:
        """Whether the keeper itself resumes after an unload, instead of leaving that to the scheduler."""
        return self.trying or self.retry

    @property
    def asked(self) -> bool:
        """Whether the unload was requested on trial, so that the restart back-off does not apply."""
        return self.trying or self.rehearsing

    def ends(self) -> bool:
        """End the running process; returns whether that is allowed."""
        if self.over or self.anew or not (self.trying or (self.retry and self.resumed)):
            return False
        self.over, self.anew = self.trying, not self.trying
        return True

    def started(self, *, resumed: bool) -> None:
        self.resumed, self.anew, self.rehearsing = resumed, False, False

    def left(self) -> None:
        """It has written a checkpoint and exited. A resume from a try's checkpoint may fail and is then restarted."""
        self.retry = self.retry or self.trying
        self.trying = self.over = False
        self.retried = self.fell_back = ""

    def waits_again(self) -> bool:
        """It has ended: whether it was a try being ended, with the real start still to come."""
        ended = self.trying and self.over
        self.trying = self.over = False
        return ended

    def apply_order(self, order: Retry | FallBack) -> None:
        if isinstance(order, Retry):
            # a new supervisor repeats its predecessor's order: that is not a second rehearsal
            self.rehearsing = self.rehearsing or (order.on and not self.retry)
            self.retry = order.on
        else:
            self.fall_back = order.on

    def begins_again(self, code: int, earlier: Callable[[], str], forget: Callable[[], None] = lambda: None) -> str:
        """It has ended with exit code `code` (negative: by a signal): why it is restarted, '' if it is not.

        From the checkpoint that `earlier` finds, else `anew`, which `forget` makes sure of.
        """
        if not ((self.retry or self.fall_back) and self.resumed and (code != 0 or self.anew)):
            return ""
        how = "no step" if self.anew else f"exit code {code}" if code >= 0 else f"signal {-code}"
        if path := earlier():
            self.fell_back, self.anew = how, False
            return f"the resume failed ({how}): continuing from {path}"
        if not self.retry:
            return ""
        self.retry, self.retried, self.anew = False, how, True
        forget()
        return f"the resume has failed ({how}): it begins without its checkpoint"


ALONE_S = 60.0
"""A held child (not yet started, or unloaded) is started after this long without a message from a supervisor."""
SHORT_LIFE_S = 30.0
REST_MAX_S = 600.0


def not_before(marker: str) -> float | None:
    """The start time in a resume marker (epoch seconds; 0 if it names none); None without a marker."""
    facts = job_files.read_json(marker)
    if not facts:
        return None
    whole, dot, rest = str(facts.get("not_before")).removesuffix("Z").partition(".")
    with contextlib.suppress(ValueError):
        moment = time.strptime(whole, "%Y-%m-%dT%H:%M:%S")
        return calendar.timegm(moment) + float(f"0{dot}{rest}")
    return 0.0


def left(marker: str, until: float) -> bool:
    """Write the marker of a command that was never started, for `until` (epoch seconds); whether it is written."""
    try:
        job_files.write_json(marker, {"not_before": time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(until))})
    except OSError:
        return False
    return True


def at(not_before_s: float | None, patience_s: float) -> float:
    """When it is started again; without a time in the marker it waits `patience_s` for the supervisor."""
    return not_before_s or time.time() + patience_s


def first_hold(marker: str, state: object, patience_s: float, *, hold: bool) -> float | None:
    """Until when the command of a new keeper waits, which finds it in `state` (None: never started); None: not held."""
    if state == "unloaded":
        return at(not_before(marker), patience_s)
    return time.time() + patience_s if state == "waiting" or (state is None and hold) else None


def start_of(
    spec: Mapping[str, Any], base: Mapping[str, str], marker: str, left: Mapping[str, Any] | None, *, trying: bool
) -> tuple[list[str], dict[str, str]]:
    """The command's arguments and environment. `base` is the caller's environment, `left` what the last unload left
    behind (None: it does not resume)."""
    base = {name: value for name, value in base.items() if name != "CARBONTUI_TRY"}  # from a job that started this one
    argv = list(spec["argv"])
    environment = inject.environment(
        base,
        hook_dir=f"{spec['job_dir']}/hook",
        socket=spec["socket"],
        job=spec["job"],
        marker=marker,
        log=spec["log"],
        err=spec.get("err"),
        resume=left is not None,
    )
    if trying:
        environment["CARBONTUI_TRY"] = "1"
    if left is not None:
        argv += spec.get("resume_args", ())
        if isinstance(left.get("step"), int):
            environment["CARBONTUI_START_STEP"] = str(left["step"])
    return argv, environment


def earlier(marker: str, resumed: str) -> str:
    """Make the next start resume from the checkpoint before the one in `marker`: returns its path; '' if there is none
    or the marker cannot be written.

    The checkpoints were listed next to the marker, newest first, when the command exited; its framework reads that.
    """
    pointer = f"{marker}.checkpoint"
    body = job_files.read_json(pointer)
    listed = body.get("earlier")
    listed = listed if isinstance(listed, list) else []
    for number, one in enumerate(listed):
        path, step = (one.get("path"), one.get("step")) if isinstance(one, dict) else (None, None)
        if isinstance(path, str) and os.path.exists(path):  # noqa: PTH110
            try:
                rest = {"earlier": listed[number + 1 :]}
                rest |= {"checksum": one.get("checksum")} if "checksum" in body else {}
                job_files.write_json(pointer, {**body, "path": path, "step": step, **rest})
                job_files.write_json(resumed, {**job_files.read_json(resumed), "step": step})
            except OSError:
                return ""
            return path
    return ""


def forget(marker: str) -> None:
    """Nothing is resumed from any more: the pointer names only the folders that are the job's."""
    pointer = f"{marker}.checkpoint"
    with contextlib.suppress(OSError):
        if body := job_files.read_json(pointer):
            job_files.write_json(pointer, {"folders": body.get("folders", [])})


def clear(marker: str, job: str, ended: Mapping[str, Any]) -> None:
    """If the job has `ended` with success, remove what its unloads have written, not what the script itself names."""
    if ended["code"] != 0 or ended["unloaded"] or ended["stopped"]:
        return
    body, here = job_files.read_json(f"{marker}.checkpoint"), os.path.dirname(marker)  # noqa: PTH120
    listed = [*(body.get("folders") or ()), *(body.get("earlier") or ()), body]
    for folder in (one for one in listed if isinstance(one, str)):
        if folder.endswith(f"/.carbontui/{job}"):
            shutil.rmtree(folder, ignore_errors=True)
            with contextlib.suppress(OSError):  # another job's is in there
                os.rmdir(os.path.dirname(folder))  # noqa: PTH106, PTH120
    for one in (one for one in listed if isinstance(one, dict)):
        if os.path.dirname(str(one.get("path"))) == here:  # noqa: PTH120
            with contextlib.suppress(OSError):
                os.unlink(one["path"])  # noqa: PTH108


class StartHold:
    """Until when the command is not started, as its supervisor says: a lease, without which it starts."""

    def __init__(self, until: float | None) -> None:
        self.begin(until)

    def begin(self, until: float | None) -> None:
        """From now on, until `until` (wall time; None: it does not wait). Held as a duration: setting the clock changes
        none."""
        self.until = until
        now = self.word_at = time.monotonic()
        self.mono = now + (0.0 if until is None else until - time.time())

    def over(self, now: float) -> bool:
        return self.until is None or now >= self.mono or now - self.word_at >= ALONE_S

    def extend(self, slept_s: float) -> None:
        """The keeper slept: what the supervisor said meanwhile is still to be heard."""
        self.word_at += slept_s
        self.mono = max(self.mono, time.monotonic() + RENEWED_S)


class Rest:
    """Back-off for a child that unloads right after every start."""

    _short_lives = 0
    until = 0.0
    """Monotonic time before which it is not started again."""

    def after(self, started: float, now: float) -> str:
        """Record an unload (both times monotonic); returns the log line for its delay, '' without one."""
        self._short_lives = self._short_lives + 1 if now - started < SHORT_LIFE_S else 0
        wait_s = min(REST_MAX_S, 2.0**self._short_lives) if self._short_lives > 1 else 0.0
        self.until = now + wait_s
        often = f"child unloaded, {self._short_lives} times now within {SHORT_LIFE_S:.0f} s of its start"
        return f"{often}: rests {wait_s:.0f} s" if wait_s else ""
