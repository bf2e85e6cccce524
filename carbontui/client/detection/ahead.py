"""The loops around a place of the code, the ways out of them, and what training follows behind them."""

from __future__ import annotations

import ast
from typing import FrozenSet, Iterator, List, Optional, Sequence, Tuple

from carbontui.client.detection.places import Chain
from carbontui.client.detection.source import Function, Scope, dotted, last, lines, own, scopes

FITS = frozenset(("fit", "fit_one_cycle", "fine_tune", "train", "learn", "cross_val_score", "cross_validate"))
"""What frameworks call a whole training."""
_TIME = ("time", "perf_counter", "monotonic", "now", "elapsed")


def fits_of(scope: Scope) -> FrozenSet[str]:
    """The names by which the statement that a function is at calls a framework's training."""
    calls = (one for one in own(scope.body) if isinstance(one, ast.Call))
    return FITS & {last(one.func) for one in calls if one.lineno <= scope.line <= (one.end_lineno or 0)}


def follows(scope: Scope, fits: FrozenSet[str]) -> List[ast.AST]:
    """The statements that train behind the one that a function is at, outside of its loops."""
    found: List[ast.AST] = []
    body: Sequence[ast.stmt] = getattr(scope.body, "body", [])
    while body:
        at = next((number for number, one in enumerate(body) if lines([one], scope.line)), None)
        if at is None:
            return found
        found += (one for one in body[at + 1 :] if _trains(scope, one, fits))
        now = body[at]
        if isinstance(now, (ast.For, ast.AsyncFor, ast.While, ast.FunctionDef, ast.ClassDef)):
            return found
        blocks = [getattr(now, name, []) for name in ("body", "orelse", "finalbody")]
        blocks += [one.body for one in getattr(now, "handlers", [])]
        body = next((block for block in blocks if lines(block, scope.line)), [])
    return found


def _trains(scope: Scope, node: ast.AST, fits: FrozenSet[str], visited: FrozenSet[str] = frozenset()) -> bool:
    """Whether a statement computes gradients, or calls one of `fits`, itself or in a function of its file."""
    for one in ast.walk(node):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not visited:
            return False  # it is only defined here
        if not isinstance(one, ast.Call):
            continue
        name = last(one.func)
        if name == "backward" or (name == "step" and "opt" in dotted(one.func).lower()) or name in fits:
            return True
        of_a_module = issubclass(type(dict.get(scope.space, dotted(one.func).partition(".")[0])), type(ast))
        if name in visited or len(visited) > 50 or of_a_module:  # torch.save() is no save() of this file
            continue
        visited = visited | {name}
        called: List[Function] = list(scope.file.named(name))
        made = scope.file.classes.get(name)
        called += [one for one in scope.file.named("__init__") if made is not None and scope.file.owner(one) is made]
        if any(_trains(scope, statement, fits, visited) for function in called for statement in function.body):
            return True
    return False


def over(chain: Chain) -> bool:
    """Whether a for statement begins here: a pass that is only asked for with iter() may end anywhere."""
    stack = scopes(chain)
    while stack and getattr(stack[-1].function, "name", "") == "__iter__" and not _heads(stack[-1]):
        stack.pop()
    return bool(stack) and bool(_heads(stack[-1]) or _set_before(stack[-1]))


def _set_before(scope: Scope) -> bool:
    """Whether `bar = enumerate(loader)` is here, and a for statement runs over it."""
    nodes = list(own(scope.body))
    here = [node for node in nodes if isinstance(node, ast.Assign) and lines([node], scope.line)]
    names = {last(target) for node in here for target in node.targets}
    heads = [node.iter for node in nodes if isinstance(node, ast.For) and node.lineno > scope.line]
    return any(isinstance(one, ast.Name) and one.id in names for head in heads for one in ast.walk(head))


def _heads(scope: Scope) -> List[ast.AST]:
    """What is iterated over by the for statements, and comprehensions, that begin at the present line."""
    found: List[ast.AST] = []
    for node in own(scope.body):
        heads = [node] if isinstance(node, (ast.For, ast.AsyncFor)) else getattr(node, "generators", [])
        found += [one.iter for one in heads if one.iter.lineno <= scope.line <= (one.iter.end_lineno or 0)]
    return found


def replaced(chain: Chain) -> bool:
    """Whether what a for statement begins to run over is replaced on a condition, in a loop around it: a loader with
    other batches from some epoch on."""
    stack = scopes(chain)
    scope: Optional[Scope] = stack[-1] if stack else None
    heads = _heads(scope) if scope else []
    names = {node.id for head in heads for node in ast.walk(head) if isinstance(node, ast.Name)}
    while scope is not None and names:
        for node in own(scope.body):
            if isinstance(node, ast.Assign) and names & {last(target) for target in node.targets}:
                kinds = [type(one) for one in scope.file.above(node)]
                if ast.If in kinds and (ast.For in kinds or ast.While in kinds):
                    return True
        passed = [*scope.call.args, *(one.value for one in scope.call.keywords)] if scope.call is not None else []
        names = {one.id for one in passed if isinstance(one, ast.Name)}
        scope = scope.caller
    return False


def around(scope: Scope, callee: Optional[ast.AST]) -> List[ast.AST]:
    """The loops of a function around its present line."""
    found: List[ast.AST] = []
    for node in own(scope.body):
        if isinstance(node, (ast.For, ast.AsyncFor, ast.While)):
            if lines(node.body, scope.line):
                found.append(node)
        elif isinstance(node, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)) and callee is not None:
            name = getattr(callee, "name", "")
            inner = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
            calls = [one for part in inner for one in ast.walk(part) if isinstance(one, ast.Call)]
            if node.lineno <= scope.line <= (node.end_lineno or 0) and any(last(one.func) == name for one in calls):
                found.append(node)
    return sorted(found, key=lambda node: (node.lineno, -(node.end_lineno or 0)))  # type: ignore[attr-defined]


def stops(loop: ast.AST) -> Iterator[ast.AST]:
    """The conditions under which a loop's body leaves it."""
    if not isinstance(loop, (ast.For, ast.AsyncFor, ast.While)):
        return
    waiting: List[Tuple[ast.AST, bool]] = [(node, True) for node in loop.body]
    while waiting:
        node, direct = waiting.pop(0)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            continue
        if isinstance(node, ast.If) and _leaves(node.body, direct):
            yield node.test
            continue
        if isinstance(node, ast.Try) and _leaves([*node.body, *node.orelse], direct):
            yield ast.Name("an exception", ast.Load())  # tried again
        inner = isinstance(node, (ast.For, ast.AsyncFor, ast.While))
        waiting += [(child, direct and not inner) for child in ast.iter_child_nodes(node)]


def _leaves(body: Sequence[ast.stmt], direct: bool) -> bool:
    return any((direct and isinstance(one, ast.Break)) or isinstance(one, ast.Return) for one in body)


def timed(chain: Chain) -> bool:
    """Whether a clock may end one of the loops around this place."""
    stack = scopes(chain)
    for number, scope in enumerate(stack):
        for node in around(scope, stack[number + 1].function if number + 1 < len(stack) else None):
            tests = [*stops(node), *([node.test] if isinstance(node, ast.While) else [])]
            names = {last(one).lower().replace("timestep", "") for test in tests for one in ast.walk(test)}
            if any(word in name for name in names for word in _TIME if name):
                return True
    return False
