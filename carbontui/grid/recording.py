"""Records raw answers in a folder: `carbontui grid --record DIR`.

The folder holds one body per answer and `answers.jsonl`: zone and time, then a line per answer with its URL and file.
Keys are removed from bodies and URLs; headers are not kept.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import urlsplit

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
