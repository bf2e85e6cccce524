"""places.json: what it says of the right to train, and what a damaged one lets nobody do."""

from __future__ import annotations

import json
import os

import pytest

from carbontui.extensions.moves import lease
from carbontui.extensions.moves.helper import Helper
from carbontui.job.files import places
from carbontui.job.files.places import Places, Stay
from carbontui.job.keeper.messages import ChildFacts, Renewed
from carbontui.job.supervisor.shell.keeper_handle import KeeperHandle
from carbontui.system import proc


def test_a_job_that_never_moved_has_no_file_and_may_start(tmp_path):
    assert places.read(tmp_path) == places.NEVER_MOVED and places.NEVER_MOVED.permit().may_start(places.now())


def test_what_is_written_is_read_again_whoever_wrote_it(tmp_path):
    stays = (Stay("n1", "DE", "b1", 1.0, 2.0), Stay("n2", "SE", "b2", 2.0, None, 10, 3.5))
    known = Places(3, False, True, peer="me@n2", call=("ssh", "n2"), places=stays).leased_for(60, places.now())
    places.write(tmp_path, known)
    assert places.read(tmp_path) == known and known.moved_to == "me@n2" and not known.permit().may_run(places.now())
    newer = {**json.loads((tmp_path / "places.json").read_text()), "later": 1}
    (tmp_path / "places.json").write_text(json.dumps(newer))
    assert places.read(tmp_path) == known


def test_a_lease_ends_with_its_time_and_with_a_reboot():
    held, at = Places(1, holder=True, leased=True), places.now()
    given = held.leased_for(60, at).permit()
    assert not held.permit().may_run(at) and given.may_run(at)
    assert not given.may_run(at._replace(now_s=at.now_s + 61)) and not given.may_run(at._replace(boot="another"))
    assert Places(1, holder=True, leased=False).permit().may_run(at), "for good"


@pytest.mark.parametrize("text", ["119", "60s", "nan", "inf", "-600", "１２０"])
def test_a_lease_that_cannot_be_is_refused_by_its_name(monkeypatch, text):
    monkeypatch.setenv("CARBONTUI_LEASE_S", text)
    with pytest.raises(ValueError, match=f"CARBONTUI_LEASE_S='{text}'"):
        lease.asked_lease_s()
    monkeypatch.setenv("CARBONTUI_LEASE_S", "120")
    assert lease.asked_lease_s() == 120 == lease.least_lease_s(30) and lease.least_lease_s(160) == 200


@pytest.mark.parametrize(("terms", "left_s"), [({"lease_s": 300, "margin_s": 12}, 288), ({"lease_s": 300}, 270)])
def test_the_holder_goes_by_the_margin_that_it_was_granted(tmp_path, terms, left_s):
    places.write(tmp_path, Places(1, holder=True, leased=True))
    said = []
    Helper(str(tmp_path), said.append).apply_order(Renewed(1, places.now().now_s + 300, **terms))
    handle = KeeperHandle(None, print, lambda: None, tmp_path)
    handle.facts = ChildFacts("running", os.getpid(), proc.start_time(os.getpid()), **said[-1].facts(proc.boot_id()))
    assert handle.child().lease_left_s == pytest.approx(left_s, abs=5)
    assert places.read(tmp_path).margin_s == 300 - left_s, "also for a keeper after this one"


@pytest.mark.parametrize("text", ["", "[]", "{", '{"places": 1}', '{"token": "x"}', '{"holder": 1}', '{"ends": null}'])
def test_a_damaged_file_lets_nothing_start(tmp_path, text):
    (tmp_path / "places.json").write_text(text)
    assert not places.read(tmp_path).permit().may_run(places.now())
