"""What an expression of a script comes to, read from its source: no code of the script is run, no variable of a
running function is read.

A name of a module has the value that the training has sent (client/detection/sight.py). Inside a function a name is
what it was assigned, a parameter what the caller passed, an attribute of self what the class's methods assign to it;
what cannot be followed is looked up among the settings by its name.
"""

import ast
import builtins
import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec import Struct

from carbontui.client.readonly import is_number
from carbontui.job.worker.source import CodePlace, Scope, dotted, last, own

DEPTH_MAX = 40
UNKNOWN: Any = type("Unknown", (), {"__repr__": lambda self: "UNKNOWN", "__bool__": lambda self: False})()
_PLAIN = (int, float, str, bytes, range, type(None))
_AS_BEFORE = ("to", "tolist", "numpy", "cuda", "cpu", "long", "float")
_LIKE_RANGE = ("trange", "arange", "randperm", "permutation")
"""Of libraries: the numbers below their argument, in some order."""
_CALLS: dict[str, Callable[..., Any]] = {
    **{one.__name__: one for one in (int, float, min, max, round, abs, range, sum, math.ceil, math.floor)},
    "bool": bool,
    "tuple": tuple,
    "list": tuple,
    **dict.fromkeys(_LIKE_RANGE, range),
}
_OPERATORS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: operator.pow,
    ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Lt: operator.lt, ast.LtE: operator.le,
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Is: operator.is_, ast.IsNot: operator.is_not,
    ast.In: lambda one, of: one in of, ast.NotIn: lambda one, of: one not in of,
}  # fmt: skip


@dataclass(eq=False)
class MadeOf:
    """What calling a class makes: it has its keywords as attributes, most likely."""

    call: ast.Call
    scope: Scope


class Described(dict[Any, Any]):
    """An object, a dict or a module of the training, as far as it could be read: what is in it, by name."""

    name = ""
    """Of its type, or its own."""
    length: int | None = None
    truth: bool | None = None
    kinds: Sequence[str] = ()
    """table, module, callable; methods of anything but a table may turn its switches."""


def value_of(given: Any) -> Any:
    """A value from what the training says of it."""
    if type(given) is list:
        return tuple(given)
    if type(given) is not dict:
        return given
    if "number" in given:
        return float(given["number"])
    if "range" in given:
        return range(*given["range"])
    made = Described()
    made.name, made.length, made.truth, made.kinds = given["name"], given["length"], given["truth"], given["kinds"]
    return made


def plain(*values: Any) -> bool:
    """Whether these are numbers, texts, and what consists of such."""
    return all(plain(*one) if type(one) is tuple else isinstance(one, _PLAIN) for one in values)


def truth(value: Any) -> bool | None:
    """Whether a value counts as true; None where that is not known."""
    return None if value is UNKNOWN else value.truth if type(value) is Described else bool(value)


class Sighted(Struct, frozen=True):
    """What the training saw, by client/detection/sight.py."""

    chain: tuple[CodePlace, ...] = ()
    """The frames that are running, the innermost first."""
    fits: bool = False
    """The innermost calls a framework's training."""
    files: dict[str, str] = {}
    """SHA-256 of each file's text, by path."""
    texts: dict[str, str] = {}
    """The text of a file that could not be read here: deflated, base64."""
    values: tuple[tuple[tuple[str | float, ...], Any], ...] = ()
    """Of the modules' names and what is in them: path and value, the outer ones first."""
    settings: tuple[tuple[tuple[str, ...], float | int], ...] = ()
    """The numbers in its settings, with where they are."""
    made: tuple[tuple[str, int, int | None, int], ...] = ()
    """Its last loaders: module, line and column in which each was made, and its batches."""
    resumed: bool = False
    """An optimizer has been given an earlier one's state."""

    def setting(self, path: tuple[str, ...]) -> Any:
        """The number at the end of this path in any of the settings; UNKNOWN of none, and of several that differ."""
        found = {value for where, value in self.settings if where[-len(path) :] == path}
        return found.pop() if len(found) == 1 else UNKNOWN


class Reader:
    """Finds what expressions come to. `given`: what names of a function are taken to be."""

    def __init__(self, sighted: Sighted, given: dict[Any, Any] | None = None, *, still: bool = False) -> None:
        self.sighted, self.given, self.still = sighted, given or {}, still

    def unmoved(self) -> "Reader":
        """One that knows nothing of what the script changes as it trains."""
        return Reader(self.sighted, self.given, still=True)

    def length(self, value: Any) -> int | None:
        """How many parts it has: a call's are the batches of the last loader that it has made."""
        if type(value) is MadeOf:
            call, scope = value.call, value.scope
            made = (one for one in reversed(self.sighted.made) if one[0] == scope.space.name)
            lines = ((scope.file.at(line, column), batches) for _, line, column, batches in made)
            return next((batches for line, batches in lines if call.lineno <= line <= (call.end_lineno or 0)), None)
        if type(value) is Described:
            return value.length
        return len(value) if type(value) in (range, tuple, str, dict) else None

    def value(self, scope: Scope, node: ast.AST | None, depth: int = 0) -> Any:
        """The value of an expression, UNKNOWN where it cannot be said."""
        if node is None or depth > DEPTH_MAX:
            return UNKNOWN
        if self.given and (name := dotted(node)) and (scope.body, name) in self.given:
            return self.given[scope.body, name]
        if self.still and last(node) in scope.file.moved:
            return UNKNOWN
        method = getattr(self, "_" + type(node).__name__.lower(), None)
        if method is None:
            return UNKNOWN
        try:
            found = method(scope, node, depth + 1)
            return UNKNOWN if type(found) is bool and last(node) in scope.file.turned else found
        except Exception:  # a script's values may raise anything
            return UNKNOWN

    def _constant(self, scope: Scope, node: ast.Constant, depth: int) -> Any:
        return node.value

    def _tuple(self, scope: Scope, node: ast.Tuple, depth: int) -> Any:
        if any(isinstance(one, ast.Starred) for one in node.elts):
            return UNKNOWN
        return tuple(self.value(scope, one, depth) for one in node.elts)

    _list = _tuple

    def _listcomp(self, scope: Scope, node: ast.ListComp, depth: int) -> Any:
        made, every = Described(), [self.length(self.value(scope, one.iter, depth)) for one in node.generators]
        if None not in every and not any(one.ifs for one in node.generators):
            made.length = math.prod(one or 0 for one in every)
        return made

    def _dict(self, scope: Scope, node: ast.Dict, depth: int) -> Any:
        return {key.value: self.value(scope, value, depth) for key, value in zip(node.keys, node.values, strict=False)
                if isinstance(key, ast.Constant)}  # fmt: skip

    def _binop(self, scope: Scope, node: ast.BinOp, depth: int) -> Any:
        left, right = self.value(scope, node.left, depth), self.value(scope, node.right, depth)
        if not (is_number(left) and is_number(right)):
            return UNKNOWN
        kind = type(node.op)
        if kind is ast.Pow and (abs(left) > 1000 or abs(right) > 100):
            return UNKNOWN
        return _OPERATORS[kind](left, right) if kind in _OPERATORS else UNKNOWN

    def _unaryop(self, scope: Scope, node: ast.UnaryOp, depth: int) -> Any:
        value = self.value(scope, node.operand, depth)
        if isinstance(node.op, ast.Not):
            held = truth(value)
            return UNKNOWN if held is None else not held
        return -value if isinstance(node.op, ast.USub) and plain(value) else UNKNOWN

    def _boolop(self, scope: Scope, node: ast.BoolOp, depth: int) -> Any:
        open_ = False
        value: Any = UNKNOWN
        for part in node.values:
            value = self.value(scope, part, depth)
            held = truth(value)
            if held is None:
                open_ = True
            elif held is isinstance(node.op, ast.Or):
                return value if not open_ or type(value) is bool else UNKNOWN
        return UNKNOWN if open_ else value

    def _compare(self, scope: Scope, node: ast.Compare, depth: int) -> Any:
        left = self.value(scope, node.left, depth)
        for kind, part in zip(map(type, node.ops), node.comparators, strict=False):
            right = self.value(scope, part, depth)
            same = kind in (ast.Is, ast.IsNot) and (left is None or right is None)
            if left is UNKNOWN or right is UNKNOWN or not (same or plain(left, right)):
                return UNKNOWN
            if not _OPERATORS[kind](left, right):
                return False
            left = right
        return True

    def _ifexp(self, scope: Scope, node: ast.IfExp, depth: int) -> Any:
        test = truth(self.value(scope, node.test, depth))
        return UNKNOWN if test is None else self.value(scope, node.body if test else node.orelse, depth)

    def _namedexpr(self, scope: Scope, node: ast.NamedExpr, depth: int) -> Any:
        return self.value(scope, node.value, depth)

    def _name(self, scope: Scope, node: ast.Name, depth: int) -> Any:
        name = node.id
        if scope.function is None:
            return self._of_module(scope, name, depth)
        given = scope.file.assigned(scope.function).get(name, [])
        args = getattr(scope.function, "args", None)
        is_param = args is not None and name in _params(args)
        if not given and not is_param:
            outer = next((one for one in scope.file.above(scope.function) if isinstance(one, ast.FunctionDef)), None)
            if outer is None:
                return self._of_module(scope, name, depth)
            at_work = scope.caller
            while at_work is not None and at_work.function is not outer:
                at_work = at_work.caller
            return self._name(at_work or Scope(scope.file, outer, scope.space), node, depth)
        value = self._param(scope, name, depth) if is_param else UNKNOWN
        if is_param and value is UNKNOWN:
            value = self._setting((name,))
        if given:
            if any(one is None for one in given):
                return UNKNOWN
            if value is UNKNOWN or truth(value) is False:  # `if steps is None: steps = ...`
                value = self.value(scope, given[-1], depth)
        return value

    def _of_module(self, scope: Scope, name: str, depth: int) -> Any:
        """Its present value; not of what a loop sets anew each time."""
        changed = scope.file.set_in_loops.get(name)
        if changed is not None:
            return UNKNOWN if None in changed else self.value(Scope(scope.file, None, scope.space), changed[-1], depth)
        return scope.space[name] if name in scope.space else getattr(builtins, name, UNKNOWN)

    def passed(self, scope: Scope, name: str) -> tuple[Scope, ast.AST] | None:
        """The caller's expression for a parameter; None where it is left to its default, or cannot be told."""
        args: ast.arguments | None = getattr(scope.function, "args", None)
        call, caller = self._called(scope)
        if args is None or call is None or caller is None:
            return None
        names = [one.arg for one in [*args.posonlyargs, *args.args]]
        method = scope.file.owner(scope.function) is not None and names[:1] in (["self"], ["cls"])  # type: ignore[arg-type]
        if method and name == names[0]:
            return (caller, call.func.value) if isinstance(call.func, ast.Attribute) else None
        for keyword in call.keywords:
            if keyword.arg == name:
                return caller, keyword.value
        at = names.index(name) - method if name in names else -1
        places: list[ast.AST] = []
        for one in call.args:
            if isinstance(one, ast.Starred):  # both = train, test; fit(*both)
                given = caller.file.assigned(caller.body).get(last(one.value), [])
                if len(given) != 1 or not isinstance(given[0], ast.Tuple):
                    break
                places += given[0].elts
            else:
                places.append(one)
        return (caller, places[at]) if 0 <= at < len(places) else None

    def _called(self, scope: Scope) -> tuple[ast.Call | None, Scope | None]:
        return self._made(scope) if scope.call is None and scope.caller is None else (scope.call, scope.caller)

    def _param(self, scope: Scope, name: str, depth: int) -> Any:
        """What the caller passed for a parameter, or its default."""
        call, caller = self._called(scope)
        if call is None or caller is None:
            return UNKNOWN
        if (given := self.passed(scope, name)) is not None:
            return self.value(*given, depth)
        args: ast.arguments = scope.function.args  # type: ignore[union-attr]
        names = [one.arg for one in [*args.posonlyargs, *args.args]]
        for keyword in call.keywords:
            if keyword.arg is None:
                value = self._part(self.value(caller, keyword.value, depth), name, depth)
                value = self._setting((*_path(keyword.value), name)) if value is UNKNOWN else value
                if value is not UNKNOWN or self.value(caller, keyword.value, depth) is UNKNOWN:
                    return value
        if any(isinstance(one, ast.Starred) for one in call.args):
            return UNKNOWN
        defaults = dict(zip(reversed(names), reversed(args.defaults), strict=False))
        defaults.update(
            {one.arg: value for one, value in zip(args.kwonlyargs, args.kw_defaults, strict=False) if value}
        )
        return self.value(Scope(scope.file, None, scope.space), defaults[name], depth) if name in defaults else UNKNOWN

    def _made(self, scope: Scope) -> tuple[ast.Call | None, Scope | None]:
        """The only call of this function, or of this __init__'s class, in its file."""
        owner, name = scope.file.owner(scope.function or scope.file.tree), getattr(scope.function, "name", "")
        names = {owner.name if owner is not None and name == "__init__" else name}
        names |= {one.name for one in scope.file.classes.values() if any(last(base) in names for base in one.bases)}
        calls = [node for node in ast.walk(scope.file.tree) if isinstance(node, ast.Call) and last(node.func) in names]
        if len(calls) != 1:
            return None, None
        inside = next((one for one in scope.file.above(calls[0]) if isinstance(one, ast.FunctionDef)), None)
        return calls[0], Scope(scope.file, inside, scope.space)

    def _attribute(self, scope: Scope, node: ast.Attribute, depth: int) -> Any:
        if isinstance(node.value, ast.Name) and node.value.id == "self" and scope.function is not None:
            value = self._of_self(scope, node.attr, depth)
        else:
            value = self._part(self.value(scope, node.value, depth), node.attr, depth)
        return self._setting(_path(node)) if value is UNKNOWN else value

    def _of_self(self, scope: Scope, name: str, depth: int) -> Any:
        """What the methods of the class assign to an attribute."""
        function = scope.function
        owner = scope.file.owner(function) if function is not None else None
        if owner is None:
            return UNKNOWN
        kin = [owner, *(scope.file.classes[last(one)] for one in owner.bases if last(one) in scope.file.classes)]
        kin += [one for one in scope.file.classes.values() if any(last(base) == owner.name for base in one.bases)]
        values = []
        for one in kin:
            for method in one.body:
                if isinstance(method, ast.FunctionDef):
                    given = scope.file.assigned(method).get(f"self.{name}", [])
                    if any(value is None for value in given):
                        return UNKNOWN
                    inside = scope
                    while inside is not None and inside.function is not method:
                        inside = inside.caller  # type: ignore[assignment]
                    there = inside or Scope(scope.file, method, scope.space)
                    values += [self.value(there, value, depth) for value in given]
                elif isinstance(method, ast.Assign) and any(last(target) == name for target in method.targets):
                    values.append(self.value(Scope(scope.file, None, scope.space), method.value, depth))
        known = [value for value in values if value is not UNKNOWN and value is not None]
        if known and len(known) == len([one for one in values if one is not None]):
            return known[-1]
        return self._part(self._name(scope, ast.Name("self", ast.Load()), depth), name, depth)

    def _subscript(self, scope: Scope, node: ast.Subscript, depth: int) -> Any:
        base, key = self.value(scope, node.value, depth), self.value(scope, node.slice, depth)
        if key is UNKNOWN:
            return UNKNOWN
        if isinstance(base, dict) and plain(key):
            return base.get(key, UNKNOWN)
        if type(base) in (list, tuple, str):
            return base[key]
        value = self._part(base, key, depth) if type(key) is str else UNKNOWN
        return self._setting(_path(node)) if value is UNKNOWN else value

    def _call(self, scope: Scope, node: ast.Call, depth: int) -> Any:
        name = last(node.func)
        if any(isinstance(one, ast.Starred) for one in node.args):
            return UNKNOWN
        if name == "len" and len(node.args) == 1:
            known = self.length(self.value(scope, node.args[0], depth))
            return UNKNOWN if known is None else known
        if isinstance(node.func, ast.Attribute):
            base = self.value(scope, node.func.value, depth)
            if name == "size" and type(base) is Described:
                return base["shape"][self.value(scope, node.args[0], depth)]
            if name in _AS_BEFORE and (type(base) is range or "shape" in base):
                return base
            if name == "get" and _is_table(base):
                args = [self.value(scope, one, depth) for one in node.args]
                return base.get(*args) if plain(*args[:1]) else UNKNOWN
            if name in ("items", "keys", "values") and _is_table(base):
                return base
            methods = [one for one in scope.file.named(name) if scope.file.owner(one) is not None]
            returns = [one for method in methods for one in own(method) if isinstance(one, ast.Return)]
            if len(methods) == len(returns) == 1:
                inside = Scope(scope.file, methods[0], scope.space, 0, scope, node)
                return self.value(inside, returns[0].value, depth)
        own_name = name not in ("ceil", "floor", *_LIKE_RANGE) and "callable" in getattr(
            scope.space.get(name), "kinds", ()
        )
        if name in _CALLS and not own_name:
            args = [self.value(scope, one, depth) for one in node.args]
            return _CALLS[name](*args) if plain(*args) else UNKNOWN
        if isinstance(node.func, ast.Name):
            for function in scope.file.named(name):
                returns = [one for one in own(function) if isinstance(one, ast.Return)]
                if len(returns) == 1 and scope.file.owner(function) is None:
                    return self.value(Scope(scope.file, function, scope.space, 0, scope, node), returns[0].value, depth)
        return MadeOf(node, scope) if name == "dict" or name[:1].isupper() else UNKNOWN

    def _part(self, base: Any, name: str, depth: int) -> Any:
        """An attribute of a value."""
        if base is UNKNOWN or base is None:
            return UNKNOWN
        if type(base) is MadeOf:
            return self._of_made(base, name, depth)
        value = base.get(name, UNKNOWN) if isinstance(base, dict) else UNKNOWN
        moves = "works" in getattr(base, "kinds", ()) and (self.still or type(value) is bool)
        return UNKNOWN if moves else value

    def _of_made(self, made: MadeOf, name: str, depth: int) -> Any:
        """An attribute of a new object: passed by name, set by its __init__, or its class's default."""
        scope, kind = made.scope, last(made.call.func)
        for keyword in made.call.keywords:
            if keyword.arg in (name, None):
                value = self.value(scope, keyword.value, depth)
                if keyword.arg is None:
                    value = self._part(value, name, depth)
                if value is not UNKNOWN:
                    return value
        methods = [one for one in getattr(scope.file.classes.get(kind), "body", ()) if isinstance(one, ast.FunctionDef)]
        set_in = [one for one in methods if f"self.{name}" in scope.file.assigned(one)]
        if set_in:
            value = scope.file.assigned(set_in[0])[f"self.{name}"][-1]
            if value is None or [one.name for one in set_in] != ["__init__"]:
                return UNKNOWN  # it changes
            return self.value(Scope(scope.file, set_in[0], scope.space, 0, scope, made.call), value, depth)
        made_by = scope.space.get(kind)
        return made_by.get(name, UNKNOWN) if type(made_by) is Described else UNKNOWN

    def _setting(self, path: tuple[str, ...]) -> Any:
        for start in range(len(path)):
            value = self.sighted.setting(path[start:])
            if value is not UNKNOWN:
                return value
        return UNKNOWN


def _is_table(value: Any) -> bool:
    return type(value) is dict or "table" in getattr(value, "kinds", ())


def _params(args: ast.arguments) -> Sequence[str]:
    return [one.arg for one in [*args.posonlyargs, *args.args, *args.kwonlyargs]]


def _path(node: ast.AST) -> tuple[str, ...]:
    """The names behind the root of an expression like `cfg["train"].epochs`."""
    parts: list[str] = []
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        parts.append(last(node))
        node = node.value
    parts.reverse()
    return tuple(part for part in parts if part)
