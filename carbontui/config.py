"""Settings and their precedence: command line, then CARBONTUI_* in the environment, then config.toml, then defaults.

Each field is documented below it; `carbontui doctor` prints where each value came from.
"""

import math
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import msgspec

from carbontui import paths, units

PATIENCE_PCT = 2.0
NonNegative = Annotated[float, msgspec.Meta(ge=0, le=1e9)]


class ConfigError(ValueError):
    """A setting that cannot be used; the text names the file or variable, the value and the repair."""


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """What a job is planned for and counted by: settings that it keeps as they were at its start."""

    signal: Literal["average", "marginal"] = "average"
    """Carbon intensity of all generation (average), or of the next kWh (marginal); one never replaces the other."""
    price_zone: str | None = None
    """Zone of the prices, if it is not the grid zone, e.g. "DK-DK1" for "DK"."""
    objective: Literal["carbon", "cost", "time"] = "carbon"
    """What a plan minimises; time: within a carbon, cost or energy budget."""
    patience: NonNegative = 0.0
    """Percent: an hour of later finish must save at least so much of what an hour at full speed takes."""
    carbon_price: NonNegative | None = None
    """Currency per tonne of CO2; with objective cost it weighs CO2 against money."""
    weight: str | None = None
    """Weighs grams against money instead, like "carbon=0.7,cost=0.3": each as a share of its mean."""
    gpu_price: NonNegative | None = None
    """Currency per GPU hour held (rent); added to cost."""
    embodied: NonNegative | Literal["published"] | None = None
    """Grams per GPU hour held for making board and server, or as published: weighed by plans, never counted as CO2."""
    currency: str | None = None
    """ISO code of every price; never guessed."""
    price_per_kwh: float | None = None
    """A flat electricity price, used if no provider gives one."""


class Settings(Terms, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Every setting a user may write in config.toml or as CARBONTUI_<NAME>."""

    zone: str | None = None
    """Grid zone, e.g. "DE" or "US-CAL-CISO". Unknown: work is not shifted in time."""
    patience: NonNegative = PATIENCE_PCT
    """An hour of later finish must save at least this percent of what an hour at full speed takes, like "2%"."""
    budget: str = "1.0x"
    """Default budget of `run`."""
    on_budget: str = "warn,cap,ask"
    """Actions, in this order, when a carbon, cost or energy budget will be exceeded: any of warn, cap, ask, pause,
    stop."""
    boundary: Literal["held", "always-on", "given-back"] | None = None
    """Who pays for boards and host that idle (account/boundary.py); if omitted: guessed, and said."""
    idle_limit: str | None = None
    """The longest stillness on boards that are held, like "30m", or "none"; if omitted: 30 min under a scheduler."""
    host_w: Annotated[float, msgspec.Meta(ge=0, le=1e6)] | None = None
    """Watts of the machine besides GPU, CPU and memory; if omitted: measured, else by the kind of machine."""
    pue: Annotated[float, msgspec.Meta(ge=1, le=10)] | None = None
    """Power usage effectiveness of the building: multiplies every joule. If omitted: by the kind of machine."""
    intensity: Annotated[float, msgspec.Meta(gt=0, le=5000)] | None = None
    """Your own carbon intensity for all hours, gCO2/kWh; no source is queried then."""
    gpu: str | None = None
    """Name of the board, if no driver reports it; its published TDP is used if its power cannot be read."""
    boards: Annotated[int, msgspec.Meta(ge=1, le=1024)] = 1
    """Number of boards, if no driver shows any."""
    board_w: Annotated[float, msgspec.Meta(gt=0, le=10000)] | None = None
    """TDP of one board in watts, if its power cannot be read."""
    utilisation: Annotated[float, msgspec.Meta(gt=0, le=1)] | None = None
    """The share of that TDP it draws when busy; if omitted: as reported by the driver, else 1."""
    max_pause: str = "12h"
    """The longest single pause."""
    cap: bool = True
    """Whether power limits may be set if the machine permits it."""
    site_cap: str | None = None
    """One power budget for all jobs of a machine, like "1200W"; `carbontui site --cap` takes precedence."""
    hosts: str | None = None
    """Your other machines, like "n2,user@n3": the screen says when a job would emit less on one of them."""
    metrics: str | None = None
    """Where Prometheus metrics are published: the folder of node-exporter's textfile collector."""


class Loaded(NamedTuple):
    """Settings with the origin of each field: 'default', 'config.toml', 'environment' or 'command line'."""

    settings: Settings
    origin: dict[str, str]


def terms(settings: Settings) -> dict[str, Any]:
    """The fields of `Terms`, for a job's options."""
    return {name: getattr(settings, name) for name in Terms.__struct_fields__}


_WITH_UNIT: dict[str, Callable[[str], float | str]] = {
    "board_w": units.parse_watts,
    "embodied": units.parse_embodied,
    "host_w": units.parse_idle_power,
    "intensity": units.parse_intensity,
    "patience": units.parse_percent,
}
"""What may be written with its unit; so may each price, with a currency that then must be the job's."""
PRICES = ("carbon_price", "gpu_price", "price_per_kwh")
_ENV = {name: f"CARBONTUI_{name.upper()}" for name in Settings.__struct_fields__}


def _read_file(path: Path) -> dict[str, Any]:
    try:
        return dict(msgspec.toml.decode(path.read_bytes()))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror})") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not valid TOML ({error})") from error


def load(overrides: dict[str, Any] | None = None, path: Path | None = None) -> Loaded:
    """Read all sources. Raises ConfigError naming the source, the field and the value."""
    source = path or paths.config_file()
    merged: dict[str, Any] = {}
    origin = dict.fromkeys(Settings.__struct_fields__, "default")
    for field, value in _read_file(source).items():
        merged[field], origin[field] = value, "config.toml"
    for field, variable in _ENV.items():
        if os.environ.get(variable):
            merged[field], origin[field] = os.environ[variable], "environment"
    for field, value in (overrides or {}).items():
        if value is not None:
            merged[field], origin[field] = value, "command line"
    for field, value in merged.items():
        try:
            merged[field] = _WITH_UNIT[field](value) if field in _WITH_UNIT and isinstance(value, str) else value
        except ValueError as error:
            raise ConfigError(_explain(f"{error} - at `$.{field}`", origin, source)) from None
    _read_prices(merged, origin, source)
    try:
        settings = msgspec.convert(merged, Settings, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigError(_explain(str(error), origin, source)) from error
    for field in Settings.__struct_fields__:
        value = getattr(settings, field)
        if isinstance(value, float) and not math.isfinite(value):
            raise ConfigError(_explain(f"{value} is not a finite number - at `$.{field}`", origin, source))
    return Loaded(settings, origin)


def _read_prices(merged: dict[str, Any], origin: dict[str, str], source: Path) -> None:
    """Prices as numbers; the currency that one names is the job's. Raises ConfigError where two differ."""
    for field in ("currency", *PRICES):
        if not isinstance(text := merged.get(field), str):
            continue
        try:
            if field == "currency":
                merged[field] = text.strip().upper()
                if not re.fullmatch("[A-Z]{3}", merged[field]):
                    raise ValueError(f"{text[:40]!r} is not a currency; write its ISO code, like EUR")
                continue
            merged[field], named = units.parse_price(text)
            if named and merged.setdefault("currency", named) != named:
                raise ValueError(f"{text[:40]!r}: the job counts in {merged['currency']}")
        except ValueError as error:
            raise ConfigError(_explain(f"{error} - at `$.{field}`", origin, source)) from None


def keep(field: str, value: str) -> None:
    """Write a setting into config.toml, in front of what is there. Raises OSError."""
    path = paths.config_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    before = path.read_bytes() if path.exists() else b""
    paths.write_whole(path, f'{field} = "{value}"\n'.encode() + before)


def _choices(field: str) -> list[str]:
    """What a setting of fixed words may be."""
    (kind,) = (msgspec.inspect.type_info(one.type) for one in msgspec.structs.fields(Settings) if one.name == field)
    kinds = kind.types if isinstance(kind, msgspec.inspect.UnionType) else (kind,)
    return [str(word) for one in kinds if isinstance(one, msgspec.inspect.LiteralType) for word in one.values]


def _explain(message: str, origin: dict[str, str], source: Path) -> str:
    """One line that names where the bad value was set."""
    for field, where in origin.items():
        if f"$.{field}`" in message or f"`{field}`" in message:
            option = f"--{field.replace('_', '-')}"
            place = {"config.toml": f"{source}: {field}", "environment": _ENV.get(field, field)}.get(where, option)
            what = message.split(" - at ")[0].replace("Invalid enum value", f"none of {', '.join(_choices(field))}:")
            return f"{place}: {what}"
    return f"{source}: {message}"
