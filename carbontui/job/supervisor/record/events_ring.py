"""The last hour of a supervisor's events on disk, from which its decisions can be computed again.

Segments in a folder of the job, oldest deleted first. Each is one zlib stream of frames (four bytes of length, then
MessagePack) and begins with the whole state, so it needs no other. Of the inputs a frame has only what changed.
"""

import contextlib
import errno
import os
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import msgspec

from carbontui.job.supervisor.core.advance import Command, Event
from carbontui.job.supervisor.core.commands import Reply
from carbontui.job.supervisor.core.effects import Effect
from carbontui.job.supervisor.core.state.inputs import Inputs
from carbontui.job.supervisor.core.state.job import JobState
from carbontui.job.supervisor.record.disk import say
from carbontui.job.terms.clock import Standstills

FOLDER = "events"
SEGMENT_B = 1_000_000
KEPT_B = 3_900_000
"""Of the segments before the newest: with it the folder stays below 5 MB."""
FLUSH_S = 10.0
"""So much without a new state is lost with a supervisor that is killed. Many at once cost a third of one by one."""
AGAIN_S = 60.0
"""A disk that refused a write is tried again after this."""
INPUTS = tuple(field.name for field in fields(Inputs))


def _plain(value: Any) -> Any:
    return value.spans if isinstance(value, Standstills) else str(value)


pack = msgspec.msgpack.Encoder(enc_hook=_plain).encode


class Taken(NamedTuple):
    """The event that made `after` of `before`, and its effects; None: it raised."""

    event: Event
    before: JobState
    after: JobState
    effects: Sequence[Effect | Reply] | None


class EventsRing:
    """One supervisor's events. `do` has work done by the disk's thread, unawaited: all but adding is done there."""

    def __init__(self, directory: Path, do: Callable[[Callable[[], None]], object]) -> None:
        self._folder, self._do = directory / FOLDER, do
        self._taken: list[Taken] = []
        self._flushed_mono = 0.0
        self._file: BinaryIO | None = None
        self._size_b = 0
        self._after: JobState | None = None
        self._known: dict[str, bytes] = {}
        self._frames: list[bytes] = []
        self._refused_mono = -AGAIN_S
        self._said = False

    def add(self, one: Taken) -> None:
        self._taken.append(one)
        urgent = isinstance(one.event, Command) or one.before.decision.state != one.after.decision.state
        if urgent or time.monotonic() - self._flushed_mono >= FLUSH_S:
            self.flush()

    def flush(self) -> None:
        """Have the events so far written."""
        taken, self._taken, self._flushed_mono = self._taken, [], time.monotonic()
        self._do(lambda: self._write(taken))

    def _write(self, taken: list[Taken]) -> None:
        if time.monotonic() - self._refused_mono < AGAIN_S:
            return
        try:
            for one in taken:
                if self._file is None or one.before is not self._after or self._size_b >= SEGMENT_B:
                    self._sync()
                    self._begin(one.before)
                self._append(self._frame(one))
                self._after = one.after
            self._sync()
        except Exception as error:
            self._frames.clear()
            self._after, self._refused_mono = None, time.monotonic()
            if not self._said:
                self._said = True
                say(f"some events are not recorded: {type(error).__name__}: {error}")

    def _begin(self, state: JobState) -> None:
        """A new segment, from this state on."""
        self._folder.mkdir(mode=0o700, exist_ok=True)
        kept_b = 0
        for path in sorted(self._folder.glob("*.z"), reverse=True):
            kept_b += path.stat().st_size
            if kept_b > KEPT_B:
                path.unlink()
        if self._file is not None:
            self._file.close()
        self._file = (self._folder / f"{time.time_ns()}.z").open("xb", buffering=0)
        self._stream, self._size_b = zlib.compressobj(1), 0
        self._known.clear()
        # the command and its places decide nothing
        spec = msgspec.structs.replace(
            state.spec, argv=(), resume_args=(), cwd="", dir="", log="", err="", socket="", metrics=None
        )
        self._append({"state": replace(state, spec=spec)})

    def _frame(self, one: Taken) -> dict[str, Any]:
        facts = {name: getattr(one.event, name) for name in one.event.__slots__}
        inputs = facts.pop("inputs", None)
        frame = {"event": type(one.event).__name__, **facts, **self._changed("", {"clock": one.before.clock})}
        if inputs is not None:
            frame["inputs"] = self._changed("inputs.", {name: getattr(inputs, name) for name in INPUTS})
        frame |= self._changed("", {"asked": one.after.asked, "decision": one.after.decision})
        frame["effects"] = one.effects and [(type(effect).__name__, effect) for effect in one.effects]
        return frame

    def _changed(self, prefix: str, values: Mapping[str, object]) -> dict[str, Any]:
        changed = {}
        for name, value in values.items():
            if (packed := pack(value)) != self._known.get(prefix + name):
                self._known[prefix + name] = packed
                changed[name] = msgspec.Raw(packed)
        return changed

    def _append(self, frame: Mapping[str, object]) -> None:
        self._frames.append(framed(pack(frame)))

    def _sync(self) -> None:
        if self._frames and self._file is not None:
            packed = self._stream.compress(b"".join(self._frames)) + self._stream.flush(zlib.Z_SYNC_FLUSH)
            self._frames.clear()
            if self._file.write(packed) != len(packed):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self._size_b += len(packed)


def framed(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


def read(segment: Path) -> Iterator[dict[str, Any]]:
    """Its frames, as far as they are whole."""
    inflate, data = zlib.decompressobj(), bytearray()
    with contextlib.suppress(OSError, zlib.error), segment.open("rb") as file:
        while part := file.read(4096):
            data += inflate.decompress(part)
    return frames(bytes(data))


def frames(data: bytes) -> Iterator[dict[str, Any]]:
    at = 0
    while at + 4 <= len(data) and (end := at + 4 + int.from_bytes(data[at : at + 4], "big")) <= len(data):
        yield msgspec.msgpack.decode(data[at + 4 : end])
        at = end
