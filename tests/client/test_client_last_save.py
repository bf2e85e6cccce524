"""A signal that would end a training: its checkpoint is written first, and it dies of the signal all the same."""

from __future__ import annotations

import json
import signal

import pytest

LOOP = """
import carbontui, os, signal, sys, time
from carbontui.client.pausing import signals as last_save
{before}
@carbontui.on_checkpoint
def save():
    print("saved", flush=True)
    {save}
{after}
done = 0
while True:
    time.sleep(0.01)
    done += 1
    carbontui.step()
    {loop}
"""


def script(before="", save="pass", after="", loop="pass"):
    return LOOP.format(before=before, save=save, after=after, loop=loop)


def at_its_steps(supervisor):
    supervisor.wait(lambda: supervisor.last() and supervisor.last().step > 5, 60, "steps")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
@pytest.mark.parametrize("held", [False, True])
def test_saved_at_a_boundary_then_it_dies_of_the_signal(supervisor, launch, finish, tmp_path, number, held):
    process = launch(script())
    at_its_steps(supervisor)
    if held:
        supervisor.pause()
    process.send_signal(number)
    process.send_signal(number)  # a launcher passes it on, too
    assert finish(process, code=-number).count("saved") == 1
    told = json.loads((tmp_path / "marker.json").read_text())
    assert told["step"] == supervisor.ranks[0].obs[-1].step, "what a restart goes on from"


HANDLER = "signal.signal(signal.SIGTERM, lambda *_: (print('mine', flush=True), sys.exit(3)))"


@pytest.mark.parametrize("where", ["before", "loop"])
def test_a_handler_of_the_script_s_is_left_alone(supervisor, launch, finish, tmp_path, where):
    process = launch(script(**{where: f"{'done == 3 and ' if where == 'loop' else ''}{HANDLER}"}))
    at_its_steps(supervisor)
    process.terminate()
    out = finish(process, code=3)
    assert out.count("mine") == 1 and "saved" not in out
    assert not (tmp_path / "marker.json").exists()


def test_without_a_checkpoint_function_it_dies_at_once(supervisor, launch, finish):
    process = launch(
        """
        import carbontui, signal, time
        while True:
            time.sleep(0.01)
            carbontui.step()
            assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        """
    )
    at_its_steps(supervisor)
    process.terminate()
    finish(process, code=-signal.SIGTERM)


def test_a_checkpoint_that_fails_and_a_step_that_does_not_end_keep_nobody_alive(supervisor, launch, finish, tmp_path):
    process = launch(script(save="raise OSError('no room')"))
    at_its_steps(supervisor)
    process.terminate()
    assert "no room" in finish(process, code=-signal.SIGTERM)
    busy = "done == 20 and __import__('hashlib').pbkdf2_hmac('sha256', b'a', b'b', 10**9)"  # long, and never in Python
    process = launch(script(before="last_save.BOUNDARY_S = 0.3", loop=busy))
    supervisor.wait(
        lambda: len(supervisor.ranks) == 2 and supervisor.last() and supervisor.last().step == 20, 60, "the long step"
    )
    process.terminate()
    assert "saved" not in finish(process, code=-signal.SIGTERM)
    assert not (tmp_path / "marker.json").exists()


def test_a_forked_child_dies_as_it_would(supervisor, launch, finish):
    """Workers of a DataLoader are ended by TERM: they have nothing to save."""
    fork = "done == 30 and fork()"
    helper = """
def fork():
    child = os.fork()
    if not child:
        print("child", signal.getsignal(signal.SIGTERM) is signal.SIG_DFL, flush=True)
        time.sleep(60)
    time.sleep(0.5)
    os.kill(child, signal.SIGTERM)
    print("status", os.waitpid(child, 0)[1], flush=True)
    os._exit(0)
"""
    out = finish(launch(script(before=helper, loop=fork)))
    assert "child True" in out and f"status {int(signal.SIGTERM)}" in out and "saved" not in out


@pytest.mark.parametrize("ordered", [True, False], ids=["as the end of a try", "by a person"])
def test_before_the_first_step_a_try_is_ended_without_a_traceback(ordered, launch, tmp_path):
    if ordered:
        (tmp_path / "marker.json.end").touch()
    process = launch("import time\nprint('up', flush=True)\ntime.sleep(60)", CARBONTUI_TRY="1")
    assert process.stdout.readline() == "up\n"
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGINT and ("Traceback" in out) is not ordered
