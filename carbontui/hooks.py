"""The hooks: all that the core knows of an extension, and how extensions are found.

An extension is a folder `carbontui/extensions/NAME` whose `extension.py` makes an `EXTENSION`; a third party's is an
entry point of the group `carbontui.extensions` that names one. It imports the core; nothing of the core imports it, so
a deleted one leaves no trace. What a hook names is "module:name", imported at its first use. CARBONTUI_EXTENSIONS
(names with commas, or none) switches them; all are on by default.
"""

import importlib
import os
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

FOLDER = Path(__file__).parent / "extensions"
GROUP = "carbontui.extensions"
SWITCH = "CARBONTUI_EXTENSIONS"
F = TypeVar("F", bound=Callable[..., Any])


class ExtensionCommand(NamedTuple):
    """A click command and its line in the help; '' for one that only our own processes call."""

    name: str
    help: str
    target: str


class Extension(NamedTuple):
    """What an extension gives to each hook."""

    name: str
    commands: tuple[ExtensionCommand, ...] = ()
    exchange: str = ""
    """Who divides a power budget that jobs share: a callable that opens a `carbontui.headroom.Exchange`."""
    prices: str = ""
    """In the worker, what the slots of a shared budget cost a plan: (Problem, SharedWatts, deadline_s or None) ->
    an object with `shadow_per_h` (by slot and level) and `price` (g/kWh by slot)."""
    elsewhere: str = ""
    """What the screen of a live job offers of the user's machines: (store.Job, [host]) -> fields of its Target."""
    explain: str = ""
    """What `explain` says below our own account: (RunStory, **options); ours alone."""
    explain_options: str = ""
    """Its options: a decorator of a click command."""
    start: str = ""
    """Whether `run` starts its command elsewhere: (command, name, options, fields of the job's Options) -> where it is
    then, '' for here; ours alone."""
    start_options: str = ""
    """Its options: a decorator of a click command."""
    notebook: str = ""
    """What `%load_ext carbontui` calls with the shell of IPython; ours alone."""
    policies: str = ""
    """What is weighed beside ours: (Grid, Knowledge) -> {name: Policy}, as in `extensions/evaluation/policies.py`."""


@cache
def own() -> dict[str, Extension]:
    """Those of this package, by name: each folder that has an extension.py."""
    folders = sorted(path.parent.name for path in FOLDER.glob("*/extension.py"))
    return {name: importlib.import_module(f"{GROUP}.{name}.extension").EXTENSION for name in folders}


@cache
def foreign() -> tuple[dict[str, Extension], dict[str, str]]:
    """Those of others, by name, and why each of the rest could not be loaded. Reads the metadata of every package:
    for an unknown command, `doctor` and once per supervisor."""
    from importlib.metadata import entry_points  # 20 ms that no start has to pay

    found: dict[str, Extension] = {}
    broken: dict[str, str] = {}
    for point in entry_points(group=GROUP):
        try:
            extension = point.load()
            if not isinstance(extension, Extension):
                raise TypeError(f"{point.value} is no carbontui.hooks.Extension")
            found[extension.name] = extension
        except Exception as error:  # another's code may raise anything
            broken[point.name] = f"{type(error).__name__}: {error}"
    return found, broken


def is_on(extension: Extension) -> bool:
    """Whether CARBONTUI_EXTENSIONS lets it take part."""
    chosen = os.environ.get(SWITCH)
    return chosen is None or extension.name in (name.strip() for name in chosen.split(","))


def every() -> Iterator[Extension]:
    """Our own, then those of others, which are read only where ours were not enough."""
    yield from own().values()
    yield from foreign()[0].values()


def commands(extensions: Iterable[Extension]) -> Iterator[tuple[Extension, ExtensionCommand]]:
    """Every command with its extension, also of those switched off."""
    return ((one, command) for one in extensions for command in one.commands)


def offered(hook: str, *, own_only: bool = False) -> Iterator[tuple[str, Any]]:
    """What every extension that is on gives to a hook, with its name; those of others are read last."""
    for extension in own().values() if own_only else every():
        if is_on(extension) and (target := getattr(extension, hook)):
            yield extension.name, load(target)


def decorated(hook: str) -> Callable[[F], F]:
    """A decorator that applies those of our extensions to a command."""

    def decorate(command: F) -> F:
        for _, more in offered(hook, own_only=True):
            command = more(command)
        return command

    return decorate


def load(target: str) -> Any:
    """What "module:name" names. Raises ImportError or AttributeError."""
    module, _, name = target.partition(":")
    return getattr(importlib.import_module(module), name)
