"""A command under `run` as it would be alone: streams, input, descriptors, exit. All 77: tests/campaign/alone.py."""

import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest
from house import until

sys.path.insert(0, str(Path(__file__).parents[1] / "campaign"))

import alone

from carbontui.job.files import runlog, store
from carbontui.job.keeper import command
from carbontui.job.life import descriptors
from carbontui.protocol import LogRead
from carbontui.tui.model.feed import LogPiece
from carbontui.tui.model.loglines import error_in, text_of
from carbontui.tui.widgets.bottom import LogTail

QUICK = (
    "both, to be read apart",
    "head, of a Python loop",
    "a heredoc to python",
    "the rest of a loop's list",
    "breakpoint() with commands",
    "what is set in an interpreter",
    "streams replaced, wrapped, sent elsewhere",
    "open descriptors",
    "not found, not executable",
    "a script without #!",
    "ended by a signal",
)
CLI = f"{shlex.quote(sys.executable)} -m carbontui.cli"


@pytest.mark.parametrize("name", QUICK)
def test_a_command_leaves_the_same_as_alone(house, name):
    assert alone.compared(house, name) == []


def test_on_a_terminal_run_exits_with_the_code_of_the_job_and_wait_leaves_the_screen(house):
    place = alone.Place(house, f"{CLI} {alone.RUN} --wait --")
    found = place.on_a_terminal("$RUN sh -c 'echo said; exit 3'", lambda logs: b"")
    assert (found.code, found.out) == (3, b"said\r\n")
    assert not any(b"input" in line for line in found.ours) and len(found.ours) <= 3


def test_a_job_left_running_is_86_and_its_input_says_what_to_do(house):
    place = alone.Place(house, f"{CLI} {alone.RUN} --")
    found = place.on_a_terminal("$RUN python -c 'import time; time.sleep(60)'", lambda logs: b"q")
    assert found.code == 86
    house.end()
    hint = place.on_a_terminal("$RUN python -c 'input()'")
    assert hint.code == 1 and b"EOFError" in hint.out
    (job,) = [job for job in store_jobs(house) if job.exit is not None and job.exit["code"] == 1]
    assert "run --stdin hands on the terminal's input" in job.log.read_text()


ASKS = """
import os, sys, getpass, subprocess, shutil
print(sys.stdin.isatty(), *os.get_terminal_size(), *subprocess.check_output(["stty", "size"]).split())
print(sys.stdin.read() == "", subprocess.run("read x", shell=True).returncode)
try: getpass.getpass("", sys.stdout)
except EOFError: print("eof")
"""


def test_a_command_started_on_a_terminal_can_ask_its_terminal(house):
    place = alone.Place(house, f"{CLI} {alone.RUN} --wait --")
    (place.folder / "asks.py").write_text(ASKS)
    found = place.on_a_terminal("$RUN python asks.py", lambda logs: b"")
    said = found.out.decode().splitlines()
    assert found.code == 0 and said[1:] == ["True 1", "eof"], found
    assert said[0].split()[0] == "True" and said[0].split()[1:3] == [w.strip("b'") for w in said[0].split()[:2:-1]]


def test_stdin_hands_on_the_input_of_a_terminal_without_a_screen(house):
    place = alone.Place(house, f"{CLI} {alone.RUN} --stdin --")
    found = place.on_a_terminal("$RUN python -c 'import os; print(os.isatty(0))'")
    assert found.out == b"True\r\n" and found.code == 0


def store_jobs(house):
    return [job for path in house.home.glob("jobs/*") if (job := store.load(path))]


def test_of_ours_there_are_five_lines_at_most_and_none_when_quiet(house):
    told = house.cli("run", "--no-spool", "--", "sh", "-c", "echo one >&2; sleep 2")
    ours = [line for line in told.stderr.splitlines() if line != "one"]
    assert 3 <= len(ours) <= 5 and all(line.startswith("carbontui: ") for line in ours)
    assert house.cli("run", "-q", "--no-spool", "--", "sh", "-c", "echo one >&2").stderr == "one\n"


def test_stderr_goes_into_a_file_of_its_own_unless_both_go_to_one(house):
    done = house.cli("run", "--name", "two", "--", "sh", "-c", "echo out; echo 'fatal: it is over' >&2; exit 4")
    assert (done.returncode, done.stdout) == (4, "out\n") and "fatal: it is over\n" in done.stderr
    (job,) = store_jobs(house)
    assert (job.log.read_text(), job.err.read_text()) == ("out\n", "fatal: it is over\n") and job.err.name == "run.err"
    shown = house.cli("log", "two")
    assert (shown.stdout, shown.stderr) == ("out\n", "fatal: it is over\n")
    assert house.cli("log", "two", "--err", "-n", "1").stdout == "fatal: it is over\n"
    assert error_in(job.read_log) == "fatal: it is over"
    assert "fatal: it is over" in house.cli("explain", "two").stdout
    order = [*(sys.executable, "-m", "carbontui.cli", "run", "--name", "one", "--"), "sh", "-c"]
    both = subprocess.run(
        [*order, "echo a >&2; echo b; echo c >&2"],
        env=house.env, cwd=house.root, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, timeout=60, check=True,
    ).stdout  # fmt: skip
    assert [line for line in both.splitlines() if not line.startswith("carbontui: ")] == ["a", "b", "c"]
    one = house.cli("log", "one", "--err")
    assert one.returncode == 3 and "one output" in one.stderr


def test_a_piece_says_of_which_file_it_is(tmp_path):
    log, err = tmp_path / "run.log", tmp_path / "run.err"
    log.write_text("out")
    err.write_text("err")
    assert (found := runlog.read(log, LogRead(1, 0, err=True), err)).text == "err" and found.err
    assert (found := runlog.read(log, LogRead(1, 0, err=True))).text == "out" and not found.err
    assert msgspec.to_builtins(LogRead(1, 0)).get("err") is None, "an older supervisor knows nothing of it"


def test_the_screen_shows_stderr_with_its_bar_below_the_output():
    tail = LogTail()
    tail.feed(LogPiece("".join(f"line {n}\n" for n in range(20)), True))
    tail.feed(LogPiece("\r10 %\r20 %", True, err=True))
    assert [text_of(row) for row in tail.rows(4)] == ["line 17", "line 18", "line 19", "20 %"]
    tail.feed(LogPiece("a\nb\nc\nd", True, err=True))
    assert [text_of(row) for row in tail.rows(6)] == ["line 16", "line 17", "line 18", "line 19", "c", "d"]
    tail.feed(LogPiece("", True))
    assert [text_of(row) for row in tail.rows(3)] == ["b", "c", "d"]


def test_a_file_on_stdin_is_read_again_from_where_it_began(tmp_path):
    (tmp_path / "data").write_text("skipped\nkept\n")
    begun = os.open(tmp_path / "data", os.O_RDONLY)
    os.lseek(begun, 8, os.SEEK_SET)
    given = {"stdin": begun, "path": str(tmp_path / "data"), "begin": 8, "others": (), "closes": ()}
    spec = {"input": given, "log": str(tmp_path / "run.log"), "err": ""}
    (tmp_path / "run.log").touch()

    def read(*, again):
        fd = command.open_input(spec, lambda _: None, again=again)
        text = os.read(fd, 100)
        os.close(fd)
        return text

    assert read(again=False) == b"kept\n"
    assert read(again=False) == b"", "a first start shares its place with whoever has opened it"
    (tmp_path / "data").rename(tmp_path / "moved")
    assert read(again=True) == b"kept\n"
    assert "data) is read again from its start" in (tmp_path / "run.log").read_text()
    given["stdin"] = None  # after a reboot
    assert read(again=True) == b"" and "cannot be read again" in (tmp_path / "run.log").read_text()


HANDED = """
import os, sys
from carbontui.job.life import descriptors
told = descriptors.handed(tuple(sys.argv[1:]))
print(told.stdin, bool(told.pipes), bool(told.path), told.pipes, bool(told.terminal))
"""


@pytest.mark.parametrize(
    ("shell", "said"),
    [
        ("$HANDED < /dev/null", "False False False () False"),
        ("$HANDED <&-", "False False False () False"),
        ("$HANDED < $0", "True False True () False"),
        ("sleep 1 | $HANDED", "True True False (0,) False"),
        (": | (sleep 0.2; $HANDED)", "True False False () False"),
        ("$HANDED <(sleep 1) < /dev/null", "False True False (63,) False"),
        ("$HANDED 5< <(sleep 1) < /dev/null", "False False False () False"),
    ],
)
def test_only_what_a_command_would_read_once_is_counted_as_a_pipe(tmp_path, shell, said):
    (tmp_path / "handed.py").write_text(HANDED)
    (tmp_path / "line").write_text(shell.replace("$HANDED", f"{sys.executable} {tmp_path}/handed.py"))
    done = subprocess.run(
        ["bash", tmp_path / "line"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30, check=True
    )
    assert done.stdout.strip() == said


def test_a_job_that_reads_a_pipe_is_never_unloaded_and_says_so_once(house):
    script = house.root / "save.py"
    script.write_text(
        "import carbontui, time\ncarbontui.on_checkpoint(print)\n"
        "while True:\n    carbontui.step()\n    time.sleep(0.02)\n"
    )
    words = [sys.executable, "-m", "carbontui.cli", "run", "--name", "fed", "--", sys.executable, script]
    end, feeds = os.pipe()
    with subprocess.Popen(
        words, env=house.env, cwd=house.root, stdin=end, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as run:
        os.close(end)
        (job,) = until(lambda: [job for job in store_jobs(house) if job.alive("child")], what="the training")
        assert not (job.dir / "environment.json").exists(), "no later start could read it"
        until(lambda: store.load(job.dir).status().clients, what="the training's connection")
        refused = house.cli("rehearse", "fed", "--yes")
        assert refused.returncode and "it reads a pipe" in refused.stdout + refused.stderr
        os.kill(job.alive("child"), signal.SIGTERM)
        said = run.communicate(timeout=60)[1]
        os.close(feeds)
    assert said.count("the command was handed a pipe, which can be read once") == 1
    tried = house.cli("run", "--detach", "--", "true")
    assert "pipe" not in tried.stderr


def test_a_pipe_cannot_be_tried_first(house):
    done = subprocess.run(
        [sys.executable, "-m", "carbontui.cli", "run", "--try", "--", "cat"],
        env=house.env, cwd=house.root, input="x", capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 2 and "--try: the command reads a pipe" in done.stderr and not store_jobs(house)


def test_a_program_that_ignores_a_reader_who_has_gone_is_stopped(house):
    line = f"{CLI} run -q -- sh -c 'trap \"\" PIPE; while :; do echo y || :; sleep 0.05; done' | head -n 1"
    began = time.monotonic()
    done = subprocess.run(
        ["bash", "-c", line], env=house.env, cwd=house.root, stdin=subprocess.DEVNULL, capture_output=True, timeout=90,
        check=False,
    )  # fmt: skip
    assert done.stdout == b"y\n" and time.monotonic() - began < 60


def test_descriptors_are_listed_without_those_of_our_own():
    begun, ended = os.pipe()
    os.set_inheritable(begun, True)
    try:
        found = descriptors.handed(("cat", f"/dev/fd/{begun}"))
        assert begun in found.others and ended not in found.others and begun in found.pipes
    finally:
        os.close(begun)
        os.close(ended)
