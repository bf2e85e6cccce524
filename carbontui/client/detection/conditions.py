"""The conditions under which a loop comes to a place: at every n-th time, from some number on, in one process only."""

from __future__ import annotations

import ast
from typing import Any, List, Optional, Sequence, Tuple

from carbontui.client.detection.ahead import around
from carbontui.client.detection.places import watch
from carbontui.client.detection.source import Scope, last, lines, own
from carbontui.client.detection.values import Reader
from carbontui.client.readonly import is_number, truth

ENDLESS = 10**7
"""As many iterations or more are no end: scripts write it where something else ends the loop."""
WRAPPERS = ("tqdm", "enumerate", "track", "list", "reversed", "sorted", "iter", "prange", "progress_bar", "master_bar")
_EACH_STEP = ("sync", "accum", "main_process", "rank", "master")
"""Parts of the names of conditions that hold at each optimizer step, or in the process that counts."""
SEARCHED_MAX = 20_000
"""A longer range is not gone through."""


def chosen(scope: Scope, loop: ast.AST, reader: Reader) -> Optional[Tuple[int, List[ast.AST]]]:
    """Of `for i in range(...)` with the present line on conditions of i (i > start, i % n == 0, i in CHOSEN): how often
    these hold, and their if statements. None without such."""
    heads: List[Any] = [loop] if isinstance(loop, ast.For) else getattr(loop, "generators", [])
    if len(heads) != 1 or not isinstance(heads[0].target, ast.Name):
        return None
    span: ast.AST = heads[0].iter
    while isinstance(span, ast.Call) and last(span.func) in WRAPPERS and span.args:
        span = span.args[0]
    name = heads[0].target.id
    ways: List[Tuple[ast.AST, ast.AST, bool]] = [(test, test, True) for test in getattr(heads[0], "ifs", ())]
    filters = len(ways)
    for node in own(loop):
        if isinstance(node, ast.If):
            inside = lines(node.body, scope.line)
            skips = node in getattr(loop, "body", ()) and isinstance(node.body[-1], ast.Continue)
            if inside or (skips and node.lineno < scope.line):
                ways.append((node, node.test, inside))
    over = span_of(scope, span, reader) if ways else None
    if not over or len(over) > SEARCHED_MAX:
        return None

    def holds(number: int, test: ast.AST) -> Optional[bool]:
        return truth(Reader({(scope.body, name): number}).value(scope, test))

    known = [way for way in ways if holds(over[0], way[1]) is not None]
    if not known or ways[:filters] != known[:filters]:
        return None
    made = sum(all(holds(number, test) is way for _, test, way in known) for number in over)
    return made, [node for node, _, _ in known]


def span_of(scope: Scope, node: ast.AST, reader: Reader) -> Optional[range]:
    """The numbers of a range(); where a checkpoint would say from where, from the number that is given first."""
    value = reader.value(scope, node)
    if type(value) is range:
        return value
    if not (isinstance(node, ast.Call) and last(node.func) in ("range", "trange") and len(node.args) >= 2):
        return None
    start, end = node.args[0], reader.value(scope, node.args[1])
    given = scope.file.assigned(scope.body).get(last(start), []) if isinstance(start, ast.Name) else []
    known: List[Any] = [one.value for one in given if isinstance(one, ast.Constant) and is_count(one.value)]
    return range(int(known[0]) if known and not watch.resumed else 0, int(end)) if is_count(end) else None


def on_condition(scope: Scope, reader: Reader, followed: Sequence[ast.AST]) -> bool:
    """Whether the present line of a function is reached on a condition that may not hold."""
    changing = {
        last(one)
        for node in own(scope.body)
        if isinstance(node, (ast.For, ast.AugAssign))
        for one in ast.walk(node.target)
    }
    for node in own(scope.body):
        if isinstance(node, ast.If) and node not in followed and lines([*node.body, *node.orelse], scope.line):
            names = {one.id for one in ast.walk(node.test) if isinstance(one, ast.Name)}
            held = None if names & changing else truth(reader.value(scope, node.test))
            main = any(isinstance(one, ast.Name) and one.id == "__name__" for one in ast.walk(node.test))
            known = held is lines(node.body, scope.line)
            if not (main or known or each_step(scope, node.test, reader)):
                return True
    return False


def each_step(scope: Scope, test: ast.AST, reader: Reader) -> bool:
    """Whether a condition holds at each optimizer step, or in the process that counts."""
    for part in parts_of(test, ast.And):
        words = " ".join(last(one).lower() for one in ast.walk(part))
        if not (every_of(scope, part, reader) or any(word in words for word in _EACH_STEP)):
            return False
    return True


def every_so_many(stack: Sequence[Scope], reader: Reader, followed: Sequence[ast.AST]) -> int:
    """Of `if (i + 1) % n == 0: optimizer.step()` the n, of `if i % n: continue` before it too."""
    for scope in reversed(stack):
        for node in own(scope.body):
            if isinstance(node, ast.If) and node not in followed and (n := every_of(scope, node.test, reader)):
                if lines(node.body, scope.line):
                    return n
                skips = any(isinstance(one, ast.Continue) for one in node.body)
                if skips and any(lines(getattr(loop, "body", []), node.lineno) for loop in around(scope, None)):
                    return n
    return 1


def every_of(scope: Scope, test: ast.AST, reader: Reader) -> int:
    given = scope.file.assigned(scope.body)
    names = [one.id for one in ast.walk(test) if isinstance(one, ast.Name)]
    for part in (test, *(value for name in names for value in given.get(name, [])[-1:] if value is not None)):
        for node in ast.walk(part):
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
                n = reader.value(scope, node.right)
                if is_count(n) and n > 1:
                    return int(n)
    return 0


def is_count(value: Any) -> bool:
    return is_number(value) and 0 < value < ENDLESS


def parts_of(test: ast.AST, kind: Any) -> List[ast.AST]:
    """The parts of `a and b`, or of `a or b`."""
    return list(test.values) if isinstance(test, ast.BoolOp) and isinstance(test.op, kind) else [test]
