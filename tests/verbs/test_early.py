"""A plain command is begun before the command line is loaded: what it is given is the same, and nothing is lost."""

from __future__ import annotations

import fcntl
import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import click
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from carbontui import config, early, paths
from carbontui.client import inject
from carbontui.commands.run import run
from carbontui.grid import zones
from carbontui.job.files import store
from carbontui.job.keeper import signals
from carbontui.job.life import launch
from carbontui.job.terms import budget
from carbontui.system import proc

MAIN = [sys.executable, "-c", "from carbontui.__main__ import main; main()", "run", "--quiet"]
LATE = ["--max-pause", "12h"]
"""An option that is left to the command line."""
SURROUNDINGS = """
import json, os, resource, sys, time
ours = ("CARBONTUI_", "PYTHONPATH")
fds = {}
for fd in sorted(map(int, os.listdir("/proc/self/fd"))):
    try:
        fds[fd] = os.path.basename(os.readlink(os.path.join("/proc/self/fd", str(fd)))).split(":")[0]
    except OSError:
        pass
mask = os.umask(0)
print(json.dumps({
    "environment": {name: value for name, value in os.environ.items() if not name.startswith(ours)},
    "names": sorted(name for name in os.environ if name.startswith(ours)),
    "limits": [resource.getrlimit(number) for number in range(16)],
    "fds": sorted(fds.values()), "argv": sys.argv, "cwd": os.getcwd(), "umask": mask, "nice": os.nice(0),
    "leads": os.getsid(0) == os.getpgid(0) == os.getpid(),
    "score": open("/proc/self/oom_score_adj").read(),
}))
parent = open(f"/proc/{os.getppid()}/cmdline").read().split(chr(0))
print(parent[1] == "-c" or "--begun" in parent, file=sys.stderr)
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in [name for name in os.environ if name.startswith(("CARBONTUI_", *early.OF_OTHERS))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("CARBONTUI_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("CARBONTUI_OFFLINE", "1")
    return tmp_path / "home"


def ended(words: list[str], **how: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, capture_output=True, text=True, timeout=120, check=False, **how)  # type: ignore[call-overload, no-any-return]


def jobs(home: Path) -> list[Path]:
    return [*(home / "jobs").glob("[!.]*")]


def test_a_command_begun_early_has_the_surroundings_of_any_other() -> None:
    how = {"preexec_fn": lambda: os.umask(0o027), "stdin": subprocess.DEVNULL}
    both = [ended([*MAIN, *more, "--", sys.executable, "-c", SURROUNDINGS, "x"], **how) for more in ([], LATE)]
    assert [one.stderr for one in both] == ["True\n", "False\n"], "the first was begun early, the second was not"
    one, other = (json.loads(done.stdout) for done in both)
    assert one == other


def shell(traps: str) -> list[str]:
    return ["sh", "-c", f"trap '' {traps}; \"$@\"; :", "sh"]


@pytest.mark.parametrize(
    ("before", "ignored", "blocked"),
    [
        ([], (), ()),
        (["nohup"], (), ()),
        (shell("PIPE XFSZ"), (), ()),
        (shell("HUP INT QUIT TERM PIPE USR1 TSTP"), (), ()),
        ([], (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGCHLD), ()),
        ([], (), (signal.SIGINT, signal.SIGUSR1, signal.SIGPIPE)),
    ],
)
def test_what_of_signals_is_ignored_and_blocked_is_what_it_is_of_a_plain_command(
    before: list[str], ignored: tuple[int, ...], blocked: tuple[int, ...]
) -> None:
    def as_given() -> None:
        for number in ignored:
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)

    plain = ["grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status"]
    how = {"preexec_fn": as_given, "stdin": subprocess.DEVNULL}
    ours = [[], [*MAIN, "--"], [*MAIN, *LATE, "--"]]
    alone, early_on, late = (ended([*before, *each, *plain], **how).stdout.split() for each in ours)
    assert early_on == late == alone and len(alone) == 4


def test_modules_of_the_user_are_not_taken_for_pythons_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("fcntl", "resource", "zlib", "typing", "contextlib"):
        (tmp_path / f"{name}.py").write_text("print('not that of Python')")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{Path(paths.__file__).parents[1]}")
    done = ended([*MAIN, "--", "sh", "-c", "echo here"], stdin=subprocess.DEVNULL, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "here\n", "")


@pytest.mark.parametrize(
    ("command", "given"),
    [
        (["sh", "-c", "echo out; echo err >&2; exit 7"], None),
        (["sh", "-c", "kill -9 $$"], None),
        (["cat"], "one\ntwo\n"),
        (["wc", "-c"], ""),
        (["sh", "-c", "printf unended; sleep 1; echo; echo more"], None),
        (["no-such-command"], None),
        ([sys.executable, "no-such.py"], None),
    ],
)
def test_output_and_exit_code_are_those_of_any_other(command: list[str], given: str | None) -> None:
    how = {"stdin": subprocess.DEVNULL} if given is None else {"input": given}
    one, other = (ended([*MAIN, *more, "--", *command], **how) for more in ([], LATE))
    assert (one.returncode, one.stdout, one.stderr) == (other.returncode, other.stdout, other.stderr)


def test_a_script_without_its_first_line_is_left_to_the_command_line(tmp_path: Path, home: Path) -> None:
    script = tmp_path / "script"
    script.write_text("echo from $0\n")
    script.chmod(0o700)
    done = ended([*MAIN, "--", str(script)], stdin=subprocess.DEVNULL)
    assert (done.returncode, done.stdout) == (0, f"from {script}\n")
    assert [store.load(one).exit["code"] for one in jobs(home)] == [0]  # type: ignore[union-attr, index]


def test_a_run_that_ends_at_its_start_takes_its_command_with_it(tmp_path: Path, home: Path) -> None:
    left = tmp_path / "left"
    script = f"trap 'echo ended > {left}; exit' TERM; echo up; while true; do sleep 0.05; done"
    front = (
        "import os, signal; from carbontui import early\n"
        f"early.quickly(['--', 'sh', '-c', {script!r}], lambda: ([], {{**os.environ}}))\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = ended([sys.executable, "-c", front], stdin=subprocess.DEVNULL)
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, "up\n")
    end = time.monotonic() + 30
    while jobs(home) and time.monotonic() < end:
        time.sleep(0.05)
    assert left.read_text() == "ended\n" and not jobs(home)


def test_a_keeper_that_ends_at_its_start_takes_its_command_with_it(home: Path) -> None:
    front = (
        "import os, signal, sys; from carbontui import early; from carbontui.cli import main\n"
        "early.quickly(['--', 'sh', '-c', 'echo $$; exec sleep 60'], lambda: ([], {**os.environ}))\n"
        "os.kill(early.begun.keeper, signal.SIGKILL); sys.argv[1:] = ['run', '--', 'sleep', '60']; main()"
    )
    done = ended([sys.executable, "-c", front], stdin=subprocess.DEVNULL)
    assert done.returncode == 2 and "ended at once" in done.stderr
    assert not proc.group_alive(int(done.stdout)) and not jobs(home)


def begun(script: str, home: Path) -> tuple[subprocess.Popen[bytes], Path, int]:
    """A `run` that has begun this and printed a line; its job's folder; where a byte lets it say what the job is."""
    command = ["--", "sh", "-c", script]
    front = (
        "import os, sys; from carbontui import early; from carbontui.cli import main\n"
        f"early.quickly({command}, lambda: ([], {{**os.environ}})); os.read(int(sys.argv[1]), 1)\n"
        f"sys.argv[1:] = ['run', '--quiet', *{command}]; main()"
    )
    reads, writes = os.pipe()
    words = [sys.executable, "-c", front, str(reads)]
    run = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, pass_fds=(reads,))
    os.close(reads)
    assert run.stdout is not None and run.stdout.readline() == b"up\n"
    (job,) = jobs(home)
    assert not (job / "job.json").exists()
    return run, job, writes


@pytest.mark.parametrize("verb", [["ls"], ["status"], ["stop", "--now", "--yes"]])
def test_a_command_under_way_is_known_before_its_run_has_said_what_it_is(verb: list[str], home: Path) -> None:
    run, job, says = begun("echo up; exec sleep 60", home)
    ours = [sys.executable, "-m", "carbontui"]
    with run, open(says, "wb"), subprocess.Popen([*ours, *verb], stdout=subprocess.PIPE, text=True) as asking:
        if verb[0] != "stop":
            told = asking.communicate(timeout=60)[0]
            assert job.name in told and "starting" in told
        os.write(says, b"\n")
        if verb[0] == "stop":
            assert asking.communicate(timeout=60)[0] == f"job {job.name} stopped\n"
        else:
            ended([*ours, "stop", "--now", "--yes"])
        assert run.wait(60) == -signal.SIGINT


def closed(fd: int) -> dict[str, object]:
    return {"preexec_fn": lambda: os.close(fd)}


@pytest.mark.parametrize(
    "how",
    [
        closed(0),
        closed(1),
        closed(2),
        {"preexec_fn": lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN)},
        {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (12, 4096))},
        {"env": {"XDG_STATE_HOME": "here"}},
    ],
)
def test_a_start_in_odd_surroundings_is_that_of_any_other(how: dict[str, object], tmp_path: Path) -> None:
    env = {name: value for name, value in os.environ.items() if name != "CARBONTUI_HOME" or "env" not in how}
    how = {"stdin": subprocess.DEVNULL, "cwd": tmp_path, **how, "env": env | how.get("env", {})}  # type: ignore[operator]
    one, other = (ended([*MAIN, *more, "--", "sh", "-c", "echo a; echo b >&2; exit 4"], **how) for more in ([], LATE))
    assert (one.returncode, one.stdout, one.stderr) == (other.returncode, other.stdout, other.stderr)
    assert one.returncode == 4


def test_a_command_lives_where_our_packages_are_on_pythonpath_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    folders = {str(Path(one.__file__).parents[1]) for one in (paths, click, msgspec)}
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(folders))
    done = ended([sys.executable, "-S", *MAIN[1:], "--", "sh", "-c", "sleep 1; echo up"], stdin=subprocess.DEVNULL)
    assert (done.returncode, done.stdout, done.stderr) == (0, "up\n", "")


def test_a_job_gets_its_keeper_although_nobody_reads_its_output(home: Path) -> None:
    reads, writes = os.pipe()
    full = fcntl.fcntl(writes, fcntl.F_GETPIPE_SZ)
    os.write(writes, b"x" * full)
    words = [*MAIN, "--", "sh", "-c", "echo up"]
    with open(reads, "rb") as pipe, subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=writes) as front:
        os.close(writes)
        end = time.monotonic() + 60
        while not [*home.glob("jobs/*/exit.json")] and time.monotonic() < end:
            time.sleep(0.05)
        assert [*home.glob("jobs/*/exit.json")]
        assert pipe.read()[full:] == b"up\n" and front.wait(60) == 0


def test_what_a_full_disk_cuts_off_is_removed(home: Path) -> None:
    home.mkdir(mode=0o700)
    (home / "client").write_text("no folder can be made here")
    done = ended([*MAIN, "--", "sh", "-c", "echo up"], stdin=subprocess.DEVNULL)
    assert (done.returncode, done.stdout) == (0, "up\n")
    assert len(jobs(home)) == 1 and not [*home.glob("jobs/*/hook*")]


def test_a_signal_that_comes_at_once_reaches_the_command() -> None:
    script = "import sys, time\ntry:\n print('up', flush=True); time.sleep(60)\nexcept KeyboardInterrupt:\n sys.exit(3)"
    with subprocess.Popen(
        [*MAIN, "--", sys.executable, "-c", script], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
    ) as front:
        assert front.stdout is not None and front.stdout.readline() == b"up\n"
        front.send_signal(signal.SIGINT)
        assert front.wait(60) == 3


def test_what_a_start_leaves_that_is_killed_goes_with_the_next(home: Path) -> None:
    killed = (
        "import os; from carbontui import early; from carbontui.client import inject\n"
        "inject.build = lambda folder: (os.makedirs(folder), os.kill(os.getpid(), 9))\n"
        "early.quickly(['--', 'true'], lambda: ([], {**os.environ}))"
    )
    assert ended([sys.executable, "-c", killed], stdin=subprocess.DEVNULL).returncode == -signal.SIGKILL
    (left,) = jobs(home)
    assert ended([*MAIN, "--", "true"], stdin=subprocess.DEVNULL).returncode == 0
    assert len(jobs(home)) == 1 and not left.exists()


def test_a_command_that_ended_before_its_run_has_spoken_is_not_taken_for_left(home: Path) -> None:
    run, job, says = begun("echo up", home)
    with run, open(says, "wb"):
        assert ended([*MAIN, "--", "true"], stdin=subprocess.DEVNULL).returncode == 0
        os.write(says, b"\n")
        assert run.wait(60) == 0
    assert (job / "exit.json").exists() and len(jobs(home)) == 2


def test_one_hook_serves_all_jobs_and_an_old_one_goes_with_the_last_that_has_it(home: Path) -> None:
    made = []
    for name in ("a", "b"):
        (home / "jobs" / name).mkdir(parents=True)
        inject.link(str(home / "jobs" / name))
        made.append((home / "jobs" / name / "hook").resolve())
    assert made[0] == made[1] and (made[0] / "sitecustomize.py").is_file()
    used, unused = (made[0].with_name(name) for name in ("old", "older"))
    used.mkdir(), unused.mkdir(), (home / "jobs" / "c").mkdir()
    (home / "jobs" / "c" / "hook").symlink_to("../../client/old")
    made[0].rename(home / "away")
    inject.link(str(home / "jobs" / "a"))
    assert made[0].is_dir() and used.is_dir() and not unused.exists()


@pytest.mark.parametrize(
    "environment",
    [{}, {"XDG_STATE_HOME": "/s", "XDG_CONFIG_HOME": "/c"}, {"CARBONTUI_HOME": "~/x/../y"}, {"CARBONTUI_HOME": "r"}],
)
def test_files_are_where_the_command_line_looks(
    environment: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("CARBONTUI_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert early.home("STATE", "~/.local/state") == str(paths.state_dir())
    assert early.home("CONFIG", "~/.config") == str(paths.config_file().parent)
    assert early.socket_dir() == str(paths.socket_dir())


def test_what_is_taken_for_right_the_command_line_takes() -> None:
    options = {name for option in run.params for name in option.opts}
    assert {*early.FLAGS, *early.RIGHT} <= options
    rows = {row.split(",")[2] for row in (Path(paths.__file__).parent / "data/timezone-to-zone.csv").open()}
    known = {zone for zone in rows if early.is_zone(zone)}
    assert len(known) > 100 and all(zones.resolve(zone) for zone in known)


@given(st.one_of(st.from_regex(r"[0-9x.]{1,6}", fullmatch=True), st.text("0123456789.x×٣ ", max_size=6)))
def test_a_budget_or_count_that_is_taken_for_right_is(text: str) -> None:
    if early.is_factor(text):
        assert budget.parse(text, 0.0).value >= 1
    if early.is_count(text):
        assert 1 <= int(text) <= 10**15


@pytest.mark.parametrize(
    ("written", "taken"),
    [
        ('# mine\n\nzone = "DE"\n', True),
        ('zone = "XX"\n', False),
        ('zone = "DE"\nbudget = "2x"\n', False),
        ('zone = "DE" # "', False),
        ("zone = ", False),
        ("[DE]", False),
        ("", True),
    ],
)
def test_settings_that_say_more_than_a_zone_are_left_to_the_command_line(home: Path, written: str, taken: bool) -> None:
    home.mkdir()
    (home / "config.toml").write_text(written)
    assert (early.plain(["--", "true"]) is not None) is taken
    assert not taken or config.load().settings.zone in (None, "DE")


@pytest.mark.parametrize(
    "words",
    ["--work 8h --budget 2x -- true", "--budget 18h true", "--zone", "--name=x true", "--quiet=1 true", "--", ""],
)
def test_what_may_wait_or_be_refused_is_left_to_the_command_line(words: str) -> None:
    assert early.plain(words.split()) is None


@pytest.mark.parametrize(
    ("name", "value", "taken"),
    [
        ("ZONE", "DE", True),
        ("ZONE", "XX", False),
        ("BUDGET", "2x", True),
        ("BUDGET", "soon", False),
        ("JOB", "x", False),
    ],
)
def test_a_variable_counts_as_its_option(name: str, value: str, taken: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"CARBONTUI_{name}", value)
    assert (early.plain(["true"]) is not None) is taken
    assert early.plain(["--zone", "XX", "true"]) is None


def test_no_key_is_handed_on_and_no_signal_lost() -> None:
    assert all(name.startswith(early.OF_OTHERS) for name in launch.GRID_KEYS)
    assert {*early.FORWARDED} == signals.PASSED_ON
