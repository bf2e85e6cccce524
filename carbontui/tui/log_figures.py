"""Figures read from a training's output where it does not report them: the loss, and the progress bar's position."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

_NUMBER = r"([-+]?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?)"
_LOSS = re.compile(rf"(?<![\w/.-])(?:train(?:ing)?[ _/]?)?loss['\"]?\s*(?:[:=]\s*)?{_NUMBER}(?![\w.])", re.IGNORECASE)
_BAR = re.compile(r"\|\s*([\d.]+[kMG]?)/([\d.]+[kMG]?)\s*\[")
"""tqdm: '71%|███ | 3394/4800 [18:10<07:31, 3.11it/s]'."""
_SIZES = {"k": 1e3, "M": 1e6, "G": 1e9}


@dataclass(frozen=True, slots=True)
class LogFigures:
    """As last printed; None where nothing was."""

    loss: float | None = None
    done: int | None = None
    total: int | None = None


def figures(lines: Iterable[str]) -> LogFigures:
    """The newest of each; lines from the oldest on."""
    loss = done = total = None
    for line in lines:
        for match in _LOSS.finditer(line):
            value = float(match[1])
            loss = value if math.isfinite(value) else loss
        for match in _BAR.finditer(line):
            a, b = _count(match[1]), _count(match[2])
            if a is not None and b and a <= b:
                done, total = a, b
    return LogFigures(loss, done, total)


def _count(text: str) -> int | None:
    try:
        return round(float(text.rstrip("kMG")) * _SIZES.get(text[-1], 1.0))
    except (ValueError, OverflowError):
        return None
