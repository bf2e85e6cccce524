"""`site`: one power budget for all jobs of this machine, and grid events that ask them for fewer watts."""

import json
import time
from typing import Any

import click
import msgspec

from carbontui import link, units
from carbontui.commands.support.command import Failure, refused
from carbontui.commands.support.run_values import power
from carbontui.extensions.site import events, sharing
from carbontui.extensions.site import receipt as words
from carbontui.extensions.site.events import EventError, GridEvent
from carbontui.extensions.site.ledger import Ledger, LedgerError
from carbontui.extensions.site.sharing import RAMP_W_PER_S, SiteBudget
from carbontui.headroom import TOLERANCE_W, Claim
from carbontui.job.files import store
from carbontui.job.terms import budget as budgets
from carbontui.system import proc
from carbontui.text import figures

FILE_MOST_B = 65536
LEAST_W = 10.0
"""What one GPU draws idle, at the least (gpus.csv)."""
CLAIMS_S = 4.0
"""How long the live jobs have to say what they can leave; they look at the ledger once a second."""


@click.command()
@click.option("--cap", "cap", help="Watts that the GPUs of all jobs together may draw, like 1200W.")
@click.option("--until", "until", help='When it ends, like 18:00 or "fri 09:00" (default: until cleared).')
@click.option("--ramp", "ramp", help="How fast they may rise together, in watts per second, like 100W.")
@click.option("--clear", "clear", is_flag=True, help="Lift the budget.")
@click.option("--event", "event", metavar="FILE", help="Take a grid event: fewer watts for a while (JSON; - is stdin).")
@click.option("--cancel", "cancel", metavar="ID", help="End a grid event.")
@click.option("--receipt", "receipt", metavar="ID", help="What was asked by a grid event, and what was delivered.")
@click.option("--json", "as_json", is_flag=True, help="The budget, its claims and events, or the receipt, as JSON.")
def site(
    cap: str | None,
    until: str | None,
    ramp: str | None,
    clear: bool,
    event: str | None,
    cancel: str | None,
    receipt: str | None,
    as_json: bool,
) -> None:
    """Show, set or lift the power budget of this machine's jobs: carbontui site --cap 1200W --until 18:00

    All supervisors keep it together: by power limits, else by pauses. It counts the GPUs that your jobs use; across
    users only an administrator's /etc/carbontui/site.toml applies. A grid event takes watts for a while and gives them
    back, and keeps every deadline: what cannot be had is said at once.
    """
    ledger = Ledger()
    now = time.time()
    if sum(map(bool, (cap, clear, event, cancel, receipt))) > 1:
        raise Failure("--cap, --clear, --event, --cancel and --receipt: give one of them", 2)
    if (until or ramp) and not cap:
        raise Failure("--until and --ramp go with --cap, like carbontui site --cap 1200W --until 18:00", 2)
    with refused("", LedgerError, code=1):
        if receipt:
            _receipt(ledger, receipt, now, as_json=as_json)
            return
        if event:
            _take(ledger, event, now)
        elif cancel:
            with refused("--cancel: ", EventError, code=3):
                ledger.cancel(cancel, now)
        elif clear:
            ledger.set_budget(None)
        elif cap:
            with refused("--until: "):
                until_s = budgets.parse_until(until, now) if until else None
            if isinstance(until_s, str):
                raise Failure("--until: a site budget needs a time of day, like 18:00", 2)
            rise = power(ramp, "--ramp") if ramp else RAMP_W_PER_S
            cap_w = power(cap, "--cap")
            if cap_w < LEAST_W:
                raise Failure(f"--cap: no job can run on {cap_w:g} W; give the watts of all GPUs, like 1200W", 2)
            ledger.set_budget(SiteBudget(cap_w=cap_w, ramp_w_per_s=rise, until_s=until_s, by=link.whoami()))
        _show(ledger, now, as_json=as_json)


def _take(ledger: Ledger, file: str, now: float) -> None:
    with refused(f"{file}: ", (EventError, OSError)), click.open_file(file, "rb") as opened:
        ledger.add(events.parse(opened.read(FILE_MOST_B), now, link.whoami()))
    live = {job.id for job in store.jobs() if not job.foreign and job.alive("supervisor")}

    def answered() -> bool:
        return live <= {claim.job for claim in ledger.claims(time.monotonic()) if claim.promised_w is not None}

    proc.awaited(answered, CLAIMS_S)


def _receipt(ledger: Ledger, wanted: str, now: float, *, as_json: bool) -> None:
    from carbontui.extensions.site import receipt

    with refused("--receipt: ", EventError, code=3):
        event = ledger.event(wanted)
        if now < event.start_s or event.end_s <= event.start_s:
            raise EventError(f"event {event.id} is {event.state(now)}: nothing was asked of anybody yet")
    found = receipt.receipt(event, list(store.jobs()), now)
    click.echo(json.dumps(found, indent=2) if as_json else "\n".join(words.receipt_lines(found)))


def _event(event: GridEvent, claims: list[Claim], now: float) -> dict[str, Any]:
    """An event as `site --json` has it: what it gets now, and what it can get at most."""
    drawn = [claim.drawn_w for claim in claims]
    active, shows = event.state(now) == "active", any(claim.promised_w is not None for claim in claims)
    known = sum(watts for watts in drawn if watts is not None) if None not in drawn else None
    got = None if not active or event.baseline_w is None or known is None else round(event.baseline_w - known, 1)
    left = sharing.sheddable(claims) if shows and event.state(now) in ("pending", "active") else None
    return {
        "id": event.id,
        "state": event.state(now),
        "start": units.iso(event.start_s),
        "end": units.iso(event.end_s),
        "asked_w": event.asked_w,
        "target_w": event.target_w,
        "delivered_w": got,
        "can_shed_w": None if left is None else round(left, 1),
    }


def _show(ledger: Ledger, now: float, *, as_json: bool) -> None:
    budget, claims = ledger.budget(now), ledger.claims(time.monotonic())
    known = ledger.events()
    of_now = events.current(known, now)
    told = [_event(one, claims if one is of_now else [], now) for one in known]
    if as_json:
        shown = {"budget": msgspec.to_builtins(budget), "claims": msgspec.to_builtins(claims), "events": told}
        click.echo(json.dumps(shown, indent=2))
        return
    if budget is None:
        click.echo("no site budget; set one: carbontui site --cap 1200W")
    else:
        end = "" if budget.until_s is None else f" until {figures.named_clock(budget.until_s, now)}"
        ramp = f"rising at most {figures.watts(budget.ramp_w_per_s)} per second"
        click.echo(f"site budget {figures.watts(budget.cap_w)}{end}, by {budget.by or '?'}, {ramp}")
    for one, facts in zip(known, told, strict=True):
        if now < one.over_s:
            expected_w = sum(claim.without_event_w for claim in claims)
            tight = [claim for claim in claims if claim.least_in_event_w > claim.floor_w + TOLERANCE_W]
            for line in words.event(one, facts["can_shed_w"], expected_w, [c.name or c.job for c in tight], now):
                click.echo(line)
    if budget is None and of_now is None:
        return
    for claim in claims:
        state = "no supervisor controls it: counted in full" if claim.gone else f"wants {figures.watts(claim.wants_w)}"
        click.echo(f"  {claim.job}  {units.printable(claim.name):<24} {figures.watts(claim.counts_w):>8}  {state}")
    if budget is not None:
        left = budget.cap_w - sum(claim.counts_w for claim in claims)
        click.echo(f"  {'free' if left >= 0 else 'above it'}: {figures.watts(abs(left))}")
