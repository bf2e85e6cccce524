"""The boards of several machines as one list, and the names of a Slurm job's nodes."""

from __future__ import annotations

import os
import time
from pathlib import Path

import msgspec
import pytest

from carbontui.nodes.agents import Agents, merged
from carbontui.nodes.handle import NodeHandle
from carbontui.power.messages import HostReading, MeterVerdict, Reading, Readings, Report, Sample
from carbontui.slurm import commands


def readings(uuid: str, mono_s: float, **fields) -> Readings:
    board = Reading(uuid=uuid, name="H100", power_w=500.0)
    return Readings(mono_s=mono_s, devices=(board,), host=HostReading(100.0, 20.0, source="rapl"), **fields)


def test_boards_carry_their_machine_and_hosts_add_up():
    found = merged([("n1", readings("GPU-a", 100.0)), ("n2", readings("GPU-b", 101.0))], 101.0)
    assert [(device.node, device.uuid, device.power_w) for device in found.devices] == [
        ("n1", "GPU-a", 500.0),
        ("n2", "GPU-b", 500.0),
    ]
    assert (found.mono_s, found.host.cpu_w, found.host.dram_w) == (101.0, 200.0, 40.0)
    assert [(node.node, node.power_w) for node in found.nodes] == [("n1", 620.0), ("n2", 620.0)]


def test_each_machines_meters_are_named():
    def at(mono_s, verdict):
        host = HostReading(
            100.0, beside_w=300.0, beside_by="meter", witnesses=(MeterVerdict("meter", "node", verdict),)
        )
        return Readings(mono_s=mono_s, host=host)

    found = merged([("n1", at(100.0, "believed")), ("n2", at(101.0, "refused"))], 101.0).host
    assert [(one.what, one.verdict) for one in found.witnesses] == [("n1 meter", "believed"), ("n2 meter", "refused")]
    assert (found.beside_w, found.beside_by) == (600.0, "n1 meter; n2 meter")


def test_watts_of_a_machine_that_tells_nothing_any_more_are_unknown():
    found = merged([("n1", readings("GPU-a", 100.0)), ("n2", readings("GPU-b", 90.0))], 100.0)
    assert [device.power_w for device in found.devices] == [500.0, None]
    assert [node.power_w for node in found.nodes] == [620.0, None]
    assert found.host.cpu_w == 100.0


def test_a_machine_that_was_never_read_adds_nothing():
    found = merged([("n1", readings("GPU-a", 100.0)), ("n2", Readings())], 100.0)
    assert [device.node for device in found.devices] == ["n1"]


def test_a_node_without_a_gpu_beside_others_that_have_some_is_one_line():
    bare = Readings(mono_s=100.0, host=HostReading(80.0, source="cpu-load"))
    found = merged([("n1", readings("GPU-a", 100.0)), ("n2", bare)], 100.0)
    assert found.notices == ("n2: no GPU is seen there: only its CPU and memory are counted",)
    assert (found.devices[0].power_w, found.host.cpu_w) == (500.0, 180.0)
    why = msgspec.structs.replace(bare, notices=("n2: NVML: Driver/library version mismatch",))
    assert merged([("n1", readings("GPU-a", 100.0)), ("n2", why)], 100.0).notices == why.notices  # said already
    assert merged([("n1", bare), ("n2", bare)], 100.0).notices == ()  # a job for CPUs


class WatchedNode(NodeHandle):
    """Keeps what it was last told to watch."""

    def watch(self, uuids, own_pids=(), elsewhere=()):
        self.told = own_pids


def test_ranks_that_are_not_connected_still_own_their_share_of_a_node():
    """As after a restart of their node's agent: without processes of the job, all of the machine would be counted."""
    node = WatchedNode("n2", ["true"], {}, path=Path("/nowhere/s"), simulated=False, log=print, job="j")
    agents = Agents(None, "", (node,))
    for pids in ((7, 8), (), (9,)):
        agents.watch(None, elsewhere=(("n2", pids),))
        assert node.told == (pids or (7, 8))


@pytest.mark.parametrize("ahead_s", [-90_000.0, 0.0, 90_000.0])
def test_what_a_node_with_another_clock_reads_is_dated_by_ours(ahead_s):
    node = NodeHandle("n2", ["true"], {}, path=Path("/nowhere/s"), simulated=False, log=print, job="j")
    began, wall = time.monotonic(), time.time()
    mono, of_wall = began + ahead_s, wall + ahead_s
    sample = Sample(uuid="GPU-b", mono_s=mono - 1.0, wall_s=of_wall - 1.0, energy_uj=5, max_w=700.0)
    board = Reading(uuid="GPU-b", name="H100", power_w=500.0)
    node.take(Report(Readings(mono_s=mono, wall_s=of_wall, devices=(board,)), (sample,)))
    assert began <= node.readings.mono_s <= time.monotonic()
    (told,) = node.drain()
    assert told.mono_s == pytest.approx(node.readings.mono_s - 1.0)
    assert wall - 1.0 <= told.wall_s + 1e-3 <= time.time()


def test_a_batch_script_speaks_for_all_nodes_and_a_task_for_none(tmp_path, monkeypatch):
    (tmp_path / "scontrol").write_text('#!/bin/sh\n[ "$3" = "n[1-3]" ] && printf "n1\\nn2\\nn3\\n"\n')
    (tmp_path / "scontrol").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    job = {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "3", "SLURM_JOB_NODELIST": "n[1-3]"}
    assert commands.promised_nodes(job) == ("n1", "n2", "n3")
    assert commands.promised_nodes({**job, "SLURM_STEP_ID": "4294967291"}) == ("n1", "n2", "n3")
    assert commands.promised_nodes({**job, "SLURM_STEP_ID": "0"}) == ()
    assert commands.promised_nodes({**job, "SLURM_JOB_NUM_NODES": "1"}) == ()
    assert commands.own_node({"SLURMD_NODENAME": "n2"}, ("n1", "n2"), "host") == "n2"
    assert commands.own_node({}, ("n1", "n2"), "n1.cluster.org") == "n1"
    assert commands.own_node({}, ("n1", "n2"), "login") == ""


def test_a_command_of_slurm_that_fails_is_told_in_one_line(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(commands.SlurmError, match="scontrol: not found"):
        commands.ask("scontrol", "ping")
    (tmp_path / "scontrol").write_text("#!/bin/sh\necho 'slurm_load: Unable to\ncontact controller' >&2\nexit 1\n")
    (tmp_path / "scontrol").chmod(0o755)
    with pytest.raises(commands.SlurmError, match=r"^scontrol: slurm_load: Unable to contact controller$"):
        commands.ask("scontrol", "ping")


def test_a_step_of_ours_takes_over_none_of_the_jobs_options():
    kept = commands.step_environment(
        {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "8", "SBATCH_EXPORT": "NONE", "PATH": "/bin", "SLURM_CONF": "/c"}
    )
    assert kept == {"SLURM_JOB_ID": "7", "PATH": "/bin", "SLURM_CONF": "/c"}
