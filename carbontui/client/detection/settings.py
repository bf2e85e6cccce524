"""A script's settings, wherever it reads them: remembered, weakly, when a parser of options makes them.

argparse (and with it HfArgumentParser), tyro, click (and with it typer), OmegaConf and Hydra. Each is asked for counts
only when a total is looked for, since scripts derive further ones later.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import weakref
from typing import Any, Callable, Dict, Iterator, List, Tuple

from carbontui.client.readonly import attributes, is_number

DEPTH_MAX = 4
LEAVES_MAX = 2000
KEPT_MAX = 64
Path = Tuple[str, ...]
kept: List[Callable[[], Any]] = []
resolvers: List[str] = []
"""Of the script's own: code that may draw, so that with one nothing of OmegaConf's is resolved."""
_HYDRAS = ("hydra", "now", "python_version")


def keep(made: Any) -> None:
    """Remember what a parser returned; of a dict or tuple, which cannot be referred to weakly, its numbers."""
    if issubclass(type(made), (tuple, list)):
        for one in made:
            keep(one)
        return
    ref: Callable[[], Any]
    if issubclass(type(made), dict):
        numbers = {key: value for key, value in dict.items(made) if is_number(value)}
        ref = lambda: numbers  # noqa: E731
    else:
        try:
            ref = weakref.ref(made)
        except TypeError:
            return
    kept[:] = [*(old for old in kept if old() is not None), ref][-KEPT_MAX:]


def leaves() -> List[Tuple[Path, Any]]:
    """All numbers in all settings, with where they are."""
    return list(itertools.islice((leaf for ref in list(kept) for leaf in _leaves(ref(), (), 0)), LEAVES_MAX))


def _leaves(made: Any, path: Path, depth: int) -> Iterator[Tuple[Path, Any]]:
    for name, value in parts(made).items():
        if not isinstance(name, str):
            continue
        if is_number(value):
            yield (*path, name), value
        elif depth < DEPTH_MAX and parts(value):
            yield from _leaves(value, (*path, name), depth + 1)


def parts(made: Any) -> Dict[Any, Any]:
    """What is in a setting, by name."""
    if type(made).__module__.startswith("omegaconf"):
        from omegaconf import OmegaConf

        try:
            whole = OmegaConf.to_container(made, resolve=not resolvers)
        except Exception:  # a value that is missing, or an interpolation that does not hold
            whole = OmegaConf.to_container(made, resolve=False)
        return whole if isinstance(whole, dict) else {}
    if issubclass(type(made), dict):
        return dict.copy(made)
    if type(made).__module__ in ("builtins", "torch", "numpy"):
        return {}
    return dict(attributes(made)) if type(made).__dictoffset__ else {}


def _after(owner: Any, name: str, take: Callable[..., Any]) -> None:
    """Have `take` called with what this function returns."""
    inner = owner.__dict__[name]
    plain = inner.__func__ if isinstance(inner, (staticmethod, classmethod)) else inner

    @functools.wraps(plain)
    def call(*args: Any, **kwargs: Any) -> Any:
        made = plain(*args, **kwargs)
        with contextlib.suppress(Exception):  # a script's objects may raise anything
            take(made)
        return made

    setattr(owner, name, staticmethod(call) if isinstance(inner, staticmethod) else call)


def on_argparse(module: Any) -> None:
    """argparse has been imported; parse_args() calls parse_known_args()."""
    _after(module.ArgumentParser, "parse_known_args", lambda made: keep(made[0]))


def on_hf_parser(module: Any) -> None:
    """transformers.hf_argparser has been imported: its dataclasses are made of a Namespace, which is gone then."""
    for name in ("parse_args_into_dataclasses", "parse_dict"):
        _after(module.HfArgumentParser, name, keep)


def on_tyro(module: Any) -> None:
    _after(module, "cli", keep)


def on_click(module: Any) -> None:
    """click.core has been imported: the parameters of a command are known when it is invoked."""
    inner = module.Context.invoke

    @functools.wraps(inner)
    def invoke(*args: Any, **kwargs: Any) -> Any:
        keep(kwargs)
        return inner(*args, **kwargs)

    module.Context.invoke = invoke


def on_omegaconf(module: Any) -> None:
    for name in ("create", "merge", "load", "structured"):
        _after(module.OmegaConf, name, keep)
    inner = module.OmegaConf.register_new_resolver

    @functools.wraps(inner)
    def register_new_resolver(name: str, *args: Any, **kwargs: Any) -> None:
        resolvers.extend({name}.difference(_HYDRAS))
        inner(name, *args, **kwargs)

    module.OmegaConf.register_new_resolver = staticmethod(register_new_resolver)


def on_hydra(module: Any) -> None:
    """Hydra's loader of configurations has been imported."""
    _after(module.ConfigLoaderImpl, "load_configuration", keep)
