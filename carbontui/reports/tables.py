"""The published tables that ship with carbontui: boards, countries, throughput, cloud prices."""

from __future__ import annotations

import csv
from importlib import resources
from typing import TypeVar

import msgspec

from carbontui.account import compare
from carbontui.account.compare import BoardSpec, Rented, Throughput

T = TypeVar("T")


def _rows(name: str) -> list[dict[str, str]]:
    text = resources.files("carbontui.data").joinpath(name).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


def _table(name: str, kind: type[T], *columns: str) -> list[T]:
    """A tuple of this kind per row, its fields from these columns; an empty cell is None."""
    return [msgspec.convert([row[column] or None for column in columns], kind, strict=False) for row in _rows(name)]


def boards() -> list[BoardSpec]:
    """The published figures that ship with carbontui."""
    figures = ("memory_gb", "bandwidth_gbs", "fp32_tflops", "fp16_tflops", "tdp_w")
    return _table("gpus.csv", BoardSpec, "device_name", "short_name", *figures)


def countries() -> dict[str, tuple[float, str]]:
    """Lifecycle means of countries: one basis, so that they may be compared. Systems so small that the table lists
    0 g are left out: no power plant has lifecycle emissions of zero."""
    return {
        f"{row['code']} {row['name']}": (float(row["ci_gco2_per_kwh"]), f"mean of {row['ci_year']}, lifecycle (Ember)")
        for row in _rows("countries.csv")
        if row["kind"] == "country" and row["ci_basis"] == "lifecycle" and float(row["ci_gco2_per_kwh"] or 0) > 0
    }


def throughputs() -> list[Throughput]:
    return _table("throughput.csv", Throughput, "task", "source", "precision", "gpu", "rate")


def cloud_prices() -> list[Rented]:
    """Dated example prices of boards to rent, with the yearly mean of their region's grid where it is known."""
    columns = ("provider", "region", "gpu", "usd_per_gpu_hour", "date", "gco2_per_kwh")
    return [offer._replace(date=f"USD, {offer.date}") for offer in _table("cloud-prices.csv", Rented, *columns)]


def board(name: str) -> BoardSpec | None:
    """The board with this driver name or short name."""
    return compare.known(name, boards())
