"""The source of the functions that a thread of the training is in: their syntax, what they assign, how they are called.

The training sends where it is (client/detection/sight.py); nothing here reads a file or a process.
"""

from __future__ import annotations

import ast
import functools
import itertools
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

Function = ast.FunctionDef | ast.AsyncFunctionDef
COLUMN_MAX = 2**31
_MOVES = ("append", "appendleft", "extend", "insert", "add", "pop", "popleft", "remove", "clear")


class CodePlace(NamedTuple):
    """A frame that is running, as the training says it."""

    path: str
    name: str
    """Of its function; <module> outside of all."""
    first: int
    """The line where that begins."""
    line: int
    column: int | None
    """None before Python 3.11."""
    module: str


class File:
    """A file's syntax tree, with its functions and classes by name and the parent of each node.

    Its lines are numbered anew, so that each statement begins one of its own: `for x in y: f(x)` has two."""

    def __init__(self, tree: ast.Module) -> None:
        self.tree = tree
        self._apart = _renumbered(tree)
        self.functions: list[Function] = []
        self.classes: dict[str, ast.ClassDef] = {}
        self.parents: dict[ast.AST, ast.AST] = {}
        every = list(ast.walk(tree))
        for node in every:
            for child in ast.iter_child_nodes(node):
                self.parents[child] = node
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                self.functions.append(node)
            elif isinstance(node, ast.ClassDef):
                self.classes[node.name] = node
        given = ((name.rpartition(".")[2], one) for node in every for name, one in assignments(node))
        switches = {(name, one.value) for name, one in given if isinstance(one, ast.Constant)}
        self.turned = {name for name, value in switches if value in (True, False) and (name, not value) in switches}
        """Names and attributes that are set to True and to False: what they are when is not known."""
        calls = (one.func for one in every if isinstance(one, ast.Call) and last(one.func) in _MOVES)
        grown = {last(one.target) for one in every if isinstance(one, ast.AugAssign)}
        self.moved = grown.union(last(one.value) for one in calls if isinstance(one, ast.Attribute)) - {""}
        looped = (one for loop in every if isinstance(loop, (ast.For, ast.While)) for one in own(loop))
        self.moved |= {one.attr for one in looped if isinstance(one, ast.Attribute) and isinstance(one.ctx, ast.Store)}
        """Names and attributes of what is counted up, or has parts added and taken away."""
        thrown = (one.exc for one in every if isinstance(one, ast.Raise) and one.exc is not None)
        self.raised = {last(getattr(one, "func", one)) for one in thrown} - {""}
        self._assigned: dict[ast.AST, dict[str, list[Any]]] = {}

    def line(self, line: int, column: int = 0) -> int:
        """The number here of a line as the interpreter counts it."""
        return line + bisect_right(self._apart, (line, column))

    def at(self, line: int, column: int | None) -> int:
        """The line of a place; 0 where another could be meant: before Python 3.11 only lines are known."""
        if column is None and self.line(line) != self.line(line, COLUMN_MAX):
            return 0
        return self.line(line, column or 0)

    def named(self, name: str) -> Iterator[Function]:
        return (one for one in self.functions if one.name == name)

    def called(self, call: ast.Call) -> list[Function]:
        """The functions that a call may be of: `model.train()` is none of a function train()."""
        method = isinstance(call.func, ast.Attribute)
        return [one for one in self.named(last(call.func)) if (self.owner(one) is not None) is method]

    def owner(self, function: ast.AST) -> ast.ClassDef | None:
        """The class of a method."""
        parent = self.parents.get(function)
        return parent if isinstance(parent, ast.ClassDef) else None

    def above(self, node: ast.AST) -> Iterator[ast.AST]:
        while node in self.parents:
            node = self.parents[node]
            yield node

    def assigned(self, function: ast.AST) -> dict[str, list[Any]]:
        """What is assigned in a function: by name (`self.name` for its attributes) the expressions, None for what
        cannot be one."""
        if function not in self._assigned:
            self._assigned[function] = _by_name(own(function))
        return self._assigned[function]

    @functools.cached_property
    def set_in_loops(self) -> dict[str, list[Any]]:
        """What loops of the module itself assign to its names, as in `assigned`."""
        loops = (one for one in own(self.tree) if isinstance(one, (ast.For, ast.While)))
        return _by_name(node for loop in loops for node in (loop, *own(loop)))


def _by_name(nodes: Iterable[ast.AST]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for node in nodes:
        for name, value in assignments(node):
            found.setdefault(name, []).append(value)
    return found


def _renumbered(tree: ast.Module) -> list[tuple[int, int]]:
    """Number a tree's lines anew; where the statements begin that are not the first of their line. `if x: y` is one."""
    nodes: list[Any] = [one for one in ast.walk(tree) if hasattr(one, "lineno")]
    within = [one.body[0] for one in nodes if isinstance(one, ast.If) and one.body[0].lineno == one.test.end_lineno]
    starts = sorted((one.lineno, one.col_offset) for one in nodes if isinstance(one, ast.stmt) and one not in within)
    apart = [after for before, after in itertools.pairwise(starts) if before[0] == after[0]]
    for one in nodes if apart else ():
        ends = one.end_lineno + bisect_right(apart, (one.end_lineno, one.end_col_offset - 1))
        one.lineno, one.end_lineno = one.lineno + bisect_right(apart, (one.lineno, one.col_offset)), ends
    return apart


def parsed(text: str) -> File | None:
    """None for what this Python cannot parse."""
    try:
        return File(ast.parse(text))
    except (SyntaxError, ValueError, RecursionError):
        return None


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


def assignments(node: ast.AST) -> Iterator[tuple[str, Any]]:
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


def _unpacked(target: ast.AST, value: ast.AST | None) -> Iterator[tuple[str, Any]]:
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
    function: ast.AST | None
    space: Any
    """The names of its module, as a Described."""
    line: int = 0
    caller: Scope | None = None
    call: ast.Call | None = None

    @property
    def body(self) -> ast.AST:
        return self.file.tree if self.function is None else self.function


def scopes(chain: Sequence[CodePlace], files: Mapping[str, File], spaces: Mapping[str, Any]) -> list[Scope]:
    """The functions at work whose source is known, the outermost first, of a chain with the innermost first."""
    found: list[Scope] = []
    caller: Scope | None = None
    for place in reversed(chain):
        file = files.get(place.path)
        if file is None:
            continue
        function: Function | None = None
        line = file.at(place.line, place.column)
        if not line:
            return []
        if place.name != "<module>":
            first = file.line(place.first)
            same = [one for one in file.named(place.name) if first in _first_lines(one)]
            if not same:
                continue
            function = same[0]
        call = _call(caller, file, function) if caller is not None and function is not None else None
        caller = Scope(file, function, spaces[place.module], line, caller, call)
        found.append(caller)
    return found


def _first_lines(function: Function) -> tuple[int, ...]:
    return function.lineno, *(one.lineno for one in function.decorator_list)


def _call(caller: Scope, file: File, function: Function) -> ast.Call | None:
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
