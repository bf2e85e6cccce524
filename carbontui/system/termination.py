"""Whether a cloud is about to take this machine away, by its metadata service.

Asked as documented: AWS "Spot Instance interruption notices" (instance-action, IMDSv2), two minutes before; Google
"Preemptible VM instances" (instance/preempted), 30 s before; Azure "Scheduled Events" (Preempt and Terminate), 30 s
before at least. No proxy is asked: the address is the machine's own.
"""

import http.client
import json
import os
import urllib.error
import urllib.request
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any

from carbontui import units

OVERRIDE = "CARBONTUI_METADATA"
"""`aws=http://127.0.0.1:8080`: which service to ask, and where; for tests and for proxies of the service."""
BASES = dict.fromkeys(("aws", "azure"), "http://169.254.169.254") | {"google": "http://metadata.google.internal"}
GRACE_S = {"aws": 120.0, "google": 30.0, "azure": 30.0}
"""From the notice to the end, where it names no time."""
ANSWER_S = 2.0
MOST_B = 1 << 20
ENDS = frozenset({"Preempt", "Terminate"})


def service(provider: str | None, environment: Mapping[str, str] = os.environ) -> tuple[str, str] | None:
    """The provider and the address of its metadata service; None on a machine of none."""
    name, _, base = environment.get(OVERRIDE, "").partition("=")
    if name in BASES and base:
        return name, base.rstrip("/")
    return (provider, BASES[provider]) if provider in BASES else None


def ends_s(provider: str, base: str, now_s: float) -> float | None:
    """Epoch seconds of the machine's end; None without a notice. Raises OSError if nobody answers so."""
    try:
        found = {"aws": _aws, "google": _google, "azure": _azure}[provider](base)
    except urllib.error.HTTPError as error:
        if error.code == 404:
            return None
        raise
    except (http.client.HTTPException, ValueError, KeyError, AttributeError, TypeError) as error:
        raise OSError(f"{base} does not answer as {provider} does: {error}") from None
    return now_s + GRACE_S[provider] if found == 0.0 else found


def _aws(base: str) -> float | None:
    token = _ask(f"{base}/latest/api/token", {"X-aws-ec2-metadata-token-ttl-seconds": "60"}, "PUT")
    headers = {"X-aws-ec2-metadata-token": token.strip()}
    action: Any = json.loads(_ask(f"{base}/latest/meta-data/spot/instance-action", headers))
    # "stop" and "hibernate" end the training as well
    return units.from_iso(str(action["time"])) if "time" in action else 0.0


def _google(base: str) -> float | None:
    said = _ask(f"{base}/computeMetadata/v1/instance/preempted", {"Metadata-Flavor": "Google"})
    return 0.0 if said.strip().upper() == "TRUE" else None


def _azure(base: str) -> float | None:
    headers = {"Metadata": "true"}
    told: Any = json.loads(_ask(f"{base}/metadata/scheduledevents?api-version=2020-07-01", headers))
    events = [one for one in told.get("Events", ()) if one.get("EventType") in ENDS]
    if not events:
        return None
    # events name all machines of a scale set
    query = "api-version=2021-02-01&format=text"
    own = _ask(f"{base}/metadata/instance/compute/name?{query}", headers).strip()
    mine = [one for one in events if own in one.get("Resources", ())]
    ends = (one.get("NotBefore") for one in mine)
    return min((parsedate_to_datetime(end).timestamp() if end else 0.0 for end in ends), default=None)


def _ask(url: str, headers: Mapping[str, str], method: str = "GET") -> str:
    request = urllib.request.Request(url, headers=dict(headers), method=method)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=ANSWER_S) as answer:
        return str(answer.read(MOST_B).decode("utf-8", "replace"))
