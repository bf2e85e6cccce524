"""A run described by a language model, beside our own text: what is sent, and which answers are shown.

Sent are reason codes, states, times, the zone and numbers. Not sent are names, paths, the host, arguments, log lines
or any other text. An answer with a number that was not sent is not shown: it was made up.
"""

import ipaddress
import json
import os
import re
import time
from typing import Any
from urllib.parse import urlsplit

import click

from carbontui import units
from carbontui.commands.support import talk
from carbontui.commands.support.command import Failure, refused
from carbontui.reports.story import RunStory

DECISIONS_MOST = 60
ANSWER_MOST = 3000
MODEL = "gpt-4o-mini"
LLM_S = 20.0
LLM_B = 2**20
LABEL = "model's wording"
TASK = (
    "Explain in at most six short sentences, in plain English, what this training run did and why, from these facts "
    "alone. Use no number that is not in them, and none that you have worked out yourself."
)
_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")


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
    """The completions URL under a base like https://host/v1. Raises ValueError unless it is HTTPS or on this
    machine."""
    try:
        parts = urlsplit(base.strip())
        host, _ = parts.hostname or "", parts.port
    except ValueError as error:
        raise ValueError(f"OPENAI_BASE_URL is not a URL ({error}); nothing was sent") from None
    try:
        here = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        here = False
    if not (parts.scheme == "https" and host) and not (parts.scheme == "http" and here):
        raise ValueError("OPENAI_BASE_URL must be https://..., or http:// on this machine; nothing was sent")
    if parts.username or parts.password:
        raise ValueError("OPENAI_BASE_URL holds a user name: give the key in OPENAI_API_KEY; nothing was sent")
    return f"{base.strip().rstrip('/')}/chat/completions"


def checked(reply: Any, data: dict[str, Any]) -> str:
    """The model's text. Raises ValueError if it is none, or has a number that was not sent."""
    try:
        text = reply["choices"][0]["message"]["content"]
    except (KeyError, IndexError, TypeError):
        raise ValueError("the answer is not a chat completion") from None
    if not isinstance(text, str) or not text.strip():
        raise ValueError("the answer is empty")
    if len(text) > ANSWER_MOST:
        raise ValueError(f"the answer is longer than {ANSWER_MOST} characters")
    if invented := sorted(_numbers(text) - _numbers(json.dumps(data))):
        raise ValueError(f"the answer has a number that was not sent ({', '.join(invented[:3])})")
    # untrusted text: nothing in it may move the cursor or reverse the text direction
    return "".join(c for c in text if c == "\n" or c.isprintable()).strip()


def _numbers(text: str) -> set[str]:
    """Every number, however it is written; a clock time gives its parts."""
    return {_plain(part) for written in _NUMBER.findall(text) for part in written.split(":")}


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


def options(command: Any) -> Any:
    """Add --llm and what belongs to it."""
    for option in (
        click.option("--dry-run", is_flag=True, help="With --llm: show what would be sent, and send nothing."),
        click.option("--model", default=MODEL, show_default=True, help="The model's name, with --llm."),
        click.option(
            "--llm", is_flag=True, help="Add a language model's wording, from OPENAI_BASE_URL (HTTPS or this machine)."
        ),
    ):
        command = option(command)
    return command


def say(run: RunStory, llm: bool = False, model: str = MODEL, dry_run: bool = False) -> None:
    """Print it below the account's own words, or one line on stderr why not: the account is complete without it."""
    if dry_run and not llm:
        raise Failure("--dry-run belongs to --llm", 2)
    if not llm:
        return
    click.echo()
    sent = facts(run)
    body = request(sent, model)
    if dry_run:
        click.echo("only this would be sent; nothing was sent:")
        click.echo(talk.as_json(body))
        return
    base = os.environ.get("OPENAI_BASE_URL", "")
    if not base:
        raise Failure("--llm needs OPENAI_BASE_URL, like https://host/v1, and the key in OPENAI_API_KEY", 2)
    with refused():
        address = endpoint(base)
    import httpx

    key = os.environ.get("OPENAI_API_KEY", "").strip()
    # a compressed answer could expand to any size
    headers = {"Accept-Encoding": "identity"} | ({"Authorization": f"Bearer {key}"} if key else {})
    text, due_s = bytearray(), time.monotonic() + LLM_S
    try:
        with (
            httpx.Client(timeout=LLM_S, follow_redirects=False, trust_env=False) as client,
            client.stream("POST", address, json=body, headers=headers) as reply,
        ):
            if reply.status_code != 200:
                raise Failure(f"--llm: the endpoint answered {reply.status_code}", 1)
            for piece in reply.iter_raw():
                text += piece
                if len(text) > LLM_B or time.monotonic() > due_s:
                    raise Failure(f"--llm: the answer did not end within {LLM_S:.0f} s and {LLM_B // 2**20} MiB", 1)
        answer = json.loads(text)
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, RecursionError) as error:
        raise Failure(f"--llm: no answer ({type(error).__name__})", 1) from None
    with refused("--llm: not shown: ", code=1):
        click.echo(f"[{LABEL}] {checked(answer, sent)}")
