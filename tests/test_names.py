"""Names say one thing: retired ones stay retired, and the glossary is of names that are in use."""

from __future__ import annotations

import ast

from later import together
from test_imports import FILE_OF

pytestmark = together("imports")

RETIRED = {"seen", "told", "found", "held"}
"""Each was the name of a dozen things. A function's locals are free."""


def names_of_things(tree: ast.AST) -> set[str]:
    """Names of parameters, fields, attributes that are set, and methods."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            found.add(node.arg)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            found.add(node.attr)
        elif isinstance(node, ast.ClassDef):
            found |= {n.target.id for n in node.body if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)}
            found |= {
                n.targets[0].id for n in node.body if isinstance(n, ast.Assign) and isinstance(n.targets[0], ast.Name)
            }
            found |= {n.name for n in node.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)}
    return found


def test_a_retired_name_is_the_name_of_nothing():
    used = {module: names_of_things(ast.parse(path.read_text())) & RETIRED for module, path in FILE_OF.items()}
    assert {module: names for module, names in used.items() if names} == {}


def test_a_retired_name_is_noticed():
    assert names_of_things(ast.parse("def f(seen): pass")) & RETIRED
    assert names_of_things(ast.parse("class A:\n    held: int = 0")) & RETIRED
    assert names_of_things(ast.parse("class A:\n    told = 0")) & RETIRED
    assert not names_of_things(ast.parse("def f(x):\n    found = x\n    return found")) & RETIRED
