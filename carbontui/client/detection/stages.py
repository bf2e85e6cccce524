"""Steps of trainings behind the one at hand: a classifier on an autoencoder, a student after its teacher."""

from __future__ import annotations

import ast
from typing import Iterator, List, Optional, Sequence, Tuple

from carbontui.client.detection import loops
from carbontui.client.detection.source import Scope, dotted, last, own
from carbontui.client.detection.values import Reader

DEPTH_MAX = 4


def steps_of(ahead: Sequence[Tuple[Scope, ast.AST]], reader: Reader) -> Optional[Tuple[float, str]]:
    """How many steps these statements make, and the loops that say so; None where the code does not tell."""
    every = [_steps(scope, node, reader, 0) for scope, node in ahead]
    known = [one for one in every if one is not None]
    if len(known) < len(every):
        return None
    return sum(steps for steps, _ in known), " + ".join(text for _, text in known)


def _steps(scope: Scope, statement: ast.AST, reader: Reader, depth: int) -> Optional[Tuple[float, str]]:
    """Of one statement: of a step in its loops, or in the one function of its file that it calls. More than one step
    may be of optimizers that take turns, of which one counts."""
    made: List[Tuple[float, str]] = []
    nodes = [statement, *own(statement)]
    for call in (one for one in nodes if isinstance(one, ast.Call)):
        found = None
        if _is_step(call):
            at = Scope(scope.file, scope.function, scope.space, call.lineno, scope.caller, scope.call)
            nest = loops.nest_of([at], reader)
            times = loops.reached(nest, len(nest.loops))
            least = (
                nest.sometimes or any(one.at_most for one in nest.loops) or not all(one.exact for one in nest.bounds)
            )
            found = None if times is None or least else (times / nest.share, _text(nest))
        else:
            functions = [one for one in scope.file.named(last(call.func)) if any(map(_is_step, _calls(one)))]
            if not functions:
                continue
            if len(functions) == 1 and depth < DEPTH_MAX and not _inside_loop(scope, call, statement):
                inside = Scope(scope.file, functions[0], scope.space, functions[0].lineno, scope, call)
                parts = [_steps(inside, one, reader, depth + 1) for one in functions[0].body if _trains(one)]
                found = parts[0] if len(parts) == 1 else None
        if found is None:
            return None
        made.append(found)
    return made[0] if len(made) == 1 else None


def _inside_loop(scope: Scope, call: ast.Call, statement: ast.AST) -> bool:
    above = list(scope.file.above(call))
    above = [*above[: above.index(statement)], statement] if statement in above else []
    return any(isinstance(one, (ast.For, ast.While, ast.If, ast.ListComp, ast.GeneratorExp)) for one in above)


def _calls(node: ast.AST) -> Iterator[ast.Call]:
    return (one for one in [node, *own(node)] if isinstance(one, ast.Call))


def _trains(statement: ast.AST) -> bool:
    return any(map(_is_step, _calls(statement)))


def _is_step(call: ast.Call) -> bool:
    """`optimizer.step()`, `scaler.step(optimizer)`."""
    named = [dotted(call.func), *(dotted(one) for one in call.args)]
    return last(call.func) == "step" and any("opt" in one.lower() for one in named)


def _text(nest: loops.Nest) -> str:
    return " x ".join(one.text for one in nest.loops if one.text)
