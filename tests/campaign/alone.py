"""77 commands, alone and under `carbontui run`, headless and on a terminal: the same bytes, exit code and files.

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
RUN = "run --zone DE"
OPENS, CLOSES = b"\x1b[?1049h", b"\x1b[?1049l"
SCREENS = re.compile(rb"\x1b\[\?1049h.*?\x1b\[\?1049l", re.DOTALL)
CODES = re.compile(rb"\x1b\[[0-9;?<=>]*[a-zA-Z]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\\\)|\x1b[^\[\]]")
SIZE = "stty rows 40 cols 120"

SET_BY_US = ("RUN", "PYTHONPATH", "PYTHONUNBUFFERED", "COLUMNS", "LINES", "FORCE_COLOR", "TTY_COMPATIBLE")
"""Documented: the client comes by the first; output goes to a file, and is to look as on the terminal."""
BARE = " 2>&1 | grep -av '^carbontui: ' | sed 's/0x[0-9a-f]*//g'"
"""Both streams, without our lines and without addresses."""
SCRIPTS = {
    "argv.py": "import sys\nprint(ascii(sys.argv), ascii(sys.orig_argv[1:]))\n",
    "main.py": "#!/usr/bin/env python\nimport sys\nx = 6\nprint(__name__, __file__[-12:], __spec__ and __spec__.name, sys.argv[1:], sys.path[0][-4:])\n",
    "sub/__init__.py": "",
    "sub/__main__.py": "import sys\nprint(__name__, __package__, sys.argv[1:], __spec__.name)\n",
    "sub/mod.py": "import sys\nprint(__name__, __package__, __file__[-10:], sys.argv[1:])\n",
    "sub/deep/imports.py": "import main, mod\n",
    "sub/site/sitecustomize.py": "import sys\nsys.came = [*getattr(sys, 'came', ()), __name__]\n",
    "sub/site/usercustomize.py": "import sys\nsys.came.append(__name__)\n",
    "state.py": """
import gc, os, signal, sys, threading, tracemalloc
print(sys.flags, sys.flags.dev_mode, sys.warnoptions, sys._xoptions, sys.dont_write_bytecode, sys.executable, sys.prefix)
print([entry for entry in sys.path if not entry.endswith("/hook")])
print(sys.gettrace(), sys.getprofile(), threading.gettrace(), threading.getprofile(), len(threading.enumerate()))
print(gc.isenabled(), gc.get_threshold(), gc.callbacks, gc.get_debug(), sys.getrecursionlimit(), sys.getswitchinterval())
print(tracemalloc.is_tracing(), sys.excepthook is sys.__excepthook__, sys.displayhook is sys.__displayhook__)
print(sys.breakpointhook is sys.__breakpointhook__, sys.unraisablehook is sys.__unraisablehook__, len(sys.path_hooks))
print(sys.get_asyncgen_hooks(), sys.get_coroutine_origin_tracking_depth(), sys.get_int_max_str_digits(), sys.pycache_prefix)
print({n: signal.getsignal(n) for n in signal.valid_signals()}, signal.set_wakeup_fd(-1), os.getpid() != os.getppid())
print("torch" in sys.modules, getattr(sys, "came", "no sitecustomize"))
print(sorted(vars()), sorted(vars(sys.modules["builtins"])), os.path.basename(os.getcwd())[:6], bytes(range(2)))
""",
    "words.py": """
import locale, os, sys, time
for one in (sys.stdin, sys.stdout, sys.stderr):
    print(one.encoding, one.errors, one.newlines, one.name, one.mode, one.fileno(), one.closed)
print(sys.getfilesystemencoding(), locale.getlocale(), locale.getpreferredencoding(), time.tzname, ascii("\\xe9"))
print(sys.getdefaultencoding(), os.fsencode("x"), time.strftime("%c", time.gmtime(0)), locale.setlocale(locale.LC_ALL))
sys.stdout.buffer.write("\\xe9\\n".encode(sys.stdout.encoding, "replace"))
""",
    "warn.py": """
import sys, warnings
def old(): warnings.warn("an old one", DeprecationWarning, stacklevel=2)
old(), old()
warnings.warn("a second")
open(__file__)
print(len(warnings.filters), warnings.filters[:2], file=sys.stderr)
""",
    "bad.py": """
import sys, threading
what = sys.argv[1]
def deep(n): return deep(n - 1) if n else 1 / 0
if what == "chain":
    try: deep(2)
    except ZeroDivisionError as error: raise KeyError("second") from error
if what == "group": raise ExceptionGroup("several", [ValueError(1), TypeError("two")])
if what == "syntax": exec("x = = 1")
if what == "text": sys.exit("a text")
if what == "code": raise SystemExit(300)
if what == "deep": sys.setrecursionlimit(90); deep(99)
if what == "thread":
    thread = threading.Thread(target=deep, args=(1,), name="t"); thread.start(); thread.join()
class Dying:
    def __del__(self): raise OSError("unraised")
    def __repr__(self): return "<Dying>"
if what == "unraised": Dying()
""",
    "streams.py": """
import contextlib, io, os, sys
print(type(sys.stdout), type(sys.stdout.buffer).__name__ != "", sys.stdout is sys.__stdout__, isinstance(sys.stdout.buffer, io.BufferedWriter))
with contextlib.redirect_stdout(io.StringIO()) as held: print("held")
sys.stdout.flush(); os.write(1, held.getvalue().encode())
sys.stdout.reconfigure(encoding="ascii", errors="backslashreplace"); print("\\xe9", flush=True)
copy = os.dup(1); os.dup2(2, 1); print("to stderr", flush=True); os.dup2(copy, 1)
print("raw", file=sys.__stdout__, flush=True); sys.stdout.buffer.write(b"bytes\\n"); sys.stdout.flush()
sys.stderr.write("half"); sys.stderr.write(" a line\\n"); sys.stdout.writelines(["a\\n", "b\\n"]); sys.stdout.flush()
os.system("echo from a shell"); os.popen("echo from a pipe >&2").read()
bare = sys.stdout.detach(); bare.write(b"detached\\n"); bare.flush(); sys.stdout = io.TextIOWrapper(bare); print("again")
if not sys.stdin.isatty(): print(sys.stdin.read())
""",
    "ends.py": """
import atexit, gc, os, sys, threading, time, weakref
for n in range(3): atexit.register(print, "atexit", n)
class Kept:
    def __del__(self): print("deleted", flush=True)
kept = Kept(); cycle = [Kept()]; cycle.append(cycle)
threading.Thread(target=lambda: (time.sleep(0.3), print("a thread", flush=True))).start()
threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
weakref.finalize(kept, print, "finalized")
print("end", threading.active_count(), flush=True)
if "exit" in sys.argv: sys.exit(5)
if "_exit" in sys.argv: os._exit(6)
""",
    "children.py": """
import multiprocessing, os, sys
def work(n): return n * n
def child(q): q.put((multiprocessing.current_process().name, sys.argv[1:], os.getppid() != 1))
if __name__ == "__main__":
    for way in ("fork", "spawn", "forkserver"):
        context = multiprocessing.get_context(way)
        with context.Pool(2) as pool: print(way, pool.map(work, range(4)), flush=True)
        q = context.SimpleQueue(); one = context.Process(target=child, args=(q,)); one.start(); print(q.get(), flush=True); one.join()
        print(one.exitcode, len(multiprocessing.active_children()), flush=True)
    if (pid := os.fork()) == 0:
        print("forked", flush=True); os._exit(3)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
    try: os.waitpid(-1, os.WNOHANG)
    except ChildProcessError: print("no other child", flush=True)
""",
    "loops.py": """
import asyncio, os, signal
async def main():
    came = asyncio.Event(); asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, came.set)
    os.kill(os.getpid(), signal.SIGUSR1); await came.wait()
    made = await asyncio.create_subprocess_exec("echo", "a child", stdout=-1); print(await made.communicate(), made.returncode)
asyncio.run(main(), debug=True)
""",
    "fds.py": """
import os
for fd in sorted(map(int, os.listdir("/proc/self/fd"))):
    try: to = os.readlink(f"/proc/self/fd/{fd}")
    except OSError: continue
    if fd > 2 and not to.endswith("training.lock"): print(fd, os.path.basename(to), os.get_inheritable(fd))
""",
}

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
    # what a Python script sees of its start
    "argv, to the byte": "$RUN python argv.py 'a b' '' $'\\377' -x --help -- -- $'two\\nlines'",
    "the command line in /proc": "$RUN python -c 'import os; print(open(\"/proc/self/cmdline\", \"rb\").read(), os.readlink(\"/proc/self/exe\"))' a ''",
    "options of Python": "for o in -I -S '-E -bb' '-P -X dev -W error' '-OO -B -X utf8=0'; do $RUN python $o state.py; done",
    "a module, with -m": "$RUN python -m sub.mod a; $RUN python -m sub b; $RUN python -m sub.none c",
    "an archive": "python -m zipapp sub -p '/usr/bin/env python' -o app.pyz && $RUN python app.pyz c; $RUN ./app.pyz; $RUN python sub d; rm app.pyz",
    "a folder of packages in a venv": "python -m venv --without-pip --symlinks v; $RUN v/bin/python -c 'import sys; print(sys.prefix != sys.base_prefix, sys.executable[-12:])'; rm -r v",
    "a script behind a link": "ln -s ../main.py sub/link.py; $RUN python sub/link.py; chmod +x main.py; cd sub && $RUN ./link.py",
    "a shell script that starts Python": "$RUN sh -c 'cd sub; exec python ../main.py $0' x",
    "empty entries of PYTHONPATH": "PYTHONPATH=:sub $RUN python sub/deep/imports.py; PYTHONPATH= $RUN python sub/deep/imports.py",
    "another sitecustomize": "PYTHONPATH=sub/site $RUN python state.py; PYTHONPATH=sub/site PYTHONNOUSERSITE=1 $RUN python -W always state.py",
    "what is set in an interpreter": "$RUN python state.py; PYTHONHASHSEED=7 $RUN python -c 'import random; print(hash(\"a\"), random.seed(1), random.random())'",
    "modules loaded at the start": "$RUN python -c 'import sys; print(sorted(set(sys.modules) - {\"sitecustomize\", \"errno\"}))'",
    "the environment": "$RUN python -c 'import os; print({k: v for k, v in os.environ.items() if not k.startswith(\"CARBONTUI_\") and k not in OURS})'".replace("OURS", str(SET_BY_US).replace("'", '\\"')),
    "encoding, locale and time zone": "LC_ALL=C TZ=Asia/Tokyo $RUN python words.py; PYTHONIOENCODING=latin-1:replace $RUN python words.py; PYTHONUTF8=0 LC_ALL=POSIX PYTHONCOERCECLOCALE=0 $RUN python words.py",
    "a deep stack": "$RUN python -c 'import inspect; print(len(inspect.stack()))\ndef f(n):\n try: return f(n + 1)\n except RecursionError: return n\nprint(f(0))'",
    "files and times of the folder": "touch -d @1000000000 .; $RUN python -c 'import sys; sys.dont_write_bytecode = True; import main'; stat -c %Y .; $RUN python -c 'import sub.mod'; ls -aR",
    # what it does while it runs
    "warnings, to the byte": "$RUN python -W always warn.py; $RUN python warn.py; PYTHONWARNINGS=ignore $RUN python warn.py",
    "errors, to the byte": "for k in chain group syntax text code unraised deep thread; do $RUN python bad.py $k; echo $?; done" + BARE,
    "logging": "$RUN python -c 'import logging; logging.basicConfig(level=10); logging.info(\"a %s\", 1); logging.warning(\"%d\", \"x\")'" + BARE,
    "streams replaced, wrapped, sent elsewhere": "$RUN python streams.py; $RUN python -u streams.py",
    "-i with commands": "echo 'x + 1' | $RUN python -i -c 'x = 41'",
    "pdb with commands": "printf 'n\\ns\\nw\\np x\\nc\\nq\\n' | $RUN python -m pdb main.py a",
    "faulthandler": "$RUN python -X faulthandler -c 'import ctypes; ctypes.string_at(0)'" + BARE,
    "the end of threads, atexit, garbage": "$RUN python ends.py; $RUN python ends.py exit; echo $?; $RUN python ends.py _exit; echo $?",
    "fork, spawn, forkserver": "$RUN python children.py",
    "Pythons inside a Python": "$RUN python -c 'import subprocess, sys\nfor o in (\"-E\", \"-I\", \"-S\", \"-sB\"): print(o, subprocess.run([sys.executable, o, \"main.py\"]).returncode, flush=True)'",
    "exec, to another program": "$RUN python -c 'import os, sys; os.execv(sys.executable, [\"python\", \"main.py\", \"b\"])'; $RUN sh -c 'exec -a named sh -c \"echo \\$0\"'",
    "asyncio and its signals": "$RUN python loops.py",
    "stopped, and continued": "$RUN sh -c '(sleep 0.5; kill -CONT $$) & kill -STOP $$; echo on; wait'",
    "what outlives the command": "$RUN sh -c '(sleep 1; echo late > late) & echo early'; sleep 1.2; cat late",
    # what it is given by its caller
    "signals that are ignored or blocked": "$RUN grep -E '^Sig(Blk|Ign|Cgt)' /proc/self/status; (trap '' HUP INT QUIT; $RUN grep ^SigIgn /proc/self/status)",
    "an interrupt, once": "$RUN python -c 'import signal, time\nn = []\nsignal.signal(2, lambda *a: n.append(a))\nwhile not n: time.sleep(0.1)\ntime.sleep(0.7)\nprint(len(n))' & sleep 4; kill -INT $!; wait $!; echo $?",
    "limits": "ulimit -s 4096 -c 0; ulimit -Su 20000; $RUN sh -c 'ulimit -a'; $RUN sh -c 'ulimit -aH'",
    "nice, scheduler, CPUs, memory": "nice -n 3 taskset -c 0 $RUN sh -c 'nice; taskset -p 0 | cut -d: -f2; cat /proc/self/oom_score_adj /proc/self/coredump_filter /proc/self/timerslack_ns; chrt -p 0 | cut -d: -f2; ionice -p 0 2>&1; nproc'",
    "open descriptors": "$RUN python fds.py; $RUN python fds.py 5< lines 7>> seven",
    "a program that is not Python, or too old for it": "$RUN env -i PATH=/usr/bin:/bin sh -c env; $RUN awk 'BEGIN { print ENVIRON[\"HOME\"]; exit 9 }'",
    "exit codes": "for c in 1 2 85 86 126 127 130 255; do $RUN sh -c \"exit $c\"; echo $?; done",
    "several at once": "for i in 1 2 3; do $RUN sh -c \"sleep 0.$i; echo $i > made$i; exit $i\" & done; for j in $(jobs -p); do wait $j; echo $?; done",
}  # fmt: skip


KNOWN: dict[str, tuple[str, str]] = {
    "output to a terminal": ("it goes to a file", "$RUN python -c 'import os; print(os.isatty(1), os.isatty(2))'"),
    "a stream that is closed": ("it is empty", "$RUN python -c 'import sys; print(sys.stdin)' <&-"),
    "output that os._exit() loses": ("nothing waits in a buffer", "$RUN python -c 'import os; print(1); os._exit(0)'"),
    "a full disk": ("the output goes to a file of ours", "$RUN sh -c 'echo a || echo failed >&2' > /dev/full"),
    "session and group": ("it is a group of its own", "$RUN python -c 'import os; print(os.getpgrp() == os.getpid(), os.getppid() == os.getsid(0))'"),
    "path, modules, finders": ("the client is there", "$RUN python -c 'import sys; print(len(sys.path), \"sitecustomize\" in sys.modules, len(sys.meta_path))'"),
}  # fmt: skip
"""What stays different, and why; not counted. The first is the same without a terminal."""


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
        self.folder = house.root / "here"  # the same for both: a traceback names it
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir()
        said = {"CARBONTUI_ZONE": "DE", "CARBONTUI_BUDGET": "1x"}  # else a terminal is asked for them
        said["PYTHONUNBUFFERED"] = "1"  # as `run` has it where nobody sets it
        self.env = house.env | said | {"RUN": run, "TERM": "xterm-256color", "PATH": os.pathsep.join(_path())}
        (self.folder / "lines").write_text("one\ntwo\nthree\n")
        (self.folder / "data").write_bytes(bytes(range(256)) * 4000)
        (self.folder / "sub").mkdir()
        (self.folder / "job.sh").write_text("echo a job\necho its error >&2\nexit 3\n")
        (self.folder / "loop.py").write_text(
            "import time\nwhile True:\n    print('line', flush=True)\n    time.sleep(0.01)\n"
        )
        (self.folder / "plain.txt").write_text("text")
        for name, text in SCRIPTS.items():
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / name).write_text(text)
        for name, text in {"tool": '#!/bin/sh\necho "$# $1"; exit 4\n', "bare": "echo bare >&2; exit 5\n"}.items():
            (self.folder / name).write_text(text)
            (self.folder / name).chmod(0o755)

    def files(self) -> tuple[tuple[str, bytes], ...]:
        found = sorted(path for path in self.folder.rglob("*") if path.is_file())
        names = [(str(path.relative_to(self.folder)), path) for path in found]
        # a .pyc has the second in which its source was written in its head
        return tuple((name, without_ours(path.read_bytes())[0][16 * (path.suffix == ".pyc") :]) for name, path in names)

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
                for number in (signal.SIGPIPE, signal.SIGXFSZ):
                    signal.signal(number, signal.SIG_DFL)  # as a login has them, not a Python
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
            same = next((at for at, (a, b) in enumerate(zip(str(was), str(now), strict=False)) if a != b), 0)
            cut = slice(max(0, same - 40), same + 120)
            found.append(f"{what}: {str(was)[cut]} alone, {str(now)[cut]} under run")
    return found


def compared(house: House, name: str, *, terminal: bool = False) -> list[str]:
    """What differs between the command alone and under `run`."""
    line, how, outcomes = CONDITIONS.get(name) or KNOWN[name][1], "on_a_terminal" if terminal else "headless", []
    before = len(list(house.home.glob("jobs/*")))
    for run in ("", f"{shlex.quote(sys.executable)} -m carbontui {RUN} --"):
        outcomes.append(getattr(Place(house, run), how)(line))
    found, runs = differences(*outcomes), len(list(house.home.glob("jobs/*"))) - before
    if len(outcomes[1].ours) > OURS_MOST * max(1, runs):
        found.append(f"{len(outcomes[1].ours)} lines of ours: {outcomes[1].ours}")
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
