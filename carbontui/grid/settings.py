"""Settings of a feed: keys, currency, provider URLs."""

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from carbontui import paths

KEY_NAMES = ("ELECTRICITYMAPS_TOKEN", "WATTTIME_USERNAME", "WATTTIME_PASSWORD", "ENTSOE_TOKEN", "EIA_API_KEY")
ALSO_CALLED = {"WATTTIME_USERNAME": "WATTTIME_USER"}
"""The name under which a provider's own client reads the same key."""
_NONE: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class GridSettings:
    """Fixed for the life of a feed; keys are never printed (`repr` leaves them out)."""

    offline: bool = False
    """Use no network: recorded and typical days only."""
    marginal: bool = False
    """Use the marginal signal; there is no fallback between it and an average one."""
    currency: str | None = None
    """ISO code of the currency that prices must be in; None: no prices are fetched."""
    price_zone: str | None = None
    """The zone whose prices are used, where that is not the zone of the intensity."""
    price_per_kwh: float | None = None
    """A flat price, used where no provider gives one."""
    intensity_g_per_kwh: float | None = None
    """The user's own value for all hours: no intensity source is queried then."""
    keys: Mapping[str, str] = field(default_factory=lambda: _NONE, repr=False)
    """Provider keys by name, e.g. ELECTRICITYMAPS_TOKEN."""
    base_urls: Mapping[str, str] = field(default_factory=lambda: _NONE)
    """Provider name -> another base URL: a mirror or a test server."""
    remark: str = ""
    """One line on what in the environment or the key file could not be used; shown beside the sources' notes."""


class KeyFileError(ValueError):
    """The file with keys cannot be used; the text says how to repair it."""


def keys_file() -> Path:
    """Where provider keys may be kept: beside config.toml."""
    return paths.config_file().parent / "keys.env"


def read_keys(path: Path, environment: Mapping[str, str] = os.environ) -> Mapping[str, str]:
    """Keys from a file of NAME=value lines (0600), overlaid by the environment. Raises KeyFileError."""
    keys: dict[str, str] = {}
    try:
        mode = path.stat().st_mode
        text = path.read_text("utf-8")
    except FileNotFoundError:
        text = ""
    except (OSError, UnicodeDecodeError) as error:
        raise KeyFileError(f"{path}: cannot be read ({type(error).__name__})") from None
    else:
        if stat.S_IMODE(mode) & 0o077:
            raise KeyFileError(f"{path} can be read by others; run: chmod 600 {path}")
    for number, line in enumerate(text.splitlines(), start=1):
        name, separator, value = line.strip().partition("=")
        if not name or name.startswith("#"):
            continue
        own = next((key for key, other in ALSO_CALLED.items() if name.strip() == other), name.strip())
        if not separator or own not in KEY_NAMES:
            raise KeyFileError(f"{path}, line {number}: expected NAME=value with one of {', '.join(KEY_NAMES)}")
        keys[own] = value.strip().strip("\"'")
    # a newline pasted along with a key would break every request
    given = {name: (environment.get(name) or environment.get(ALSO_CALLED.get(name, ""), "")) for name in KEY_NAMES}
    keys.update({name: value.strip() for name, value in given.items() if value.strip()})
    return MappingProxyType(keys)
