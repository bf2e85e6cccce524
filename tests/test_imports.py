"""Who may import whom: read from the sources, and seen in sys.modules of each front end."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import carbontui

ROOT = Path(carbontui.__file__).parent
ANYONE = {"config", "paths", "proc", "units"}
ALLOWED = {
    "tui": {"protocol", "link"},
    "job": {"grid", "power", "plan", "account", "protocol", "client"},
    "plan": set(),
    "grid": set(),
    "power": set(),
    "account": set(),
    "client": set(),
}
HEAVY = {
    "tui": {"torch", "numpy", "httpx", "pynvml"},
    "job": {"textual", "torch", "numpy", "pynvml"},
    "account": {"textual", "torch", "numpy", "pynvml", "httpx"},
    # numpy is the training's own, and only its random state is saved; that the import is lazy is seen below
    "client": {"textual", "httpx", "msgspec", "click", "platformdirs", "pynvml"},
}


def imports_of(path):
    """Every module named by an import statement of a file, lazy ones included."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            if node.module == "carbontui":
                yield from (f"carbontui.{alias.name}" for alias in node.names)
            else:
                yield node.module


@pytest.mark.parametrize("package", sorted(ALLOWED))
def test_a_package_imports_only_what_the_design_allows(package):
    broken = []
    for path in (ROOT / package).rglob("*.py"):
        for name in imports_of(path):
            parts = name.split(".")
            if parts[0] == "carbontui" and len(parts) > 1:
                other = parts[1]
                extra = ANYONE if package != "client" else {"__version__"}
                if other not in ALLOWED[package] | extra | {package, "__version__"}:
                    broken.append(f"{path.relative_to(ROOT)} imports {name}")
            elif parts[0] in HEAVY.get(package, set()):
                broken.append(f"{path.relative_to(ROOT)} imports {name}")
    assert broken == []


@pytest.mark.parametrize("path", [ROOT / "__init__.py", *sorted((ROOT / "client").glob("*.py"))], ids=lambda p: p.name)
def test_what_a_training_script_loads_parses_on_python_3_9(path):
    ast.parse(path.read_text(), feature_version=(3, 9))


@pytest.mark.parametrize(
    ("module", "never"),
    [
        ("carbontui.tui.app", ["torch", "numpy", "httpx", "pynvml"]),
        ("carbontui.job.supervisor", ["textual", "torch", "numpy", "pynvml"]),
        ("carbontui.job.keeper", ["textual", "torch", "numpy", "pynvml", "httpx", "msgspec", "asyncio", "click"]),
        ("carbontui.power.agent", ["textual", "torch", "numpy", "httpx"]),
        ("carbontui.cli", ["textual", "torch", "numpy", "pynvml", "httpx"]),
        ("carbontui", ["textual", "torch", "numpy", "pynvml", "httpx", "msgspec", "asyncio", "json.tool"]),
    ],
)
def test_a_process_never_loads_what_it_does_not_need(module, never):
    code = f"import sys; import {module}; print([m for m in {never!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"
