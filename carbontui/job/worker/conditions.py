"""The loops around a place of the code, the ways out of them, and what training follows behind them; the conditions
under which a loop comes to a place: at every n-th time, from some number on, in one process only."""

import ast
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from carbontui.client.readonly import is_number
from carbontui.job.worker.source import Function, Scope, assignments, dotted, last, lines, own
from carbontui.job.worker.values import Reader, truth
from carbontui.job.worker.work import ENDLESS

WRAPPERS = ("tqdm", "enumerate", "track", "list", "reversed", "sorted", "iter", "prange", "progress_bar", "master_bar")
_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_EACH_STEP = ("sync", "accum", "main_process", "rank", "master")
"""Parts of the names of conditions that hold at each optimizer step, or in the process that counts."""
SEARCHED_MAX = 20_000
"""A longer range is not gone through."""
FITS = frozenset(("fit", "fit_one_cycle", "fine_tune", "train", "learn", "cross_val_score", "cross_validate"))
"""What frameworks call a whole training."""
_TRAINS = re.compile("(re|pre|do_|run_)?(train|fit|fine_?tune|distill)(ing|_[a-z]+)?")
"""What a function of another file is called that trains."""
_FAILS = ("exit(1)", "sys.exit(1)", "os._exit(1)")
_OTHER_STEPS = ("sched", "lr", "prof", "env", "ema", "warm", "anneal", "carbontui")
"""Parts of the names of what has a step() and is no optimizer."""
_TIME = ("time", "perf_counter", "monotonic", "now", "elapsed")


class LoopLevel(NamedTuple):
    """A loop, and the function it is in."""

    scope: Scope
    node: Any


def levels_of(stack: Sequence[Scope]) -> list[LoopLevel]:
    """The loops around the present line of the last of these functions, which have called each other."""
    callees = [*(one.function for one in stack[1:]), None]
    return [
        LoopLevel(scope, node)
        for scope, callee in zip(stack, callees, strict=bool(stack))
        for node in around(scope, callee)
    ]


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
        found += (one for one in body[at + 1 :] if trains(scope, one, fits))
        now = body[at]
        if isinstance(now, (ast.For, ast.AsyncFor, ast.While, ast.FunctionDef, ast.ClassDef)):
            return found
        blocks = [getattr(now, name, []) for name in ("body", "orelse", "finalbody")]
        blocks += [one.body for one in getattr(now, "handlers", [])]
        body = next((block for block in blocks if lines(block, scope.line)), [])
    return found


def trains(scope: Scope, node: ast.AST, fits: frozenset[str], visited: frozenset[str] = frozenset()) -> bool:
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
        here = isinstance(one.func, ast.Name) and (name in scope.file.classes or any(scope.file.named(name)))
        if not here and (of_a_module or isinstance(one.func, ast.Name)) and _TRAINS.fullmatch(name):
            return True
        if name in visited or len(visited) > 50 or of_a_module:  # torch.save() is no save() of this file
            continue
        visited = visited | {name}
        called = [*scope.file.called(one), *closures(scope, one)]
        made = scope.file.classes.get(name)
        called += [one for one in scope.file.named("__init__") if made is not None and scope.file.owner(one) is made]
        if any(trains(scope, statement, fits, visited) for function in called for statement in function.body):
            return True
    return False


def closures(scope: Scope, call: ast.Call) -> list[Function]:
    """The functions that an optimizer's step is given to call."""
    given = (one.id for one in call.args if isinstance(one, ast.Name) and last(call.func) == "step")
    return [function for name in given for function in scope.file.named(name)]


def is_step(scope: Scope, call: ast.Call) -> bool:
    """Whether this is an optimizer's step: `optimizer.step()`, `scaler.step(optimizer)`, and `o.step()` where gradients
    are computed in the same loop."""
    if last(call.func) != "step" or not isinstance(call.func, ast.Attribute):
        return False
    names = " ".join(map(dotted, (call.func, *call.args))).lower()
    loop = next((one for one in scope.file.above(call) if isinstance(one, _LOOPS)), scope.body)
    inside = [loop, *closures(scope, call)]
    graded = any(
        isinstance(one, ast.Call) and last(one.func) == "backward" for part in inside for one in ast.walk(part)
    )
    return "opt" in names or (graded and not any(word in names for word in _OTHER_STEPS))


def left_before(scope: Scope, node: ast.AST) -> bool:
    """Whether a function may be left between the statement it is at and this one."""
    ends = range(scope.line + 1, node.lineno)  # type: ignore[attr-defined]
    between = (one for one in own(scope.body) if getattr(one, "lineno", 0) in ends)
    return any(isinstance(one, (ast.Return, ast.Raise)) or last(getattr(one, "func", one)) == "exit" for one in between)


def over(stack: Sequence[Scope]) -> bool:
    """Whether a for statement begins here: a pass that is only asked for with iter() may end anywhere."""
    inner = _at_head(stack)
    return bool(inner) and bool(_heads(inner[-1]) or _set_before(inner[-1]))


def _at_head(stack: Sequence[Scope]) -> Sequence[Scope]:
    """These functions without the loader's own."""
    inner = list(stack)
    while inner and getattr(inner[-1].function, "name", "") == "__iter__" and not _heads(inner[-1]):
        inner.pop()
    return inner


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


def varies(stack: Sequence[Scope], reader: Reader) -> int | None:
    """How many loops are around the one on whose variable the length of the passes depends that begin here: `for n in
    (10, 100): loader = DataLoader(data[:n])`. None without one: numbers of a range, and folds, make passes alike."""
    stack = _at_head(stack)
    levels = levels_of(stack)
    heads = _heads(stack[-1]) if stack else []
    names = {node.id for head in heads for node in ast.walk(head) if isinstance(node, ast.Name)}
    for scope in reversed(stack):
        given, waiting = scope.file.assigned(scope.body), [*names]
        while waiting:
            values = [value for value in given.get(waiting.pop(), []) if value is not None]
            waiting += {one.id for value in values for one in ast.walk(value) if isinstance(one, ast.Name)} - names
            names.update(waiting)
        for depth in reversed(range(len(levels))):
            targets = {last(one) for one in ast.walk(getattr(levels[depth].node, "target", ast.Pass()))}
            if levels[depth].scope is scope and names & targets and _differ(levels[depth], reader):
                return depth
        passed = filter(None, [reader.passed(scope, name) for name in names])
        names = {name for name in names if name not in given}
        names |= {one.id for _, value in passed for one in ast.walk(value) if isinstance(one, ast.Name)}
    return None


def _differ(level: LoopLevel, reader: Reader) -> bool:
    """Whether a for statement runs over values that its code names."""
    over = level.node.iter
    while isinstance(over, ast.Call) and last(over.func) in WRAPPERS and over.args:
        over = over.args[0]
    value = reader.value(level.scope, over)
    named = isinstance(over, ast.Call) and last(over.func) in ("zip", "product", "items")
    return named or (type(value) is tuple and value != (*range(len(value)),))


def around(scope: Scope, callee: ast.AST | None) -> list[ast.AST]:
    """The loops of a function around its present line."""
    found: list[ast.AST] = []
    for node in own(scope.body):
        if isinstance(node, _LOOPS):
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
    if not isinstance(loop, _LOOPS):
        return
    waiting: list[tuple[ast.AST, bool]] = [(node, True) for node in loop.body]
    while waiting:
        node, direct = waiting.pop(0)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            continue
        if isinstance(node, ast.If) and _leaves(node.body, direct):
            yield node.test
        if isinstance(node, ast.If) and _leaves(node.orelse, direct):
            yield ast.UnaryOp(ast.Not(), node.test)
        if isinstance(node, ast.Try) and _leaves([*node.body, *node.orelse], direct):
            yield ast.Name("an exception", ast.Load())  # tried again
        inner = isinstance(node, _LOOPS)
        waiting += [(child, direct and not inner) for child in ast.iter_child_nodes(node)]


def _leaves(body: Sequence[ast.stmt], direct: bool) -> bool:
    calls = [one.value for one in body if isinstance(one, ast.Expr) and isinstance(one.value, ast.Call)]
    exits = any(last(one.func) in ("exit", "_exit") and ast.unparse(one) not in _FAILS for one in calls)
    return exits or any((direct and isinstance(one, ast.Break)) or isinstance(one, ast.Return) for one in body)


def caught(scope: Scope) -> bool:
    """Whether an exception that the file raises is caught around the present line: it may end loops there."""
    tries = (one for one in own(scope.body) if isinstance(one, ast.Try) and lines(one.body, scope.line))
    types = (one.type for tried in tries for one in tried.handlers if one.type is not None)
    return any(last(one) in scope.file.raised for kind in types for one in ast.walk(kind))


def timed(stack: Sequence[Scope]) -> bool:
    """Whether a clock may end one of the loops around this place."""
    for _, node in levels_of(stack):
        tests = [*stops(node), *([node.test] if isinstance(node, ast.While) else [])]
        names = {last(one).lower().replace("timestep", "") for test in tests for one in ast.walk(test)}
        if any(word in name for name in names for word in _TIME if name):
            return True
    return False


def chosen(scope: Scope, loop: ast.AST, reader: Reader) -> tuple[int, list[ast.AST]] | None:
    """Of `for i in range(...)` with the present line on conditions of i (i > start, i % n == 0, i in CHOSEN): how often
    these hold, and what they are conditions of. None without such."""
    heads: list[Any] = [loop] if isinstance(loop, ast.For) else getattr(loop, "generators", [])
    if len(heads) != 1 or not isinstance(heads[0].target, ast.Name):
        return None
    span: ast.AST = heads[0].iter
    while isinstance(span, ast.Call) and last(span.func) in WRAPPERS and span.args:
        span = span.args[0]
    name = heads[0].target.id
    found = [(test, test, True) for test in getattr(heads[0], "ifs", ())]
    filters = len(found)
    found += [way for way in ways(scope) if lines(getattr(loop, "body", ()), way[0].lineno)]
    over = span_of(scope, span, reader) if found else None
    if not over or len(over) > SEARCHED_MAX:
        return None

    def holds(number: int, test: ast.AST) -> bool | None:
        return truth(Reader(reader.sighted, {(scope.body, name): number}, still=True).value(scope, test))

    every = {way: [holds(number, way[1]) for number in over] for way in found}
    known = [way for way in found if None not in every[way]]
    if not known or found[:filters] != known[:filters]:
        return None
    made = sum(all(every[way][at] is way[2] for way in known) for at in range(len(over)))
    return made, [node for node, _, _ in known]


def ways(scope: Scope) -> list[tuple[Any, ast.AST, bool]]:
    """The conditions that decide whether a function comes to its present line, and how they must turn out: of the if
    statements around it, and of each `continue` that may pass it by."""
    found: list[tuple[Any, ast.AST, bool]] = []
    for node in own(scope.body):
        if isinstance(node, ast.If) and lines([*node.body, *node.orelse], scope.line):
            found.append((node, node.test, lines(node.body, scope.line)))
        elif isinstance(node, ast.Continue) and node.lineno < scope.line:
            parent: Any = scope.file.parents[node]
            loop: Any = next(one for one in scope.file.above(node) if isinstance(one, _LOOPS))
            simple = isinstance(parent, ast.If) and node in parent.body and scope.file.parents[parent] is loop
            grown = (one.lineno < node.lineno for one in own(loop) if isinstance(one, ast.AugAssign))
            # what a while statement counts behind it are no rounds
            if lines(loop.body, scope.line) and (not isinstance(loop, ast.While) or any(grown)):
                found.append((node, parent.test if simple else ast.Name("several", ast.Load()), False))
    return found


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


def changing(scope: Scope) -> set[str]:
    """Names and attributes that loops of a function set anew."""
    nodes = (node for node in own(scope.body) if isinstance(node, (ast.For, ast.AugAssign)))
    return {name for node in nodes for name, _ in assignments(node)}


def on_condition(scope: Scope, reader: Reader, followed: Sequence[ast.AST]) -> bool:
    """Whether the present line of a function is reached on a condition that may not hold."""
    for node, test, wanted in ways(scope):
        names = {dotted(one) for one in ast.walk(test)}
        held = None if names & changing(scope) else truth(reader.unmoved().value(scope, test))
        by_turns = each_step(scope, test, reader) and (wanted or _share(scope, test, reader) is not None)
        if node not in followed and "__name__" not in names and held is not wanted and not by_turns:
            return True
    return False


def each_step(scope: Scope, test: ast.AST, reader: Reader) -> bool:
    """Whether a condition holds at each optimizer step, or in the process that counts."""
    for part in parts_of(test, ast.And):
        words = " ".join(last(one).lower() for one in ast.walk(part))
        if not (every_of(scope, part, reader) or any(word in words for word in _EACH_STEP)):
            return False
    return True


def _share(scope: Scope, test: ast.AST, reader: Reader) -> float | None:
    """At which share of the rounds of a loop a condition like i % 5 == 0 holds, 0 of one that says something else than
    a number; None where that is open."""
    n, moved = every_of(scope, test, reader), changing(scope)
    names = [name for part in _spelled(scope, test) for one in ast.walk(part) if (name := dotted(one)) in moved]
    given, every = {(scope.body, name): 0 for name in names}, []
    for number in range(1000 * n, 1001 * n):
        given[scope.body, names[-1]] = number
        every.append(truth(Reader(reader.sighted, given, still=True).value(scope, test)))
    return None if None in every else sum(map(bool, every)) / n if n else 0.0


def every_so_many(stack: Sequence[Scope], reader: Reader, followed: Sequence[ast.AST]) -> float:
    """Of `if (i + 1) % n == 0: optimizer.step()` the n, of `if i % n: continue` before it too; n / (n - 1) of
    `if i % n == 0: continue`."""
    for scope in reversed(stack):
        kept = 1.0
        for node, test, wanted in ways(scope):
            if node not in followed and (n := every_of(scope, test, reader)):
                held = _share(scope, test, reader)
                share = 1 / n if held is None and wanted else held or 0
                kept *= (share if wanted else 1 - share) or 1
        if kept < 1:
            return 1 / kept
    return 1


def _spelled(scope: Scope, test: ast.AST) -> list[ast.AST]:
    """A condition, and what was last assigned to the names in it."""
    given = scope.file.assigned(scope.body)
    names = [one.id for one in ast.walk(test) if isinstance(one, ast.Name)]
    return [test, *(value for name in names for value in given.get(name, [])[-1:] if value is not None)]


def every_of(scope: Scope, test: ast.AST, reader: Reader) -> int:
    for part in _spelled(scope, test):
        for node in ast.walk(part):
            if not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod)):
                continue
            if any(dotted(one) in changing(scope) for one in ast.walk(node.left)):
                n = reader.value(scope, node.right)
                if is_count(n) and n > 1:
                    return int(n)
    return 0


def is_count(value: Any) -> bool:
    return is_number(value) and 0 < value < ENDLESS


def parts_of(test: ast.AST, kind: Any) -> list[ast.AST]:
    """The parts of `a and b`, or of `a or b`."""
    return list(test.values) if isinstance(test, ast.BoolOp) and isinstance(test.op, kind) else [test]
