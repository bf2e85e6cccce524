"""Names say one thing: retired ones stay retired; and a test knows a thing by the name that everybody uses."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from later import together
from test_imports import FILE_OF

pytestmark = together("imports")

RETIRED = {
    *("seen", "told", "found", "held", "stays", "attendance", "books_closed", "flat_out", "last_run"),
    *("absorb", "accord", "inks", "opinions", "picture", "played", "surroundings", "wording"),
    *("Accord", "Aim", "Apart", "Attendance", "Banded", "Chosen", "Doubt", "FirstSaid", "FlatOut", "GivenPrices"),
    *("Halves", "Ink", "LastRun", "Observation", "Opinions", "Picture", "PlaceBooks", "Seen", "Stays", "Stretch"),
    *("Trial", "Want", "WantLine", "Worked"),
}
"""Each was a riddle, or the name of a dozen things. A function's locals are free."""
DIALECT = {
    *("look", "looks", "looked", "told", "saw", "hear", "hears", "heard", "unheard", "obey", "obeys", "deaf", "blind"),
    *("lived", "strangers", "knock", "bury", "forgive", "prolong", "dice"),
}
"""A narrator's words: no part of a name."""
KEPT = {"lived_s", "told_total", "blind_s", "blind_s2"}
"""Fields of the contract, and of a job's files."""

OPTIONS = {"held"}
"""Words of the command line, which a docstring may name."""


def words(name: str) -> set[str]:
    return set(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower().split("_"))


def names_of_things(tree: ast.AST) -> set[str]:
    """Names of functions, classes, constants, parameters, fields and attributes that are set."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            found.add(node.arg)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            found.add(node.attr)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef | ast.Module):
            targets = [n.target for n in node.body if isinstance(n, ast.AnnAssign)]
            targets += [n.targets[0] for n in node.body if isinstance(n, ast.Assign)]
            found |= {target.id for target in targets if isinstance(target, ast.Name)}
    return found


def retired(names: set[str]) -> set[str]:
    return {name for name in names - KEPT if name.strip("_") in RETIRED or words(name) & DIALECT}


def test_a_retired_name_is_the_name_of_nothing():
    used = {module: retired(names_of_things(ast.parse(path.read_text()))) for module, path in FILE_OF.items()}
    assert {module: names for module, names in used.items() if names} == {}
    assert retired({part for module in FILE_OF for part in module.split(".")}) == set()
    written = {module: re.findall(r"`(\w+)(?:\(\))?`", path.read_text()) for module, path in FILE_OF.items()}
    assert {module: names for module, said in written.items() if (names := retired(set(said)) - OPTIONS)} == {}


def test_a_retired_name_is_noticed():
    for text in (
        "def f(seen): pass",
        "class A:\n    held: int = 0",
        "class A:\n    told = 0",
        "def _hear_rank(): pass",
        "LOOK_S = 1",
        "class Look: pass",
        "def f(a):\n    a.last_look = 1",
    ):
        assert retired(names_of_things(ast.parse(text))), text
    assert not retired(names_of_things(ast.parse("def f(x):\n    found = x\n    return found")))


THEIRS = {"_display", "_exit", "_task"}
"""Names of Textual's and of the standard library's that the package has, too."""


def is_private(name: object) -> bool:
    return isinstance(name, str) and name.isidentifier() and name.startswith("_") and name[1:2] not in ("", "_")


def own_names(tree: ast.AST) -> set[str]:
    """Names of functions, classes, variables and attributes that it makes."""
    made: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            made.add(node.name)
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            made.add(node.id if isinstance(node, ast.Name) else node.attr)
    return made


def called(function: ast.expr) -> str:
    """The last part of its name."""
    return getattr(function, "attr", None) or getattr(function, "id", "")


def private_uses(tree: ast.AST, private: set[str]) -> list[str]:
    """Where it reads, sets or replaces one of the `private` names of something that is not its own."""
    found, own = [], own_names(tree)
    for node in ast.walk(tree):
        names: list[object] = []
        if isinstance(node, ast.Attribute):
            mine = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls") and node.attr in own
            names = [] if mine else [node.attr]
        elif isinstance(node, ast.ImportFrom):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.Call) and called(node.func).endswith(("getattr", "setattr", "delattr")):
            names = [str(one.value).rpartition(".")[2] for one in node.args if isinstance(one, ast.Constant)]
        found += [f"{node.lineno}: {name}" for name in names if is_private(name) and name in private]
    return found


def test_no_test_knows_a_private_name_of_the_package():
    made = set().union(*(own_names(ast.parse(path.read_text())) for path in FILE_OF.values()))
    private = {name for name in made if is_private(name)} - THEIRS
    here = Path(__file__).parent
    texts = {path: path.read_text() for path in here.rglob("*.py")}
    named = {path for path, text in texts.items() if private.intersection(re.findall(r"\b_\w+", text))}
    uses = {path: private_uses(ast.parse(texts[path]), private) for path in named}
    assert {str(path.relative_to(here)): lines for path, lines in uses.items() if lines} == {}


def test_a_private_name_is_noticed():
    for text in (
        "a._x",
        "a._x = 1",
        "from a import _x",
        "patch.setattr(a, '_x', 1)",
        "setattr('a.b._x', 1)",
        "self._x",
    ):
        assert private_uses(ast.parse(text), {"_x"}), text
    assert not private_uses(ast.parse("class A:\n    def f(self):\n        self._x = 1"), {"_x"})
    assert not private_uses(ast.parse("a._y, '_x', a.x"), {"_x"})


def test_a_test_is_named_in_one_sentence_of_at_most_80_characters():
    here = Path(__file__).parent
    texts = (path.read_text() for path in here.rglob("test_*.py"))
    names = {name for text in texts for name in re.findall(r"\bdef (test_\w+)", text)}
    assert names and [name for name in names if len(name) > 80] == []
