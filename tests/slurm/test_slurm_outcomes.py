"""What a real Slurm does to a training comes out under carbontui as in the plain run, and nothing is lost.

CARBONTUI_TABLE=DIR has the time limit tried too (a minute), and the rows kept; tests/slurm/table.py makes results.md.
"""

from __future__ import annotations

import importlib.util
import json
import os
from pathlib import Path

import pytest
from outcomes import EVENTS, Run, strike

pytestmark = [pytest.mark.xdist_group("slurm"), pytest.mark.timeout(600)]
TABLE = os.environ.get("CARBONTUI_TABLE")
KINDS = ["handler", "none"]
if importlib.util.find_spec("lightning") and TABLE:
    KINDS.append("lightning")


@pytest.fixture(scope="module")
def outcomes(cluster, tmp_path_factory):
    """Every training of the table: side by side, but for the preemption, which takes the whole node."""
    from house import House

    if cluster.kind == "pgid":
        pytest.skip(
            "the batch shell dies of a signal to all, and the plain script is cut off or not: a race of Slurm's own"
        )
    if cluster.kind == "24.11" and not TABLE:
        pytest.skip("by hand: the same as on 22.05 when it was tried, and a minute")
    house = House(tmp_path_factory.mktemp("house"), None)
    made: dict[tuple[str, str, bool], Run] = {}
    try:
        for events in ([e for e in EVENTS if e != "preemption" and (TABLE or e != "time limit")], ["preemption"]):
            for event in events:
                runs = [
                    start(cluster, house, tmp_path_factory.mktemp(event.replace(" ", "-")), event, kind, plain=plain)
                    for kind in KINDS
                    for plain in (True, False)
                ]
                made |= {(event, run.kind, run.plain): run for run in runs}
            for event in events:
                strike(event, [run for key, run in made.items() if key[0] == event])
            for run in made.values():
                run.until_over()
        found = {key: run.outcome() for key, run in made.items()}
        for run in (run for run in made.values() if not run.plain):
            assert run.jobs(house) == [len(run.received("life")) - 1], "one job over its restarts"
        for key, value in found.items():  # shown where a test fails
            print(key, value, cluster.output(made[key].id)[-1500:] if value["state"] == "FAILED" else "")
        yield found
    finally:
        for run in made.values():
            cluster.run("scancel", run.id, check=False)
        house.end()


def start(cluster, house, folder, event, kind, *, plain):
    if kind == "lightning":
        from lightning_run import LightningRun

        return LightningRun(cluster, house, folder / "run", event, kind, plain=plain)
    return Run(cluster, house, folder / "run", event, kind, plain=plain)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("event", EVENTS)
def test_as_in_the_plain_run_and_nothing_lost(outcomes, event, kind):
    if (event, kind, True) not in outcomes:
        pytest.skip("a time limit is a minute at least: with CARBONTUI_TABLE")
    plain, under = outcomes[event, kind, True], outcomes[event, kind, False]
    if TABLE:
        row = {"event": event, "kind": kind, "plain": plain, "carbontui": under}
        (Path(TABLE) / f"{EVENTS.index(event)}-{kind}.json").write_text(json.dumps(row))
    assert under["handler"] == plain["handler"]
    assert under["state"] == plain["state"]
    assert under["exit"] == plain["exit"]
    assert under["lives"] == plain["lives"]
    if kind != "lightning" or plain["lost"] == 0:  # its handler of TERM saves nothing, and is the script's
        assert under["lost"] == 0
    assert under["weights"] or not plain["weights"], "the end of a training that Slurm let come to its end"
