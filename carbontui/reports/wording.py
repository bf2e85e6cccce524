"""A run described by a language model, beside our own text: what is sent, and which answers are shown.

Sent are reason codes, states, times, the zone and numbers. Not sent are names, paths, the host, arguments, log lines
or any other text. An answer with a number that was not sent is not shown: it was made up.
"""

from __future__ import annotations

import ipaddress
import json
import re
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from carbontui import units
from carbontui.reports.story import RunStory

DECISIONS_MOST = 60
ANSWER_MOST = 3000
LABEL = "model's wording"
TASK = (
    "Explain in at most six short sentences, in plain English, what this training run did and why, from these facts "
    "alone. Use no number that is not in them, and none that you have worked out yourself."
)
_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")


class EndpointError(ValueError):
    """An address that is refused; the text says why."""


class CheckedWording(NamedTuple):
    """The text to show (None: nothing), and why not."""

    text: str | None
    why: str = ""


def facts(story: RunStory) -> dict[str, Any]:
    """Everything that leaves the machine, rounded for readers."""
    made = story.decisions[-DECISIONS_MOST:]
    status = story.status
    told: dict[str, Any] = {
        "zone": story.options.zone if re.fullmatch(r"[A-Z]{2}[A-Z0-9-]{0,20}", story.options.zone or "") else None,
        "started": _minute(story.start_s),
        "last": _minute(story.end_s),
        "state": status.state,
        "reason": status.reason.code,
        "minutes": round(story.elapsed_s / 60),
        "steps": status.step,
        "energy_kwh": _short(story.energy_wall_kwh),
        "co2_g": _short(story.gco2_g),
        "avoided_g": _short(story.avoided_g),
        "mean_g_per_kwh": _short(story.intensity_mean),
        "plans": story.plans,
        "states": [
            {"state": part.name, "minutes": round(part.seconds / 60), "energy_kwh": _short(part.kwh)}
            for part in story.by_state
        ],
        "decisions": [
            {"at": _minute(one.at_s), "kind": one.kind, "state": one.state, "code": one.code} for one in made
        ],
    }
    return {name: value for name, value in told.items() if value is not None}


def request(data: dict[str, Any], model: str) -> dict[str, Any]:
    """The body of a chat completion of the OpenAI form."""
    content = f"{TASK}\n\n{json.dumps(data, indent=1)}"
    return {"model": model, "messages": [{"role": "user", "content": content}], "temperature": 0}


def endpoint(base: str) -> str:
    """The completions URL under a base like https://host/v1. Raises EndpointError unless it is HTTPS or on this
    machine."""
    try:
        parts = urlsplit(base.strip())
        host, _ = parts.hostname or "", parts.port
    except ValueError as error:
        raise EndpointError(f"OPENAI_BASE_URL is not a URL ({error}); nothing was sent") from None
    try:
        here = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        here = False
    if not (parts.scheme == "https" and host) and not (parts.scheme == "http" and here):
        raise EndpointError("OPENAI_BASE_URL must be https://..., or http:// on this machine; nothing was sent")
    if parts.username or parts.password:
        raise EndpointError("OPENAI_BASE_URL holds a user name: give the key in OPENAI_API_KEY; nothing was sent")
    return f"{base.strip().rstrip('/')}/chat/completions"


def checked(reply: Any, data: dict[str, Any]) -> CheckedWording:
    """The model's text, if it is one, and if every number in it was sent."""
    try:
        text = reply["choices"][0]["message"]["content"]
    except (KeyError, IndexError, TypeError):
        return CheckedWording(None, "the answer is not a chat completion")
    if not isinstance(text, str) or not text.strip():
        return CheckedWording(None, "the answer is empty")
    if len(text) > ANSWER_MOST:
        return CheckedWording(None, f"the answer is longer than {ANSWER_MOST} characters")
    sent = _numbers(json.dumps(data))
    invented = sorted(_numbers(text) - sent)
    if invented:
        return CheckedWording(None, f"the answer has a number that was not sent ({', '.join(invented[:3])})")
    # untrusted text: nothing in it may move the cursor or reverse the text direction
    clean = "".join(c for c in text if c == "\n" or c.isprintable())
    return CheckedWording(clean.strip())


def _numbers(text: str) -> set[str]:
    """Every number, however it is written; a clock time gives its parts."""
    found: set[str] = set()
    for written in _NUMBER.findall(text):
        found |= {_plain(part) for part in written.split(":")}
    return found


def _plain(written: str) -> str:
    """'1,250.0' and '1250' are one number; so are '06' and '6'."""
    try:
        return f"{float(written.replace(',', '')):g}"
    except ValueError:
        return written


def _minute(at_s: float) -> str:
    return units.iso(at_s)[:16].replace("T", " ")


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.4g}")
