"""Boards as metric families: as the station sees them, and as capd holds them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from carbontui.power.messages import Readings
from carbontui.system.openmetrics import Family


class Held(NamedTuple):
    """One board of capd: limits in watts, and the uid whose limit is set."""

    uuid: str
    limit_w: float | None
    found_w: float | None
    holder: int | None


def station(readings: Readings, joules: Mapping[str, float]) -> tuple[Family, ...]:
    """All boards of a machine and its host; `joules` counts from the station's start."""
    boards = [({"gpu": reading.uuid, "index": str(reading.index)}, reading) for reading in readings.devices]
    host = readings.host
    return (
        Family(
            "carbontui_station_board_power_watts",
            "gauge",
            "watts",
            "What each board draws now.",
            tuple((labels, reading.power_w) for labels, reading in boards),
        ),
        Family(
            "carbontui_station_board_energy_joules",
            "counter",
            "joules",
            "What each board has drawn since the station was opened.",
            tuple((labels, joules.get(reading.uuid)) for labels, reading in boards),
        ),
        Family(
            "carbontui_station_board_limit_watts",
            "gauge",
            "watts",
            "The power limit in force.",
            tuple((labels, reading.limit_w) for labels, reading in boards),
        ),
        Family(
            "carbontui_station_host_power_watts",
            "gauge",
            "watts",
            "What CPU packages and memory draw now.",
            (({"part": "cpu", "how": host.how}, host.cpu_w), ({"part": "dram", "how": host.how}, host.dram_w)),
        ),
    )


def capd(boards: Iterable[Held], changes: int, refused: int, callers: int) -> tuple[Family, ...]:
    """The boards capd holds, and how often it has changed a limit or refused to since its start."""
    held = list(boards)
    return (
        Family(
            "carbontui_capd_limit_watts",
            "gauge",
            "watts",
            "The power limit in force.",
            tuple(({"gpu": board.uuid}, board.limit_w) for board in held),
        ),
        Family(
            "carbontui_capd_found_watts",
            "gauge",
            "watts",
            "The power limit that is restored.",
            tuple(({"gpu": board.uuid}, board.found_w) for board in held),
        ),
        Family(
            "carbontui_capd_held",
            "gauge",
            "",
            "1 where a limit is set for a user.",
            tuple(({"gpu": board.uuid, "uid": str(board.holder)}, 1.0) for board in held if board.holder is not None),
        ),
        Family("carbontui_capd_changes", "counter", "", "Limits and clock locks set.", (({}, float(changes)),)),
        Family("carbontui_capd_refusals", "counter", "", "Requests refused.", (({}, float(refused)),)),
        Family("carbontui_capd_callers", "gauge", "", "Connections open.", (({}, float(callers)),)),
    )
