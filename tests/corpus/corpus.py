"""The list of the loops (loops.toml), and how one is run."""

from __future__ import annotations

import dataclasses
import importlib.util
import os
import sys
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HERE = Path(__file__).parent
LIST = HERE / "loops.toml"


@dataclasses.dataclass(frozen=True)
class Loop:
    """One script of the corpus. The README explains the fields."""

    name: str
    source: str
    kind: str
    evidence: str = ""
    steps: int = 0
    passes: int = 0
    second_pass_ends: int = 0
    knowable: bool = True
    upper_bound: bool = False
    held_out: bool = False
    needs: tuple[str, ...] = ()

    @property
    def path(self) -> Path:
        return HERE / ("held_out" if self.held_out else "loops") / f"{self.name}.py"

    @property
    def missing(self) -> list[str]:
        """What it needs and this environment lacks."""
        return [name for name in ("torch", *self.needs) if importlib.util.find_spec(name) is None]

    @property
    def due(self) -> float:
        """The step at which its total should be known: when the second pass ends, and half of the run at most."""
        half = self.steps / 2
        return min(self.second_pass_ends, half) if self.second_pass_ends else half


def read(path: Path = LIST) -> list[Loop]:
    rows = tomllib.loads(path.read_text())
    return [Loop(name, **{**row, "needs": tuple(row.get("needs", ()))}) for name, row in rows.items()]


def chosen(names: list[str], *, held_out: bool = False) -> list[Loop]:
    """The loops of these names; without names those for development, or the ones that are held out."""
    loops = {loop.name: loop for loop in read()}
    if unknown := set(names) - set(loops):
        raise SystemExit(f"no such loop: {', '.join(sorted(unknown))}")
    return [loops[name] for name in names] or [loop for loop in loops.values() if loop.held_out == held_out]


def environment() -> dict[str, str]:
    """For a loop: one thread, the same numbers at every run, nothing fetched."""
    threads = {f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL")}
    return {**os.environ, **threads, "PYTHONHASHSEED": "0", "HF_HUB_OFFLINE": "1", "KERAS_BACKEND": "torch"}
