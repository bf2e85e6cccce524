"""Sentences are drawn, never read: code carries codes and figures, and `carbontui.text` has the words of each."""

import ast
import inspect
import re
import string

import pytest
from later import together
from test_imports import CORE, FILE_OF, names, within

from carbontui.job.supervisor.core.state import forbidden
from carbontui.text import figures
from carbontui.text.statements import TABLE, TABLES

pytestmark = together("imports")

SENTENCES = {
    *("error", "explanation", "fault", "level", "line", "message", "note", "notice", "notices", "reason"),
    *("said", "sentence", "source", "text", "verdict", "why", "words"),
}
"""How a value that may be a sentence of ours is named, whatever it is an attribute or an item of."""
READS = {
    *("endswith", "find", "index", "partition", "removeprefix", "removesuffix", "replace", "rfind", "rpartition"),
    *("rsplit", "split", "startswith"),
}
FOREIGN = {
    "carbontui.client": "scripts, environments and names inside the training process",
    "carbontui.slurm.queue": "what Slurm prints",
    "carbontui.slurm.commands": "what Slurm prints",
    "carbontui.early": "options and settings of the user",
    "carbontui.config": "what msgspec says of a file of the user",
    "carbontui.grid.providers": "what operators publish",
    "carbontui.job.terms.allowance": "what the user typed",
    "carbontui.job.files.journal": "/proc",
    "carbontui.job.worker.conditions": "the words of a script",
    "carbontui.job.worker.reading": "the text of a script",
    "carbontui.job.supervisor.shell.watches": "a file of lines `time word`",
    "carbontui.link": "lines of a socket",
    "carbontui.system.isolation": "what Python says of an error",
    "carbontui.system.openmetrics": "the OpenMetrics format",
    "carbontui.plan.graph": "level numbers",
    "carbontui.plan.problem": "what msgspec says of a file of the user",
    "carbontui.power.capd": "lines of a socket",
    "carbontui.power.metering.shares": "/proc",
    "carbontui.power.metering.rapl": "/proc",
    "carbontui.system.proc": "/proc",
    "carbontui.tui.model.loglines": "the training's output, with the keeper's one marker line",
    "carbontui.tui.screens.log": "the training's output",
}
"""Modules that read texts of others, and which: nothing they read is a sentence of carbontui."""
LAID_OUT = {
    "carbontui.text.forms": "a word that stands before a sentence is not said twice",
    "carbontui.reports.formats": "a text on one line of a table",
    "carbontui.tui.terminal.palette": "its characters, where a terminal has few",
    "carbontui.tui.widgets.state_bar": "whether a line was cut short",
}
"""Modules that fold a text to fit, or print it once: nothing depends on what it says."""


def named(node):
    """The name by which a value is known: `reason` of `state.reason`, of `state["reason"]`, of
    `str(state.get("reason"))`; `reasons` of `reasons[0]`, ..."""
    if isinstance(node, ast.Subscript):
        return node.slice.value if is_key(node.slice) else named(node.value)
    if isinstance(node, ast.Call):
        called, first = named(node.func), next(iter(node.args), None)
        if called == "get" and is_key(first):
            return first.value
        return named(first if called == "str" and first is not None else node.func)
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def is_key(node):
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def is_text(node):
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value


def is_constant(node):
    return named(node).isupper()


def reads_in(tree):
    """Lines where a value named like a sentence is cut, searched or compared."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in READS:
            if named(node.func.value) in SENTENCES:
                yield node.lineno
        elif isinstance(node, ast.Compare):
            for left, operator, right in zip([node.left, *node.comparators], node.ops, node.comparators, strict=False):
                if isinstance(operator, ast.In | ast.NotIn) and named(right) in SENTENCES:
                    yield node.lineno
                if isinstance(operator, ast.Eq | ast.NotEq):
                    for one, other in ((left, right), (right, left)):
                        if named(one) in SENTENCES and (is_text(other) or is_constant(other)):
                            yield node.lineno


@pytest.mark.parametrize(
    "code",
    ['a.text.partition(":")', "'x' in b.why", 'reason == "no step yet"', "why == NONE", 'a["level"].split()',
     'str(a.get("level", "")).startswith("cap ")'],
)  # fmt: skip
def test_a_read_is_found(code):
    assert list(reads_in(ast.parse(code)))


def test_nothing_reads_a_sentence():
    found = {
        f"{module}:{line}"
        for module, path in FILE_OF.items()
        if not within(module, {**FOREIGN, **LAID_OUT})
        for line in reads_in(ast.parse(path.read_text()))
    }
    assert found == set()


def test_every_exception_is_needed():
    reading = {module for module, path in FILE_OF.items() if list(reads_in(ast.parse(path.read_text())))}
    assert {each for each in (*FOREIGN, *LAID_OUT) if not any(within(module, [each]) for module in reading)} == set()


# --- every statement has a wording, and every wording is of a statement --------------------------------------------


def made(tree):
    """(code, names of its parts or None where they are not literal, line) of each statement; the code of one that is
    put together ends with '*'."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or named(node.func) not in ("statement", "Statement") or not node.args:
            continue
        literal = {keyword.arg for keyword in node.keywords}
        parts = literal if named(node.func) == "statement" and None not in literal else None
        first = node.args[0]
        for code in (first.body, first.orelse) if isinstance(first, ast.IfExp) else (first,):
            if isinstance(code, ast.Constant):
                yield code.value, parts, node.lineno
            elif isinstance(code, ast.JoinedStr) and isinstance(code.values[0], ast.Constant):
                yield f"{code.values[0].value}*", None, node.lineno


def fields(wording):
    if callable(wording):
        return set(inspect.signature(wording).parameters) - {"now_s"}
    return {name for _, name, _, _ in string.Formatter().parse(wording) if name}


def statements():
    for module, path in FILE_OF.items():
        for code, parts, line in made(ast.parse(path.read_text())):
            yield f"{module}:{line}", code, parts


def test_every_statement_has_a_wording_of_its_parts_alone():
    wrong = []
    for where, code, parts in statements():
        if code.endswith("*"):
            continue
        if code not in TABLE or (parts is not None and fields(TABLE[code]) != parts):
            wrong.append(f"{where} {code}: {parts} for {code in TABLE and fields(TABLE[code])}")
    assert wrong == []


def test_every_wording_is_used_and_said_once():
    codes = {code for _, code, _ in statements()}
    begun = tuple(code[:-1] for code in codes if code.endswith("*"))
    assert {code for code in TABLE if code not in codes and not code.startswith(begun)} == set()
    assert sum(len(table) for table in TABLES) == len(TABLE), "one code in two tables"


PHRASE = re.compile(r"[a-z]{2,} [a-z]{2,}|[a-z]{2,} $|^ [a-z]{2,}|^; ")
"""Two words, or one with the space before or after which another is to stand."""
NO_SENTENCES = {
    "core.rules.capabilities": {
        "duty cycle",
        "carbontui run --sigstop -- ...",
        "carbontui learn unload ",
    },  # JSON; commands
    "core.state.forbidden": {"daily ", forbidden.FORMS},  # what the user typed, and is to type
    "core.state.plan": {"cap "},  # the name of a level, its identity in plans and JSON
    "core.planning.problem": {"duty "},
    "core.planning.answers": {"run now"},  # the name of a baseline
    "core.state.unloading": {"the try"},  # in journals of earlier versions
}
"""By module: texts of the core that no user reads as a sentence of carbontui, and what they are."""


def phrases(tree):
    """Texts of several words that are neither docstrings, nor said by an exception to who called."""
    left_out = {
        id(part)
        for node in ast.walk(tree)
        for part in (
            [one.value for one in getattr(node, "body", ()) if isinstance(one, ast.Expr)]
            if isinstance(getattr(node, "body", ()), list)
            else ()
        )
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise):
            left_out |= {id(part) for part in ast.walk(node)}
    for node in ast.walk(tree):
        text = node.value if isinstance(node, ast.Constant) and id(node) not in left_out else None
        if isinstance(text, str) and PHRASE.search(text):
            yield text


@pytest.mark.parametrize("code", ['x = "no grid source"', 'f(f"; moved by {x}")', 'y = f"guessed from {z}"'])
def test_a_sentence_is_found(code):
    assert list(phrases(ast.parse(code)))
    assert not list(phrases(ast.parse('def f():\n    """Two words."""\n    raise ValueError("not a time")\n')))


def test_the_core_makes_no_sentence():
    found = {
        f"core{module.removeprefix(CORE)}": texts
        for module, path in FILE_OF.items()
        if within(module, [CORE]) and (texts := set(phrases(ast.parse(path.read_text()))))
    }
    assert found == NO_SENTENCES


def test_the_core_has_no_words():
    bound = {module: names()[module] for module in FILE_OF if within(module, [CORE])}
    assert {
        module for module, all_names in bound.items() if any(within(n, ["carbontui.text"]) for n in all_names)
    } == set()


# --- a percentage and a sign have one form -------------------------------------------------------------------------

FORMED = {
    "carbontui.client": "imports the standard library alone",
    "carbontui.text.figures": "the forms themselves",
}
PERCENT = re.compile(r"\{[^{}:]*:(\+[^{}]*|[^{}%]*%)\}|\}%")
"""A field of a template that is written as a percentage or with its sign, or a percent sign glued to one."""


def formed_in(tree):
    """Lines where a percentage or a sign is written by hand: `figures.percent` and `figures.signed` have one form."""
    inside = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in ast.walk(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            # times are written with percent signs as well: {at:%H:%M}
            shape = "".join("{}" if isinstance(part, ast.FormattedValue) else part.value for part in node.values)
            specs = (ast.unparse(one.format_spec) for one in node.values if getattr(one, "format_spec", None))
            if "{}%" in shape or any(re.search(r"\+|\d%|'%'", spec) for spec in specs):
                yield node.lineno
        elif isinstance(node, ast.Constant) and id(node) not in inside and PERCENT.search(str(node.value)):
            yield node.lineno


@pytest.mark.parametrize(
    "code", ['f"{a:.0%}"', 'f"{a:>4.1%} of"', 'f"{100 * a:.0f}%"', 'f"{a:+.1f} GW"', '"{a:.0%} of"']
)
def test_a_percentage_or_a_sign_written_by_hand_is_found(code):
    assert list(formed_in(ast.parse(code)))


def test_percentages_and_signs_are_written_in_one_form():
    found = {
        f"{module}:{line}"
        for module, path in FILE_OF.items()
        if not within(module, FORMED)
        for line in formed_in(ast.parse(path.read_text()))
    }
    assert found == set()
    assert [figures.percent(share) for share in (0.214, -0.23, -0.001)] == ["21 %", "−23 %", "0 %"]
    assert figures.signed(-0.23, figures.percent) == "−23 %" and figures.signed(0.03, figures.percent) == "+3 %"
    assert (figures.grams(-1240.0), figures.watts(-3.0)) == ("−1.24 kg", "−3 W")
    assert figures.money(-0.001, "EUR") == "0.00 EUR"
