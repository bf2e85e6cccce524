"""Saves what the sources of a zone answer, keys removed: `python tests/grid/record_answers.py ZONE DIR`."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import urlsplit

from carbontui.commands.support.run_values import settings_for, settings_of
from carbontui.grid import opening
from carbontui.grid.http import Http

INDEX = "answers.jsonl"
BLOTTED = "KEY-REMOVED"


class BodyRecorder:
    """Writes bodies to a folder in the order in which they arrive, and `answers.jsonl`: zone and time, then a line per
    answer with its URL and file. Keys are removed from bodies and URLs; headers are not kept."""

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


def record(zone: str, folder: Path) -> None:
    """Asks its sources, past the cache."""
    settings = settings_of(settings_for().settings, own=False)
    http = Http(record=BodyRecorder(folder, settings.keys.values(), zone, time.time()))
    asyncio.run(opening.open_feed(zone, settings=settings, now=time.time, http=http, cached=False).refresh())


if __name__ == "__main__":
    record(sys.argv[1], Path(sys.argv[2]))
