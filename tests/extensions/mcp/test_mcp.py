"""`mcp`: an agent's answers are the command line's; its orders end, bear its name, and overrule nobody."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys

import pytest
from house import until

from carbontui import link, protocol
from carbontui.job.files import store

mcp = pytest.importorskip("mcp")
if not hasattr(mcp, "Client"):
    pytest.skip("an older SDK", allow_module_level=True)
READS = {"jobs", "status", "plan", "account", "forecast", "preview_budget"}
ORDERS = {"pause", "boost", "cap", "resume", "budget"}
LATER = ("measured_at", "age_s", "pids", "lived_s", "metered_s", "elapsed_s", "rate_steps_per_s")
HOSTILE = [
    ("stop", {}),
    ("rm", {"all": True}),
    ("start", {"command": "rm -rf /"}),
    ("../pause", {"for": "5m"}),
    ("pause", {}),
    ("pause", {"for": None}),
    ("pause", {"for": 300}),
    ("pause", {"for": "-5m"}),
    ("pause", {"for": "0s"}),
    ("pause", {"for": "inf"}),
    ("pause", {"for": "nan"}),
    ("pause", {"for": "9999d"}),
    ("pause", {"for": "1" * 1_000_000}),
    ("pause", {"for": "5m", "until": "next"}),
    ("pause", {"for": "5m", "job": ["a", "b"]}),
    ("pause", {"for": "5m", "job": "../../../etc/passwd"}),
    ("pause", {"for": "5m", "job": "\x1b[2J\nother"}),
    ("boost", {"for": "5m", "job": "--help"}),
    ("boost", {"for": "1y"}),
    ("cap", {"watts": "300", "for": "5m"}),
    ("cap", {"watts": -1, "for": "5m"}),
    ("cap", {"watts": 1e308, "for": "5m"}),
    ("cap", {"watts": 100}),
    ("resume", {"job": "x" * 100_000}),
    ("budget", {"budget": "0.001kg"}),
    ("budget", {"budget": "999x"}),
    ("budget", {"budget": "300d"}),
    ("budget", {"budget": "-2x"}),
    ("status", {"job": "nothing"}),
    ("status", {"job": 7}),
    ("status", {"json": "x"}),
    ("plan", {"job": "--err"}),
    ("forecast", {"zone": "--record=/tmp/x"}),
    ("forecast", {"zone": "DE\nFR"}),
    ("preview_budget", {"budget": {"x": 1}}),
]


def served(house, talk, *words):
    """What `talk(client)` returns, with the official client on `carbontui mcp`."""

    async def session():
        asked = mcp.StdioServerParameters(
            command=sys.executable, args=["-m", "carbontui.cli", "mcp", *words], env=house.env, cwd=str(house.root)
        )
        async with mcp.Client(mcp.stdio_client(asked)) as client:
            return await talk(client)

    return asyncio.run(asyncio.wait_for(session(), 200))


async def answer(client, tool, arguments=None):
    found = await client.call_tool(tool, arguments or {})
    assert len(found.content) == 1
    return found.content[0].text, found.is_error


@pytest.fixture
def job(house):
    made = house.start("--zone", "DE", "--budget", "3x", "--steps", "100000", steps=100_000, pause=0.05)
    made.until_connected()
    until(lambda: (store.load(made.dir) and link.snap(store.load(made.dir).socket).plan) is not None, what="a plan")
    return made


def still(told):
    """Without what differs from one moment to the next."""
    if isinstance(told, dict):
        return {key: still(value) for key, value in told.items() if key not in LATER}
    return [still(one) for one in told] if isinstance(told, list) else told


def shape(told):
    if isinstance(told, dict):
        return {key: shape(value) for key, value in told.items()}
    return [shape(one) for one in told[:1]] if isinstance(told, list) else type(told) if told is None else "value"


def test_it_answers_as_the_command_line_does_to_the_digit_once_the_job_is_over(house, job):
    async def live(client):
        return {tool: await answer(client, tool) for tool in ("status", "plan", "account", "jobs")}

    running = served(house, live)
    assert [error for _, error in running.values()] == [False] * 4
    assert json.loads(running["status"][0]).keys() == json.loads(house.cli("status", "--json").stdout).keys()
    planned = json.loads(house.cli("plan", "--json", check=True).stdout)
    assert json.loads(running["plan"][0]).keys() == planned.keys()
    house.cli("boost", check=True)  # the plan may hold it
    job.let_end()
    job.until_over()

    async def over(client):
        every = {tool: await answer(client, tool, {"job": job.id}) for tool in ("status", "account")}
        more = {"jobs": await answer(client, "jobs"), "forecast": await answer(client, "forecast", {"zone": "DE"})}
        return every | more, await answer(client, "plan", {"job": job.id})

    told, no_plan = served(house, over)
    for tool, words in (("status", ["status"]), ("account", ["report"]), ("jobs", ["ls"])):
        asked = [job.id] if tool != "jobs" else []
        assert told[tool] == (house.cli(*words, "--json", *asked, check=True).stdout, False), tool
    ours, theirs = json.loads(told["forecast"][0]), json.loads(house.cli("grid", "--json", "--zone", "DE").stdout)
    assert ours.keys() == theirs.keys() and ours["forecast"] == theirs["forecast"] if "forecast" in ours else True
    assert no_plan == (house.cli("plan", job.id).stderr.removeprefix("carbontui: ").strip(), True)


def test_what_a_budget_would_give_changes_nothing(house, job):
    async def talk(client):
        return await answer(client, "preview_budget", {"budget": "2x", "job": job.id})

    before = job.served().budget.factor
    text, error = served(house, talk)
    told = json.loads(text)
    assert not error and told["budget"] == "2x" and told["gco2_g"] >= 0 and told["in_force"]["finish"]
    again = link.ask(store.load(job.dir).socket, protocol.Preview(1, budget="2x"))
    # of a CPU's watts above idle, which move from one second to the next
    assert told["kwh"] == pytest.approx(again.kwh, rel=0.5) and job.served().budget.factor == pytest.approx(before)


def test_without_leave_no_order_is_offered_or_taken_and_with_it_no_hostile_one(house, job):
    before = job.served()

    async def without(client):
        names = {tool.name for tool in (await client.list_tools()).tools}
        return names, [await answer(client, order, {"for": "5m"}) for order in sorted(ORDERS)]

    names, refused = served(house, without)
    assert names == READS and all(error and "--allow-write" in text for text, error in refused)

    async def hostile(client):
        names = {tool.name for tool in (await client.list_tools()).tools}
        return names, [(asked, await answer(client, *asked)) for asked in HOSTILE]

    names, refused = served(house, hostile, "--allow-write")
    assert names == READS | ORDERS
    for (tool, _), (text, error) in refused:
        assert error and 0 < len(text) <= 400 and text.isprintable(), (tool, text)
    after = job.served()
    assert (after.override, after.override_gen) == (None, before.override_gen)
    assert after.budget.factor == pytest.approx(before.budget.factor) and after.state in protocol.LIVE_STATES


def test_an_order_ends_bears_its_name_and_gives_way_to_a_person(house, job):
    async def pause(client):
        return await answer(client, "pause", {"for": "10m", "job": job.id})

    text, error = served(house, pause, "--allow-write")
    told = json.loads(text)
    assert not error and (told["override"]["by"], told["override"]["mode"]) == ("agent", "pause")
    assert told["override"]["until"] == job.served().override.until is not None
    job.until_state("paused")
    assert "paused by agent until" in house.cli("status", check=True).stdout.lower()
    house.cli("resume", check=True)  # a person's key does the same
    assert job.served().override is None
    house.cli("boost", "--for", "1h", check=True)

    async def overrule(client):
        orders = [
            ("pause", {"for": "10m"}),
            ("cap", {"for": "10m", "watts": 200}),
            ("resume", {}),
            ("budget", {"budget": "2x"}),
        ]
        return [await answer(client, *order) for order in orders]

    for text, error in served(house, overrule, "--allow-write"):
        assert error and "boost by" in text and "overrules no person" in text
    assert job.served().override.mode == "boost"
    house.cli("resume", check=True)

    async def plan(client):
        given = [await answer(client, "boost", {"for": "2m"}), await answer(client, "resume")]
        return [*given, await answer(client, "budget", {"budget": "2x"})]

    boosted, resumed, budget = served(house, plan, "--allow-write")
    assert [error for _, error in (boosted, resumed, budget)] == [False] * 3
    assert json.loads(budget[0])["budget_before"]["factor"] == pytest.approx(3, rel=0.01)
    assert job.served().budget.factor == pytest.approx(2, rel=0.01)


def test_pages_of_the_docs_are_there_and_no_other_file(house):
    async def talk(client):
        uris = [str(one.uri) for one in (await client.list_resources()).resources]
        texts = [(await client.read_resource(uri)).contents[0].text for uri in uris]
        wrong = []
        for uri in ("carbontui://docs/../../etc/passwd", "file:///etc/passwd", "carbontui://docs/", "x:y"):
            with pytest.raises(mcp.MCPError) as refused:
                await client.read_resource(uri)
            wrong.append(str(refused.value))
        return texts, wrong

    texts, wrong = served(house, talk)
    assert len(texts) == 3 and all(len(text) > 1000 for text in texts)
    assert all("no page" in text for text in wrong)


def test_without_the_extra_one_line_says_what_to_install(house, tmp_path):
    (tmp_path / "mcp_types.py").write_text("raise ImportError('No module named mcp_types')\n")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from carbontui.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code, "mcp"], env=house.env, capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr.count("\n") == 1 and 'pip install "carbontui[mcp]"' in done.stderr
