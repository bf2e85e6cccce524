"""Option values of `run` and `estimate`, parsed and checked before anything starts. Each raises Failure (2)."""

import os
from pathlib import Path
from typing import Any

from carbontui import config, link, units
from carbontui.account import compare
from carbontui.commands.support.command import Failure, refused
from carbontui.grid import recorded, zones
from carbontui.grid.settings import GridSettings, KeyFileError
from carbontui.job.life import launch
from carbontui.plan import problem
from carbontui.power.backends.declared import DeclaredBoards


def power(text: str, option: str) -> float:
    """'1200W', '1.2kW' or '1200' as watts."""
    with refused(f"{option}: "):
        return units.parse_power(text)


def settings_for(**given: Any) -> config.Loaded:
    with refused("", config.ConfigError):
        return config.load(given)


def settings_of(loaded: config.Settings, *, own: bool = False) -> GridSettings:
    """The settings of a feed; with the user's `own` intensity, where one is set. Raises Failure for keys and URLs that
    cannot be used."""
    from carbontui.grid import opening

    with refused(), refused("", KeyFileError, code=4):
        return opening.configured(loaded, own=own)


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
            problem.parse_weight(settings.weight)
        if settings.objective != "carbon" or settings.carbon_price is not None:
            raise Failure("--weight is an objective of its own: leave out --objective and --carbon-price", 2)
        if not settings.currency:
            raise Failure("--weight needs --currency, like EUR", 2)
    own = here(loaded, grid_file, resubmit=resubmit)
    try:
        cwd = str(Path.cwd())
    except OSError:
        raise Failure("the current folder no longer exists; cd somewhere else", 2) from None
    return {
        **config.terms(settings),
        **own,
        "argv": command,
        "cwd": cwd,
        "by": link.whoami(),
        "grid": str(Path(grid_file).absolute()) if grid_file else None,
    }


def here(loaded: config.Loaded, grid_file: str | None, *, resubmit: bool = False) -> dict[str, Any]:
    """The fields of a job's options that are this machine's: the zone it is planned with and counted by, or why it is
    not known; its GPUs; what its account counts. A recorded grid needs no zone, and accepts any name for one. Raises
    Failure."""
    settings, key, why = loaded.settings, loaded.settings.zone or None, ""
    if grid_file is None:
        with refused():
            zone, why = zones.find(settings.zone)
        key = zone.key if zone else None
        why = "" if settings.intensity is not None else why  # an unknown zone matters only for prices then
    elif loaded.origin["intensity"] == "command line":
        raise Failure("--grid and --intensity exclude each other: give one", 2)
    else:
        with refused("--grid: "):
            recorded.load(grid_file)
            recorded.load_price(grid_file)
    with refused():
        counted = launch.terms(settings, os.environ, resubmit=resubmit)
    return {
        **counted,
        "zone": key,
        "zone_why": why,
        "intensity_g_per_kwh": settings.intensity,
        "declared": declared_boards(settings),
    }


def declared_boards(settings: config.Settings) -> DeclaredBoards | None:
    """The user's declaration of GPUs whose power cannot be read: a TDP, or the name of a known GPU. Raises
    Failure."""
    name, watts = settings.gpu, settings.board_w
    if name is not None and watts is None:
        spec = compare.board(name)
        if spec is None:
            known = "see carbontui compare --list"
            raise Failure(f"--gpu: no published TDP for {name!r} ({known}); give its watts with --board-w", 2)
        name, watts = spec.short, spec.tdp_w
    if watts is None:
        if settings.utilisation is not None:
            raise Failure("--utilisation is a share of a TDP: add --board-w 250, or the GPU's name with --gpu", 2)
        return None
    return DeclaredBoards(
        tdp_w=watts, utilisation=settings.utilisation, name=name or "GPU as given", count=settings.boards
    )
