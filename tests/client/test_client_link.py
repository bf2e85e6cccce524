"""The link against a real socket: pausing, leases, and every way a peer can misbehave."""

from __future__ import annotations

LOOP = """
import sys, time, threading, carbontui
N, dt = int(sys.argv[1]), float(sys.argv[2])
for i in range(N):
    time.sleep(dt)
    carbontui.step()
print("done", N, threading.active_count())
"""


def test_pause_holds_at_a_step_and_resume_lets_go(supervisor, launch, finish):
    process = launch(LOOP, "300", "0.01")
    supervisor.wait(lambda: supervisor.last() and supervisor.last().step > 5)
    (at,) = supervisor.pause()
    supervisor.wait(lambda: supervisor.last().state == "paused")
    count = len(supervisor.live()[0].obs)
    supervisor.wait(lambda: len(supervisor.live()[0].obs) >= count + 2)
    assert supervisor.last().step == at
    gen = supervisor.want("run")
    supervisor.wait(lambda: supervisor.acked(gen))
    assert "done 300" in finish(process)
    assert supervisor.last().step == 300, "the last steps are told on the way out"
    rank = supervisor.ranks[0]
    assert rank.bad == []
    assert rank.hello.pid == process.pid and rank.hello.start_time > 0
    assert len(supervisor.ranks) == 1
