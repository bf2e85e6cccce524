"""The link against a real socket: pausing, leases, and every way a peer can misbehave."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path

import pytest
from fake_supervisor import FakeSupervisor
from later import needs

from carbontui import protocol

LOOP = """
import os, sys, time, threading, carbontui
N, dt = int(sys.argv[1]), float(sys.argv[2])
for i in range(N):
    time.sleep(dt)
    carbontui.step()
    if os.path.exists("enough"):
        break
print("done", i + 1, "threads", threading.active_count(), "fds", len(os.listdir("/proc/self/fd")))
"""


def stepping(supervisor, more_than=5):
    supervisor.wait(lambda: supervisor.last() and supervisor.last().step > more_than, what="steps")


def done_of(out: str) -> int:
    """The steps LOOP says it has done; its threads are the training's and the link's."""
    done, _, rest = out.split("done ")[1].partition(" ")
    assert rest.startswith("threads 2 ")
    return int(done)


def beats(supervisor, count=1):
    """Wait for some more obs of the newest connection, one a second."""
    rank = supervisor.live()[-1]
    until = len(rank.obs) + count
    supervisor.wait(lambda: len(rank.obs) >= until)


def test_pause_holds_at_a_step_and_resume_lets_go(tmp_path, supervisor, launch, finish):
    process = launch(LOOP, "100000", "0.01")
    stepping(supervisor)
    (at,) = supervisor.pause()
    supervisor.wait(lambda: supervisor.last().state == "paused")
    beats(supervisor)
    assert supervisor.last().step == at
    gen = supervisor.want("run")
    supervisor.wait(lambda: supervisor.acked(gen))
    (tmp_path / "enough").touch()
    done = done_of(finish(process))
    supervisor.wait(lambda: supervisor.last().step == done > at, 5, "the last steps, told on the way out")
    rank = supervisor.ranks[0]
    assert rank.bad == []
    assert rank.hello.pid == process.pid and rank.hello.start_time > 0
    assert len(supervisor.ranks) == 1


def test_a_step_is_timed_for_every_beat(supervisor, launch, finish):
    process = launch(LOOP, "2000", "0.01")
    stepping(supervisor)
    beats(supervisor, 3)
    one, _, two = supervisor.ranks[0].obs[-3:]  # one may be sent just behind another
    assert 0 < one.timed[0] <= one.step and one.timed[0] < two.timed[0] <= two.step
    process.terminate()
    finish(process, code=-signal.SIGTERM)


def test_the_last_steps_are_told_though_the_link_never_gets_a_turn(supervisor, launch, finish):
    process = launch(
        """
        import carbontui, threading, time
        from carbontui.client import api, process

        class BusyMachine:
            asleep = threading.Event()
            def __getattr__(self, name):
                return getattr(poll, name)
            def poll(self, timeout):
                self.asleep.set()
                threading.Event().wait()

        carbontui.step()
        while not api.gate.connected:
            time.sleep(0.001)
        poll, process.link._poll = process.link._poll, BusyMachine()
        process.link.changed()
        BusyMachine.asleep.wait()
        for _ in range(59):
            carbontui.step()
        """
    )
    finish(process)
    supervisor.wait(lambda: supervisor.ranks and not supervisor.live(), what="the end of the connection")
    assert supervisor.last().step == 60


def test_a_training_over_before_its_link_has_run_is_told_of(supervisor, launch, finish):
    process = launch(
        """
        import carbontui, threading
        from carbontui.client.pausing import link
        link.Link.start = lambda self: None
        for _ in range(5):
            carbontui.step()
        """
    )
    finish(process)
    supervisor.wait(lambda: supervisor.ranks and not supervisor.live(), what="the end of the connection")
    assert (len(supervisor.ranks), supervisor.last().step, supervisor.ranks[0].bad) == (1, 5, [])


def test_asked_is_said_at_once_while_no_step_ends(tmp_path, supervisor, launch, finish):
    process = launch(
        """
        import carbontui, os, time
        carbontui.step()
        while not os.path.exists("enough"):
            time.sleep(0.01)
        carbontui.step()
        print("end")
        """
    )
    supervisor.wait(lambda: supervisor.last())
    gen = supervisor.want("pause")
    supervisor.wait(lambda: supervisor.last().state == "asked" and supervisor.last().want_gen == gen)
    assert supervisor.acked(gen) is None
    (tmp_path / "enough").touch()
    supervisor.wait(lambda: supervisor.acked(gen))
    supervisor.want("run")
    assert "end" in finish(process)


def test_reports_arrive_validated(supervisor, launch, finish):
    process = launch(
        """
        import carbontui, time
        carbontui.report(loss=float("nan"), total=40, epoch="x", metrics={"lr": 0.1, "bad": None, "inf": float("inf")})
        carbontui.report(loss=2.5, epoch=0.0, total=-3)
        for _ in range(40):
            time.sleep(0.02)
            carbontui.step()
        """
    )
    finish(process)
    obs = supervisor.last()
    assert (obs.loss, obs.epoch, obs.total, obs.metrics) == (2.5, 0.0, 40, {"lr": 0.1})
    assert supervisor.ranks[0].bad == []


def test_a_name_that_only_a_later_version_reports_is_ignored_and_said_once(supervisor, launch, finish):
    said = finish(
        launch("import carbontui\nfor _ in range(3):\n    carbontui.report(total=3, later=1)\n    carbontui.step()")
    )
    assert said.count("\n") == 1 and said.startswith("carbontui: report() of version ") and said.endswith("later\n")
    assert supervisor.last().total == 3


def test_a_supervisor_back_within_the_lease_takes_the_pause_over(tmp_path, launch, finish, supervisor):
    process = launch(LOOP, "100000", "0.005")
    stepping(supervisor)
    (at,) = supervisor.pause()
    supervisor.kill()
    with_lease = FakeSupervisor(supervisor.path)
    try:
        with_lease.wait(lambda: with_lease.last())
        assert (with_lease.last().state, with_lease.last().step) == ("paused", at)
        # the new one happens to use the generation of the old: its pause is acknowledged all the same
        assert with_lease.pause() == [at]
        beats(with_lease)
        assert with_lease.last().step == at
        (tmp_path / "enough").touch()
        with_lease.want("run")
        assert f"done {at} " in finish(process)
    finally:
        with_lease.kill()


def test_no_lease_no_pause(tmp_path, launch, finish, supervisor):
    """A dead supervisor lets go when the lease ends; a silent one whose socket stays open as well."""
    process = launch(LOOP, "100000", "0.005")
    stepping(supervisor)
    supervisor.lease_s = 0.8
    (at,) = supervisor.pause()
    supervisor.silence()
    supervisor.wait(lambda: supervisor.last().state == "running" and supervisor.last().step > at)
    supervisor.pause()
    supervisor.kill()
    (tmp_path / "enough").touch()
    finish(process)


@pytest.mark.parametrize(
    "junk",
    [
        b"\x00\xff\xfe garbage\n" * 50,
        b"x" * 200_000,
        b"[" * 60_000 + b"\n",
        b'{"t":"want","mode":"pause","want_gen":1,"lease_s":NaN}\n',
        b'{"t":"want","mode":"sleep","want_gen":1,"lease_s":15}\n{"t":"welcome"}\n{"t":"later","x":[1]}\n',
        b"".join(
            b'{"t":"reading","id":%d,"nest":%s}\n' % (n, x) for n in (1, 2) for x in (b"[7]", b'[[[1,"x"]],[],[]]')
        ),
    ],
    ids=["bytes", "endless-line", "nesting", "nan-lease", "unknown", "no-reading"],
)
def test_junk_never_stops_training(tmp_path, supervisor, launch, finish, junk):
    process = launch(LOOP, "100000", "0.01")
    stepping(supervisor, 2)
    supervisor.live()[-1].send(junk)
    stepping(supervisor, supervisor.last().step + 1)
    supervisor.wait(lambda: supervisor.live())
    supervisor.pause()  # and the link still obeys
    (tmp_path / "enough").touch()
    supervisor.want("run")
    done = done_of(finish(process))
    supervisor.wait(lambda: supervisor.last().step == done, 5, "the last steps")


def test_a_flood_is_survived(supervisor, launch, finish):
    process = launch(LOOP, "300", "0.005")
    stepping(supervisor, 2)
    line = protocol.encode(protocol.DesiredState("run", 1, 15.0))
    supervisor.live()[-1].send(line * 20_000)
    assert "done 300" in finish(process)


def test_a_peer_that_never_reads_costs_nothing(supervisor, launch, finish):
    supervisor.reads = False
    process = launch(
        """
        import carbontui, time
        for _ in range(300):
            time.sleep(0.002)
            carbontui.report(metrics={str(i): i for i in range(32)})
            carbontui.client.api.gate.on_change()
            carbontui.step()
        print("came through")
        """
    )
    assert "came through" in finish(process)


def test_another_major_version_leaves_training_alone(supervisor, launch, finish):
    supervisor.version = 2
    supervisor.want("pause")
    process = launch(LOOP, "60", "0.01")
    assert "done 60" in finish(process)
    assert supervisor.last().state == "running"


@pytest.mark.parametrize("kind", ["absent", "stale", "open-directory", "long", "file"])
def test_without_a_supervisor_training_just_runs(kind, tmp_path, launch, finish, supervisor):
    folder = supervisor.path.parent / "other"
    folder.mkdir(mode=0o700)
    path = folder / "job.sock"
    listener = None
    if kind == "stale":
        socket.socket(socket.AF_UNIX).bind(str(path))
    elif kind == "open-directory":
        listener = FakeSupervisor(path)
        folder.chmod(0o777)
    elif kind == "long":
        path = folder / ("x" * 120)
    elif kind == "file":
        path.write_text("no socket")
    supervisor.path = path
    process = launch(LOOP, "30", "0.01")
    assert "done 30" in finish(process)
    if listener:
        assert all(rank.hello is None for rank in listener.ranks)
        listener.kill()


def test_importing_starts_nothing(supervisor, launch, finish):
    process = launch(
        """
        import os, sys, threading
        before = set(os.listdir("/proc/self/fd"))
        import carbontui
        carbontui.report(loss=1.0); carbontui.on_checkpoint(print); carbontui.paused()
        assert threading.active_count() == 1 and set(os.listdir("/proc/self/fd")) == before
        assert not {"asyncio", "torch", "numpy", "msgspec", "click", "platformdirs"} & set(sys.modules)
        """
    )
    finish(process)
    assert supervisor.ranks == []


def test_a_script_that_asks_for_its_level_before_its_first_step_is_answered(supervisor, launch, finish):
    process = launch(
        """
        import carbontui, time
        due = time.monotonic() + 20
        while carbontui.level() != "pause" and time.monotonic() < due:
            time.sleep(0.01)
        print("heard", carbontui.level())
        """
    )
    supervisor.wait(lambda: supervisor.last())
    supervisor.want("pause")
    assert "heard pause" in finish(process)


def test_the_child_of_a_fork_is_silent_and_the_parent_goes_on(supervisor, launch, finish):
    process = launch(
        """
        import os, threading, time, carbontui
        for i in range(30):
            time.sleep(0.02); carbontui.step()
        for _ in range(20):
            pid = os.fork()
            if pid == 0:
                for _ in range(1000):
                    carbontui.step()
                assert threading.active_count() == 1 and carbontui.level() is None
                os._exit(0)
            assert os.waitpid(pid, 0)[1] == 0
        for i in range(70):
            time.sleep(0.02); carbontui.step()
        """
    )
    stepping(supervisor, 35)
    supervisor.pause()
    supervisor.want("run")
    finish(process)
    assert len(supervisor.ranks) == 1 and supervisor.last().step == 100


def test_spawned_workers_that_do_not_train_stay_silent(supervisor, launch, finish):
    process = launch(
        """
        import multiprocessing, time, carbontui
        def work(i):
            return i * i
        if __name__ == "__main__":
            carbontui.step()
            with multiprocessing.get_context("spawn").Pool(2) as pool:
                assert pool.map(work, range(8)) == [i * i for i in range(8)]
            for _ in range(20):
                time.sleep(0.02); carbontui.step()
        """
    )
    finish(process)
    assert len(supervisor.ranks) == 1


def test_stopped_supervisor_then_reconnect(tmp_path, launch, finish, supervisor):
    """A supervisor that vanishes and comes back is found within about a second, again and again."""
    process = launch(LOOP, "100000", "0.005")
    stepping(supervisor)
    current = supervisor
    for _ in range(4):
        current.kill()
        Path(supervisor.path).unlink()
        current = FakeSupervisor(supervisor.path)
        current.wait(lambda current=current: current.last())
        current.pause()
        current.want("run")
    (tmp_path / "enough").touch()
    out = finish(process)
    current.kill()
    assert "threads 2" in out


def test_duty_rests_between_the_steps_again_and_again(supervisor, launch, finish):
    process = launch(
        """
        import carbontui, time
        while carbontui.level() != "duty":
            time.sleep(0.01); carbontui.step()
        worked = rested = 0
        while rested < 2:
            before = time.monotonic(); carbontui.step(); rested += time.monotonic() - before > 0.5
            time.sleep(0.02); worked += 1
        print("worked", worked)
        """
    )
    supervisor.wait(lambda: supervisor.last())
    supervisor.want("run", duty=0.5)
    worked = int(finish(process).split("worked ")[1])
    assert worked > 2, "steps between two rests; the arithmetic itself is tested with a clock in hand"


def test_interrupt_while_paused_ends_the_script(supervisor, launch):
    process = launch(LOOP, "100000", "0.005")
    stepping(supervisor)
    supervisor.pause()
    os.kill(process.pid, signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert process.returncode != 0 and "KeyboardInterrupt" in out


def test_after_a_minute_without_a_question_the_rate_is_that_of_the_steps():
    """As under a supervisor that was stopped, and its successor's first question."""
    from carbontui.client.pausing.gate import Gate
    from carbontui.client.pausing.link import Link

    now = [0.0]
    link = Link(Gate(lambda: now[0]), "/nowhere", {"rank": 1})
    for now[0] in (*(float(second) for second in range(20)), 80.0):
        link.count(round(4 * now[0]))
        assert now[0] < 1 or link.speed() == 4.0
    for now[0] in (81.0, 84.0, 88.0, 91.0):  # slower since: what was before the gap is no longer told
        link.count(round(4 * 80.0 + 2 * (now[0] - 80.0)))
    assert link.speed() == 2.0


def test_a_process_that_ends_by_os_exit_reports_its_last_steps(launch, finish, supervisor):
    """As the children of multiprocessing do: nothing registered at exit is run."""
    finish(launch("import os, time, carbontui\nfor _ in range(98): carbontui.step(); time.sleep(0.013)\nos._exit(0)"))
    assert supervisor.last().step == 98


BESIDE_STEPS = """
import os, time, carbontui
from torch.utils.data import DataLoader, Dataset

class Slow(Dataset):
    def __len__(self):
        return 1

    def __getitem__(self, index):
        until("loaded")
        return index

def until(name):
    while not os.path.exists(name):
        time.sleep(0.02)

def validate():
    until("validated")

def test_run():  # the steps are made in it: no evaluation, whatever its name
    while not os.path.exists("stepped"):
        time.sleep(0.02)
        carbontui.step()
    validate()
    next(iter(DataLoader(Slow())))

test_run()
print("done")
"""


@needs("torch")
def test_an_evaluation_and_a_wait_for_data_are_named_by_the_code_that_runs(launch, finish, supervisor, tmp_path):
    process = launch(BESIDE_STEPS)
    stepping(supervisor)
    beats(supervisor, 3)
    assert supervisor.last().doing is None
    (tmp_path / "stepped").touch()
    supervisor.wait(lambda: supervisor.last().doing == "evaluates")
    (tmp_path / "validated").touch()
    supervisor.wait(lambda: supervisor.last().doing == "loads")
    (tmp_path / "loaded").touch()
    assert "done" in finish(process)
