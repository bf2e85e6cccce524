"""How many jobs share a machine, as its processes come and go, and the host's watts split by it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from carbontui.power.metering.shares import CpuTime, JobsHere

AGENT, KEEPER = ("python3", "-m", "carbontui.power.agent", "--fd", "7", "--job"), ("-m", "carbontui.job.keeper")


def has(root: Path, pid: int, name: str, *words: str, parent: int = 1) -> None:
    (root / str(pid)).mkdir(exist_ok=True)
    fields = " ".join(["S", str(parent), str(pid), str(pid), *["0"] * 7, "100", "50", *["0"] * 6, "7", "0"])
    (root / str(pid) / "stat").write_text(f"{pid} ({name}) {fields}\n")
    (root / str(pid) / "cmdline").write_bytes(b"\0".join(word.encode() for word in words) + b"\0")


def test_jobs_count_while_their_agents_are_replaced_and_a_station_is_none(tmp_path: Path) -> None:
    has(tmp_path, 11, "python3", *AGENT, "a1")
    has(tmp_path, 12, "python3 (deleted) x", *AGENT, "b2")
    has(tmp_path, 13, "python3", *AGENT, "b2")  # its successor
    has(tmp_path, 14, "python3", *AGENT, "station", "--monitor")
    has(tmp_path, 15, "bash", "bash", "-c", "carbontui.power.agent --job c3")
    has(tmp_path, 16, "python3", *AGENT, "d4", "--apart", "f00")  # its leases are kept elsewhere: a container
    has(tmp_path, 17, "python3", "python3", *KEEPER, "e5")  # its agent is being replaced
    has(tmp_path, 18, "python3", "python3", *KEEPER, "d4", "--apart", "f00")
    clock = CpuTime(lambda: (0, 0), str(tmp_path))
    assert clock.part((11,), 0.0).jobs == 3, "known at once: the host's watts are split by it"
    has(tmp_path, 19, "python3", "python3", *KEEPER, "f6")
    assert clock.part((11,), 0.5).jobs == 4
    assert clock.part((11,), 20.0).share == pytest.approx(1 / 4)


def test_an_orphaned_training_counts_until_it_ends_what_it_left_does_not(tmp_path: Path) -> None:
    here = JobsHere(str(tmp_path))
    has(tmp_path, 10, "python3", "python3", *KEEPER, "ours")
    has(tmp_path, 20, "bash", "carbontui", "run")  # a child on its way to become the keeper
    assert here.count() == 1
    has(tmp_path, 20, "python3", "python3", *KEEPER, "theirs")
    has(tmp_path, 21, "train", "./train", parent=20)
    assert here.count() == 2
    has(tmp_path, 22, "wandb", "wandb-service", parent=21)
    assert here.count() == 2
    shutil.rmtree(tmp_path / "20")
    assert here.count() == 2, "keeper and supervisor are gone, the training lives"
    shutil.rmtree(tmp_path / "21")
    assert here.count() == 1


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    lives=st.lists(st.tuples(st.floats(0, 600), st.floats(120, 900)), min_size=1, max_size=6), phase=st.floats(0, 0.99)
)
def test_the_jobs_of_a_machine_book_its_host_watts_once(
    lives: list[tuple[float, float]], phase: float, tmp_path: Path
) -> None:
    """Each looks once a second, at its own part of it, and books the second past by how many it sees, to its end."""
    root = tmp_path / "proc"
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir()
    lives = [(begun, begun + long) for begun, long in lives]
    moments = [(at, "begins", n) for n, (at, _) in enumerate(lives)] + [
        (at, "ends", n) for n, (_, at) in enumerate(lives)
    ]
    moments += [(at + 30.0, "goes", n) for n, (_, at) in enumerate(lives)]  # its account takes long to be written
    for n, (begun, ended) in enumerate(lives):
        first = begun + (phase * (n + 1)) % 1.0
        moments += [(first + k, "looks", n) for k in range(int(ended - first) + 1) if first + k < ended]
    here = [JobsHere(str(root), f"job{n}") for n in range(len(lives))]
    until, booked = [begun for begun, _ in lives], 0.0
    for at, what, n in sorted(moments):
        name = "job ended" if what == "ends" else "python3"
        if what == "goes":
            shutil.rmtree(root / str(100 + n))
            continue
        if what != "looks":
            has(root, 100 + n, name, "python3", *KEEPER, f"job{n}")
        booked += (at - until[n]) / here[n].count()
        until[n] = at
    union, reached = 0.0, 0.0
    for begun, ended in sorted(lives):
        union += max(0.0, ended - max(begun, reached))
        reached = max(reached, ended)
    assert booked == pytest.approx(union, rel=0.01)
