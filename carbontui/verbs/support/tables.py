"""The published tables that ship with carbontui: boards, countries, throughput, cloud prices."""

from __future__ import annotations

import csv
from importlib import resources

from carbontui.account import compare
from carbontui.account.compare import BoardSpec, Rented, Throughput


def _rows(name: str) -> list[dict[str, str]]:
    text = resources.files("carbontui.data").joinpath(name).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


def boards() -> list[BoardSpec]:
    """The published figures that ship with carbontui."""
    return [
        BoardSpec(
            row["device_name"],
            row["short_name"],
            float(row["memory_gb"]),
            float(row["bandwidth_gbs"]),
            float(row["fp32_tflops"]),
            float(row["fp16_tflops"]) if row["fp16_tflops"] else None,
            float(row["tdp_w"]),
        )
        for row in _rows("gpus.csv")
    ]


def countries() -> dict[str, tuple[float, str]]:
    """Lifecycle means of countries: one basis, so that they may be compared. Systems so small that the table lists
    0 g are left out: no power plant has lifecycle emissions of zero."""
    return {
        f"{row['code']} {row['name']}": (float(row["ci_gco2_per_kwh"]), f"mean of {row['ci_year']}, lifecycle (Ember)")
        for row in _rows("countries.csv")
        if row["kind"] == "country" and row["ci_basis"] == "lifecycle" and float(row["ci_gco2_per_kwh"] or 0) > 0
    }


def throughputs() -> list[Throughput]:
    return [
        Throughput(row["task"], row["source"], row["precision"], row["gpu"], float(row["rate"]))
        for row in _rows("throughput.csv")
    ]


def cloud_prices() -> list[Rented]:
    """Dated example prices of boards to rent, with the yearly mean of their region's grid where it is known."""
    return [
        Rented(
            row["provider"],
            row["region"],
            row["gpu"],
            float(row["usd_per_gpu_hour"]),
            f"USD, {row['date']}",
            float(row["gco2_per_kwh"]) if row["gco2_per_kwh"] else None,
        )
        for row in _rows("cloud-prices.csv")
    ]


def board(name: str) -> BoardSpec | None:
    """The board with this driver name or short name."""
    return compare.known(name, boards())
