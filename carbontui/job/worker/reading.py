"""What a script's code says of a training: how often it comes to the place where that steps, and what trains behind it.

Pure: of what the training has sent, and the texts of the files.
"""

import ast
import dataclasses
import functools
import hashlib
import itertools
import operator
import tokenize
import zlib
from base64 import b64decode
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from carbontui.job.worker import conditions, loops
from carbontui.job.worker.source import File, Scope, dotted, is_step, own, parsed, scopes, trains
from carbontui.job.worker.values import Described, Reader, Sighted, value_of
from carbontui.job.worker.work import Nest, certain, reached, text_of
from carbontui.protocol import CodeRead

DEPTH_MAX = 4
_OPEN = (ast.If, ast.ExceptHandler, ast.ListComp, ast.GeneratorExp)
"""What a statement may be in that is not always run, or more than once."""
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
    over, replaced, varies = conditions.over(stack), conditions.replaced(stack), conditions.varies(stack, reader)
    return nest._replace(over=over, replaced=replaced, varies=varies)


def steps_of(ahead: Sequence[tuple[Scope, ast.AST]], reader: Reader) -> tuple[float, str] | None:
    """How many steps these statements make, and the loops that say so; None where the code does not tell."""
    every = [None if conditions.left_before(scope, node) else _steps([scope], node, reader) for scope, node in ahead]
    known = [one for one in every if one is not None]
    if len(known) < len(every):
        return None
    return sum(steps for steps, _ in known), " + ".join(text for _, text in known)


def _steps(stack: list[Scope], statement: ast.AST, reader: Reader) -> tuple[float, str] | None:
    """Of one statement in the last of these functions: of the steps in it, and in the functions of its file that it
    calls. Of optimizers that take turns in one loop the first counts."""
    scope, made = stack[-1], list[tuple[float, str]]()
    counted: dict[str, ast.AST] = {}
    for call in (one for one in [statement, *own(statement)] if isinstance(one, ast.Call)):
        at, found = dataclasses.replace(scope, line=call.lineno), None
        above = list(itertools.takewhile(lambda one: one not in (statement, scope.function), scope.file.above(call)))
        above += [statement]
        looped = next((one for one in above if isinstance(one, (ast.For, ast.While))), None)
        if is_step(at, call):
            counted.setdefault(dotted(call.func), looped or statement)
            if len(counted) > 1 and len(set(counted.values())) == 1 and dotted(call.func) != next(iter(counted)):
                continue
            nest = loops.nest_of([*stack[:-1], at], reader)
            times = reached(nest, len(nest.loops))
            plain = certain(nest) and (nest.share == 1 or not nest.bounds) and len(set(counted.values())) == 1
            if times is not None and plain:
                found = times / nest.share, text_of(nest)
        else:
            named = scope.file.called(call)
            called = [one for one in named if any(trains(scope, part, frozenset()) for part in one.body)]
            if not called:
                continue
            if len(called) == 1 and len(stack) < DEPTH_MAX and called[0] is not scope.function:
                inside = Scope(scope.file, called[0], scope.space, called[0].lineno, at, call)
                found = _steps([*stack[:-1], at, inside], called[0], reader)
        if found is None or (looped is None and any(isinstance(one, _OPEN) for one in above)):
            return None
        made.append(found)
    return (sum(steps for steps, _ in made), " + ".join(text for _, text in made)) if made else None
