"""The loops around a place of the code, the ways out of them, and what training follows behind them; the conditions
under which a loop comes to a place: at every n-th time, from some number on, in one process only."""

import ast
import builtins
import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from carbontui.client.readonly import is_number
from carbontui.job.worker.source import (
    FITS,
    LOOPS,
    Scope,
    apart,
    assignments,
    dotted,
    end,
    is_step,
    last,
    lines,
    names_in,
    own,
    set_anew,
    simple,
    trains,
)
from carbontui.job.worker.values import Reader, truth
from carbontui.job.worker.work import ENDLESS

WRAPPERS = ("tqdm", "enumerate", "track", "list", "reversed", "sorted", "iter", "prange", "progress_bar", "master_bar")
_EACH_STEP = ("sync", "accum", "main_process", "rank", "master")
"""Parts of the names of conditions that hold at each optimizer step, or in the process that counts."""
SEARCHED_MAX = 20_000
"""A longer range is not gone through."""
_REPEAT = frozenset(("map", "starmap", "imap", "min", "max", "sorted", "reduce", "agent", "timeit"))
"""What calls the function it is given, more than once."""
_ENDS = ("StopIteration", "AssertionError", "ArithmeticError", "FloatingPointError")
"""Exceptions of Python's own that are no error where they are caught."""
_FAILS = ("exit(1)", "sys.exit(1)", "os._exit(1)")
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


def follows(scope: Scope, fits: frozenset[str], call: ast.Call | None) -> list[ast.AST]:
    """What trains behind the statement that a function is at, outside of its loops, and behind `call` in it."""
    found: list[ast.AST] = [
        one for one, behind in apart(getattr(scope.body, "body", []), scope.line) if behind and trains(scope, one, fits)
    ]
    for one in simple(scope) if call is not None else ():
        if isinstance(one, ast.Call) and end(one) > end(call):  # by itself: what it is given has been looked at
            func = ast.Attribute(ast.Name("_"), one.func.attr) if isinstance(one.func, ast.Attribute) else one.func
            alone = ast.copy_location(ast.Call(func, [], []), one)
            found += [alone] if trains(scope, alone, fits) else []
    return found


def beside(levels: Sequence[LoopLevel]) -> bool:
    """Whether other loops make steps in the rounds of one of these but the innermost: phases that take turns."""
    known = {scope.function for scope, _ in levels} - {None}
    others = ((scope, one) for scope, node in levels[:-1] for one, _ in apart(getattr(node, "body", []), scope.line))
    return any(_phase(scope, one, known) for scope, one in others)


def _phase(scope: Scope, node: ast.AST, known: set[Any], looped: bool = False, depth: int = 0) -> bool:
    """Whether this makes steps in a loop. One of the `known` functions whose steps have a condition does not where it
    is called once more: to evaluate, likely."""
    for call in (one for one in [node, *own(node)] if isinstance(one, ast.Call)):
        above = [*itertools.takewhile(lambda one: one is not scope.file.parents.get(node), scope.file.above(call))]
        inside = looped or any(isinstance(one, LOOPS) for one in above)
        evaluates = node in known and any(isinstance(one, ast.If) for one in above)
        if inside and not evaluates and is_step(scope, call):
            return True
        if depth < 4 and any(_phase(scope, one, known, inside, depth + 1) for one in scope.file.called(call)):
            return True
    return False


def unclear(scope: Scope) -> bool:
    """Whether a function was called by its caller otherwise than by its name, perhaps several times."""
    if scope.caller is None or scope.call is not None:
        return False
    parts = simple(scope.caller)
    calls = [one for one in parts if isinstance(one, ast.Call)]
    by_table = around(scope.caller, None) and any(isinstance(one.func, (ast.Subscript, ast.Call)) for one in calls)
    functions = (one for one in scope.file.above(parts[0]) if isinstance(one, ast.FunctionDef))
    handed = {one.arg for function in functions for one in function.args.args}
    names = {last(one.func) for one in calls}
    rounds = any(isinstance(one, ast.comprehension) for one in parts) and names & handed
    return bool(by_table or rounds or names & _REPEAT)


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
    scope: Scope | None = next(reversed(_at_head(stack)), None)
    heads = _heads(scope) if scope else []
    if scope and any(set_anew(scope, dotted(node)) for head in heads for node in ast.walk(head)):
        return True
    names = names_in(*heads)
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
    names = names_in(*heads)
    for scope in reversed(stack):
        given, waiting = scope.file.assigned(scope.body), [*names]
        while waiting:
            waiting += names_in(*filter(None, given.get(waiting.pop(), []))) - names
            names.update(waiting)
        for depth in reversed(range(len(levels))):
            targets = {last(one) for one in ast.walk(getattr(levels[depth].node, "target", ast.Pass()))}
            if levels[depth].scope is scope and names & targets and _differ(levels[depth], reader):
                return depth
        passed = [one for name in names if (one := reader.passed(scope, name)) is not None]
        names = names.difference(given) | names_in(*(value for _, value in passed))
    return None


def _bare(over: ast.AST) -> ast.AST:
    """What is iterated over, without enumerate() and its kin."""
    while isinstance(over, ast.Call) and last(over.func) in WRAPPERS and over.args:
        over = over.args[0]
    return over


def _differ(level: LoopLevel, reader: Reader) -> bool:
    """Whether a for statement runs over values that its code names."""
    over = _bare(level.node.iter)
    value = reader.value(level.scope, over)
    named = isinstance(over, ast.Call) and last(over.func) in ("zip", "product", "items")
    return named or (type(value) is tuple and value != (*range(len(value)),))


def around(scope: Scope, callee: ast.AST | None) -> list[ast.AST]:
    """The loops of a function around its present line."""
    found: list[ast.AST] = []
    for node in own(scope.body):
        if isinstance(node, LOOPS):
            if lines(node.body, scope.line):
                found.append(node)
        elif isinstance(node, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)) and callee is not None:
            name = getattr(callee, "name", "")
            inner = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
            calls = [one for part in inner for one in ast.walk(part) if isinstance(one, ast.Call)]
            if node.lineno <= scope.line <= (node.end_lineno or 0) and any(last(one.func) == name for one in calls):
                found.append(node)
    return sorted(found, key=lambda node: (node.lineno, -(node.end_lineno or 0)))  # type: ignore[attr-defined]


def stops(scope: Scope, loop: ast.AST) -> Iterator[ast.AST]:
    """The conditions under which a loop's body leaves it."""
    if not isinstance(loop, LOOPS):
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
        if isinstance(node, ast.Try) and any(
            _leaves(one.body, direct) and not _is_error(scope, one) for one in node.handlers
        ):
            yield ast.Name("an exception", ast.Load())
        inner = isinstance(node, LOOPS)
        waiting += [(child, direct and not inner) for child in ast.iter_child_nodes(node)]


def _leaves(body: Sequence[ast.stmt], direct: bool) -> bool:
    calls = [one.value for one in body if isinstance(one, ast.Expr) and isinstance(one.value, ast.Call)]
    exits = any(last(one.func) in ("exit", "_exit") and ast.unparse(one) not in _FAILS for one in calls)
    return exits or any((direct and isinstance(one, ast.Break)) or isinstance(one, ast.Return) for one in body)


def exits(scope: Scope, call: ast.Call, depth: int = 0) -> bool:
    """Whether a function that is called here may end the process in good order."""
    inside = [one for function in scope.file.called(call) for one in own(function) if isinstance(one, ast.Call)]
    ends = any(last(one.func) in ("exit", "_exit") and ast.unparse(one) not in _FAILS for one in inside)
    return ends or (depth < 3 and any(exits(scope, one, depth + 1) for one in inside))


def caught(scope: Scope) -> bool:
    """Whether an exception that is no error may end loops around the present line: caught, and not raised again."""
    for node in own(scope.body):
        if isinstance(node, ast.With) and lines(node.body, scope.line):
            if any(last(getattr(one.context_expr, "func", one)) == "suppress" for one in node.items):
                return True
        elif isinstance(node, ast.Try) and lines(node.body, scope.line):
            above = itertools.takewhile(lambda one: one is not scope.function, scope.file.above(node))
            looped = any(isinstance(one, LOOPS) for one in above)
            if any(_catches(one) and (looped or not _is_error(scope, one)) for one in node.handlers):
                return True
    return False


def _catches(handler: ast.ExceptHandler) -> bool:
    """Whether this goes on, and not for a person's Ctrl-C."""
    raised = isinstance(handler.body[-1], ast.Raise) or ast.unparse(handler.body[-1]) in _FAILS
    return not raised and (handler.type is None or last(handler.type) != "KeyboardInterrupt")


def _is_error(scope: Scope, handler: ast.ExceptHandler) -> bool:
    """Whether all it catches are errors of Python's own, or what nobody raises."""
    kinds = {last(one) for one in ast.walk(handler.type)} - {""} if handler.type is not None else set()
    own_ones = {name for name in kinds if name in scope.file.classes or hasattr(builtins, name)}
    return kinds == own_ones and not kinds & {*scope.file.raised, *_ENDS}


def timed(stack: Sequence[Scope]) -> bool:
    """Whether a clock may end one of the loops around this place."""
    for scope, node in levels_of(stack):
        tests = [*stops(scope, node), *([node.test] if isinstance(node, ast.While) else [])]
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
    span = _bare(heads[0].iter)
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
            loop: Any = next(one for one in scope.file.above(node) if isinstance(one, LOOPS))
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


def gathers_unevenly(scope: Scope) -> bool:
    """Whether loops set the number of batches of which a step is made."""
    nodes = (one for loop in own(scope.body) if isinstance(loop, LOOPS) for one in own(loop))
    looped = {name for node in nodes for name, _ in assignments(node)}
    parts = (part for _, test, _ in ways(scope) for whole in _spelled(scope, test) for part in ast.walk(whole))
    counts = (part.right for part in parts if isinstance(part, ast.BinOp) and isinstance(part.op, ast.Mod))
    return any(dotted(one) in looped for count in counts for one in ast.walk(count))


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
