"""Last step counts that training processes left in the job's directory without a listener (client/pausing/link.py)."""

from __future__ import annotations

import contextlib
from pathlib import Path

from carbontui import protocol

PATTERN = "last-count-*.jsonl"


class LastCounts:
    """Each file may be read repeatedly, and is removed once its content is in the journal."""

    def __init__(self, directory: Path) -> None:
        self._dir = directory
        self._read: dict[Path, int] = {}
        """Files already read, with their modification time (mtime, ns)."""

    def read(self) -> list[tuple[protocol.Hello, protocol.RankReport]]:
        """Their contents, oldest first. Files without usable content are left for `forget`."""
        found: list[tuple[int, protocol.Hello, protocol.RankReport]] = []
        for path in self._dir.glob(PATTERN):
            with contextlib.suppress(OSError):
                written_ns = self._read[path] = path.stat().st_mtime_ns
                with contextlib.suppress(protocol.BadMessage, ValueError):
                    hello, obs = map(protocol.decode_from_peer, path.read_bytes()[: 2 * protocol.LINE_MAX].splitlines())
                    if isinstance(hello, protocol.Hello) and isinstance(obs, protocol.RankReport):
                        found.append((written_ns, hello, obs))
        return [(hello, obs) for _, hello, obs in sorted(found, key=lambda row: row[0])]

    def counted(self) -> dict[Path, int]:
        """The files read so far: what is to be forgotten once their content is in the journal."""
        return dict(self._read)

    def forget(self, counted: dict[Path, int]) -> None:
        """Remove files whose content is in the journal. A file rewritten meanwhile stays."""
        for path, written_ns in counted.items():
            with contextlib.suppress(OSError):
                if path.stat().st_mtime_ns == written_ns:
                    path.unlink()
            self._read.pop(path, None)
