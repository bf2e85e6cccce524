"""Who may import whom: read from the sources, lazy and type-checking imports included, and seen in sys.modules."""

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from later import together

import carbontui

pytestmark = together("imports")  # every file of the package is read once
ROOT = Path(carbontui.__file__).parent

ANYONE = {"config", "early", "line", "paths", "system", "units"}
"""Rooms that everyone but the client may enter; so is the root, for its version alone."""
FIGURES = "carbontui.text.figures"
"""The form of numbers, which needs nothing: everyone but the client and the supervisor's core may write one."""
ROOMS = {
    "__main__": {"cli"},
    "early": {"client"},
    "cli": {"commands", "hooks"},
    "commands": {
        *("tui", "assumed", "job", "slurm", "grid", "power", "plan", "account", "reports"),
        *("protocol", "link", "text", "hooks"),
        "client",  # hook: puts it into an environment; nothing of a training runs there
    },
    "tui": {"protocol", "link", "text"},
    "assumed": {"account", "grid", "plan", "text"},
    "headroom": set(),
    "hooks": set(),  # extensions are loaded by name
    "job": {"text", "nodes", "slurm", "grid", "power", "plan", "account", "protocol", "client", "hooks", "headroom"},
    "nodes": {"power"},
    "slurm": set(),
    "grid": {"protocol"},  # the errors of forecasts, as a status gives them
    "power": {"text"},  # the words of the boards' makers
    "plan": set(),
    "account": {"protocol", "client"},  # the statistics of an estimate, which a training script uses as well
    "text": {"protocol"},
    "reports": {"account", "job", "protocol", "grid", "text"},
    "link": {"protocol"},
    "protocol": set(),
    "config": {"paths"},
    "paths": {"early"},
    "system": {"protocol", "paths"},
    "units": set(),
    "line": set(),
    "client": set(),
    "train": {"client"},
    "callbacks": {"client"},
    "data": set(),
    "extensions": {
        *("commands", "tui", "assumed", "job", "slurm", "grid", "power", "plan", "account", "reports"),
        *("text", "link", "protocol", "hooks", "headroom"),
        "client",  # notebook: a cell is a job begun inside; moves: a checkpoint's identity, the version
    },
    "examples": set(),
}
"""Each room of the package and what it may import beside itself, from the top down: no arrow runs back up."""

PURE = {
    "carbontui.job.supervisor.core",
    "carbontui.job.terms",
    "carbontui.job.keeper.messages",
    "carbontui.job.worker.messages",
    "carbontui.account",
    "carbontui.client.prediction",
    "carbontui.client.detection.unseen",
    "carbontui.grid.types",
    "carbontui.plan",
    "carbontui.power.curves.calibration",
    "carbontui.power.agent.view",
    "carbontui.power.curves.curve",
    "carbontui.power.messages",
    "carbontui.power.backends.simulated",
    "carbontui.system.openmetrics",
    "carbontui.protocol",
    "carbontui.headroom",
    "carbontui.units",
    "carbontui.system.untrusted",
}
"""What the supervisor's core may import, for its values and pure functions."""
IMPURE = {
    "asyncio", "fcntl", "http", "io", "logging", "multiprocessing", "os", "pathlib", "random", "select", "selectors",
    "shutil", "signal", "socket", "sqlite3", "subprocess", "tempfile", "threading", "time",
}  # fmt: skip
"""The standard library's clocks, processes, files, sockets and dice."""

JOB = "carbontui.job"
TERMS, FILES, LIFE = (f"{JOB}.{name}" for name in ("terms", "files", "life"))
MESSAGES = ("keeper.messages", "worker.messages")
CORE, RECORD, SHELL = (f"{JOB}.supervisor.{name}" for name in ("core", "record", "shell"))
CORE_STATE, PLANNING, RULES, VIEW = (f"{CORE}.{name}" for name in ("state", "planning", "rules", "view"))
INSIDE_CORE = {
    CORE_STATE: set(),
    PLANNING: {CORE_STATE},
    RULES: {CORE_STATE, PLANNING},
    f"{CORE}.effects": {CORE_STATE, PLANNING, RULES},
    f"{CORE}.commands": {CORE_STATE, PLANNING, RULES, f"{CORE}.effects"},
    f"{CORE}.advance": {CORE_STATE, PLANNING, RULES, f"{CORE}.effects", f"{CORE}.commands"},
    VIEW: {CORE_STATE, PLANNING, RULES},
}
"""The rooms of the supervisor's core and what each may import of the others: values, what they are planned with, the
rules, and above them what is done and what is shown. Nothing decides on what is shown."""
INSIDE_JOB = {
    f"{JOB}.supervisor.loop": {CORE, RECORD, SHELL, f"{JOB}.keeper.messages", f"{JOB}.worker.handle", TERMS, FILES},
    f"{JOB}.supervisor.__main__": {f"{JOB}.supervisor.loop", TERMS},
    SHELL: {
        *(CORE, RECORD, TERMS, FILES, LIFE),
        *(f"{JOB}.keeper.{name}" for name in ("messages", "orders")),
        *(f"{JOB}.worker.{name}" for name in ("handle", "messages", "model")),
    },
    RECORD: {CORE, TERMS, FILES},
    CORE: {TERMS, *(f"{JOB}.{name}" for name in MESSAGES)},
    f"{JOB}.worker": set(),
    f"{JOB}.keeper": {f"{FILES}.places", f"{TERMS}.records"},
    LIFE: {TERMS, FILES, f"{JOB}.keeper"},
    FILES: {TERMS},
    TERMS: set(),
    JOB: set(),
}
"""Each part of a job and what it may import of the others; the first that fits a module is meant."""

POWER, CLIENT, TUI = "carbontui.power", "carbontui.client", "carbontui.tui"
INSIDE = {
    f"{TUI}.model": set(),
    f"{TUI}.terminal": {f"{TUI}.model"},
    f"{TUI}.widgets": {f"{TUI}.{name}" for name in ("model", "terminal")},
    f"{TUI}.screens": {f"{TUI}.{name}" for name in ("model", "terminal", "widgets")},
    TUI: {TUI},
    f"{POWER}.messages": set(),
    f"{POWER}.curves": set(),
    f"{POWER}.backends": {f"{POWER}.messages"},
    f"{POWER}.limit": {f"{POWER}.{name}" for name in ("messages", "backends")},
    f"{POWER}.metering": {f"{POWER}.{name}" for name in ("messages", "backends")},
    f"{POWER}.capd": {f"{POWER}.{name}" for name in ("messages", "backends", "limit")},
    f"{POWER}.agent": {f"{POWER}.{name}" for name in ("messages", "backends", "limit", "metering", "capd")},
    **{f"{CLIENT}.{name}": set() for name in ("version", "marker", "device", "around", "inject")},
    **{f"{CLIENT}.{name}": set() for name in ("prediction", "readonly")},
    f"{CLIENT}.detection": {f"{CLIENT}.{name}" for name in ("inject", "marker", "readonly")},
    f"{CLIENT}.pausing": {f"{CLIENT}.{name}" for name in ("detection", "device", "marker")},
    f"{CLIENT}.process": {f"{CLIENT}.{name}" for name in ("detection", "pausing", "device", "marker", "version")},
    f"{CLIENT}.api": {f"{CLIENT}.{name}" for name in ("process", "version")},
    f"{CLIENT}.inside": {f"{CLIENT}.{name}" for name in ("api", "device", "marker", "process", "sitecustomize")},
    f"{CLIENT}.checkpoint": {f"{CLIENT}.{name}" for name in ("api", "device", "marker")},
    f"{CLIENT}.frameworks": {f"{CLIENT}.{name}" for name in ("api", "checkpoint", "detection", "marker", "readonly")},
    f"{CLIENT}.train": {f"{CLIENT}.{name}" for name in ("api", "checkpoint", "device", "prediction")},
    f"{CLIENT}.hooks": {
        f"{CLIENT}.{name}" for name in ("around", "detection", "device", "frameworks", "marker", "process", "readonly")
    },
    f"{CLIENT}.sitecustomize": {f"{CLIENT}.hooks", f"{CLIENT}.detection"},
    POWER: set(),
    CLIENT: set(),
}
"""Each part of these two rooms and what it may import of the others; the first that fits a module is meant."""

HEAVY = {
    "tui": {"torch", "numpy", "httpx", "pynvml"},
    "job": {"textual", "torch", "numpy", "pynvml"},
    "reports": {"textual", "torch", "numpy", "pynvml", "httpx"},
    "nodes": {"textual", "torch", "numpy", "pynvml", "httpx"},
    "slurm": {"textual", "torch", "pynvml", "httpx"},
    "account": {"textual", "torch", "numpy", "pynvml", "httpx"},
    # numpy is the training's own, and only its random state is saved; that the import is lazy is seen below
    "client": {"textual", "httpx", "msgspec", "click", "platformdirs", "pynvml"},
}


def module_name(path):
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILE_OF = {module_name(path): path for path in sorted(ROOT.rglob("*.py"))}


def names_in(path):
    """Every name an import statement of a file binds, in full: `a.b` of `import a.b` and of `from a import b`."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: a relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def module_of(name):
    """The module of the package that a name lies in; None outside the package."""
    while name and name not in FILE_OF:
        name = name.rpartition(".")[0]
    return name or None


@cache
def names():
    """What every module of the package imports. Read where a test asks: each worker of the suite loads this file."""
    return {module: set(names_in(path)) for module, path in FILE_OF.items()}


@cache
def imports():
    return {module: {module_of(name) for name in found} - {module, None} for module, found in names().items()}


def within(module, packages):
    return any(module == package or module.startswith(f"{package}.") for package in packages)


def room_of(module):
    return module.split(".")[1] if "." in module else ""


def circles(graph):
    """The groups of nodes that reach each other (Tarjan's strongly connected components of more than one)."""
    index, low, stack, found = {}, {}, [], []

    def visit(node):
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in graph[node]:
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            group = {stack.pop()}
            while node not in group:
                group.add(stack.pop())
            if len(group) > 1:
                found.append(sorted(group))

    for node in sorted(graph):
        if node not in index:
            visit(node)
    return found


def test_no_import_circle_exists_in_the_package():
    assert circles(imports()) == []


def test_a_script_is_read_in_the_worker_and_not_in_its_training():
    assert [module for module, bound in names().items() if within(module, {CLIENT}) and "ast" in bound] == []


def test_no_import_circle_exists_between_the_rooms():
    rooms = {room: set() for room in ROOMS}
    for module, others in imports().items():
        if module != "carbontui":
            rooms[room_of(module)] |= {room_of(other) for other in others} - {room_of(module), ""}
    assert circles(rooms) == []


def test_a_room_imports_only_what_lies_below_it():
    broken = []
    for module, bound in names().items():
        room = room_of(module)
        if not room:
            continue
        assert room in ROOMS, f"carbontui.{room} has no place yet: say in ROOMS what it may import"
        allowed = ROOMS[room] | {room} | (set() if room == "client" else ANYONE)
        for name in bound:
            other = module_of(name)
            if other == "carbontui":
                wrong = name != "carbontui.__version__" or room == "client"
            elif other is None:
                wrong = name.split(".")[0] in HEAVY.get(room, ())
            else:
                wrong = room_of(other) not in allowed and (other != FIGURES or room == "client")
            if wrong:
                broken.append(f"{module} imports {name}")
    assert broken == []


def test_inside_a_job_nothing_imports_what_is_above_it():
    broken = []
    for module, others in imports().items():
        if not within(module, [JOB]):
            continue
        part = next(part for part in INSIDE_JOB if within(module, [part]))
        allowed = {part, *INSIDE_JOB[part]}
        for other in others:
            if within(other, [JOB]) and not within(other, allowed):
                broken.append(f"{module} imports {other}")
    assert broken == []


@pytest.mark.parametrize("room", [POWER, CLIENT, TUI])
def test_inside_power_client_and_tui_a_file_s_folder_says_what_it_may_touch(room):
    broken = []
    for module, others in imports().items():
        if not within(module, [room]):
            continue
        part = next(part for part in INSIDE if within(module, [part]))
        for other in others:
            if within(other, [room]) and not within(other, {part, *INSIDE[part]}):
                broken.append(f"{module} imports {other}")
    assert broken == []


def test_only_backends_load_the_driver_and_only_the_room_of_limits_writes_to_it():
    loading = {module for module, bound in names().items() if "pynvml" in bound}
    writing = set()
    for module in (m for m in FILE_OF if within(m, ["carbontui"])):
        for node in ast.walk(ast.parse(FILE_OF[module].read_text())):
            if isinstance(node, ast.Attribute) and node.attr in ("set_limit_mw", "lock_clocks"):
                writing.add(module)
    assert loading == {f"{POWER}.backends.nvml", f"{POWER}.capd.install"}, "capd's installer asks where it lies"
    assert {m for m in writing if not within(m, [f"{POWER}.limit"])} == {
        f"{POWER}.capd.client",
        f"{POWER}.backends.several",
    }, "which pass it on"


def test_inside_the_core_nothing_imports_what_is_above_it():
    broken = []
    for module in (m for m in FILE_OF if within(m, [CORE]) and m != CORE):
        room = next(room for room in INSIDE_CORE if within(module, [room]))
        others = {other for other in imports()[module] if within(other, [CORE])}
        broken += [f"{module} imports {other}" for other in others if not within(other, {room, *INSIDE_CORE[room]})]
    assert broken == []


@pytest.mark.parametrize("module", sorted(m for m in FILE_OF if within(m, [CORE])))
def test_the_core_of_the_supervisor_knows_no_clock_no_files_and_no_sockets(module):
    impure = {name for name in names()[module] if name.split(".")[0] in IMPURE}
    impure |= {other for other in imports()[module] if not within(other, PURE)}
    calls = [node.func for node in ast.walk(ast.parse(FILE_OF[module].read_text())) if isinstance(node, ast.Call)]
    impure |= {call.id for call in calls if isinstance(call, ast.Name) and call.id in {"open", "print", "input"}}
    assert impure == set()


def test_the_state_of_a_job_is_replaced_by_an_event_and_by_a_restore_alone():
    writers = []
    for module in (m for m in FILE_OF if within(m, [f"{JOB}.supervisor"])):
        for function in ast.walk(ast.parse(FILE_OF[module].read_text())):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                named = [
                    node for node in ast.walk(function) if isinstance(node, ast.Attribute) and node.attr == "state"
                ]
                writers += [(module, function.name) for node in named if isinstance(node.ctx, ast.Store)]
    door = f"{JOB}.supervisor.shell.door"
    assert writers == [(door, "__init__"), (door, "restore"), (door, "dispatch")]


@pytest.mark.parametrize("module", sorted(m for m in FILE_OF if within(m, [f"{JOB}.keeper"])))
def test_the_keeper_imports_the_standard_library_alone(module):
    system = (f"carbontui.system.{name}" for name in ("isolation", "life", "local_socket", "proc"))
    client = (f"carbontui.client.{name}" for name in ("inject", "marker"))
    known = {f"{JOB}.keeper", f"{FILES}.places", f"{TERMS}.records", *client, *system}
    foreign = {name for name in names()[module] if not module_of(name)}
    foreign = {name for name in foreign if name.split(".")[0] not in sys.stdlib_module_names}
    assert foreign | {other for other in imports()[module] if not within(other, known)} == set()


IN_SCRIPTS = [ROOT / name for name in ("__init__.py", "callbacks.py", "job/__init__.py", "train.py")]


@pytest.mark.parametrize("path", [*IN_SCRIPTS, *sorted((ROOT / "client").rglob("*.py"))], ids=lambda p: p.name)
def test_what_a_training_script_loads_parses_on_python_3_9(path):
    ast.parse(path.read_text(), feature_version=(3, 9))


@pytest.mark.parametrize(
    ("module", "never"),
    [
        ("carbontui.tui.app", ["torch", "numpy", "httpx", "pynvml"]),
        ("carbontui.job.keeper.process", ["torch", "msgspec", "asyncio", "click", "dataclasses", "inspect"]),
        ("carbontui.power.agent.__main__", ["textual", "torch", "numpy", "httpx"]),
        ("carbontui.job.supervisor.loop", ["textual", "rich", "torch", "numpy", "httpx", "click", "pynvml"]),
        ("carbontui.cli", ["textual", "torch", "numpy", "pynvml", "httpx"]),
        ("carbontui.commands.attach", ["textual", "httpx", "sqlite3", "hashlib", "carbontui.power", "carbontui.grid"]),
        ("carbontui", ["textual", "torch", "numpy", "pynvml", "httpx", "msgspec", "asyncio", "json.tool"]),
    ],
)
def test_a_process_never_loads_what_it_does_not_need(module, never):
    code = f"import sys; import {module}; print([m for m in {never!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"


TWINS = {"Checkpoint"}
"""One notion in two libraries: of torch, and of JAX."""


def test_a_class_has_its_name_alone():
    """One name, one meaning: whoever reads it in one room guesses right in another."""
    owners = {}
    for module, path in FILE_OF.items():
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef):
                owners.setdefault(node.name, []).append(module)
    assert {name: places for name, places in owners.items() if len(places) > 1 and name not in TWINS} == {}


def test_a_file_is_of_one_idea():
    """Read whole at one sitting: halves of an idea would be worse than 450 lines; the wire is found in one place."""
    lengths = {module: len(path.read_text().splitlines()) for module, path in FILE_OF.items()}
    assert {module for module, lines in lengths.items() if lines > 450} == {"carbontui.protocol"}
    assert lengths["carbontui.tui.app"] < 150


def test_what_extensions_offer_is_read_without_a_command_line():
    code = "import sys\nfrom carbontui import hooks\nhooks.own()\nprint('click' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "False", "every supervisor reads it"
