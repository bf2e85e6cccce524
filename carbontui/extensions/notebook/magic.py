"""`%%carbontui`: a cell runs as a job that begins and ends with it, a line beneath it meanwhile, and then its report.

It runs as it would alone: in the notebook's own names, its last value is its output, what it raises is its error. Where
no job can be begun it runs without one, which stderr says.
"""

import ast
import contextlib
import os
import shlex
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from html import escape
from typing import Any, cast

from IPython.core.error import UsageError
from IPython.core.magic import output_can_be_silenced
from IPython.display import DisplayHandle

from carbontui import line
from carbontui.client import api
from carbontui.client.inside import NAMES, ScriptJob
from carbontui.text import figures

EVERY_S = 1.0
"""Seconds from one look at the job to the next."""
REPORT_S = 60.0
"""The longest wait for the report."""
VIEW = "application/vnd.jupyter.widget-view+json"
PAGE = """<details><summary><code>{line}</code></summary>
<iframe srcdoc="{page}" sandbox style="width: 100%; height: 40em; border: 0"></iframe></details>"""


def load(shell: Any) -> None:
    """What `%load_ext carbontui` calls."""
    shell.register_magic_function(output_can_be_silenced(partial(run, shell)), "cell", "carbontui")


def run(shell: Any, options: str, cell: str) -> Any:
    """Run a cell as a job, with these options of `carbontui run`. Raises UsageError for wrong ones."""
    body, last = compiled(shell, cell)
    with contextlib.ExitStack() as after:
        try:
            job = ScriptJob(None, *shlex.split(options))
            if hasattr(shell, "kernel"):
                job.quiet = True
                after.enter_context(beneath(job))
            after.enter_context(job)
        except ValueError as wrong:
            raise UsageError(str(wrong)) from None
        exec(body, shell.user_ns)
        return last and eval(last, shell.user_ns)


def compiled(shell: Any, cell: str) -> tuple[Any, Any]:
    """The code of a cell and of its last expression, None where it has none. Raises SyntaxError."""
    text = shell.transform_cell(cell)
    tree, name = shell.transform_ast(shell.compile.ast_parse(text)), shell.compile.cache(text, raw_code=cell)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    body = shell.compile(tree, name, "exec")
    return body, last and shell.compile(ast.Expression(last.value), name, "eval")


class CellLine:
    """One line beneath a cell, and its report in place of it.

    A widget where ipywidgets is there: its text is the kernel's, so that a page which was reloaded while the cell ran
    has the last one; updates of a display that nobody hears are lost. Where no page draws it the job's name stands.
    """

    def __init__(self, job: str) -> None:
        said: dict[str, Any] = {"text/plain": f"job {job}; look with: carbontui attach {job}"}
        self._widget: Any = None
        with contextlib.suppress(ImportError):
            from ipywidgets import HTML

            self._widget = HTML()
            said[VIEW] = {"version_major": 2, "version_minor": 0, "model_id": self._widget.model_id}
        self._shown = cast("Any", DisplayHandle)()
        self._shown.display(said, raw=True)

    def tell(self, text: str) -> None:
        """Renew it."""
        if self._widget is None:
            self._shown.update({"text/plain": text}, raw=True)
        else:
            self._widget.value = f"<code>{escape(text)}</code>"

    def end(self, said: dict[str, str]) -> None:
        """The last text, by form, which the notebook keeps."""
        if self._widget is not None:
            self._widget.value = said.get("text/html") or f"<code>{escape(said['text/plain'])}</code>"
        self._shown.update(said, raw=True)


@contextlib.contextmanager
def beneath(job: ScriptJob) -> Iterator[None]:
    """A line beneath the cell while its job lives, and its report once that is over; nothing without a job."""
    shown: CellLine | None = None
    over = threading.Event()

    def follow() -> None:
        nonlocal shown
        while not over.wait(EVERY_S):
            with contextlib.suppress(OSError, ValueError, KeyError):
                if job.id:
                    shown = shown or CellLine(job.id)
                    shown.tell(of_now(job.id, line.asked(os.environ[NAMES[0]])))

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        if job.id:
            (shown or CellLine(job.id)).end(report(job.id))


def of_now(job: str, status: dict[str, Any]) -> str:
    """'job abc: ▶ 31% 246W ‖17:30 −9% · 12 g · at full speed: ...'."""
    co2, why = figures.grams(status["gco2_g"] or None), status["reason"]["text"]
    return f"job {job}: {line.words(status)} · {co2} · {why}"


def report(job: str) -> dict[str, str]:
    """What it took as a line, with its report as a page where that can be had."""
    used = api.metrics()
    energy, co2 = figures.kwh(used.get("energy_wall_kwh") or None), figures.grams(used.get("gco2_g") or None)
    said = {"text/plain": f"job {job}: {used.get('state', 'over')}, {energy}, {co2}"}
    asked = [sys.executable, "-m", "carbontui.cli", "report", job, "--html", "-"]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        page = subprocess.run(asked, stdin=subprocess.DEVNULL, capture_output=True, timeout=REPORT_S, check=True).stdout
        said["text/html"] = PAGE.format(line=escape(said["text/plain"]), page=escape(page.decode()))
    return said
