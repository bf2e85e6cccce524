"""What a place of the code looks like to who reads its source: the worker, which is no part of the training.

The frames' places, the digests of their files, the numbers of settings, and of the modules' names those values that are
known without running code of theirs. Never a variable of a running function.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import itertools
import json
import linecache
import math
import os
import re
import sys
import time
import zlib
from collections import deque
from types import ModuleType
from typing import Any, Deque, Dict, FrozenSet, Iterable, Iterator, List, Optional, Tuple

from carbontui.client import readonly
from carbontui.client.detection import settings
from carbontui.client.detection.places import Chain, Place, column_of, watch
from carbontui.client.detection.settings import Path
from carbontui.client.readonly import attributes, is_number, is_of, length_of, module_of, of_class, one_of

SIZE_MAX = 300_000
"""Longer files are not read: parsing takes a second per megabyte."""
LIBRARIES = (
    *("torch", "accelerate", "transformers", "lightning", "pytorch_lightning", "keras", "xgboost", "lightgbm"),
    *("catboost", "hydra", "hydra_plugins", "optuna", "omegaconf", "click", "typer", "ultralytics"),
    "stable_baselines3",
)
"""No loop of a training is in these."""
STARTED = time.time()
COMMAND = "<string>"
"""The file name of what `python -c` runs."""
BYTES_MAX = 50_000
"""A message to the supervisor has at most 64 KiB."""
DEPTH_MAX = 6
VALUES_MAX = 2000
ITEMS_MAX = 1000
DICT_MAX = 10_000
TEXT_MAX = 200
_SECRET = re.compile("key|token|secret|passw|credential|auth", re.IGNORECASE)
"""Texts of such names stay in the training: nothing counts by them."""
_AT_WORK = ("step", "update")
"""Methods of objects that turn their own switches, as those for early stopping do; a dict of options is none."""
_LISTS = (list, tuple, set, frozenset)
_NO_WORDS = ("iterable", "n_splits")
"""Attributes of progress bars and splitters that no script needs to name."""
known_files: Dict[str, Optional[Tuple[str, FrozenSet[str]]]] = {}
"""Digest and words of each file's text, by path."""


def sighting(chain: Chain, fits: bool, lacks: Iterable[str] = ()) -> Optional[Dict[str, Any]]:
    """Of this place, with the texts of the files that are `lacking`; None where no code of a script is."""
    places, spaces, words = [], {}, frozenset(_NO_WORDS)
    for place in chain:
        module, path = place.module, place.code.co_filename
        known = None if module.partition(".")[0] in LIBRARIES else _file(path, place, module)
        name = place.code.co_name
        if known is not None and (name == "<module>" or not name.startswith("<")):
            column = column_of(place.code, place.instruction)
            places.append((path, name, place.code.co_firstlineno, place.line, column, module))
            spaces[module], words = place.space, words | known[1]
        if name == "<module>" and module == "__main__":  # what is around it only starts it: a debugger, a notebook
            break
    if not places:
        return None
    files = {path: known_files[path][0] for path, *_ in places}  # type: ignore[index]
    texts = {path: _packed(path, chain) for path in files if path in lacks or not os.path.exists(path)}
    numbers = [(path, value) for path, value in settings.leaves() if path[-1] in words and math.isfinite(value)]
    made = []
    for at, loader, then in list(watch.made):
        size = then if (now := length_of(loader())) is None else now
        if size is not None and any(at.space is one for one in spaces.values()):
            made.append((at.module, at.line, column_of(at.code, at.instruction), size))
    fields = {"chain": places, "fits": fits, "files": files, "resumed": watch.resumed}
    more = {"texts": texts, "settings": numbers, "made": made}
    if len(json.dumps(more)) < BYTES_MAX:  # a longer line would end the connection
        fields.update(more)
    most, left = VALUES_MAX, BYTES_MAX - len(json.dumps(fields))
    while len(json.dumps(found := values(spaces, words, most))) > left and most:
        most //= 3
    return {**fields, "values": found}


def _file(path: str, place: Place, module: str) -> Optional[Tuple[str, FrozenSet[str]]]:
    """None for a file that cannot be read, or was changed since this process began."""
    if path not in known_files:
        known_files[path] = None
        pipe = os.path.exists(path) and not os.path.isfile(path)  # to open it could wait for ever
        if not (pipe or path.startswith("<")) or (path, module) == (COMMAND, "__main__"):
            text = _text(path, place.space)
            if 0 < len(text) < SIZE_MAX and not (os.path.exists(path) and os.stat(path).st_mtime > STARTED + 1):
                digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
                known_files[path] = digest, frozenset(re.findall(r"[^\W\d]\w*", text))
    return known_files[path]


def _text(path: str, space: Dict[str, Any]) -> str:
    if path != COMMAND:
        loader = dict.get(space, "__loader__")  # of an archive; one of a script's own is not called
        return "".join(linecache.getlines(path, space if module_of(type(loader)) == "zipimport" else None))
    words, behind = getattr(sys, "orig_argv", []), len(sys.argv)
    return words[-behind] if sys.argv[:1] == ["-c"] and words[-behind - 1 : -behind][0].endswith("c") else ""


def _packed(path: str, chain: Chain) -> str:
    space = next(one.space for one in chain if one.code.co_filename == path)
    return base64.b64encode(zlib.compress(_text(path, space).encode("utf-8", "surrogatepass"))).decode()


def values(spaces: Dict[str, Dict[str, Any]], words: FrozenSet[str], most: int) -> List[Tuple[Path, Any]]:
    """Of these modules' names that are among `words`, and of what is inside them: the path of each, the outer ones
    first, and its value, or facts of an object. `most` at most."""
    found: List[Tuple[Path, Any]] = []
    every = ((module, name, value) for module, space in spaces.items() for name, value in list(dict.items(space)))
    waiting: Deque[Tuple[Path, Any]] = deque(((module, name), value) for module, name, value in every if name in words)
    while waiting and len(found) < most:
        path, value = waiting.popleft()
        with contextlib.suppress(Exception):  # a script's objects may raise anything
            if _speaks(value) and _SECRET.search(" ".join(map(str, path[1:]))):
                continue
            said, parts = _described(value, words)
            found.append((path, said))
            waiting.extend(((*path, name), part) for name, part in parts.items() if len(path) < DEPTH_MAX)
    return found


def _speaks(value: Any) -> bool:
    """Whether it is a text, or has some in it."""
    kind = type(value)
    return one_of(kind, str, bytes) or (one_of(kind, *_LISTS) and any(map(_speaks, itertools.islice(value, ITEMS_MAX))))


def _is_plain(value: Any) -> bool:
    kind = type(value)
    if kind is str:
        return len(value) <= TEXT_MAX
    return value is None or kind is bool or (is_number(value) and abs(value) < 2**53)


def _described(value: Any, words: FrozenSet[str]) -> Tuple[Any, Dict[Any, Any]]:
    """A plain value, or facts of an object; and its parts by name."""
    if is_of(type(value), "numpy") and getattr(value, "shape", None) == ():
        value = value.item()
    kind = type(value)
    if _is_plain(value):
        return value, {}
    if is_number(value):
        return {"number": str(float(value))}, {}
    if kind is range:
        return {"range": (value.start, value.stop, value.step)}, {}
    acts = callable(value) or any(of_class(kind, one) is not None for one in _AT_WORK)
    listed = one_of(kind, *_LISTS)
    if listed and len(value) <= ITEMS_MAX and all(map(_is_plain, value)):
        return list(value), {}
    table = issubclass(kind, dict) or module_of(kind).startswith("omegaconf")
    parts = dict(enumerate(itertools.islice(value, ITEMS_MAX))) if listed else dict(_attributes(value, words))
    if table and (not issubclass(kind, dict) or dict.__len__(value) <= DICT_MAX):
        inside = settings.parts(value).items()
        parts.update((key, one) for key, one in inside if (key in words if type(key) is str else is_number(key)))
    asked = of_class(kind, "__bool__") is not None or of_class(kind, "__len__") is not None
    kinds = {
        "table": table,
        "module": issubclass(kind, ModuleType),
        "callable": callable(value),
        "works": acts and not table and not issubclass(kind, type),
    }
    size = dict.__len__(value) if issubclass(kind, dict) else length_of(value)
    truth = bool(size) if is_of(kind, "builtins") and size is not None else None if asked else True
    names = [one for one in kinds if kinds[one]]
    return {"name": readonly.name_of(kind), "length": size, "truth": truth, "kinds": names}, parts


def _attributes(value: Any, words: FrozenSet[str]) -> Iterator[Tuple[str, Any]]:
    """The attributes of an object that have a name among `words`, as they are stored."""
    kind = type(value)
    library, own = module_of(kind).partition(".")[0], attributes(value)
    if is_of(kind, "absl.flags._flagvalues", "ml_collections.config_dict.config_dict"):
        for name in words.intersection(own.get("__flags", own.get("_fields", ()))):
            yield name, getattr(value, name)
    elif is_of(kind, "torch", "numpy", "torch.nn.parameter"):
        yield "shape", tuple(value.shape)
    elif library not in ("builtins", "omegaconf") or (kind is ModuleType and not _known(value)) or kind is type:
        above = value if issubclass(kind, type) else kind
        theirs = (name for one in readonly.above(above) for name in readonly.names(one) if type(name) is str)
        for name in words.intersection({*own, *theirs}):
            one = own[name] if name in own else of_class(above, name)
            if of_class(type(one), "__get__") is None or issubclass(type(one), type):
                yield name, one


def _known(module: Any) -> bool:
    """Whether it is of Python, or of a library that settles nothing."""
    name = readonly.text(attributes(module).get("__name__")).partition(".")[0]
    return name in (*LIBRARIES, "numpy", "carbontui") or name in getattr(sys, "stdlib_module_names", ())
