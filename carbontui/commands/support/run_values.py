"""Option values of `run` and `estimate`, parsed and checked before anything starts. Each raises Failure (2)."""

from __future__ import annotations

import itertools
import os
import shlex
from pathlib import Path
from typing import Any

from carbontui import config, link, units
from carbontui.commands.support.command import Failure, refused
from carbontui.grid import recorded, zones
from carbontui.grid.settings import GridSettings, KeyFileError
from carbontui.job.files import store
from carbontui.job.life import surroundings
from carbontui.job.terms import allowance
from carbontui.job.terms.allowance import AllowanceKind
from carbontui.plan import weights
from carbontui.power.backends.declared import DeclaredBoards
from carbontui.reports import tables

NAME_MAX = 80
SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh", "fish"})


def duration(text: str, option: str) -> float:
    with refused(f"{option}: "):
        return units.parse_duration(text)


def power(text: str, option: str) -> float:
    """'1200W', '1.2kW' or '1200' as watts."""
    with refused(f"{option}: "):
        return units.parse_power(text)


def job_name(argv: tuple[str, ...]) -> str:
    """The script's file name, else the command's."""
    script = next((part for part in argv[1:] if part.endswith(".py")), argv[0])
    return "".join(c if c.isprintable() else "?" for c in Path(script).name)[:NAME_MAX]


def free_name(name: str) -> str:
    """The name; while a job of that name runs, the first free one of 'name-2', 'name-3' ..."""
    taken = {job.name for job in store.jobs() if job.live and not job.foreign}
    return next(found for n in itertools.count(1) if (found := name if n == 1 else f"{name}-{n}") not in taken)


def checked_name(name: str) -> str:
    """The name, unchanged. Raises Failure unless it is printable and short."""
    if name.startswith("-"):
        raise Failure(f"--name: {name!r} is an option, not a name; give the name first, like --name mine {name}", 2)
    if len(name) > NAME_MAX or not name.isprintable():
        raise Failure(f"--name: at most {NAME_MAX} printable characters", 2)
    return name


def settings_for(**given: Any) -> config.Loaded:
    with refused("", config.ConfigError):
        return config.load(given)


def settings_of(loaded: config.Settings, *, own: bool = False) -> GridSettings:
    """The settings of a feed; with the user's `own` intensity, where one is set. Raises Failure for keys and URLs that
    cannot be used."""
    from carbontui.grid import opening

    with refused(), refused("", KeyFileError, code=4):
        return opening.configured(loaded, own=own)


def place(loaded: config.Loaded, grid_file: str | None) -> tuple[str | None, str]:
    """(zone key, why it is not known) of the grid a job is planned with and counted by; a recorded grid needs no zone,
    and accepts any name for one. Raises Failure."""
    settings = loaded.settings
    if grid_file is not None:
        if loaded.origin["intensity"] == "command line":
            raise Failure("--grid and --intensity exclude each other: give one", 2)
        with refused("--grid: "):
            recorded.load(Path(grid_file))
            recorded.load_price(Path(grid_file))
        return settings.zone or None, ""
    with refused():
        zone, why = zones.find(settings.zone)
    # with an intensity of the user's, an unknown zone matters only for prices
    return (zone.key if zone else None), "" if settings.intensity is not None else why


def common(
    loaded: config.Loaded, command: tuple[str, ...], grid_file: str | None, *, resubmit: bool = False
) -> dict[str, Any]:
    """The fields of a job's options that `run` and `estimate` fill alike. Raises Failure."""
    settings = loaded.settings
    prices = (settings.carbon_price, settings.gpu_price, settings.price_per_kwh)
    if any(price is not None for price in prices) and not settings.currency:
        raise Failure("a price needs its currency: add --currency EUR (or set currency in the settings)", 2)
    if settings.objective == "cost" and not settings.currency:
        raise Failure("--objective cost needs --currency, like EUR", 2)
    if settings.embodied is not None and settings.objective == "cost" and settings.carbon_price is None:
        raise Failure("--embodied weighs grams, which --objective cost does not: add --carbon-price", 2)
    if settings.weight is not None:
        with refused("--weight: "):
            weights.parse(settings.weight)
        if settings.objective != "carbon" or settings.carbon_price is not None:
            raise Failure("--weight is an objective of its own: leave out --objective and --carbon-price", 2)
        if not settings.currency:
            raise Failure("--weight needs --currency, like EUR", 2)
    key, why = place(loaded, grid_file)
    with refused():
        counted = surroundings.terms(settings, os.environ, resubmit=resubmit)
    try:
        here = str(Path.cwd())
    except OSError:
        raise Failure("the current folder no longer exists; cd somewhere else", 2) from None
    return {
        **config.terms(settings),
        **counted,
        "argv": command,
        "cwd": here,
        "by": link.whoami(),
        "zone": key,
        "zone_why": why,
        "grid": str(Path(grid_file).absolute()) if grid_file else None,
        "intensity_g_per_kwh": settings.intensity,
        "declared": declared_boards(settings),
    }


def declared_boards(settings: config.Settings) -> DeclaredBoards | None:
    """The user's declaration of boards whose power cannot be read: a TDP, or the name of a known board. Raises
    Failure."""
    name, watts = settings.gpu, settings.board_w
    if name is not None and watts is None:
        spec = tables.board(name)
        if spec is None:
            known = "see carbontui compare --list"
            raise Failure(f"--gpu: no published TDP for {name!r} ({known}); give its watts with --board-w", 2)
        name, watts = spec.short, spec.tdp_w
    if watts is None:
        if settings.utilisation is not None:
            raise Failure("--utilisation is a share of a TDP: add --board-w 250, or the board's name with --gpu", 2)
        return None
    return DeclaredBoards(
        tdp_w=watts, utilisation=settings.utilisation, name=name or "GPU as given", count=settings.boards
    )


def allowances(given: dict[str, Any], settings: config.Settings) -> dict[str, Any]:
    """The fields of a job's options for its carbon, cost and energy budgets. Raises Failure."""
    fields: dict[AllowanceKind, str] = {
        "carbon": "carbon_budget_g",
        "cost": "cost_budget",
        "energy": "energy_budget_kwh",
    }
    found: dict[str, Any] = {}
    for kind, field in fields.items():
        if (text := given.get(f"{kind}_budget")) is None:
            continue
        with refused(f"--{kind}-budget: "):
            found[field] = allowance.parse(text, kind, settings.currency).most
        if kind == "cost" and not settings.currency:
            raise Failure("--cost-budget needs --currency, like EUR", 2)
    with refused("--on-budget: "):
        order = allowance.parse_order(settings.on_budget)
    if settings.objective == "time" and not found:
        raise Failure("--objective time needs a budget to use: --carbon-budget, --cost-budget or --energy-budget", 2)
    return {**found, "on_budget": order}


def hour_limit(not_above: str | None, max_wait: str | None) -> dict[str, Any]:
    """The fields of a job's options for a limit of intensity. Raises Failure."""
    if not_above is None:
        if max_wait is not None:
            raise Failure("--max-wait belongs to --not-above 300g; the longest pause is --max-pause", 2)
        return {}
    with refused("--not-above: "):
        most_g = units.parse_intensity(not_above)
    return {"not_above_g": most_g, "max_wait_s": duration(max_wait, "--max-wait") if max_wait else 6 * 3600.0}


def split_resume_args(text: str | None, command: tuple[str, ...]) -> tuple[str, ...]:
    """The arguments, split as a shell would. Raises Failure where they could not reach the training."""
    if text is None:
        return ()
    with refused(f"--resume-args: {text!r} cannot be split: "):
        added = tuple(shlex.split(text))
    for word, after in itertools.pairwise(command):
        if Path(word).name in SHELLS and after.startswith("-") and not after.startswith("--") and "c" in after:
            why = f"what is added to `{Path(word).name} {after}` does not reach the command inside it"
            raise Failure(f"--resume-args: {why}; run the training without a shell, or test CARBONTUI_RESUME there", 2)
    return added


def check_log(path: str) -> None:
    with refused(f"--log: {path}: ", OSError), Path(path).open("ab"):
        pass


def metrics_place(where: str | None) -> str | None:
    """Where metrics are written, as an absolute path. Raises Failure where there is no such folder."""
    if where is None:
        return None
    place = Path(where).expanduser().absolute()
    folder = place.parent if where.endswith(".sock") else place
    if not folder.is_dir():
        raise Failure(
            f"--metrics: {folder} is not a folder (give node-exporter's, or a path ending in .sock in an existing one)",
            2,
        )
    return str(place)
