"""Families of metrics as text in Prometheus's classic format, and the file in the folder of node-exporter's textfile
collector where it is published.

HELP and TYPE stand under each sample's full name: https://prometheus.io/docs/instrumenting/exposition_formats/
"""

import contextlib
import math
import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal, NamedTuple

from carbontui import paths, units

Labels = Mapping[str, str]


class Family(NamedTuple):
    """One metric: `name` ends in its unit, where it has one; a counter's samples are named with `_total`."""

    name: str
    kind: Literal["gauge", "counter"]
    help: str
    samples: tuple[tuple[Labels, float | None], ...]
    """Labels and value; None: not known, and left out."""


SUFFIX = {"gauge": "", "counter": "_total"}


def render(families: Iterable[Family]) -> str:
    """The whole exposition. A family without a known sample is left out."""
    lines = []
    for family in families:
        known = [(labels, value) for labels, value in family.samples if value is not None and math.isfinite(value)]
        if not known:
            continue
        full = family.name + SUFFIX[family.kind]
        lines += [f"# HELP {full} {_escaped(family.help)}", f"# TYPE {full} {family.kind}"]
        for labels, value in known:
            told = ",".join(f'{key}="{_escaped(units.printable(text))}"' for key, text in labels.items())
            lines.append(f"{full}{f'{{{told}}}' if told else ''} {float(value)!r}")
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


class MonotonicCounter:
    """Totals that never fall, as counters must not: after a downward revision a total holds until it is exceeded."""

    def __init__(self) -> None:
        self._most: dict[str, float] = {}

    def at_least(self, key: str, value: float | None) -> float | None:
        """The highest value of `key` so far; None before the first value."""
        if value is not None:
            self._most[key] = max(value, self._most.get(key, value))
        return self._most.get(key)


def counters(text: str) -> dict[tuple[str, str], float]:
    """Counters of an exposition of ours: (family, labels as written) to value."""
    found = {}
    for line in text.splitlines():
        name, brace, rest = line.partition("{")
        labels, _, value = rest.rpartition("} ")
        if brace and name.endswith("_total"):
            with contextlib.suppress(ValueError):
                found[name.removesuffix("_total"), labels] = float(value)
    return found


EVERY_S = 10.0
"""How often the file is rewritten; scrapers read every 15 to 60 s."""
STALE_S = 600.0
"""A job's file not written for this long belongs to a finished job: the next job removes it."""


class MetricsPlace:
    """`carbontui-NAME.prom` in a folder. Nothing here raises: `fault` says in one line what is wrong."""

    def __init__(self, folder: str, name: str) -> None:
        self.fault = ""
        self.file = Path(folder) / f"carbontui-{name}.prom"
        self._written_s: float | None = None

    def before(self) -> str:
        """What an earlier process left in the file, or ''."""
        with contextlib.suppress(OSError, ValueError):
            return self.file.read_text()
        return ""

    def due(self) -> bool:
        """Whether it is time to publish again."""
        return self._written_s is None or time.monotonic() - self._written_s >= EVERY_S

    def tell(self, text: str) -> None:
        """Write the file, which stays until another job removes it."""
        self._written_s, self.fault = time.monotonic(), ""
        try:
            paths.write_whole(self.file, text.encode(), 0o644)
            for other in self.file.parent.glob("carbontui-*.prom"):
                with contextlib.suppress(OSError):
                    found = other.lstat()
                    if found.st_uid == os.geteuid() and time.time() - found.st_mtime > STALE_S:
                        other.unlink()
        except (OSError, ValueError) as error:  # ValueError: no file can have such a name
            why = getattr(error, "strerror", "no such name")
            self.fault = f"metrics cannot be written to {str(self.file)!a} ({why})"
