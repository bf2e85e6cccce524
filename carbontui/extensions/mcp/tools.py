"""What an agent may call: the arguments of each tool, checked before anything runs, and its answer as text.

What a tool reads is what the verb prints with --json: the verb itself runs, in this process. An order goes to the
supervisor alone, never to a file for one to come.
"""

import contextlib
import io
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import click
import msgspec
from msgspec import Meta, Struct, field

from carbontui import protocol, units
from carbontui.commands.support import talk
from carbontui.commands.support.command import Failure, refused
from carbontui.job.files import store
from carbontui.job.terms import allowance
from carbontui.job.terms.budget import parse

AGENT = "agent"
"""The author of its orders."""
MOST_S = 12 * 3600.0
"""An order of an agent ends by itself at the latest after this."""
BUDGET_MOST_S = 30 * 86400.0
FACTOR_MOST = 10.0
ERROR_MAX = 400
_one_at_a_time = threading.Lock()
"""What a verb prints is caught by replacing the streams of the process."""

JobName = Annotated[str, Meta(min_length=1, max_length=100, description="Id or name; without: the only live job.")]
Lasting = Annotated[str, Meta(min_length=2, max_length=20, description="How long, like 30m or 2h; at most 12h.")]
BudgetText = Annotated[str, Meta(min_length=2, max_length=40, description='1.8x, 18h or "fri 09:00".')]


class NoArguments(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    pass


class OfJob(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    job: JobName | None = None


class OfZone(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    zone: (
        Annotated[str, Meta(min_length=1, max_length=60, description="Like DE or US-CAL-CISO; see status.")] | None
    ) = None


class OfBudget(OfJob, forbid_unknown_fields=True, frozen=True, kw_only=True):
    budget: BudgetText


class Timed(OfJob, forbid_unknown_fields=True, frozen=True, kw_only=True):
    lasting: Lasting = field(name="for")


class CapOrder(Timed, forbid_unknown_fields=True, frozen=True, kw_only=True):
    watts: Annotated[float, Meta(gt=0, le=100_000, description="Watts per GPU.")]


@dataclass(frozen=True)
class AgentTool:
    """One tool: `run` takes our command group and a value of `arguments`, returns JSON, and raises
    click.ClickException with one line."""

    name: str
    about: str
    arguments: type[Struct]
    run: Callable[[click.Command, Any], str]
    writes: bool = False

    def schema(self) -> dict[str, Any]:
        """JSON schema of its arguments."""
        _, parts = msgspec.json.schema_components([self.arguments])
        return dict(parts[self.arguments.__name__])


def printed(root: click.Command, *words: str) -> str:
    """What a verb of the command group prints on stdout. Raises click.ClickException."""
    out, said = io.StringIO(), io.StringIO()
    with _one_at_a_time, contextlib.redirect_stdout(out), contextlib.redirect_stderr(said):
        try:
            root.main([*words], prog_name="carbontui", standalone_mode=False)
        except SystemExit as end:
            if end.code:
                raise Failure(said.getvalue() or f"{words[0]} ended with {end.code}") from None
    return out.getvalue()


def _of_job(verb: str) -> Callable[[click.Command, OfJob], str]:
    return lambda root, given: printed(root, verb, "--json", *([] if given.job is None else ["--", given.job]))


def _forecast(root: click.Command, given: OfZone) -> str:
    return printed(root, "grid", "--json", *([] if given.zone is None else [f"--zone={given.zone}"]))


def _preview(_: click.Command, given: OfBudget) -> str:
    found = talk.find(given.job)
    answer = talk.ask(found, protocol.Preview(1, budget=given.budget), protocol.Previewed)
    if answer.error is not None:
        raise Failure(answer.error, 2)
    parts = {name: getattr(answer, name) for name in ("finish", "gco2_g", "cost", "kwh")}
    now = answer.instead
    held = None if now is None else {name: getattr(now, name) for name in parts}
    return talk.as_json({"job": found.id, "budget": given.budget, **parts, "in_force": held})


def _order(job: str | None, verb: protocol.Verb, args: dict[str, Any]) -> str:
    """Give one order. Raises Failure: 4 where a person's override is in force, which no agent overrules."""
    found = talk.find(job)
    before = _status(found)
    held = before.override
    if held is not None and held.by != AGENT:
        raise Failure(f"{held.mode} by {held.by} is in force: an agent overrules no person", 4)
    # with the number of the override that was read: a person who was quicker is not overruled either
    answer = talk.accepted(talk.ask(found, protocol.Cmd(1, verb, args, before.override_gen), protocol.Result))
    after = _status(found)
    now = {"job": found.id, "by": AGENT, "answer": talk.answer_text(answer), "override": after.override}
    return talk.as_json(now | {"budget": after.budget, "budget_before": before.budget})


def _status(job: store.Job) -> protocol.Status:
    return talk.ask(job, protocol.StatusAsk(1), protocol.StatusAnswer).status


def _ends(text: str) -> dict[str, Any]:
    """The end of an order. Raises Failure (2) for one that is no end."""
    with refused("for: "):
        seconds = units.parse_duration(text)
    if not 60 <= seconds <= MOST_S:
        raise Failure(f"for: {text!r} is not between 1m and {MOST_S / 3600:.0f}h", 2)
    return {"for_s": seconds}


def _timed(verb: Literal["pause", "boost"]) -> Callable[[click.Command, Timed], str]:
    return lambda _, given: _order(given.job, verb, _ends(given.lasting))


def _cap(_: click.Command, given: CapOrder) -> str:
    if not math.isfinite(given.watts):
        raise Failure(f"watts: {given.watts} is no number of watts", 2)
    return _order(given.job, "cap", {"value_w": given.watts, **_ends(given.lasting)})


def _resume(_: click.Command, given: OfJob) -> str:
    return _order(given.job, "resume", {})


def _budget(_: click.Command, given: OfBudget) -> str:
    """A deadline is the end of such an order. Budgets of CO2, energy or money may stop a job: they are a person's."""
    if allowance.is_amount(given.budget):
        raise Failure(f"budget {given.budget!r}: an agent sets a time, like 1.8x, 18h or fri 09:00", 2)
    now = time.time()
    with refused():
        asked = parse(given.budget, now)
    most = FACTOR_MOST if asked.kind == "factor" else BUDGET_MOST_S
    if asked.value - (now if asked.kind == "deadline" else 0.0) > most:
        raise Failure(f"budget {given.budget!r}: an agent sets at most {FACTOR_MOST:g}x, or 30 days", 2)
    at = units.instant(given.budget, units.from_iso(_status(talk.find(given.job)).measured_at))
    return _order(given.job, "budget", {"budget": at})


TOOLS = (
    AgentTool("jobs", "All jobs: carbontui ls --json.", NoArguments, lambda root, _: printed(root, "ls", "--json")),
    AgentTool("status", "One job, sampled now: carbontui status --json.", OfJob, _of_job("status")),
    AgentTool("plan", "The plan in force, by slot: carbontui plan --json.", OfJob, _of_job("plan")),
    AgentTool(
        "account", "Energy, CO2, what was avoided and by what: carbontui report --json.", OfJob, _of_job("report")
    ),
    AgentTool("forecast", "A grid's intensity, now and ahead: carbontui grid --json.", OfZone, _forecast),
    AgentTool(
        "preview_budget",
        "Finish, CO2, cost and energy of the whole job under another budget, beside those in force; changes nothing.",
        OfBudget,
        _preview,
    ),
    AgentTool("pause", "Hold the training at its next step, for a while.", Timed, _timed("pause"), True),
    AgentTool("boost", "Run at full speed, for a while.", Timed, _timed("boost"), True),
    AgentTool("cap", "Cap every GPU of the job, for a while.", CapOrder, _cap, True),
    AgentTool("resume", "End your own override: back to the plan.", OfJob, _resume, True),
    AgentTool("budget", "Change by when the job is to be done.", OfBudget, _budget, True),
)


def call(root: click.Command, name: str, arguments: Any, *, allow_write: bool) -> tuple[str, bool]:
    """The answer of a tool and True, or one line of why not and False."""
    tool = next((one for one in TOOLS if one.name == name), None)
    if tool is None:
        return f"no tool {name[:60]!r}; there are {', '.join(one.name for one in TOOLS)}", False
    if tool.writes and not allow_write:
        return f"{name} changes a job: a person starts carbontui mcp --allow-write for that", False
    try:
        return tool.run(root, msgspec.convert(arguments or {}, tool.arguments)), True
    except click.ClickException as error:
        why = error.format_message()
    except (msgspec.ValidationError, OSError, ValueError) as error:
        why = str(error)
    return " ".join(units.printable(why).split())[:ERROR_MAX], False
