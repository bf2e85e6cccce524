"""The helper of a keeper: it holds the permit, dies, and is replaced."""

from __future__ import annotations

import errno
import os
import selectors
import signal
import time

import pytest
from house import until

from carbontui.extensions.moves import lease
from carbontui.extensions.moves.helper import Helper
from carbontui.job.files import places
from carbontui.job.files.places import Places
from carbontui.job.keeper.messages import HandOver, MoveTo, Renewed
from carbontui.job.keeper.permit import PermitHandle
from carbontui.system import proc

HELD = Places(1, holder=True, leased=True, lease_s=300.0, margin_s=30.0)
UNLOAD = MoveTo("n2", call=("sleep", "60"), unload=True, lease_s=60.0)


@pytest.fixture
def keeper(tmp_path):
    """What a keeper has of it; `until` serves it meanwhile."""
    selector = selectors.DefaultSelector()
    places.write(tmp_path, HELD.leased_for(300.0, places.now()))
    handle = PermitHandle(str(tmp_path), selector, lambda _: None, lambda: None)

    def serve(fulfilled):
        def turn():
            handle.tick(time.monotonic())
            for key, _ in selector.select(0.05):
                key.data()
            return fulfilled()

        until(turn, 30, "the helper", every=0)

    handle.until = serve
    yield handle
    handle.helper.gone("the end", respawn=False)


def test_until_a_successor_speaks_its_last_word_holds(keeper):
    keeper.apply_order(UNLOAD)
    keeper.until(lambda: keeper.away == "leaving")
    assert keeper.may_run and not keeper.may_start
    first = keeper.helper.pid
    os.kill(first, signal.SIGKILL)
    keeper.until(lambda: keeper.helper.pid != first)
    assert keeper.away == "leaving" and not keeper.may_start, "the file may say by now that it is handed over"
    keeper.until(lambda: not keeper.away)  # nobody has told its successor of the move
    assert keeper.may_start
    keeper.apply_order(UNLOAD)
    keeper.until(lambda: keeper.away == "leaving")


def test_a_hand_over_is_on_disk_before_it_is_said_and_is_no_lease_of_this_place(keeper, tmp_path):
    keeper.apply_order(HandOver())
    keeper.apply_order(UNLOAD)
    keeper.until(lambda: keeper.away == "leaving")
    assert places.read(tmp_path).holder, "nothing was unloaded when it was asked for"
    keeper.apply_order(HandOver("DE", step=5))
    keeper.until(lambda: keeper.away == "gone")
    known = places.read(tmp_path)
    assert (known.token, known.moved_to, known.places[0].zone) == (2, "n2", "DE") and not keeper.may_run
    assert keeper.facts()["moved_to"] == "n2" and keeper.facts()["lease_ends"] is None


def test_what_was_written_before_a_helper_died_is_what_its_successor_says(keeper, tmp_path):
    keeper.until(lambda: keeper.helper.pid is not None)
    os.kill(keeper.helper.pid, signal.SIGKILL)
    ends = places.now().now_s + 500.0
    places.write(tmp_path, lease.granted(places.read(tmp_path), lease.Grant(1, 500.0), places.now()))
    keeper.until(lambda: (keeper.facts()["lease_ends"] or 0.0) >= ends - 5.0)
    keeper.apply_order(Renewed(1, None))
    keeper.until(lambda: keeper.facts()["lease_ends"] is None)
    assert keeper.may_start and not places.read(tmp_path).leased, "for good"


def test_a_lease_that_no_disk_takes_counts_and_is_said_once(tmp_path, monkeypatch, capfd):
    places.write(tmp_path, HELD.leased_for(30.0, places.now()))
    said: list[places.Permit] = []
    helper = Helper(str(tmp_path), said.append)

    def broken(*_):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "replace", broken)
    for _ in range(3):
        helper.apply_order(Renewed(1, places.now().now_s + 300.0, 300.0, 30.0))
    assert said[-1].may_start(places.now()) and places.read(tmp_path).permit().left_s(places.now()) <= 30.0
    (line,) = capfd.readouterr().err.splitlines()
    assert line.endswith(f"[Errno 5] Input/output error: '{tmp_path}/places.json'")


def test_a_machine_that_hangs_holds_up_no_move_to_another(keeper, tmp_path):
    begun = tmp_path / "begun"
    keeper.apply_order(UNLOAD._replace(to="n9", call=("sh", "-c", f"echo $$ > {begun}; sleep 60")))
    keeper.until(lambda: begun.exists() and begun.read_text().strip())
    keeper.apply_order(UNLOAD._replace(call=("sh", "-c", "echo '{\"ready\": true}'; sleep 60")))
    keeper.until(lambda: keeper.facts()["moving"] == "n2" and keeper.facts()["reached"])
    assert keeper.facts()["reached"] == "yes", "of n2, not what is said of n9"
    keeper.until(lambda: proc.start_time(int(begun.read_text())) is None)


def test_a_machine_that_answers_after_another_got_the_job_is_sent_no_grant(keeper, tmp_path):
    begun, go, sent = (tmp_path / name for name in ("begun", "go", "sent"))
    wait = f"echo $$ > {begun}; until [ -e {go} ]; do sleep .05; done"
    late = f"{wait}; echo '{{\"ready\": true}}'; timeout 3 cat > {sent}"
    keeper.apply_order(UNLOAD._replace(to="n9", call=("sh", "-c", late)))
    keeper.until(lambda: begun.exists() and begun.read_text().strip())
    keeper.apply_order(UNLOAD)
    keeper.until(lambda: keeper.facts()["moving"] == "n2")
    keeper.apply_order(HandOver("DE", step=5))
    keeper.until(lambda: keeper.away == "gone")
    go.touch()
    keeper.until(lambda: proc.start_time(int(begun.read_text())) is None)
    assert not sent.exists() or sent.read_text() == "", "it would train beside n2"
