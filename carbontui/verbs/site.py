"""`site`: one power budget for all jobs of this machine."""

from __future__ import annotations

import json
import time

import click
import msgspec

from carbontui import link, units
from carbontui.job import budget as budgets
from carbontui.site.ledger import Ledger, LedgerError
from carbontui.site.sharing import RAMP_W_PER_S, SiteBudget
from carbontui.text import figures
from carbontui.verbs.support.command import Failure, refused
from carbontui.verbs.support.run_values import power


@click.command()
@click.option("--cap", "cap", help="Watts that the boards of all jobs together may draw, like 1200W.")
@click.option("--until", "until", help='When it ends, like 18:00 or "fri 09:00" (default: until cleared).')
@click.option("--ramp", "ramp", help="How fast they may rise together, in watts per second, like 100W.")
@click.option("--clear", "clear", is_flag=True, help="Lift the budget.")
@click.option("--json", "as_json", is_flag=True, help="The budget and its claims as JSON.")
def site(cap: str | None, until: str | None, ramp: str | None, clear: bool, as_json: bool) -> None:
    """Show, set or lift the power budget of this machine's jobs: carbontui site --cap 1200W --until 18:00

    All supervisors keep it together: by power limits, else by pauses. It counts the boards that your jobs use; across
    users only an administrator's /etc/carbontui/site.toml applies.
    """
    ledger = Ledger()
    now = time.time()
    if clear and (cap or until or ramp):
        raise Failure("--clear takes no other options", 2)
    if (until or ramp) and not cap:
        raise Failure("--until and --ramp go with --cap, like carbontui site --cap 1200W --until 18:00", 2)
    with refused("", LedgerError, code=1):
        if clear:
            ledger.set_budget(None)
        elif cap:
            with refused("--until: "):
                until_s = budgets.parse_until(until, now) if until else None
            if isinstance(until_s, str):
                raise Failure("--until: a site budget needs a time of day, like 18:00", 2)
            rise = power(ramp, "--ramp") if ramp else RAMP_W_PER_S
            ledger.set_budget(
                SiteBudget(cap_w=power(cap, "--cap"), ramp_w_per_s=rise, until_s=until_s, by=link.whoami())
            )
        _show(ledger, now, as_json=as_json)


def _show(ledger: Ledger, now: float, *, as_json: bool) -> None:
    budget, claims = ledger.budget(now), ledger.claims(time.monotonic())
    if as_json:
        shown = {"budget": msgspec.to_builtins(budget), "claims": msgspec.to_builtins(claims)}
        click.echo(json.dumps(shown, indent=2))
        return
    if budget is None:
        click.echo("no site budget; set one: carbontui site --cap 1200W")
        return
    end = "" if budget.until_s is None else f" until {figures.named_clock(budget.until_s, now)}"
    ramp = f"rising at most {figures.watts(budget.ramp_w_per_s)} per second"
    click.echo(f"site budget {figures.watts(budget.cap_w)}{end}, by {budget.by or '?'}, {ramp}")
    held = sum(claim.counts_w for claim in claims)
    for claim in claims:
        state = "no supervisor controls it: counted in full" if claim.gone else f"wants {figures.watts(claim.wants_w)}"
        click.echo(f"  {claim.job}  {units.printable(claim.name):<24} {figures.watts(claim.counts_w):>8}  {state}")
    left = budget.cap_w - held
    click.echo(f"  {'free' if left >= 0 else 'above it'}: {figures.watts(abs(left))}")
