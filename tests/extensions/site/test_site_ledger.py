"""The ledger on disk: who stands behind a claim, which budget counts, and that nobody else can write it."""

from __future__ import annotations

import errno
import fcntl
import os
import stat

import msgspec
import pytest

from carbontui.extensions.site.ledger import Ledger, LedgerEntry, LedgerError
from carbontui.extensions.site.sharing import SiteBudget
from carbontui.headroom import Claim


def entry(job: str, at_s: float = 0.0, pid: int = 1, **fields) -> LedgerEntry:
    known = {"full_w": 700.0, "least_w": 200.0, "floor_w": 90.0, "wants_w": 700.0}
    made = Claim(job=job, **{**known, **fields})
    return LedgerEntry(claim=made, boot_id="b", beat_mono_s=at_s, supervisor=(pid, 1), child=(pid + 1000, 1))


@pytest.fixture
def house_of(tmp_path):
    """A ledger of the processes that are alive, which a test ends by taking them out of the set."""
    alive = {1, 2, 3, 1001, 1002, 1003}

    def made() -> Ledger:
        return Ledger(
            tmp_path / "site", administrator=tmp_path / "site.toml", alive=lambda pid, _: pid in alive, boot_id="b"
        )

    return made, alive, tmp_path


def test_without_a_budget_nothing_is_written(house_of):
    ledger = house_of[0]()
    assert ledger.exchange(entry("a"), 0.0) is None
    assert not ledger.directory.exists()


def test_the_claim_of_a_job_in_another_namespace_counts_while_it_is_renewed(house_of):
    made, _, _ = house_of
    ledger = made()
    ledger.set_budget(SiteBudget(cap_w=1000.0, ramp_w_per_s=1e6))
    hidden = msgspec.structs.replace(entry("hidden", pid=77), pidns=ledger.pidns + 1)
    ledger.exchange(hidden, 0.0)
    assert ledger.exchange(entry("seen"), 0.0).now_w == pytest.approx(300.0)
    assert [claim.gone for claim in ledger.claims(1.0) if claim.job == "hidden"] == [False]
    assert [claim.gone for claim in ledger.claims(60.0) if claim.job == "hidden"] == [True]
    assert [claim.job for claim in ledger.claims(3600.0)] == ["seen"]


def test_lease_folders_side_by_side_have_each_a_budget_of_its_own(tmp_path, monkeypatch):
    for name, cap_w in (("one", 400.0), ("other", 900.0)):
        monkeypatch.setenv("CARBONTUI_LEASE_DIR", str(tmp_path / name))
        Ledger(administrator=tmp_path / "none").set_budget(SiteBudget(cap_w=cap_w))
    for name, cap_w in (("one", 400.0), ("other", 900.0)):
        monkeypatch.setenv("CARBONTUI_LEASE_DIR", str(tmp_path / name))
        assert Ledger(administrator=tmp_path / "none").budget(0.0).cap_w == cap_w


def test_two_jobs_share_a_budget_and_files_are_private(house_of):
    ledger = house_of[0]()
    ledger.set_budget(SiteBudget(cap_w=1000.0, ramp_w_per_s=1e6))
    assert ledger.exchange(entry("a"), 0.0).now_w == 700.0
    assert ledger.exchange(entry("b", pid=2), 0.0).now_w == pytest.approx(300.0)
    # the first gives way, and what it holds counts until it no longer draws it
    assert ledger.exchange(entry("a", held_w=700.0), 1.0).now_w == pytest.approx(500.0)
    assert ledger.exchange(entry("b", 1.0, pid=2, held_w=300.0), 1.0).now_w == pytest.approx(300.0)
    assert ledger.exchange(entry("a", 2.0, held_w=500.0), 2.0).now_w == pytest.approx(500.0)
    assert ledger.exchange(entry("b", 2.0, pid=2, held_w=300.0), 2.0).now_w == pytest.approx(500.0)
    for path in ledger.directory.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(ledger.directory.stat().st_mode) == 0o700


def test_a_job_whose_supervisor_is_gone_counts_in_full_until_its_processes_end(house_of):
    make, alive, _ = house_of
    ledger = make()
    ledger.set_budget(SiteBudget(cap_w=1000.0, ramp_w_per_s=1e6))
    ledger.exchange(entry("a", wants_w=90.0), 0.0)
    alive.discard(1)
    assert [claim.gone for claim in ledger.claims(1.0)] == [True]
    assert ledger.exchange(entry("b", pid=2), 0.0).now_w == pytest.approx(300.0)
    alive.discard(1001)
    assert ledger.exchange(entry("b", 1.0, pid=2), 0.0).now_w == 700.0
    assert [claim.job for claim in ledger.claims(1.0)] == ["b"]


def test_a_supervisor_that_hangs_steers_nothing(house_of):
    ledger = house_of[0]()
    ledger.set_budget(SiteBudget(cap_w=1000.0))
    ledger.exchange(entry("a", 0.0, wants_w=90.0), 0.0)
    assert [claim.gone for claim in ledger.claims(7.0)] == [True]


def test_a_budget_with_an_end_is_over_then(house_of):
    ledger = house_of[0]()
    ledger.set_budget(SiteBudget(cap_w=1000.0, until_s=50.0))
    assert ledger.budget(49.0).cap_w == 1000.0
    assert ledger.budget(50.0) is None
    ledger.set_budget(None)
    assert ledger.budget(0.0) is None


@pytest.mark.skipif(os.getuid() != 0, reason="an administrator's file belongs to root")
def test_of_several_users_only_the_administrators_file_counts(house_of):
    make, _, root = house_of
    ledger = make()
    (root / "site.toml").write_text("cap_w = 800.0\n[users]\nnobody = 100.0\n")
    assert ledger.budget(0.0).cap_w == 800.0
    ledger.set_budget(SiteBudget(cap_w=1000.0))
    assert ledger.budget(0.0).cap_w == 800.0  # a user lowers it, and never lifts it
    ledger.set_budget(SiteBudget(cap_w=600.0))
    assert ledger.budget(0.0).cap_w == 600.0
    (root / "site.toml").chmod(0o666)
    with pytest.raises(LedgerError, match="others than root may write it"):
        ledger.budget(0.0)


def test_what_is_no_claim_is_passed_over_and_a_damaged_budget_is_said(house_of):
    ledger = house_of[0]()
    ledger.set_budget(SiteBudget(cap_w=1000.0))
    (ledger.directory / "x.claim").write_text("{}garbage")
    assert ledger.claims(0.0) == []
    (ledger.directory / "budget.json").write_text("no")
    with pytest.raises(LedgerError, match="carbontui site --cap"):
        ledger.budget(0.0)


def test_a_budget_of_the_settings_holds_where_none_is_set(house_of, monkeypatch):
    ledger = house_of[0]()
    monkeypatch.setenv("CARBONTUI_SITE_CAP", "1.2kW")
    assert ledger.budget(0.0).cap_w == 1200.0
    ledger.set_budget(SiteBudget(cap_w=2000.0, until_s=50.0))
    assert ledger.budget(0.0).cap_w == 2000.0
    assert ledger.budget(60.0).cap_w == 1200.0  # the set one has ended
    monkeypatch.setenv("CARBONTUI_SITE_CAP", "much")
    with pytest.raises(LedgerError, match=r"site_cap: 'much' is not a power"):
        ledger.budget(60.0)


def test_where_no_locks_are_possible_the_repair_is_named(tmp_path, monkeypatch):
    def no_locks(fd, how):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    with pytest.raises(LedgerError, match=r"No locks available\): set CARBONTUI_LEASE_DIR"):
        Ledger(tmp_path, boot_id="b").set_budget(SiteBudget(cap_w=1000.0))


@pytest.mark.timeout(120)
def test_a_process_that_keeps_the_lock_holds_up_no_supervisor(tmp_path):
    ledger = Ledger(tmp_path, alive=lambda *_: True, boot_id="b")
    ledger.set_budget(SiteBudget(cap_w=1000.0))
    with open(tmp_path / "lock") as stopped:
        fcntl.flock(stopped, fcntl.LOCK_EX)
        with pytest.raises(LedgerError, match="locked by another process"):
            ledger.exchange(entry("a"), 0.0)
    assert ledger.exchange(entry("a"), 0.0) is not None


@pytest.mark.parametrize("cap", ["lots", "-1"])
def test_a_cap_that_is_no_power_is_refused_in_one_line(refused, cap):
    refused(["site", "--cap", cap])
