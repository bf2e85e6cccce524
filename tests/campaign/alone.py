"""Forty commands, alone and under `carbontui run`, headless and on a terminal: the same bytes, exit code and files.

python tests/campaign/alone.py [--only WORD] [--headless | --terminal] [--results FILE.md]

Each is a line of bash with `$RUN` before the command. Our own lines on stderr (`carbontui: `) are left out and counted.
On a terminal that shows the screen the command's output is what `carbontui log` prints.
"""

# ruff: noqa: E501 - a line of bash is one line
from __future__ import annotations

import argparse
import contextlib
import os
import pty
import re
import select
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1])]

from house import House

LONGEST_S = 60.0
OURS = b"carbontui: "
OURS_MOST = 5
RUN = "run --zone DE --intensity 300"
OPENS, CLOSES = b"\x1b[?1049h", b"\x1b[?1049l"
SCREENS = re.compile(rb"\x1b\[\?1049h.*?\x1b\[\?1049l", re.DOTALL)
CODES = re.compile(rb"\x1b\[[0-9;?<=>]*[a-zA-Z]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\\\)|\x1b[^\[\]]")
SIZE = "stty rows 40 cols 120"

CONDITIONS: dict[str, str] = {
    # output
    "stdout alone": "$RUN echo out",
    "stderr alone": "$RUN sh -c 'echo err >&2'",
    "both into two files": "$RUN sh -c 'echo out; echo err >&2' > o 2> e",
    "both into one file": "$RUN sh -c 'for i in 1 2 3; do echo out $i; echo err $i >&2; done' > o 2>&1",
    "both, to be read apart": "$RUN sh -c 'for i in 1 2 3; do echo out $i; echo err $i >&2; done'",
    "a megabyte": "$RUN head -c 1000000 data | cksum",
    "a megabyte of stderr": "$RUN sh -c 'head -c 1000000 data >&2' 2> e; grep -av ^carbontui: e | cksum; rm e",
    "no newline at the end": "$RUN printf 'no newline'",
    "a bar on stderr": "$RUN python -c 'import sys\nfor i in range(9): print(end=f\"\\r{i} of 9\", file=sys.stderr)\nprint(7)'",
    "bytes that are no text": "$RUN printf '\\377\\376\\000x\\n'",
    "appended to a file": "echo before > o; $RUN echo after >> o",
    "captured by a shell": 'x=$($RUN echo said); echo "[$x]"',
    "through tee, pipefail": "set -o pipefail; $RUN sh -c 'echo a; exit 6' | tee o",
    "head, of a program that writes on": "$RUN sh -c 'while :; do echo y; sleep 0.02; done' 2> e | head -n 3; echo ${PIPESTATUS[0]}; rm e",
    "head, of a Python loop": "$RUN python loop.py 2> e | head -n 3; echo ${PIPESTATUS[0]}; grep -o BrokenPipe e | head -n 1; rm e",
    # input
    "a heredoc to python": "$RUN python - a b <<'E'\nimport sys\nprint(sys.argv[1:], 'from a heredoc')\nE",
    "a script on stdin": "$RUN bash < job.sh",
    "sh -s with arguments": "echo 'echo $1 $2' | $RUN sh -s one two",
    "a pipe": "cat lines | $RUN sort",
    "ten megabytes through a pipe": "head -c 10000000 /dev/zero | $RUN wc -c",
    "a file of a megabyte": "$RUN cksum < data",
    "a string": "$RUN cat <<< 'a string'",
    "input() from a pipe": "echo 41 | $RUN python -c 'print(int(input()) + 1)'",
    "input() without input": "$RUN python -c 'input()' < /dev/null 2> e; echo $?; grep -v ^carbontui: e | tail -n 1; rm e",
    "breakpoint() with commands": "printf 'p 6*7\\nc\\n' | $RUN python -c 'breakpoint(); print(1)'",
    "the rest of a loop's list": "while read -r x; do echo \"<$x>\"; $RUN cat; done < lines",
    # descriptors
    "<(...)": "$RUN cat <(echo substituted)",
    "two of <(...)": "$RUN diff <(echo a) <(echo b)",
    ">(...)": "$RUN tee >(tr a-z A-Z > upper) <<< through > o; sleep 0.5",
    "descriptor 3 to read": "$RUN sh -c 'cat <&3' 3< lines",
    "descriptor 9 to write": "$RUN sh -c 'echo nine >&9' 9>> nine",
    # the end
    "an exit code, and &&": "$RUN ./tool 'a b' && echo not reached",
    "not found, not executable": "$RUN ./nothing 2> e; echo $?; $RUN ./plain.txt 2> e; echo $?; $RUN no-such-command 2> e; echo $?; rm e",
    "a script without #!": "$RUN ./bare",
    "ended by a signal": """sh -c '$RUN sh -c "kill -TERM \\$\\$"; echo $?; $RUN sh -c "kill -SEGV \\$\\$"; echo $?'""",
    "a traceback": "$RUN python -c 'raise ValueError(3)'",
    "ended from outside": "timeout -s INT 4 $RUN python -c 'import time\ntry: time.sleep(60)\nexcept KeyboardInterrupt: print(\"saved\")'; echo $?",
    "a handler for TERM": "timeout -s TERM 4 $RUN sh -c 'trap \"echo ended; exit 7\" TERM; sleep 60 & wait'; echo $?",
    # surroundings
    "umask, limits, folder": "umask 027; ulimit -n 300; cd sub && $RUN sh -c 'umask; ulimit -n; pwd -P | xargs basename; touch made; stat -c %a made'",
    "several at once": "for i in 1 2 3; do $RUN sh -c \"sleep 0.$i; echo $i > made$i; exit $i\" & done; for j in $(jobs -p); do wait $j; echo $?; done",
}  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """What one way of running it has left: `ours` are our own lines, which the rest is without."""

    out: bytes
    err: bytes
    code: int
    files: tuple[tuple[str, bytes], ...]
    ours: tuple[bytes, ...] = ()


def without_ours(text: bytes) -> tuple[bytes, tuple[bytes, ...]]:
    lines = text.splitlines(keepends=True)
    return b"".join(one for one in lines if not one.startswith(OURS)), tuple(
        one.strip() for one in lines if one.startswith(OURS)
    )


class Place:
    """A folder for one command, prepared the same each time."""

    def __init__(self, house: House, run: str) -> None:
        self.house = house
        self.folder = Path(tempfile.mkdtemp(prefix="alone-", dir=house.root))
        said = {"CARBONTUI_ZONE": "DE", "CARBONTUI_BUDGET": "1x"}  # else a terminal is asked for them
        self.env = house.env | said | {"RUN": run, "TERM": "xterm-256color", "PATH": os.pathsep.join(_path())}
        (self.folder / "lines").write_text("one\ntwo\nthree\n")
        (self.folder / "data").write_bytes(bytes(range(256)) * 4000)
        (self.folder / "sub").mkdir()
        (self.folder / "job.sh").write_text("echo a job\necho its error >&2\nexit 3\n")
        (self.folder / "loop.py").write_text(
            "import time\nwhile True:\n    print('line', flush=True)\n    time.sleep(0.01)\n"
        )
        (self.folder / "plain.txt").write_text("text")
        for name, text in {"tool": '#!/bin/sh\necho "$# $1"; exit 4\n', "bare": "echo bare >&2; exit 5\n"}.items():
            (self.folder / name).write_text(text)
            (self.folder / name).chmod(0o755)

    def files(self) -> tuple[tuple[str, bytes], ...]:
        found = sorted(path for path in self.folder.rglob("*") if path.is_file())
        return tuple((str(path.relative_to(self.folder)), without_ours(path.read_bytes())[0]) for path in found)

    def headless(self, line: str) -> Outcome:
        done = subprocess.Popen(
            ["bash", "-c", line], cwd=self.folder, env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        try:
            out, err = done.communicate(timeout=LONGEST_S)
        except subprocess.TimeoutExpired:
            os.killpg(done.pid, signal.SIGKILL)
            self.house.end()
            out, err = done.communicate()
        err, ours = without_ours(err)
        return Outcome(out, err, done.returncode, self.files(), ours)

    def on_a_terminal(self, line: str, press: Callable[[set[Path]], bytes] | None = None) -> Outcome:
        """`press`: the keys for an open screen, told the logs of the jobs started meanwhile; `q` once those are over."""
        before, keys = set(self.logs()), press or (lambda logs: b"q" * _over(logs))
        pid, terminal = pty.fork()
        if pid == 0:
            with contextlib.suppress(OSError):
                signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # as a login has it, not a Python
                os.chdir(self.folder)
                os.execvpe("bash", ["bash", "-c", f"{SIZE}; {line}"], self.env)
            os._exit(99)
        seen, code = _followed(pid, terminal, lambda: keys(set(self.logs()) - before), self.house.end)
        # where a screen was, its job's output was behind it
        fresh = sorted(set(self.logs()) - before, key=lambda path: (path.parent / "spec.json").stat().st_mtime)
        around = [without_ours(CODES.sub(b"", part)) for part in SCREENS.split(seen)]
        behind = [path.read_bytes() for path in fresh if path.exists() and len(around) > 1]
        parts = zip_longest((part for part, _ in around), behind, fillvalue=b"")
        out = b"".join(part + output.replace(b"\n", b"\r\n") for part, output in parts)
        return Outcome(out, b"", code, self.files(), tuple(line for _, ours in around for line in ours))

    def logs(self) -> list[Path]:
        return [record.parent / "run.log" for record in self.house.home.glob("jobs/*/job.json")]


def _path() -> Iterator[str]:
    yield str(Path(sys.executable).parent)
    yield from os.environ["PATH"].split(os.pathsep)


def _over(logs: set[Path]) -> bool:
    return bool(logs) and all(
        (path.parent / "exit.json").exists() and (path.parent / "exit.json").stat().st_size for path in logs
    )


def _followed(pid: int, terminal: int, keys: Callable[[], bytes], end: Callable[[], None]) -> tuple[bytes, int]:
    """What a terminal shows until its program ends, and the exit code; an open screen gets keys every 3 s."""
    seen, due, at = b"", time.monotonic() + LONGEST_S, 0.0
    while time.monotonic() < due:
        if select.select([terminal], [], [], 0.2)[0]:
            try:
                seen += os.read(terminal, 65536)
            except OSError:
                break
        if seen.count(OPENS) == seen.count(CLOSES) or time.monotonic() - at < 3.0 or not (typed := keys()):
            continue
        if at:
            os.write(terminal, typed)
        at = time.monotonic()
    else:
        os.kill(pid, signal.SIGKILL)
        end()
    _, status = os.waitpid(pid, 0)
    os.close(terminal)
    return seen, os.waitstatus_to_exitcode(status)


def differences(plain: Outcome, ran: Outcome) -> list[str]:
    """What is not the same, in words; [] if everything is."""
    found = []
    for what in ("out", "err", "code", "files"):
        was, now = getattr(plain, what), getattr(ran, what)
        if was != now:
            if what == "files":
                was, now = sorted(set(was) - set(now)), sorted(set(now) - set(was))
            found.append(f"{what}: {str(was)[:160]} alone, {str(now)[:160]} under run")
    return found


def compared(house: House, name: str, *, terminal: bool = False) -> list[str]:
    """What differs between the command alone and under `run`."""
    line = CONDITIONS[name]
    alone, under = Place(house, ""), Place(house, f"{shlex.quote(sys.executable)} -m carbontui.cli {RUN} --")
    how = "on_a_terminal" if terminal else "headless"
    plain, ran = getattr(alone, how)(line), getattr(under, how)(line)
    found = differences(plain, ran)
    runs = max(1, line.count("$RUN") + 2 * line.count("for i in 1 2 3; do $RUN"))
    if len(ran.ours) > OURS_MOST * runs:
        found.append(f"{len(ran.ours)} lines of ours: {ran.ours}")
    for place in (alone, under):
        shutil.rmtree(place.folder, ignore_errors=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="")
    parser.add_argument("--headless", action="store_true")
    parser.add_argument("--terminal", action="store_true")
    parser.add_argument("--results", type=Path)
    given = parser.parse_args()
    ways = [way for way, left_out in ((False, given.terminal), (True, given.headless)) if not left_out]
    rows, same = [], dict.fromkeys(ways, 0)
    root, runtime = Path(tempfile.mkdtemp(prefix="cta-")), Path(tempfile.mkdtemp(prefix="ct-"))
    house = House(root, runtime)
    names = [name for name in CONDITIONS if given.only in name]
    try:
        for name in names:
            cells = []
            for terminal in ways:
                found = compared(house, name, terminal=terminal)
                same[terminal] += not found
                cells.append("same" if not found else "; ".join(found).replace("|", "\\|"))
                sys.stdout.write(f"{name} ({'terminal' if terminal else 'headless'}): {cells[-1]}\n")
                sys.stdout.flush()
            rows.append(f"| {name} | {' | '.join(cells)} |")
    finally:
        house.end()
        for folder in (root, runtime):
            shutil.rmtree(folder, ignore_errors=True)
    for terminal in ways:
        sys.stdout.write(f"{'on a terminal' if terminal else 'headless'}: {same[terminal]} of {len(names)}\n")
    if given.results:
        heads = ["on a terminal" if terminal else "headless" for terminal in ways]
        table = [f"| command | {' | '.join(heads)} |", "|---" * (1 + len(ways)) + "|", *rows]
        given.results.write_text("\n".join(table) + "\n")


if __name__ == "__main__":
    main()
