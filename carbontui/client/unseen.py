"""Why a process that computes shows no training step: read from its environment, command line and libraries.

Pure: what /proc says is handed in. Used by the tool, never inside a training.
"""

from __future__ import annotations

import re
from typing import Iterable, Mapping, NamedTuple, Optional, Sequence

STEP = "call carbontui.step() at the end of the loop's body"
INSTALL = "run `carbontui hook --install` in its environment"


class Cause(NamedTuple):
    """code: no-environment, no-site, isolated, pythonpath, cuda-graph, framework, own-update, no-loop."""

    code: str
    text: str


LIBRARIES = (
    ("JAX", re.compile(r"/jaxlib/")),
    ("TensorFlow", re.compile(r"/libtensorflow|_pywrap_tensorflow")),
    ("XGBoost", re.compile(r"/libxgboost\.so")),
    ("LightGBM", re.compile(r"/lib_lightgbm\.so")),
    ("PyTorch", re.compile(r"/libtorch_cpu\.so|/libtorch_python\.so")),
)
_VALUE_FLAGS = frozenset("cmWX")


def cause(
    environ: Mapping[str, str],
    argv: Sequence[str],
    libraries: Iterable[str],
    *,
    hook_dir: str,
    captured: bool = False,
    hooked: bool = False,
) -> Optional[Cause]:
    """The likeliest cause; None for a program that is no Python.

    libraries: paths of mapped files (/proc/PID/maps). captured: the client has seen a CUDA graph being recorded.
    hooked: the environment holds the .pth hook, which PYTHONPATH and -I do not switch off.
    """
    if not argv or "python" not in argv[0].rpartition("/")[2]:
        return None
    if "CARBONTUI_SOCKET" not in environ:
        text = "the program was started with an environment of its own (env -i, a container, sudo)"
        return Cause("no-environment", f"{text}; let the CARBONTUI_* variables and PYTHONPATH through")
    flags = flags_of(argv)
    if "S" in flags:
        return Cause("no-site", f"python -S loads no hook; start it without -S, or {STEP}")
    if not hooked and flags & {"I", "E"}:
        return Cause(
            "isolated", f"python -{min(flags & {'I', 'E'})} ignores PYTHONPATH, which brings the hook; {INSTALL}"
        )
    if not hooked and hook_dir not in environ.get("PYTHONPATH", "").split(":"):
        return Cause("pythonpath", f"PYTHONPATH was reset by a launch script; keep what it held, or {INSTALL}")
    if captured:
        return Cause("cuda-graph", f"a replayed CUDA graph runs no Python; {STEP}")
    loaded = [name for name, known in LIBRARIES if any(known.search(path) for path in libraries)]
    others = [name for name in loaded if name != "PyTorch"]
    if others:
        return Cause("framework", f"the loop is {' and '.join(others)}'s, which the hook does not see; {STEP}")
    if loaded:
        return Cause("own-update", f"PyTorch runs, and no optimizer of it has made a step; {STEP}")
    return Cause("no-loop", f"no training library is loaded; if this is a training, {STEP}, or run --sigstop")


def flags_of(argv: Sequence[str]) -> frozenset[str]:
    """One-letter flags of a python command line, as far as the script, -m or -c."""
    flags: set[str] = set()
    words = iter(argv[1:])
    for word in words:
        if not word.startswith("-") or word.startswith("--") or word == "-":
            break
        for position, letter in enumerate(word[1:], 2):
            if letter in "cm":
                return frozenset(flags)
            if letter in _VALUE_FLAGS:
                if position == len(word):
                    next(words, None)
                break
            flags.add(letter)
    return frozenset(flags)
