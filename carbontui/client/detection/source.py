"""The source of the functions that a thread is in: their syntax, what they assign, and how they were called."""

from __future__ import annotations

import ast
import linecache
import os
import sys
import time
from bisect import bisect_right
from dataclasses import dataclass
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple, Union

from carbontui.client.detection.places import Chain, Place, column_of

SIZE_MAX = 300_000
"""Longer files are not read: parsing takes a second per megabyte, in which the training waits."""
LIBRARIES = (
    *("torch", "accelerate", "transformers", "lightning", "pytorch_lightning", "keras", "xgboost", "lightgbm"),
    *("catboost", "hydra", "optuna", "omegaconf", "click", "typer"),
    *("ultralytics", "stable_baselines3"),
)
"""No loop of a training is in these."""
STARTED = time.time()
COMMAND = "<string>"
"""The file name of what `python -c` runs."""
Function = Union[ast.FunctionDef, ast.AsyncFunctionDef]


class File:
    """A file's syntax tree, with its functions and classes by name and the parent of each node.

    Its lines are numbered anew, so that each statement begins one of its own: `for x in y: f(x)` has two."""

    def __init__(self, tree: ast.Module) -> None:
        self.tree = tree
        self._apart = _renumbered(tree)
        self.functions: List[Function] = []
        self.classes: Dict[str, ast.ClassDef] = {}
        self.parents: Dict[ast.AST, ast.AST] = {}
        for node in ast.walk(tree):
            for child in ast.iter_child_nodes(node):
                self.parents[child] = node
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                self.functions.append(node)
            elif isinstance(node, ast.ClassDef):
                self.classes[node.name] = node
        given = ((name.rpartition(".")[2], one) for node in ast.walk(tree) for name, one in _assignments(node))
        switches = {(name, one.value) for name, one in given if isinstance(one, ast.Constant)}
        self.turned = {name for name, value in switches if value in (True, False) and (name, not value) in switches}
        """Names and attributes that are set to True and to False: what they are when is not known."""
        self._assigned: Dict[ast.AST, Dict[str, List[Any]]] = {}
        self._in_loops: Optional[Dict[str, List[Any]]] = None

    def line(self, line: int, column: int = 0) -> int:
        """The number here of a line as the interpreter counts it."""
        return line + bisect_right(self._apart, (line, column))

    def at(self, place: Place) -> int:
        """The line of a place; 0 where another could be meant: before Python 3.11 only lines are known."""
        column = column_of(place.code, place.instruction)
        if column is None and self.line(place.line) != self.line(place.line, SIZE_MAX):
            return 0
        return self.line(place.line, column or 0)

    def named(self, name: str) -> Iterator[Function]:
        return (one for one in self.functions if one.name == name)

    def owner(self, function: ast.AST) -> Optional[ast.ClassDef]:
        """The class of a method."""
        parent = self.parents.get(function)
        return parent if isinstance(parent, ast.ClassDef) else None

    def above(self, node: ast.AST) -> Iterator[ast.AST]:
        while node in self.parents:
            node = self.parents[node]
            yield node

    def assigned(self, function: ast.AST) -> Dict[str, List[Any]]:
        """What is assigned in a function: by name (`self.name` for its attributes) the expressions, None for what
        cannot be one."""
        known = self._assigned.get(function)
        if known is None:
            known = self._assigned[function] = {}
            for node in own(function):
                for name, value in _assignments(node):
                    known.setdefault(name, []).append(value)
        return known

    def set_in_loops(self) -> Dict[str, List[Any]]:
        """What loops of the module itself assign to its names, as in `assigned`."""
        if self._in_loops is None:
            self._in_loops = {}
            for loop in own(self.tree):
                if isinstance(loop, (ast.For, ast.While)):
                    for node in (loop, *own(loop)):
                        for name, value in _assignments(node):
                            self._in_loops.setdefault(name, []).append(value)
        return self._in_loops


def _renumbered(tree: ast.Module) -> List[Tuple[int, int]]:
    """Number a tree's lines anew; where the statements begin that are not the first of their line. `if x: y` is one."""
    nodes: List[Any] = [one for one in ast.walk(tree) if hasattr(one, "lineno")]
    within = [one.body[0] for one in nodes if isinstance(one, ast.If)]
    starts = sorted((one.lineno, one.col_offset) for one in nodes if isinstance(one, ast.stmt) and one not in within)
    apart = [after for before, after in zip(starts, starts[1:]) if before[0] == after[0]]
    for one in nodes if apart else ():
        ends = one.end_lineno + bisect_right(apart, (one.end_lineno, one.end_col_offset - 1))
        one.lineno, one.end_lineno = one.lineno + bisect_right(apart, (one.lineno, one.col_offset)), ends
    return apart


_files: Dict[str, Optional[File]] = {}


def read(name: str, space: Dict[str, Any]) -> Optional[File]:
    """The file of this name; None for one that cannot be read, or was changed since this process began."""
    if name not in _files:
        _files[name] = None
        try:
            if not os.path.exists(name) or os.stat(name).st_mtime <= STARTED + 1:
                text = _command() if name == COMMAND else "".join(linecache.getlines(name, space))
                if 0 < len(text) < SIZE_MAX:
                    _files[name] = File(ast.parse(text))
        except (OSError, SyntaxError, ValueError, RecursionError):
            pass
    return _files[name]


def _command() -> str:
    """What `python -c` was given; '' for another start."""
    words, behind = getattr(sys, "orig_argv", []), len(sys.argv)
    return words[-behind] if sys.argv[:1] == ["-c"] and words[-behind - 1 : -behind][0].endswith("c") else ""


def own(function: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a function, without those of the functions and classes inside it."""
    waiting = [function]
    while waiting:
        node = waiting.pop()
        if node is not function:
            yield node
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
                continue
        waiting += reversed(list(ast.iter_child_nodes(node)))


def dotted(node: ast.AST) -> str:
    """`a.b.c` of a name or an attribute, '' for others."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        base = dotted(node.value)
        return f"{base}.{node.attr}" if base else ""
    return ""


def last(node: ast.AST) -> str:
    """The last part of a name, an attribute, or the key of a subscript."""
    if isinstance(node, ast.Subscript):
        key = node.slice
        return key.value if isinstance(key, ast.Constant) and isinstance(key.value, str) else ""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _assignments(node: ast.AST) -> Iterator[Tuple[str, Any]]:
    if isinstance(node, ast.Assign):
        for target in node.targets:
            yield from _unpacked(target, node.value)
    elif isinstance(node, ast.AnnAssign) and node.value is not None:
        yield from _unpacked(node.target, node.value)
    elif isinstance(node, (ast.AugAssign, ast.For, ast.AsyncFor)):
        yield from _unpacked(node.target, None)
    elif isinstance(node, ast.withitem) and node.optional_vars is not None:
        yield from _unpacked(node.optional_vars, None)
    elif isinstance(node, ast.NamedExpr):
        yield from _unpacked(node.target, node.value)


def _unpacked(target: ast.AST, value: Optional[ast.AST]) -> Iterator[Tuple[str, Any]]:
    if isinstance(target, (ast.Tuple, ast.List)):
        parts = value.elts if isinstance(value, (ast.Tuple, ast.List)) else []
        same = len(parts) == len(target.elts) and not any(
            isinstance(one, ast.Starred) for one in [*parts, *target.elts]
        )
        for number, one in enumerate(target.elts):
            part = parts[number] if same else None
            if isinstance(value, (ast.Name, ast.Attribute, ast.Call)) and not isinstance(one, ast.Starred):
                part = ast.Subscript(value, ast.Constant(number), ast.Load())
            yield from _unpacked(one, part)
    elif dotted(target):
        yield dotted(target), value


@dataclass(eq=False)
class Scope:
    """A function at work, or a module: what its names mean."""

    file: File
    function: Optional[ast.AST]
    space: Dict[str, Any]
    line: int = 0
    caller: Optional[Scope] = None
    call: Optional[ast.Call] = None

    @property
    def body(self) -> ast.AST:
        return self.file.tree if self.function is None else self.function


def scopes(chain: Chain) -> List[Scope]:
    """The functions at work whose source is known, the outermost first."""
    found: List[Scope] = []
    caller: Optional[Scope] = None
    for place in reversed(chain):
        name, path, module = place.code.co_name, place.code.co_filename, str(dict.get(place.space, "__name__"))
        if name == "<module>" and module == "__main__":  # what is around it only starts it: a debugger, a notebook
            found, caller = [], None
        library = module.partition(".")[0] in LIBRARIES
        no_file = path.startswith("<") and (path, module) != (COMMAND, "__main__")
        file = None if library or no_file else read(path, place.space)
        if file is None or (name.startswith("<") and name != "<module>"):
            continue
        function: Optional[Function] = None
        line = file.at(place)
        if not line:
            return []
        if name != "<module>":
            first = file.line(place.code.co_firstlineno)
            same = [one for one in file.named(name) if first in _first_lines(one)]
            if not same:
                continue
            function = same[0]
        call = _call(caller, file, function) if caller is not None and function is not None else None
        caller = Scope(file, function, place.space, line, caller, call)
        found.append(caller)
    return found


def _first_lines(function: Function) -> Tuple[int, ...]:
    return function.lineno, *(one.lineno for one in function.decorator_list)


def _call(caller: Scope, file: File, function: Function) -> Optional[ast.Call]:
    """The call by which `caller` has come to this function."""
    names = {function.name}
    owner = file.owner(function)
    if owner is not None and function.name in ("__init__", "__call__"):
        names.add(owner.name)
    calls = (node for node in own(caller.body) if isinstance(node, ast.Call) and last(node.func) in names)
    return next((node for node in calls if node.lineno <= caller.line <= (node.end_lineno or node.lineno)), None)


def lines(body: Sequence[ast.stmt], line: int) -> bool:
    """Whether a line is among these statements."""
    return bool(body) and body[0].lineno <= line <= (body[-1].end_lineno or body[-1].lineno)
