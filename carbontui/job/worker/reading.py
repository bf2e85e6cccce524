"""What a script's code says of a training: how often it comes to the place where that steps, and what trains behind it.

Pure: of what the training has sent, and the texts of the files.
"""

import ast
import functools
import hashlib
import operator
import tokenize
import zlib
from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from carbontui.client.detection.work import Nest, certain, reached, text_of
from carbontui.job.worker import conditions, loops
from carbontui.job.worker.source import File, Scope, dotted, last, own, parsed, scopes
from carbontui.job.worker.values import Described, Reader, Sighted, value_of
from carbontui.protocol import CodeRead

DEPTH_MAX = 4
FILES_MAX = 200
FILE_MAX_B = 1_200_000
"""Of the longest file that a training has read (sight.SIZE_MAX), each character of four bytes."""
_files: dict[str, File | None] = {}
"""By the digest of their text."""


def read(line: bytes) -> CodeRead:
    """What is around a place; where a file's text is lacking, that."""
    sighted = msgspec.json.decode(line, type=Sighted)
    lacks = [path for path, digest in sighted.files.items() if not _known(path, digest, sighted.texts.get(path, ""))]
    if lacks:
        return CodeRead(lacks=tuple(lacks))
    files = {path: file for path, digest in sighted.files.items() if (file := _files[digest]) is not None}
    return CodeRead(nest=msgspec.Raw(msgspec.json.encode(nest_at(sighted, files))))


def _known(path: str, digest: str, sent: str) -> bool:
    if digest not in _files:
        try:
            if sent:
                text = zlib.decompressobj().decompress(b64decode(sent), FILE_MAX_B).decode("utf-8", "surrogatepass")
            elif not (file := Path(path)).is_file() or file.stat().st_size > FILE_MAX_B:
                return False  # a pipe, a device
            else:
                with tokenize.open(path) as opened:
                    text = opened.read()
                text += "" if text.endswith("\n") else "\n"  # as linecache gives it
        except (OSError, SyntaxError, ValueError, zlib.error):
            return False
        if hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest() != digest:
            return False
        if len(_files) >= FILES_MAX:
            _files.clear()
        _files[digest] = parsed(text)
    return True


def nest_at(sighted: Sighted, files: Mapping[str, File]) -> Nest:
    """What is around the innermost frame."""
    spaces = {place.module: Described() for place in sighted.chain}
    for name, space in spaces.items():
        space.name = name
    for (module, *path, key), value in sighted.values:
        functools.reduce(operator.getitem, path, spaces[str(module)])[key] = value_of(value)
    stack = scopes(sighted.chain, files, spaces)
    reader = Reader(sighted)
    fits = frozenset[str]().union(*map(conditions.fits_of, stack if sighted.fits else ()))
    nest = loops.nest_of(stack, reader, fits)
    nest = nest._replace(ahead=None, later=steps_of(nest.ahead, reader), timed=conditions.timed(stack))
    return nest._replace(over=conditions.over(stack), replaced=conditions.replaced(stack))


def steps_of(ahead: Sequence[tuple[Scope, ast.AST]], reader: Reader) -> tuple[float, str] | None:
    """How many steps these statements make, and the loops that say so; None where the code does not tell."""
    every = [_steps(scope, node, reader, 0) for scope, node in ahead]
    known = [one for one in every if one is not None]
    if len(known) < len(every):
        return None
    return sum(steps for steps, _ in known), " + ".join(text for _, text in known)


def _steps(scope: Scope, statement: ast.AST, reader: Reader, depth: int) -> tuple[float, str] | None:
    """Of one statement: of a step in its loops, or in the one function of its file that it calls. More than one step
    may be of optimizers that take turns, of which one counts."""
    made: list[tuple[float, str]] = []
    nodes = [statement, *own(statement)]
    for call in (one for one in nodes if isinstance(one, ast.Call)):
        found = None
        if _is_step(call):
            at = Scope(scope.file, scope.function, scope.space, call.lineno, scope.caller, scope.call)
            nest = loops.nest_of([at], reader)
            times = reached(nest, len(nest.loops))
            found = None if times is None or not certain(nest) else (times / nest.share, text_of(nest))
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
