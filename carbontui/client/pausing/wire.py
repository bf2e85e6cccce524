"""The rank's end of the wire: the messages of carbontui.protocol, with the standard library's json.

Every field is checked before any is applied: a lease of NaN would mean an endless pause, because no comparison with
it is true, and deep nesting raises RecursionError, which is not a ValueError.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, Dict, NamedTuple, Optional, Tuple, Union

VERSION = 1
LINE_MAX = 64 * 1024
"""Maximum bytes of a line from the supervisor; its messages to a rank are far shorter."""
NESTING_MAX = 400
LEASE_MAX_S = 60.0
"""Upper bound of a lease: a supervisor gives 15 s, an impostor can hold a training for at most a minute."""
_COUNT_MAX = 2**53
_RFC3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)\Z", re.IGNORECASE)


class BadLine(ValueError):
    """A line that is not a valid message."""


class WelcomeLine(NamedTuple):
    """The answer to hello; with another major version this process runs unsteered."""

    v: int


class DesiredLine(NamedTuple):
    """What is wanted until the lease expires; see carbontui.protocol.Want."""

    mode: str
    want_gen: int
    lease_s: float
    duty: Optional[float] = None
    checkpoint: bool = False
    not_before: Optional[str] = None
    epoch_end: bool = False

    @property
    def asked(self) -> DesiredLine:
        """The want without its lease: two wants that differ only in the lease ask for the same."""
        return self._replace(lease_s=0.0)


def encode(kind: str, fields: Dict[str, Any]) -> bytes:
    """One line; fields that are None are omitted."""
    body = {"t": kind, **{key: value for key, value in fields.items() if value is not None}}
    return json.dumps(body, separators=(",", ":"), allow_nan=False).encode() + b"\n"


class ReadingLine(NamedTuple):
    """What the code says of the place of a sighting, and what to say again; see carbontui.protocol.CodeRead."""

    number: int
    nest: Any
    lacks: Tuple[str, ...]
    kept: Any = None


class FiguresLine(NamedTuple):
    """The supervisor's figures of the job: numbers and texts by name."""

    values: Dict[str, Union[float, str]]


def _plain(value: Any) -> bool:
    if isinstance(value, str):
        return len(value) <= 200
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def decode(line: bytes) -> Union[WelcomeLine, DesiredLine, ReadingLine, FiguresLine, None]:
    """The message of one line; None for a type this version does not know. Raises BadMessage, nothing else."""
    if len(line) > LINE_MAX or line.count(b"[") + line.count(b"{") > NESTING_MAX:
        raise BadLine("too long or too deep")
    try:
        body = json.loads(line.decode("utf-8"), parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise BadLine(str(error)) from None
    if not isinstance(body, dict) or not isinstance(body.get("t"), str):
        raise BadLine("not an object with a type")
    if body["t"] == "welcome":
        return WelcomeLine(_count(body, "v"))
    if body["t"] == "want":
        return _desired(body)
    if body["t"] == "reading":
        lacks = body.get("lacks", [])
        if not isinstance(lacks, list) or not isinstance(body.get("nest"), (list, type(None))):
            raise BadLine("no reading")
        number = _count({"id": 0, **body}, "id")
        return ReadingLine(number, body.get("nest"), tuple(map(str, lacks)), body.get("kept"))
    if body["t"] == "figures":
        return FiguresLine({name: value for name, value in body.items() if name != "t" and _plain(value)})
    return None


def _desired(body: Dict[str, Any]) -> DesiredLine:
    mode = body.get("mode")
    if mode not in ("run", "pause", "unload"):
        raise BadLine("unknown mode")
    duty = None if body.get("duty") is None else _number(body, "duty", 1.0)
    for name in ("checkpoint", "epoch_end"):
        if not isinstance(body.get(name, False), (bool, type(None))):
            raise BadLine(f"{name} is not a boolean")
    not_before = body.get("not_before")
    if not_before is not None and not (isinstance(not_before, str) and _RFC3339.match(not_before)):
        raise BadLine("not_before is not a time")
    return DesiredLine(
        mode=mode,
        want_gen=_count(body, "want_gen"),
        lease_s=_number(body, "lease_s", LEASE_MAX_S),
        duty=None if duty == 1.0 else duty,
        checkpoint=bool(body.get("checkpoint")),
        not_before=not_before,
        epoch_end=bool(body.get("epoch_end")),
    )


def _number(body: Dict[str, Any], key: str, most: float) -> float:
    """A number in (0, most]: of NaN neither comparison is true."""
    value = body.get(key)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= most:
        raise BadLine(f"{key} is not a number in its range")
    return float(value)


def _count(body: Dict[str, Any], key: str) -> int:
    value = body.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _COUNT_MAX:
        raise BadLine(f"{key} is not a count")
    return value


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")
