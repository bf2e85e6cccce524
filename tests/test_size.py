"""The package's size only falls. `python tests/test_size.py` prints today's table, to copy from.

Lines of code: without blank lines, comments and docstrings. A row may rise where others fall by as much in the same
commit; WHOLE and FILES are lowered whenever they can be, and never raised.
"""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1] / "carbontui"
WHOLE = 50_998
FILES = 438
ROOMS = {
    "": 2_136,
    "account": 948,
    "assumed": 205,
    "client": 1_521,
    "client/detection": 601,
    "client/frameworks": 1_048,
    "client/pausing": 1_591,
    "commands": 2_417,
    "commands/support": 776,
    "extensions": 406,
    "extensions/evaluation": 1_083,
    "extensions/fleet": 1_098,
    "extensions/llm": 139,
    "extensions/moves": 1_228,
    "extensions/site": 893,
    "grid": 2_654,
    "grid/providers": 1_287,
    "job": 7,
    "job/files": 937,
    "job/keeper": 1_496,
    "job/life": 869,
    "job/supervisor": 300,
    "job/supervisor/core": 4_718,
    "job/supervisor/record": 1_412,
    "job/supervisor/shell": 1_996,
    "job/terms": 463,
    "job/worker": 2_119,
    "nodes": 485,
    "plan": 1_738,
    "power": 2_038,
    "power/agent": 1_092,
    "power/backends": 1_035,
    "power/limit": 892,
    "reports": 1_798,
    "slurm": 660,
    "system": 896,
    "text": 1_233,
    "tui": 246,
    "tui/model": 813,
    "tui/screens": 1_483,
    "tui/terminal": 462,
    "tui/widgets": 1_779,
}
"""Room -> most lines of code. A file counts in the row of its nearest folder; "" has the files on top."""


def lines_of_code(text: str) -> int:
    """Lines that are neither blank, comment nor docstring; all lines of any other string are code."""
    code = {at for at, line in enumerate(text.splitlines(), 1) if line.strip() and not line.lstrip().startswith("#")}
    docstrings: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            docstrings.update(range(node.lineno, node.end_lineno + 1))
        elif isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str)):
            code.update(range(node.lineno, node.end_lineno + 1))
    return len(code - docstrings)


def room(folder: str) -> str:
    """The row in which a folder's files count."""
    while folder and folder not in ROOMS:
        folder = folder.rpartition("/")[0]
    return folder


def rows() -> tuple[Counter[str], int]:
    """Lines of code by room, and the number of files."""
    found: Counter[str] = Counter()
    paths = sorted(ROOT.rglob("*.py"))
    for path in paths:
        folder = path.parent.relative_to(ROOT).as_posix().removeprefix(".")
        found[room(folder) or folder.partition("/")[0]] += lines_of_code(path.read_text())
    return found, len(paths)


def test_no_room_and_not_the_whole_is_larger_than_it_was():
    found, files = rows()
    assert {name: size for name, size in found.items() if size > ROOMS.get(name, 0)} == {}, "python tests/test_size.py"
    assert found.total() <= WHOLE and files <= FILES
    assert sum(ROOMS.values()) <= WHOLE, "where a row rises, others fall"
    assert [name for name in ROOMS if not (ROOT / name).is_dir() and not name.startswith("extensions/")] == []


def test_code_is_counted_without_blanks_comments_and_docstrings():
    assert lines_of_code('"""A docstring\nof two lines."""\n\n# a comment\nx = 1  # one\n') == 1
    assert lines_of_code('def f():\n    """Why."""\n    return """\n# text\n\n"""\n') == 5
    assert lines_of_code('class A:\n    x: int\n    """A field."""\n\ny = (\n    1,\n    # why\n)\n') == 5


if __name__ == "__main__":
    table, number = rows()
    print(f"WHOLE = {table.total():_}\nFILES = {number}\nROOMS = {{")
    print("".join(f'    "{name}": {table[name]:_},\n' for name in sorted(+table)) + "}")
