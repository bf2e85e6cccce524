"""Whether the command may train here, as the keeper knows it: of places.json at its start, then by a helper's word.

The helper is the extension's process. It alone moves the job, talks with the job's other places and writes the file. It
starts where that exists, or by an order of `move`, and is replaced like a supervisor; until a successor speaks, the
last word holds. Nothing is read here at a tick while a helper lives: a disk that hangs must not hang the keeper.
"""

import contextlib
import os
import selectors
import signal
import time
from collections.abc import Callable
from typing import Any, Literal

from carbontui.job.files import places
from carbontui.job.files.places import Permit
from carbontui.job.keeper.messages import OfPlaces
from carbontui.job.keeper.supervisor_handle import SupervisorHandle
from carbontui.job.terms import records
from carbontui.system import proc

HELPER = "carbontui.extensions.moves.helper"
LEASE_OVER = "ended here: the lease of the job's last place has not been renewed, and it may train there by now"
LOST_S = 120.0
"""Without a helper for this long in mid-move the keeper reads by itself, and again after as long: nobody is left who
would go on with it."""


class PermitHandle:
    """`changed` is called when what is known has changed."""

    def __init__(
        self, directory: str, selector: selectors.BaseSelector, log: Callable[[str], None], changed: Callable[[], None]
    ) -> None:
        self._dir, self._changed = directory, changed
        known = places.read(directory)
        self._known, self._wanted = known.permit(), known != places.NEVER_MOVED
        if known == places.UNREADABLE:
            log(f"{places.NAME} is damaged: nothing is started, for another machine may have the job")
        self._last_word = time.monotonic()
        self.helper = SupervisorHandle(directory, selector, log, take=self._take, changed=lambda: None, module=HELPER)

    @property
    def may_start(self) -> bool:
        """Whether the command may be started now."""
        return self._known.may_start(places.now())

    @property
    def may_run(self) -> bool:
        """Whether it may be running here."""
        return self._known.may_run(places.now())

    @property
    def away(self) -> Literal["", "leaving", "gone"]:
        """Whether the job is on another machine, or is to be unloaded for one."""
        return "gone" if not self._known.holder else "leaving" if self._known.moving else ""

    @property
    def ended(self) -> dict[str, Any] | None:
        """How the job ended elsewhere; {} where this keeper is to leave without a word, None while it goes on."""
        return self._known.ended

    def facts(self) -> dict[str, Any]:
        """What is reported to the supervisor and to verbs."""
        return self._known.facts(proc.boot_id())

    def fence(self, pid: int) -> None:
        """Kill the command `pid`, which may not run here any more, and all that it has started."""
        for one in (*proc.descendants(pid), pid):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(one, signal.SIGKILL)
        proc.signal_group(pid, signal.SIGKILL)

    def apply_order(self, order: OfPlaces) -> None:
        """The helper's to carry out."""
        self._wanted = True
        self.tick(time.monotonic())
        self.helper.say(order)

    def tick(self, now: float) -> None:
        self.helper.tick(now, wanted=self._wanted)
        if self._known.moving and self.helper.process is None and now - self._last_word > LOST_S:
            self._last_word = now
            self._learn(places.read(self._dir).permit())

    def _take(self, line: bytes) -> None:
        self._last_word = time.monotonic()
        with contextlib.suppress(ValueError):  # of a version that we do not understand
            self._learn(records.decode(line, Permit))

    def _learn(self, new: Permit) -> None:
        before, self._known = (self.facts(), self.ended), new
        if (self.facts(), self.ended) != before:
            self._changed()
