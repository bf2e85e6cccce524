"""Records raw answers in a folder and replays them: `carbontui grid --record DIR` and `--replay DIR`.

The folder holds one body per answer and `answers.jsonl`: zone and time, then a line per answer with its URL and file.
Keys are removed from bodies and URLs; headers are not kept.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import urlsplit

from carbontui.grid.http import Http, HttpReply, NotFound, Question

INDEX = "answers.jsonl"
BLOTTED = "KEY-REMOVED"


class BodyRecorder:
    """Writes bodies in the order in which they arrive."""

    def __init__(self, folder: Path, secrets: Iterable[str], zone: str, now_s: float) -> None:
        """Raises OSError when the folder cannot be written."""
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._secrets = [secret for secret in secrets if secret]
        self._count = 0
        (folder / INDEX).write_text(json.dumps({"v": 1, "zone": zone, "at_s": now_s}) + "\n")

    def __call__(self, url: str, body: bytes) -> None:
        for secret in self._secrets:
            body, url = body.replace(secret.encode(), BLOTTED.encode()), url.replace(secret, BLOTTED)
        if b'"token"' in body[:200]:
            body = json.dumps({"token": BLOTTED}).encode()  # a login's answer is itself a key
        self._count += 1
        file = f"{self._count:02d}-{urlsplit(url).hostname or 'answer'}.body"
        (self._folder / file).write_bytes(body)
        with (self._folder / INDEX).open("a") as index:
            index.write(json.dumps({"url": url, "file": file}) + "\n")


class Replayed(Http):
    """Answers from a folder instead of the network: the same URL, else the same host and path."""

    def __init__(self, folder: Path) -> None:
        """Raises ValueError naming the folder when it holds no recording."""
        super().__init__()
        try:
            head, *lines = [json.loads(line) for line in (folder / INDEX).read_text("utf-8").splitlines()]
            self.zone, self.at_s = str(head["zone"]), float(head["at_s"])
            self._bodies = [(str(line["url"]), _body(folder, line["file"])) for line in lines]
        except (OSError, ValueError, KeyError, TypeError) as error:
            reason = "it has no answers.jsonl" if isinstance(error, FileNotFoundError) else type(error).__name__
            raise ValueError(f"{folder} is not a recording of `carbontui grid --record` ({reason})") from None

    async def get(self, question: Question) -> HttpReply:
        """The recorded answer. Raises NotFound for a request that is not in the recording."""
        asked = str(question.whole_url())
        same = [body for recorded, body in self._bodies if recorded == asked]
        near = [body for recorded, body in self._bodies if _place(recorded) == _place(asked)]
        if not same and not near:
            raise NotFound(f"{question.host}: not in the recording")
        body = (same or near)[0]
        if not same and len(near) > 1:
            # several answers of one path are replayed in the order in which they came
            self._bodies = [pair for pair in self._bodies if pair[1] is not body]
        return HttpReply(body, None)


def _body(folder: Path, name: str) -> bytes:
    """A body of a recording: a file in its folder, whatever its index says. Raises ValueError, OSError."""
    path = folder / name
    if Path(name).name != name or path.is_symlink() or not path.is_file():
        raise ValueError(f"{name!r} is not a file of the recording")
    return path.read_bytes()


def _place(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return parts.netloc, parts.path
