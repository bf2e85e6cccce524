"""How often the code comes to a place: the loops around it, how many times each runs, and what ends it early.

Read from the source (source.py). Depth d is inside the first d of the loops, 0 outside of all: a nest says how many
times depth d is reached in one run of a smaller depth.
"""

import ast
import math
from collections.abc import Iterator
from typing import Any

from carbontui.client.readonly import is_number
from carbontui.job.worker import conditions
from carbontui.job.worker.conditions import LoopLevel
from carbontui.job.worker.source import Scope, assignments, dotted, last, lines, own
from carbontui.job.worker.values import UNKNOWN, Described, MadeOf, Reader, truth
from carbontui.job.worker.work import ENDLESS, LoopAround, LoopBound, Nest, StepCounter, certain, reached

FOLDS = ("KFold", "StratifiedKFold", "GroupKFold", "StratifiedGroupKFold", "TimeSeriesSplit", "ShuffleSplit")
"""Splitters of scikit-learn whose first argument is the number of folds."""

PARTS = ("split", "chunk", "array_split", "batched", "chunked", "islice")


def nest_of(stack: list[Scope], reader: Reader, fits: frozenset[str] = frozenset()) -> Nest:
    """The loops around the present line of the last of these functions, which have called each other; calls of a name
    among `fits` train too."""
    levels = conditions.levels_of(stack)
    bounds: list[LoopBound] = []
    counters: list[StepCounter] = []
    loops = []
    picked = [conditions.chosen(scope, node, reader) for scope, node in levels]
    followed = [test for found in picked if found is not None for test in found[1]]
    share = conditions.every_so_many(stack, reader, followed)
    more = conditions.beside(levels) or any(map(conditions.unclear, stack))
    for depth, (level, found) in enumerate(zip(levels, picked, strict=False)):
        ends = _Ends(stack, levels, reader, share)
        loop = ends.loop(depth, level)
        at_most = loop.at_most and isinstance(level.node, ast.For)  # a comprehension's conditions are all followed
        loops.append(loop if found is None else loop._replace(times=found[0], at_most=at_most))
        more = more or ends.more
        bounds += ends.bounds
        counters += ends.counters
    if any(conditions.caught(scope) or conditions.gathers_unevenly(scope) for scope in stack):
        loops = [one._replace(at_most=True) for one in loops]
    first = levels[0] if levels else None
    outside = stack[: stack.index(first.scope)] if first else stack
    key = [(one.space.name, getattr(one.function, "lineno", 0), one.line) for one in outside]
    if first is not None:
        at = getattr(first.scope.function, "lineno", 0), getattr(first.node, "lineno", 0)
        key.append((first.scope.space.name, *at))
    calls = {one.caller: one.call for one in stack if one.caller is not None}
    ahead = tuple(
        (scope, one)
        for scope in [*outside, *([first.scope] if first else [])]
        for one in conditions.follows(scope, fits, calls.get(scope))
    )
    inside = stack[stack.index(first.scope) :] if first else []
    sometimes = any(conditions.on_condition(scope, reader, followed) for scope in inside)
    return Nest(tuple(loops), tuple(bounds), tuple(counters), more, str(key), share, sometimes, ahead)


def _turns(test: ast.AST) -> bool:
    """Whether this is `self.stop` or the like, which is no option: it is False until it ends something."""
    return last(test).lstrip("_").startswith(("stop", "should_stop"))


class _Ends:
    """What ends one loop."""

    def __init__(self, stack: list[Scope], levels: list[LoopLevel], reader: Reader, share: float) -> None:
        self.stack, self.levels, self.reader, self.share = stack, levels, reader, share
        self.bounds: list[LoopBound] = []
        self.counters: list[StepCounter] = []
        self.at_most = False
        self.more = False
        """Of the optimizers some are stepped on a condition, perhaps one of them twice."""
        self.text = ""

    def loop(self, depth: int, level: LoopLevel) -> LoopAround:
        scope, node = level
        times: float | None = None
        line = getattr(node, "lineno", 0)
        if isinstance(node, ast.While):
            for part in conditions.parts_of(node.test, ast.And):
                read = [(one, self.reader.value(scope, one)) for one in conditions.parts_of(part, ast.Or)]
                ways = [one for one, value in read if truth(value) is not False]
                if len(ways) == 1 and self._compared(scope, ways[0], stops=False):
                    continue
                if truth(self.reader.unmoved().value(scope, part)) is None:
                    self.at_most = True
        elif isinstance(node, (ast.For, ast.AsyncFor)):
            times = 1 if any(isinstance(one, ast.Break) for one in node.body) else self.times(scope, node.iter)
            if depth == len(self.levels) - 1 and self._of_optimizers(scope, node):
                times = 1
                self.more = any(isinstance(one, ast.Continue) for one in own(node))
        else:
            generators = node.generators
            times = math.prod(self.times(scope, one.iter) or math.inf for one in generators)
            self.at_most = any(one.ifs for one in generators)
        if any(conditions.exits(scope, one) for one in own(node) if isinstance(one, ast.Call)):
            self.at_most = True
        for test in conditions.stops(scope, node):
            for part in conditions.parts_of(test, ast.Or):
                every = conditions.parts_of(part, ast.And)
                unmoved = self.reader.unmoved()
                held = [one for one in every if _turns(one) or truth(unmoved.value(scope, one)) is not True]
                if any(truth(unmoved.value(scope, one)) is False for one in held if not _turns(one)):
                    continue  # an option that is off
                held = [one for one in held if not conditions.each_step(scope, one, self.reader)] or held
                if len(held) != 1 or not self._compared(scope, held[0], stops=True):
                    self.at_most = True
        heads = [getattr(node, "iter", None), *(one.iter for one in getattr(node, "generators", ()))]
        text = " x ".join(ast.unparse(one) for one in heads if one is not None)
        return LoopAround(line, int(times) if times is not None and times < ENDLESS else None, self.at_most, text)

    def _of_optimizers(self, scope: Scope, node: ast.AST) -> bool:
        """`for one in optimizers: one.step()`: of several the first counts."""
        targets = {one.id for one in ast.walk(node.target) if isinstance(one, ast.Name)}  # type: ignore[attr-defined]
        calls = [one for one in own(node) if isinstance(one, ast.Call) and one.lineno == scope.line]
        bases = [one.func.value for one in calls if isinstance(one.func, ast.Attribute) and one.func.attr == "step"]
        return any(isinstance(one, ast.Name) and one.id in targets for base in bases for one in ast.walk(base))

    def times(self, scope: Scope, node: ast.AST, depth: int = 0) -> float | None:
        """How many times a for statement runs over this."""
        if depth > 8:
            return None
        if isinstance(node, ast.Call) and (known := self._of_call(scope, node, depth)) is not None:
            return known
        value = self.reader.value(scope, node)
        if isinstance(node, ast.Name) and value is UNKNOWN:
            given = [one for one in scope.file.assigned(scope.body).get(node.id, []) if one is not None]
            if len(given) == 1 and isinstance(given[0], (ast.Call, ast.Subscript)):
                return self.times(scope, given[0], depth + 1)  # bar = tqdm(range(...))
            passed = None if given or len(conditions.around(scope, None)) > 1 else self.reader.passed(scope, node.id)
            if passed is not None:  # a generator gives its parts once
                return self.times(*passed, depth + 1)
        if isinstance(node, ast.Subscript) and value is UNKNOWN:
            value = key if type(key := self.reader.value(scope, node.slice)) is range else UNKNOWN  # x[permutation]
        if type(value) is Described and value.name.lower().startswith("tqdm"):
            value = value.get("iterable", UNKNOWN)
        if (sized := self.reader.length(value)) is not None:
            return float(sized)
        if (span := conditions.span_of(scope, node, self.reader)) is not None:
            self.at_most = self.reader.sighted.resumed  # it begins where a checkpoint says
            return float(len(span))
        return self._yields(scope, node) if isinstance(node, ast.Call) else None

    def _of_call(self, scope: Scope, node: ast.Call, depth: int) -> float | None:
        name = last(node.func)
        if name in conditions.WRAPPERS and node.args:
            return self.times(scope, node.args[0], depth + 1)
        if name in ("zip", "product"):
            every = [self.times(scope, one, depth + 1) for one in node.args]
            if isinstance(node.args[0], ast.Starred):  # product(*grid.values())
                grid = self.reader.value(scope, node.args[0].value)
                every = list(map(self.reader.length, grid.values() if isinstance(grid, dict) else (None,)))
            known = [one for one in every if one is not None]
            return min(known, default=None) if name == "zip" else math.prod(known) if len(known) == len(every) else None
        if name == "split" and isinstance(node.func, ast.Attribute) and (n := self._folds(scope, node.func.value)):
            return n
        return self._parts(scope, node, depth + 1) if name in PARTS else None

    def _parts(self, scope: Scope, node: ast.Call, depth: int) -> float | None:
        """How many parts `x.split(b)` and its kin make of x."""
        name, args = last(node.func), [*node.args, *(one.value for one in node.keywords)]
        whole = self.times(scope, node.func.value, depth) if isinstance(node.func, ast.Attribute) else None
        if whole is None and len(args) > 1:
            whole = self.times(scope, args.pop(0), depth)
        sizes: list[Any] = [self.reader.value(scope, one) for one in args]
        if len(sizes) != 1 or not conditions.is_count(n := sizes[0]):
            return None
        if name == "array_split" or dotted(node.func) == "np.split":
            return float(n)
        self.at_most = self.at_most or whole is None
        if name == "islice" or whole is None:
            return float(min(whole or n, n)) if name in ("islice", "chunk") else None
        return float(math.ceil(whole / (math.ceil(whole / n) if name == "chunk" else n)))

    def _folds(self, scope: Scope, splitter: ast.expr) -> float | None:
        """How many folds a splitter of scikit-learn's makes."""
        made = self.reader.value(scope, splitter)
        call = made.call if type(made) is MadeOf else None
        if (last(call.func) if call else getattr(made, "name", "")) not in FOLDS:
            return None
        count = self.reader.value(scope, ast.Attribute(splitter, "n_splits", ast.Load()))
        if call and call.args:
            count = self.reader.value(made.scope, call.args[0])
        return float(count) if conditions.is_count(count) else None

    def _yields(self, scope: Scope, call: ast.Call) -> float | None:
        """How much a generator of the file gives."""
        functions = list(scope.file.named(last(call.func)))
        made = [node for one in functions for node in own(one) if isinstance(node, ast.Yield)]
        return self._made_in(scope, call, functions[0], made[0]) if len(functions) == len(made) == 1 else None

    def _made_in(self, scope: Scope, call: ast.Call | None, function: ast.AST, node: ast.AST) -> float | None:
        """How often a function comes to this node of it in one call."""
        inside = Scope(scope.file, function, scope.space, node.lineno, scope, call)  # type: ignore[attr-defined]
        found = nest_of([inside], self.reader)
        self.at_most = self.at_most or not certain(found)
        times = reached(found, len(found.loops))
        return times and times / found.share

    def _compared(self, scope: Scope, test: ast.AST, *, stops: bool) -> bool:
        """Of `counter >= n` or `while counter < n`, a bound. Whether it is one."""
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            return self._compared(scope, test.operand, stops=not stops)
        if isinstance(test, ast.Name):  # done = counter >= n
            given = scope.file.assigned(scope.body).get(test.id, [])
            test = next((one for one in reversed(given) if isinstance(one, ast.Compare)), test)
        if not isinstance(test, ast.Compare) or len(test.ops) != 1:
            return False
        left, right, op = test.left, test.comparators[0], type(test.ops[0])
        mirrored = {ast.Lt: ast.Gt, ast.LtE: ast.GtE, ast.Gt: ast.Lt, ast.GtE: ast.LtE, ast.Eq: ast.Eq}
        wanted = (ast.Gt, ast.GtE, ast.Eq) if stops else (ast.Lt, ast.LtE)
        for counter, limit, kind in ((left, right, op), (right, left, mirrored.get(op))):
            if kind not in wanted or {last(one) for one in ast.walk(limit)} & scope.file.stored:
                continue
            more = kind in ((ast.Gt,) if stops else (ast.LtE,))
            n = self.reader.value(scope, limit)
            extra = 0
            if isinstance(counter, ast.BinOp) and isinstance(counter.op, ast.Add):  # step + 1 >= n
                extra = self.reader.value(scope, counter.right)
                counter = counter.left
                if extra is UNKNOWN:
                    continue
            self.text = ast.unparse(test)
            if self._counted(scope, counter, n, extra, more):
                return True
        return False

    def _counted(self, scope: Scope, counter: ast.AST, n: Any, extra: int, more: bool) -> bool:
        name = last(counter)
        if not name:
            return False
        if type(n) is float and n == math.inf:
            return True
        known = conditions.is_count(n)
        for depth, (where, node) in enumerate(self.levels):
            own_name = isinstance(node, ast.For) and name in {last(one) for one in ast.walk(node.target)}
            if own_name and where.function is scope.function and known:  # the loop's own variable
                start = self._start_of(where, node.iter, name)
                # at the end of the body the last one has run, before it it has not
                times = n - extra - start + more + (where.line < counter.lineno)  # type: ignore[attr-defined]
                self.bounds.append(LoopBound(depth, depth + 1, max(1, int(times)), True, self.text))
                return True
        for where in self.stack:
            for node in own(where.body):
                if (grows := _grows(where, node, name, self.reader)) is None:
                    continue
                to = self._depth(where, node.lineno)  # type: ignore[attr-defined]
                if not known or self._sometimes(where, node, name, to):
                    return False
                by = grows * (self.share if to == len(self.levels) and not self._beside(where, node) else 1)
                after = where.line <= node.lineno  # type: ignore[attr-defined]
                # looked at after the step, and before it goes up: there is one round more
                late = where is scope and where.line < counter.lineno < node.lineno  # type: ignore[attr-defined]
                reset, begins = self._reset(scope, where, name, to)
                live = where.function is None and type(where.space.get(name)) is int
                if live and reset == 0 and to == len(self.levels):
                    last_one = int(n) - extra + grows * (more + late - after)
                    self.counters.append(StepCounter(where.space.name, name, last_one, by, self.text))
                    return True
                times = math.ceil((n - extra - (begins or 0) + (grows if more else 0)) / by - 1e-6) + late
                self.bounds.append(LoopBound(reset, to, max(1, times), begins is not None, self.text))
                return True
        return known and self._grown_elsewhere(scope, counter, n - extra, more)

    def _grown_elsewhere(self, scope: Scope, counter: ast.AST, n: float, more: bool) -> bool:
        """Of a counter that goes up in a method that the loop calls, a bound of the loop."""
        depth, level = next(one for one in enumerate(self.levels) if one[1].scope is scope)
        if not dotted(counter).startswith("self."):
            return False
        grown = 0.0
        for call in (one for one in ast.walk(level.node) if isinstance(one, ast.Call)):
            for function, node in ((one, node) for one in scope.file.named(last(call.func)) for node in own(one)):
                inside = Scope(scope.file, function, scope.space, 0, scope, call)
                if by := _grows(inside, node, last(counter), self.reader):
                    grown += by * (self._made_in(scope, call, function, node) or 0)
        if grown <= 0:
            return False
        _, begins = self._reset(scope, scope, last(counter), depth + 1)
        times = math.ceil((n - (begins or 0) + more) / grown)
        self.bounds.append(LoopBound(depth, depth + 1, max(1, times), begins is not None, self.text))
        return True

    def _sometimes(self, where: Scope, node: ast.AST, name: str, to: int) -> bool:
        """Whether a counter does not go up each time, or is set back: it counts the epochs without progress, say."""
        for one in where.file.above(node):
            if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Module)):
                break
            beside = isinstance(one, ast.If) and not lines([*one.body, *one.orelse], where.line)
            if beside and not conditions.each_step(where, one.test, self.reader):  # type: ignore[attr-defined]
                return True
        given = (one for one in own(where.body) if isinstance(one, ast.Assign) and one is not node)
        whole = dotted(getattr(node, "target", None) or node.targets[0])  # type: ignore[attr-defined]
        back = [one for one in given if any(last(to_) == name and dotted(to_) == whole for to_ in one.targets)]
        return any(self._depth(where, one.lineno) >= to for one in back)

    def _start_of(self, scope: Scope, iterated: ast.AST, name: str) -> int:
        """The first value of a loop's variable."""
        given: list[ast.expr] = []
        if isinstance(iterated, ast.Call):
            called = last(iterated.func)
            if called == "enumerate":
                given = iterated.args[1:2] + [one.value for one in iterated.keywords if one.arg == "start"]
            elif called == "count" or (called == "range" and len(iterated.args) > 1):
                given = iterated.args[:1]
        value = self.reader.value(scope, given[0]) if given else 0
        return int(value) if is_number(value) else 0

    def _beside(self, where: Scope, node: ast.AST) -> bool:
        """Whether this line is run with each step, where a step is made of several batches."""
        for one, test, wanted in conditions.ways(where):
            block = one.body if wanted else getattr(one, "orelse", [])
            beside = lines(block, line := node.lineno) or (isinstance(one, ast.Continue) and one.lineno < line)  # type: ignore[attr-defined]
            if conditions.every_of(where, test, self.reader) and not beside:
                return False
        return True

    def _depth(self, scope: Scope, line: int) -> int:
        """How many of the loops are around this line."""
        inside = [level for level in self.levels if level.scope is scope]
        before = sum(level.scope in self.stack[: self.stack.index(scope)] for level in self.levels)
        return before + sum(lines(getattr(level.node, "body", []), line) for level in inside)

    def _reset(self, scope: Scope, where: Scope, name: str, to: int) -> tuple[int, int | None]:
        """At which depth a counter is set anew, and to what; None where that cannot be said."""
        found: list[tuple[int, Scope, ast.AST | None]] = []
        for one in dict.fromkeys((where, scope, *self.stack)):
            found = found or [
                (depth, one, value)
                for node in own(one.body)
                for value in _given(node, name)
                if (depth := self._depth(one, node.lineno)) < to  # type: ignore[attr-defined]
            ]
        found = found or [
            (0, Scope(where.file, method, where.space), value)
            for cls in where.file.classes.values()
            for method in cls.body
            if isinstance(method, ast.FunctionDef)
            for value in where.file.assigned(method).get(f"self.{name}", [])
            if value is not None
        ]
        # the innermost; of several there, the last
        depth, inside, value = max(reversed(found), key=lambda one: one[0], default=(0, where, None))
        start = self.reader.value(inside, value)
        return depth, int(start) if is_number(start) else None


def _given(node: Any, name: str) -> Iterator[ast.AST | None]:
    """What this statement sets a variable of this name to; None where the source does not say it."""
    if not isinstance(node, (ast.Assign, ast.AnnAssign)) or node.value is None:
        return
    value = node.value
    yield from (given for whole, given in assignments(node) if whole.rpartition(".")[2] == name)
    if isinstance(value, ast.Dict) and name in (keys := [getattr(part, "value", None) for part in value.keys]):
        yield value.values[keys.index(name)]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    yield from (value for target in targets if isinstance(target, ast.Subscript) and last(target) == name)


def _grows(scope: Scope, node: ast.AST, name: str, reader: Reader) -> int | None:
    """By how much this statement lets a counter of this name go up."""
    if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add) and last(node.target) == name:
        by = reader.value(scope, node.value)
    elif isinstance(node, ast.Assign) and last(node.targets[0]) == name and isinstance(node.value, ast.BinOp):
        if not (isinstance(node.value.op, ast.Add) and last(node.value.left) == name):
            return None
        by = reader.value(scope, node.value.right)
    else:
        return None
    return int(by) if conditions.is_count(by) else None
