"""A script's settings, wherever it reads them: remembered, weakly, when a parser of options makes them.

argparse (and with it HfArgumentParser), tyro, click (and with it typer), OmegaConf and Hydra. Each is asked for counts
only when a total is looked for, since scripts derive further ones later.
"""

from __future__ import annotations

import itertools
import weakref
from typing import Any, Callable, Dict, Iterator, List, Tuple

from carbontui.client.readonly import after, attributes, is_number, is_of, module_of, named

DEPTH_MAX = 4
LEAVES_MAX = 2000
KEPT_MAX = 64
Path = Tuple[str, ...]
kept: List[Callable[[], Any]] = []
resolvers: List[str] = []
"""Those of OmegaConf's values. With one of a script's own, whose code may draw, nothing is resolved."""
_HYDRAS = {"hydra", "now", "python_version"}


def keep(made: Any, *_: Any, **given: Any) -> None:
    """Remember what a parser returned for what was `given`; of a dict or tuple, which cannot be referred to weakly, its
    numbers."""
    for kind in (tuple, list):
        if issubclass(type(made), kind):
            for one in kind.__iter__(made):
                keep(one)
            return
    ref: Callable[[], Any]
    if issubclass(type(made), dict):
        numbers = {key: value for key, value in dict.items(made) if type(key) is str and is_number(value)}
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
        if type(name) is not str:
            continue
        if is_number(value):
            yield (*path, name), value
        elif depth < DEPTH_MAX and parts(value):
            yield from _leaves(value, (*path, name), depth + 1)


def parts(made: Any) -> Dict[Any, Any]:
    """What is in a setting, by name."""
    if is_of(type(made), "omegaconf.dictconfig", "omegaconf.listconfig"):
        from omegaconf import OmegaConf

        try:
            whole = OmegaConf.to_container(made, resolve=_HYDRAS.issuperset(resolvers))
        except Exception:  # a value that is missing, or an interpolation that does not hold
            whole = OmegaConf.to_container(made, resolve=False)
        return whole if isinstance(whole, dict) else {}
    if issubclass(type(made), dict):
        return named(made)
    return {} if module_of(type(made)) in ("builtins", "torch", "numpy") else attributes(made)


def on_argparse(module: Any) -> None:
    """argparse has been imported; parse_args() calls parse_known_args()."""
    after(module.ArgumentParser, "parse_known_args", lambda made, *args, **kwargs: keep(made[0]))


def on_hf_parser(module: Any) -> None:
    """transformers.hf_argparser has been imported: its dataclasses are made of a Namespace, which is gone then."""
    for name in ("parse_args_into_dataclasses", "parse_dict"):
        after(module.HfArgumentParser, name, keep)


def on_tyro(module: Any) -> None:
    after(module, "cli", keep)


def on_click(module: Any) -> None:
    """click.core has been imported: the parameters of a command are known when its arguments are read."""
    after(module.Command, "parse_args", lambda _, self, context, *args, **kwargs: keep(context.params))


def on_omegaconf(module: Any) -> None:
    for name in ("create", "merge", "load", "structured"):
        after(module.OmegaConf, name, keep)
    after(module.OmegaConf, "register_new_resolver", lambda _, name, *args, **kwargs: resolvers.append(name))


def on_hydra(module: Any) -> None:
    """Hydra's loader of configurations has been imported."""
    after(module.ConfigLoaderImpl, "load_configuration", keep)
