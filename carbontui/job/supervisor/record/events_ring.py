"""The last hour of a supervisor's events on disk, from which its decisions can be computed again.

Segments in a folder of the job, oldest deleted first. Each is one zlib stream of frames (four bytes of length, then
MessagePack) and begins with the whole state, so it needs no other. Of the inputs a frame has only what changed.
"""

from __future__ import annotations

import contextlib
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import msgspec

from carbontui.job.supervisor.core.advance import Event
from carbontui.job.supervisor.core.commands import Reply
from carbontui.job.supervisor.core.effects import Effect
from carbontui.job.supervisor.core.state.inputs import Inputs
from carbontui.job.supervisor.core.state.job import JobState
from carbontui.job.supervisor.record.recorder import say
from carbontui.job.terms.clock import Standstills

FOLDER = "events"
SEGMENT_B = 1_000_000
KEPT_B = 3_900_000
"""Of the segments before the newest: with it the folder stays below 5 MB."""
FLUSH_S = 2.0
"""So much is lost with a supervisor that is killed."""
AGAIN_S = 60.0
"""A disk that refused a write is tried again after this."""
INPUTS = tuple(field.name for field in fields(Inputs))


def _plain(value: Any) -> Any:
    return value.spans if isinstance(value, Standstills) else str(value)


pack = msgspec.msgpack.Encoder(enc_hook=_plain).encode


class EventsRing:
    """One supervisor's events. `do` has work done by the disk's thread. A fault ends the recording, not the job."""

    def __init__(self, directory: Path, do: Callable[[Callable[[], None]], object]) -> None:
        self._folder, self._do = directory / FOLDER, do
        self._known: dict[str, bytes] = {}
        self._frames: list[bytes] = []
        self._flushed_mono = time.monotonic()
        self._refused_mono = -AGAIN_S
        self._path: Path | None = None
        self._torn: Path | None = None
        self._after: JobState | None = None
        self._stream = zlib.compressobj(1)
        self._size_b = 0
        self._over = False

    def _begin(self, state: JobState) -> None:
        """A new segment, from this state on."""
        self.flush()
        self._path, self._size_b = self._folder / f"{time.time_ns()}.z", 0
        self._known.clear()
        # the command and its places decide nothing
        spec = msgspec.structs.replace(
            state.spec, argv=(), resume_args=(), cwd="", dir="", log="", err="", socket="", metrics=None
        )
        self._append({"state": replace(state, spec=spec)})

    def add(self, event: Event, before: JobState, after: JobState, effects: Sequence[Effect | Reply] | None) -> None:
        """The event that made `after` of `before`, and its effects; None: it raised."""
        now = time.monotonic()
        if self._over or now - self._refused_mono < AGAIN_S:
            return
        try:
            if self._path is None or before is not self._after or self._size_b >= SEGMENT_B:
                self._begin(before)
            facts = {name: getattr(event, name) for name in event.__slots__}
            inputs = facts.pop("inputs", None)
            frame = {"event": type(event).__name__, **facts, **self._changed("", {"clock": before.clock})}
            if inputs is not None:
                frame["inputs"] = self._changed("inputs.", {name: getattr(inputs, name) for name in INPUTS})
            frame |= self._changed("", {"asked": after.asked, "decision": after.decision})
            frame["effects"] = effects and [(type(one).__name__, one) for one in effects]
            self._append(frame)
            self._after = after
        except Exception as error:
            self._over = True
            say(f"events are no longer recorded: {type(error).__name__}: {error}")
        if now - self._flushed_mono >= FLUSH_S:
            self._flushed_mono = now
            self.flush()

    def flush(self) -> None:
        """Have the frames so far written."""
        if self._frames and self._path is not None:
            data, path = b"".join(self._frames), self._path
            self._frames = []
            self._do(lambda: self._write(path, data))

    def _changed(self, prefix: str, values: Mapping[str, object]) -> dict[str, Any]:
        changed = {}
        for name, value in values.items():
            if (packed := pack(value)) != self._known.get(prefix + name):
                self._known[prefix + name] = packed
                changed[name] = msgspec.Raw(packed)
        return changed

    def _append(self, frame: Mapping[str, object]) -> None:
        self._frames.append(framed(pack(frame)))

    def _write(self, path: Path, data: bytes) -> None:
        if path == self._torn:
            return
        try:
            if new := not path.exists():
                self._folder.mkdir(mode=0o700, exist_ok=True)
                self._stream = zlib.compressobj(1)
            packed = self._stream.compress(data) + self._stream.flush(zlib.Z_SYNC_FLUSH)
            with path.open("ab", buffering=0) as file:
                if file.write(packed) != len(packed):
                    raise OSError("the disk is full")
            self._size_b += len(packed)
            if new:
                self._prune(path)
        except OSError:
            self._torn, self._path, self._refused_mono = path, None, time.monotonic()

    def _prune(self, newest: Path) -> None:
        kept_b = 0
        for path in sorted(self._folder.glob("*.z"), reverse=True):
            kept_b += path.stat().st_size if path != newest else 0
            if kept_b > KEPT_B:
                path.unlink()


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
