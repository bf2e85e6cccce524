"""The loops around a place of the code, the ways out of them, and what training follows behind them; the conditions
under which a loop comes to a place: at every n-th time, from some number on, in one process only."""

import ast
from collections.abc import Iterator, Sequence
from typing import Any

from carbontui.client.detection.work import ENDLESS
from carbontui.client.readonly import is_number
from carbontui.job.worker.source import Function, Scope, dotted, last, lines, own
from carbontui.job.worker.values import Reader, truth

WRAPPERS = ("tqdm", "enumerate", "track", "list", "reversed", "sorted", "iter", "prange", "progress_bar", "master_bar")
_EACH_STEP = ("sync", "accum", "main_process", "rank", "master")
"""Parts of the names of conditions that hold at each optimizer step, or in the process that counts."""
SEARCHED_MAX = 20_000
"""A longer range is not gone through."""
FITS = frozenset(("fit", "fit_one_cycle", "fine_tune", "train", "learn", "cross_val_score", "cross_validate"))
"""What frameworks call a whole training."""
_TIME = ("time", "perf_counter", "monotonic", "now", "elapsed")


def fits_of(scope: Scope) -> frozenset[str]:
    """The names by which the statement that a function is at calls a framework's training."""
    calls = (one for one in own(scope.body) if isinstance(one, ast.Call))
    return FITS & {last(one.func) for one in calls if one.lineno <= scope.line <= (one.end_lineno or 0)}


def follows(scope: Scope, fits: frozenset[str]) -> list[ast.AST]:
    """The statements that train behind the one that a function is at, outside of its loops."""
    found: list[ast.AST] = []
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


def _trains(scope: Scope, node: ast.AST, fits: frozenset[str], visited: frozenset[str] = frozenset()) -> bool:
    """Whether a statement computes gradients, or calls one of `fits`, itself or in a function of its file."""
    for one in ast.walk(node):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not visited:
            return False  # it is only defined here
        if not isinstance(one, ast.Call):
            continue
        name = last(one.func)
        if name == "backward" or (name == "step" and "opt" in dotted(one.func).lower()) or name in fits:
            return True
        root = scope.space.get(dotted(one.func).partition(".")[0])
        of_a_module = "module" in getattr(root, "kinds", ())
        if name in visited or len(visited) > 50 or of_a_module:  # torch.save() is no save() of this file
            continue
        visited = visited | {name}
        called: list[Function] = list(scope.file.named(name))
        made = scope.file.classes.get(name)
        called += [one for one in scope.file.named("__init__") if made is not None and scope.file.owner(one) is made]
        if any(_trains(scope, statement, fits, visited) for function in called for statement in function.body):
            return True
    return False


def over(stack: Sequence[Scope]) -> bool:
    """Whether a for statement begins here: a pass that is only asked for with iter() may end anywhere."""
    inner = list(stack)
    while inner and getattr(inner[-1].function, "name", "") == "__iter__" and not _heads(inner[-1]):
        inner.pop()
    return bool(inner) and bool(_heads(inner[-1]) or _set_before(inner[-1]))


def _set_before(scope: Scope) -> bool:
    """Whether `bar = enumerate(loader)` is here, and a for statement runs over it."""
    nodes = list(own(scope.body))
    here = [node for node in nodes if isinstance(node, ast.Assign) and lines([node], scope.line)]
    names = {last(target) for node in here for target in node.targets}
    heads = [node.iter for node in nodes if isinstance(node, ast.For) and node.lineno > scope.line]
    return any(isinstance(one, ast.Name) and one.id in names for head in heads for one in ast.walk(head))


def _heads(scope: Scope) -> list[ast.AST]:
    """What is iterated over by the for statements, and comprehensions, that begin at the present line."""
    found: list[ast.AST] = []
    for node in own(scope.body):
        heads = [node] if isinstance(node, (ast.For, ast.AsyncFor)) else getattr(node, "generators", [])
        found += [one.iter for one in heads if one.iter.lineno <= scope.line <= (one.iter.end_lineno or 0)]
    return found


def replaced(stack: Sequence[Scope]) -> bool:
    """Whether what a for statement begins to run over is replaced on a condition, in a loop around it: a loader with
    other batches from some epoch on."""
    scope: Scope | None = stack[-1] if stack else None
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


def around(scope: Scope, callee: ast.AST | None) -> list[ast.AST]:
    """The loops of a function around its present line."""
    found: list[ast.AST] = []
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
    waiting: list[tuple[ast.AST, bool]] = [(node, True) for node in loop.body]
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


def timed(stack: Sequence[Scope]) -> bool:
    """Whether a clock may end one of the loops around this place."""
    for number, scope in enumerate(stack):
        for node in around(scope, stack[number + 1].function if number + 1 < len(stack) else None):
            tests = [*stops(node), *([node.test] if isinstance(node, ast.While) else [])]
            names = {last(one).lower().replace("timestep", "") for test in tests for one in ast.walk(test)}
            if any(word in name for name in names for word in _TIME if name):
                return True
    return False


def chosen(scope: Scope, loop: ast.AST, reader: Reader) -> tuple[int, list[ast.AST]] | None:
    """Of `for i in range(...)` with the present line on conditions of i (i > start, i % n == 0, i in CHOSEN): how often
    these hold, and their if statements. None without such."""
    heads: list[Any] = [loop] if isinstance(loop, ast.For) else getattr(loop, "generators", [])
    if len(heads) != 1 or not isinstance(heads[0].target, ast.Name):
        return None
    span: ast.AST = heads[0].iter
    while isinstance(span, ast.Call) and last(span.func) in WRAPPERS and span.args:
        span = span.args[0]
    name = heads[0].target.id
    ways: list[tuple[ast.AST, ast.AST, bool]] = [(test, test, True) for test in getattr(heads[0], "ifs", ())]
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

    def holds(number: int, test: ast.AST) -> bool | None:
        return truth(Reader(reader.sighted, {(scope.body, name): number}).value(scope, test))

    known = [way for way in ways if holds(over[0], way[1]) is not None]
    if not known or ways[:filters] != known[:filters]:
        return None
    made = sum(all(holds(number, test) is way for _, test, way in known) for number in over)
    return made, [node for node, _, _ in known]


def span_of(scope: Scope, node: ast.AST, reader: Reader) -> range | None:
    """The numbers of a range(); where a checkpoint would say from where, from the number that is given first."""
    value = reader.value(scope, node)
    if type(value) is range:
        return value
    if not (isinstance(node, ast.Call) and last(node.func) in ("range", "trange") and len(node.args) >= 2):
        return None
    start, end = node.args[0], reader.value(scope, node.args[1])
    given = scope.file.assigned(scope.body).get(last(start), []) if isinstance(start, ast.Name) else []
    known: list[Any] = [one.value for one in given if isinstance(one, ast.Constant) and is_count(one.value)]
    return range(int(known[0]) if known and not reader.sighted.resumed else 0, int(end)) if is_count(end) else None


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


def parts_of(test: ast.AST, kind: Any) -> list[ast.AST]:
    """The parts of `a and b`, or of `a or b`."""
    return list(test.values) if isinstance(test, ast.BoolOp) and isinstance(test.op, kind) else [test]
