"""Where the machine draws its electricity: the one rule by which every verb finds its grid zone."""

from __future__ import annotations

from carbontui.grid import zones
from carbontui.verbs.failure import Failure

NAMED = 6
"""Candidates named where the time zone has several."""


def find_zone(wanted: str | None) -> tuple[zones.Zone | None, str]:
    """The zone asked for or configured, else the only one of the time zone; (None, why) when it is not known.

    Raises Failure (wrong use) for an unknown zone, naming the nearest ones.
    """
    if wanted:
        try:
            return zones.resolve(wanted), ""
        except ValueError as error:
            raise Failure(f"--zone: {error}", 2) from None
    candidates, confidence = zones.guess(zones.local_time_zone())
    if confidence == "high":
        return candidates[0], ""
    names = ", ".join(zone.key for zone in candidates[:NAMED])
    # the repair comes first: a screen may have no room for the names
    return None, "the grid zone is not known; set it with --zone or CARBONTUI_ZONE" + (
        f" (perhaps {names})" if names else ""
    )


def sure_zone(wanted: str | None) -> zones.Zone:
    """The zone. Raises Failure that names the candidates when it is not known."""
    found, why = find_zone(wanted)
    if found is None:
        raise Failure(why, 2)
    return found
