"""Predicts what would be seen of a command without running it: queries its interpreter and reads its script.

Wrappers that only change the environment (env, nice, nohup ...) are run for the query too; a shell script or another
launcher is read, not run. Used by the tool, never inside a training.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import List, Mapping, NamedTuple, Optional, Sequence, Tuple

from carbontui.client import inject
from carbontui.client.detection import unseen

ANSWER_S = 30.0
HARMLESS = frozenset({"env", "nice", "nohup", "ionice", "taskset", "numactl", "stdbuf", "setsid"})
"""Wrappers that only start the command that follows them."""
LAUNCHERS = {"torchrun": "torch.distributed.run", "accelerate": "accelerate", "deepspeed": "deepspeed"}
"""Programs that start a Python script, and the module of their environment's Python."""
SHELLS = frozenset({"sh", "bash", "dash", "zsh"})
SURE = frozenset({"no-environment", "no-site", "isolated", "pythonpath"})
"""Causes that are known before the start."""
_QUESTION = """
import importlib.util, json, os, sys
def there(name):
    try:
        return importlib.util.find_spec(name) is not None
    except Exception:
        return False
names = "torch transformers lightning pytorch_lightning accelerate keras tensorflow jax xgboost lightgbm sklearn"
names += " catboost fastai spacy"
print(json.dumps({
    "python": sys.executable, "version": list(sys.version_info[:2]), "site": "site" in sys.modules,
    "hook": any(type(one).__name__ == "_Watch" for one in sys.meta_path), "path": os.environ.get("PYTHONPATH", ""),
    "socket": "CARBONTUI_SOCKET" in os.environ, "pth": "carbontui_hook" in sys.modules,
    "installed": [name for name in names.split() if "site" in sys.modules and there(name)],
}))
"""
_IMPORTS = re.compile(r"^\s*(?:import|from)\s+(?P<names>[\w., ]+)", re.MULTILINE)
_SHELL_TRAPS = (
    (re.compile(r"\bPYTHONPATH=(?!\S*\$\{?PYTHONPATH)"), "pythonpath"),
    (re.compile(r"\bunset\s+PYTHONPATH\b"), "pythonpath"),
    (re.compile(r"\bpython[\d.]*\s+-\w*[IE]"), "isolated"),
    (re.compile(r"\bpython[\d.]*\s+-\w*S"), "no-site"),
    (re.compile(r"\benv\s+-i\b|\b(sudo|docker|podman|singularity|apptainer)\s"), "no-environment"),
)
_TRAPS = {
    "pythonpath": f"it resets PYTHONPATH: keep its old value (:$PYTHONPATH), or {unseen.INSTALL}",
    "isolated": f"it starts python -I or -E, which ignore PYTHONPATH: {unseen.INSTALL}",
    "no-site": f"it starts python -S, which loads no hook: leave -S out, or {unseen.STEP}",
    "no-environment": "it starts a program with an environment of its own: let the CARBONTUI_* variables through",
}


class ProbeLine(NamedTuple):
    """One line of the result. ok: no problem; `fix` is a command that helps, or ''."""

    ok: bool
    text: str
    fix: str = ""


class InterpreterFacts(NamedTuple):
    """What an interpreter reported about itself."""

    python: str
    version: Tuple[int, int]
    hook: bool
    installed: Tuple[str, ...]
    cause: Optional[unseen.Cause]
    """Why the hook is not loaded; None if it is."""


class NotAsked(Exception):
    """Why the command cannot be examined, in one line."""


def observe(command: Sequence[str], base: Mapping[str, str], folder: str) -> List[ProbeLine]:
    """What would be seen of `command`, started in `folder` with the environment `base`. Raises NotAsked."""
    words = list(command)
    at = _program(words)
    if at is None:
        raise NotAsked("no program in this command")
    name, program = Path(words[at]).name, shutil.which(words[at], path=base.get("PATH"))
    if program is None:
        raise NotAsked(f"{words[at]}: no such program")
    if name not in LAUNCHERS and (starter := _starter_of(program)):
        words[at : at + 1] = [*starter, program]
        name = Path(starter[0]).name
    if name in SHELLS:
        return _shell(words[at + 1 :], base, folder)
    if name in LAUNCHERS:
        # torchrun and the like: the Python of the same environment, and the first script on the command line
        answer = ask(words[:at], next(iter(_starter_of(program)), sys.executable), frozenset(), base)
        script = next((word for word in words[at + 1 :] if word.endswith(".py")), None)
    elif name.startswith(("python", "pypy")):
        flags, script = unseen.flags_and_script(words[at:])
        answer = ask(words[:at], words[at], flags, base)
    else:
        text = f"{name} is not Python: what it starts cannot be checked in advance; the job reports it after a minute"
        return [ProbeLine(False, text)]
    return [_arrival(answer), *lines_of(script, answer, folder)]


def ask(before: Sequence[str], python: str, flags: frozenset[str], base: Mapping[str, str]) -> InterpreterFacts:
    """Query `python`, started as the command starts it, behind the wrappers `before`. Raises NotAsked."""
    with tempfile.TemporaryDirectory(prefix="carbontui-") as name:
        hook = inject.build(Path(name, "hook"))
        env = inject.environment(base, hook_dir=hook, socket=Path(name, "none"), job="doctor", marker=Path(name, "m"))
        argv = [*before, python, *(f"-{flag}" for flag in sorted(flags & set("IESsPB"))), "-c", _QUESTION]
        try:
            done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=ANSWER_S, check=False)
            said = json.loads(done.stdout)
        except (OSError, ValueError, subprocess.TimeoutExpired):
            raise NotAsked(f"{shlex.join([*before, python])} does not answer") from None
        told = {"PYTHONPATH": said["path"], **({"CARBONTUI_SOCKET": "1"} if said["socket"] else {})}
        seen_as = ["python", *(f"-{flag}" for flag in sorted(flags))]
        why = unseen.cause(unseen.Process("python", seen_as, told, hooked=said["pth"]), str(hook))
        version = (int(said["version"][0]), int(said["version"][1]))
        sure = why if why.code in SURE and not said["hook"] else None
        return InterpreterFacts(said["python"], version, said["hook"], tuple(said["installed"]), sure)


def _arrival(answer: InterpreterFacts) -> ProbeLine:
    python = f"{answer.python} ({answer.version[0]}.{answer.version[1]})"
    if answer.hook:
        return ProbeLine(True, f"the hook arrives in {python}")
    if answer.version < (3, 8):
        return ProbeLine(False, f"{python} is too old for the hook: 3.8 is needed; only watts are counted")
    fix = f"carbontui hook --install --python {shlex.quote(answer.python)}"
    cause = answer.cause
    installable = cause is not None and cause.code in ("isolated", "pythonpath")
    return ProbeLine(False, f"the hook does not arrive in {python}: {cause.text if cause else 'for no known reason'}",
                fix if installable else "")  # fmt: skip


def lines_of(script: Optional[str], answer: InterpreterFacts, folder: str) -> List[ProbeLine]:
    """What the script's text reveals about its steps."""
    if script is None:
        return [ProbeLine(True, "no script to read (-c or -m): what it imports decides what is seen")]
    try:
        text = Path(folder, script).read_text(errors="replace")
    except OSError as error:
        return [ProbeLine(False, f"{script}: {error.strerror}")]
    names = {name.split(".")[0].strip() for found in _IMPORTS.finditer(text) for name in found["names"].split(",")}
    names |= {name.split(" ")[0] for name in names}
    missing = sorted(name for name in ("torch", "jax", "keras") if name in names and name not in answer.installed)
    if answer.cause is not None and answer.cause.code == "no-site":
        missing = []  # python -S finds nothing that is installed
    found = [ProbeLine(False, f"{name} is not installed for {answer.python}") for name in missing]
    if not answer.hook:
        return found
    found.append(_steps(names, text))
    if re.search(r"CUDAGraph|make_graphed_callables|cuda\.graph\(", text):
        found.append(ProbeLine(False, f"it records CUDA graphs: {unseen.CAPTURED}"))
    return found


def _steps(names: "set[str]", text: str) -> ProbeLine:
    """How the end of a step will be recognised."""
    alone = "total and unloading come by themselves"
    told = "the total is guessed, or given by carbontui.report(total=); docs/frameworks.md says how to unload"
    stepless = "torch" in names and not re.search(r"\boptim\b|optimizer|\.step\(", text)
    others = sorted(names & {"jax", "flax", "optax", "tensorflow", "sklearn"})
    cases = (
        (re.search(r"\bcarbontui\.step\(", text), True, "a step ends where the script calls carbontui.step()"),
        ("transformers" in names and "Trainer" in text, True, f"a step of the Trainer is a step; {alone}"),
        (names & {"lightning", "pytorch_lightning"}, True, f"a batch that steps is a step; {alone}"),
        ("xgboost" in names, True, f"a boosting round is a step; {alone}"),
        ("lightgbm" in names, True, "a boosting round is a step; the total comes by itself, no unload"),
        ("catboost" in names, True, "a boosting round is a step on a CPU; the total comes by itself, no unload"),
        ("fastai" in names, True, "a batch of fit() is a step; the total comes by itself, no unload"),
        ("spacy" in names, True, "an update() is a step; no unload"),
        ("keras" in names, True, "a batch of fit() is a step; the total comes by itself"),
        (stepless and ".backward(" in text, True, f"without an optimizer a backward() is a step; else {unseen.STEP}"),
        (stepless, True, "an optimizer step is a step, and the script has none itself"),
        (names & {"torch", "accelerate"}, True, f"an optimizer step is a step; {told}"),
        (others, False, f"the steps of a loop of {' or '.join(others)} are not seen: {unseen.STEP}"),
        (True, True, "no training library in the script itself: what it imports decides what is seen"),
    )
    return next(ProbeLine(ok, said) for holds, ok, said in cases if holds)


def _shell(words: Sequence[str], base: Mapping[str, str], folder: str) -> List[ProbeLine]:
    """A shell's script is read, not run."""
    if words and re.fullmatch(r"-\w*c", words[0]):
        text, what = " ".join(words[1:2]), "the shell's line"
    else:
        what = next((word for word in words if not word.startswith("-")), "")
        try:
            text = Path(folder, what).read_text(errors="replace") if what else ""
        except OSError as error:
            return [ProbeLine(False, f"{what}: {error.strerror}")]
    text = re.sub(r"^\s*#.*$", "", text, flags=re.MULTILINE)
    codes = dict.fromkeys(code for trap, code in _SHELL_TRAPS if trap.search(text))
    found = [ProbeLine(False, f"{what}: {_TRAPS[code]}") for code in codes]
    return found or [ProbeLine(True, f"{what or 'the shell'} is not run, only read: nothing in it keeps the hook out")]


def _starter_of(program: str) -> List[str]:
    """The shell or Python named in a script's first line, with its flags; empty for anything else."""
    try:
        with open(program, "rb") as file:
            first = file.readline(500).decode(errors="replace")
    except OSError:
        return []
    words = first[2:].split() if first.startswith("#!") else []
    if words and Path(words[0]).name == "env":
        words = [word for word in words[1:] if word != "-S"]
    known = words and (Path(words[0]).name in SHELLS or Path(words[0]).name.startswith("python"))
    return words if known else []


def _program(words: Sequence[str]) -> Optional[int]:
    """Index of the program behind wrappers that only start it."""
    at = 0
    while at < len(words):
        if Path(words[at]).name not in HARMLESS:
            return at
        values = {"nice": "n", "env": "uCS", "ionice": "cn", "stdbuf": "ioe"}.get(Path(words[at]).name, "")
        at += 1
        while at < len(words) and (words[at].startswith("-") or re.match(r"[A-Za-z_]\w*=", words[at])):
            at += 2 if len(words[at]) == 2 and words[at][1] in values else 1
    return None
