"""The source of the functions that a thread of the training is in: their syntax, what they assign, how they are called,
and which of them train.

The training sends where it is (client/detection/sight.py); nothing here reads a file or a process, but for whether a
file of the same project is there.
"""

from __future__ import annotations

import ast
import functools
import itertools
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

Function = ast.FunctionDef | ast.AsyncFunctionDef
LOOPS = (ast.For, ast.AsyncFor, ast.While)
COLUMN_MAX = 2**31
_MOVES = ("append", "appendleft", "extend", "insert", "add", "pop", "popleft", "remove", "clear")
FITS = frozenset(("fit", "fit_one_cycle", "fine_tune", "train", "learn", "cross_val_score", "cross_validate"))
"""What frameworks call a whole training."""
_TRAINS = re.compile("(re|pre|do_|run_)?(train|fit|fine_?tune|distill)(ing|_[a-z]+)?")
"""What a function of another file is called that trains."""
_HARMLESS = re.compile(
    "eval|test|valid|save|log|plot|print|close|report|summar|score|predict|infer|finish|export|dump|writ|metric|record|"
    "show|draw|stat|accura|check|destroy|sync|sampl|generat|visual|measur|count|get|load|make|build|format|clean|send|set_|"
    "notif|push|compar|analy|bench|convert|merg|averag|seed|shut|submi|publish|process|thresh|remov|delet|copy|read|parse"
)
"""Parts of the names of functions that do not train."""
_RUNS = ("run", "start", "go", "execute", "optimize", "train", "fit", "learn", "loop")
"""What a method is called that trains, of an object of another file."""
_OTHER_STEPS = ("sched", "lr", "prof", "env", "ema", "warm", "anneal", "carbontui")
"""Parts of the names of what has a step() and is no optimizer."""


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
        self.stored: set[str] = set()
        """Attributes that methods set on what they are given: a callback may move the trainer's end."""
        for function in self.functions:
            _, *others = [one.arg for one in function.args.args] or [""]
            stored = (one for one in own(function) if isinstance(one, ast.Attribute) and isinstance(one.ctx, ast.Store))
            if function.args.args[:1] and function.args.args[0].arg == "self":
                self.stored |= {one.attr for one in stored if dotted(one.value) in others}
        imports = [one for one in every if isinstance(one, (ast.Import, ast.ImportFrom))]
        self._modules = {
            (name.asname or name.name): "." * getattr(one, "level", 0) + (getattr(one, "module", None) or name.name)
            for one in imports
            for name in one.names
        }
        self.folder = ""
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

    def of_the_project(self, name: str) -> bool:
        """Whether a name is imported from a file beside this one."""
        module = self._modules.get(name, "")
        beside = Path(self.folder, module.partition(".")[0])
        return module.startswith(".") or (bool(module) and (beside.with_suffix(".py").exists() or beside.is_dir()))

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


def names_in(*nodes: ast.AST) -> set[str]:
    return {one.id for node in nodes for one in ast.walk(node) if isinstance(one, ast.Name)}


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
        file.folder = str(Path(place.path).parent)
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


def apart(body: Sequence[ast.stmt], line: int) -> Iterator[tuple[ast.stmt, bool]]:
    """The statements beside those around a line, up to a loop or function, and whether they come behind it."""
    at = next((number for number, one in enumerate(body) if lines([one], line)), None)
    if at is None:
        return
    yield from ((one, number > at) for number, one in enumerate(body) if number != at)
    now: Any = body[at]
    if isinstance(now, (*LOOPS, ast.FunctionDef, ast.ClassDef)):
        return
    parts = (now, *getattr(now, "handlers", ()), *getattr(now, "cases", ()))
    blocks = [getattr(part, name, []) for part in parts for name in ("body", "orelse", "finalbody")]
    inside = next((block for block in blocks if lines(block, line)), [])
    if isinstance(now, ast.Try) and inside is not now.finalbody:
        yield from ((one, True) for one in (*(now.orelse if inside is now.body else ()), *now.finalbody))
    yield from apart(inside, line)


def simple(scope: Scope) -> list[Any]:
    """The parts of the simple statement that a function is at."""
    every = (one for one in own(scope.body) if isinstance(one, ast.stmt) and not {"body", "cases"} & {*one._fields})
    return [*ast.walk(next((one for one in every if lines([one], scope.line)), ast.Pass()))]


def end(node: Any) -> tuple[int, int]:
    return node.end_lineno, node.end_col_offset


def elsewhere(scope: Scope, func: ast.AST) -> bool:
    """Whether this is called from another file of the project, or is a method of what one has made."""
    names = [*names_in(func)]
    given = (value for name in names for value in scope.file.assigned(scope.body).get(name, []))
    names += [one.func.id for one in given if isinstance(one, ast.Call) and isinstance(one.func, ast.Name)]
    return any(map(scope.file.of_the_project, names))


def meant(scope: Scope, func: ast.AST) -> list[Function]:
    """The functions that may be called without their names: by an alias, from a table, by getattr()."""
    if isinstance(func, ast.Attribute):
        return []
    names = names_in(func)
    if names == {"self"}:
        return [*scope.file.named("__call__")]
    if "getattr" in names:
        return [one for one in scope.file.functions if one is not scope.function]
    spaces = scope.file.assigned(scope.body), scope.file.assigned(scope.file.tree)
    values = (value for name in names for space in spaces for value in space.get(name, []) if value is not None)
    return [function for name in names_in(*values) for function in scope.file.named(name)]


def closures(scope: Scope, call: ast.Call) -> list[Function]:
    """The functions that an optimizer's step is given to call."""
    given = (one.id for one in call.args if isinstance(one, ast.Name) and last(call.func) == "step")
    return [function for name in given for function in scope.file.named(name)]


def set_anew(scope: Scope, name: str) -> bool:
    """Whether an attribute like self.loader is set on a condition, in a method or by the call of one."""
    given = [one for one in scope.file.functions if one.name != "__init__" and name in scope.file.assigned(one)]
    setters = {one.name for one in given if name.startswith("self.")}
    tests = (one for function in scope.file.functions for one in own(function) if isinstance(one, ast.If))
    for one in tests if setters else ():
        inside = [part for statement in one.body for part in ast.walk(statement)]
        sets = any(isinstance(part, ast.Call) and last(part.func) in setters for part in inside)
        sets = sets or any(whole == name for part in inside for whole, _ in assignments(part))
        if sets and name not in map(dotted, ast.walk(one.test)):  # not where there is none yet
            return True
    return False


def trains(scope: Scope, node: ast.AST, fits: frozenset[str], visited: frozenset[str] = frozenset()) -> bool:
    """Whether a statement computes gradients, or calls one of `fits`, itself or in a function of its file; what a file
    of the same project may do is told by its name alone."""
    for one in ast.walk(node):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not visited:
            return False  # it is only defined here
        if not isinstance(one, ast.Call):
            continue
        name = last(one.func)
        if name == "backward" or (name == "step" and "opt" in dotted(one.func).lower()) or name in fits:
            return True
        first = dotted(one.func).partition(".")[0]
        of_a_module = "module" in getattr(scope.space.get(first), "kinds", ())
        here = isinstance(one.func, ast.Name) and (name in scope.file.classes or any(scope.file.named(name)))
        if not here and (of_a_module or isinstance(one.func, ast.Name)) and _TRAINS.fullmatch(name):
            return True
        method = isinstance(one.func, ast.Attribute)
        may = name in _RUNS if method else one.args and not name[:1].isupper() and not _HARMLESS.search(name.lower())
        if may and elsewhere(scope, one.func):
            return True
        if len(visited) > 50 or of_a_module:  # torch.save() is no save() of this file
            continue
        called = [*scope.file.called(one), *closures(scope, one), *meant(scope, one.func)]
        made = scope.file.classes.get(name)
        called += [one for one in scope.file.named("__init__") if made is not None and scope.file.owner(one) is made]
        called = [function for function in called if function.name not in visited or function.name == "__init__"]
        if name and name in visited:
            continue
        visited |= {name, *(function.name for function in called)}
        if any(trains(scope, statement, fits, visited) for function in called for statement in function.body):
            return True
    return False


def is_step(scope: Scope, call: ast.Call) -> bool:
    """Whether this is an optimizer's step: `optimizer.step()`, `scaler.step(optimizer)`, and `o.step()` where gradients
    are computed in the same loop."""
    if last(call.func) != "step" or not isinstance(call.func, ast.Attribute):
        return False
    names = " ".join(map(dotted, (call.func, *call.args))).lower()
    loop = next((one for one in scope.file.above(call) if isinstance(one, LOOPS)), scope.body)
    inside = [loop, *closures(scope, call)]
    graded = any(
        isinstance(one, ast.Call) and last(one.func) == "backward" for part in inside for one in ast.walk(part)
    )
    return "opt" in names or (graded and not any(word in names for word in _OTHER_STEPS))
