"""Why a busy process shows no training step: from its environment, command line, libraries and evidence.

Pure: the data of /proc and the evidence file is passed in. Used by the tool, never inside a training.
"""

from __future__ import annotations

import re
from typing import FrozenSet, Mapping, NamedTuple, Optional, Sequence

from carbontui.client import marker

STEP = "call carbontui.step() at the end of the loop's body"
INSTALL = "run `carbontui hook --install` in its environment"
CAPTURED = f"a replayed CUDA graph runs no Python; {STEP}"


class Cause(NamedTuple):
    """code: no-environment, no-site, isolated, pythonpath, cuda-graph, framework, no-loop, no-python, or
    preparing if the hook is loaded and a first step may still come."""

    code: str
    text: str


class Process(NamedTuple):
    """One process of the job. `name` is the process's own name, without unprintable characters."""

    name: str
    argv: Sequence[str]
    environ: Mapping[str, str]
    libraries: FrozenSet[str] = frozenset()
    """Names of LIBRARIES it has loaded."""
    cpu_s: float = 0.0
    evidence: FrozenSet[str] = frozenset()
    hooked: bool = False
    """Its environment has the .pth hook, which PYTHONPATH and -I do not disable."""
    script: str = ""
    """The beginning of the script it runs; '' if not known."""

    @property
    def python(self) -> bool:
        return bool(self.argv) and "python" in self.argv[0].rpartition("/")[2]


LIBRARIES = (
    ("JAX", re.compile(r"/jaxlib/")),
    ("TensorFlow", re.compile(r"/libtensorflow|_pywrap_tensorflow")),
    ("XGBoost", re.compile(r"/libxgboost\.so")),
    ("LightGBM", re.compile(r"/lib_lightgbm\.so")),
    ("CatBoost", re.compile(r"/_catboost\.")),
    ("spaCy", re.compile(r"/spacy/.*\.so|/thinc/.*\.so")),
    ("scikit-learn", re.compile(r"/sklearn/")),
    ("PyTorch", re.compile(r"/libtorch_cpu\.so|/libtorch_python\.so")),
)
_SEEN = re.compile(
    r"^\s*(import|from)\b[^\n#]*\b(torch|transformers|accelerate|(pytorch_)?lightning|keras"
    r"|xgboost|lightgbm|catboost|fastai|spacy|carbontui)\b",
    re.MULTILINE,
)
"""A script that will show its steps, once it makes some."""
_OTHER = re.compile(r"^\s*(import|from)\b[^\n#]*\b(jax|flax|optax|tensorflow|sklearn)\b", re.MULTILINE)
_VALUE_FLAGS = frozenset("cmWX")


def loaded(path: str) -> Optional[str]:
    """The training library that a mapped file belongs to."""
    return next((name for name, known in LIBRARIES if known.search(path)), None)


def judge(processes: Sequence[Process], hook_dir: str) -> Optional[Cause]:
    """The likeliest cause for the processes of one job; None if there is no process.

    Among several, the one with the most CPU time is judged, those with a training library first.
    """
    pythons = [one for one in processes if one.python]
    if not pythons:
        most = max(processes, key=lambda one: one.cpu_s, default=None)
        return most and Cause("no-python", f"{most.name} is not a Python program; --sigstop lets it be paused")
    return cause(max(pythons, key=lambda one: (bool(one.libraries), one.cpu_s)), hook_dir)


def cause(one: Process, hook_dir: str) -> Cause:
    """The likeliest cause for one Python process."""
    arrived = one.hooked or bool(one.evidence)
    if "CARBONTUI_SOCKET" not in one.environ:
        text = "the program was started with an environment of its own (env -i, a container, sudo)"
        return Cause("no-environment", f"{text}; let the CARBONTUI_* variables and PYTHONPATH through")
    flags, _ = flags_and_script(one.argv)
    if "S" in flags:
        return Cause("no-site", f"python -S loads no hook; start it without -S, or {STEP}")
    if not arrived and (ignores := flags & {"I", "E"}):
        return Cause("isolated", f"python -{min(ignores)} ignores PYTHONPATH, which brings the hook; {INSTALL}")
    if not arrived and hook_dir not in one.environ.get("PYTHONPATH", "").split(":"):
        return Cause("pythonpath", f"PYTHONPATH was reset by a launch script; keep its old value, or {INSTALL}")
    if marker.CAPTURED in one.evidence:
        return Cause("cuda-graph", CAPTURED)
    if not one.evidence and not _SEEN.search(one.script):
        if others := " or ".join(sorted(one.libraries - {"PyTorch"})):
            return Cause("framework", f"the hook does not see the steps of a loop of {others}; {STEP}")
        if not one.libraries and not _OTHER.search(one.script):
            return Cause("no-loop", f"no training library is loaded; if this is a training, {STEP}, or run --sigstop")
    return Cause("preparing", f"the hook is there and waits for the first one; if it trains already, {STEP}")


def flags_and_script(argv: Sequence[str]) -> "tuple[FrozenSet[str], Optional[str]]":
    """One-letter flags of a python command line up to the script, -m or -c; the script, None if there is none."""
    flags: set[str] = set()
    words = iter(argv[1:])
    for word in words:
        if not word.startswith("-") or word == "-":
            return frozenset(flags), None if word == "-" else word
        if word.startswith("--"):
            continue
        for position, letter in enumerate(word[1:], 2):
            if letter in "cm":
                return frozenset(flags), None
            if letter in _VALUE_FLAGS:
                if position == len(word):
                    next(words, None)
                break
            flags.add(letter)
    return frozenset(flags), None
