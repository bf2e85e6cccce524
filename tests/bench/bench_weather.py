"""What wind, sun and temperature of a weather forecast add to our own forecast and to the blend, July to December 2021.

By hand: `python tests/bench/bench_weather.py DATA [--starts N]` (a folder with `ZONE_weather-forecast_2020-2021.csv.gz`
beside the recorded series). The plain ridge of the product (its features and shrinkage, a penalty per span) is fitted
twice on January 2020 to June 2021, without and with the weather of the hour that is forecast: departures of wind, its
square, sunshine, temperature and dew point from the same hour of the seven days before. Both go through the product's
own blend with the published forecast, and through rolling plans. Weather of days 2 to 4 is that of later issues:
what it adds there is an upper bound.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from carbontui.grid import ridge
from carbontui.grid.forecast import Forecaster

ZONES = ("DE", "US-CAL-CISO", "US-MIDA-PJM")
DAYS = (1, 2, 3)
PENALTIES = (12.0, 40.0, 120.0, 400.0, 1200.0, 4000.0)
OF_WEATHER = 0.3
"""Shrinkage of the weather beside that of a lag."""


@dataclass
class Weather:
    """Columns by hour from `first_h` (epoch hours) on; (hours, kinds), standardised."""

    first_h: int
    columns: np.ndarray

    def departures(self, hours: np.ndarray, ahead: int) -> np.ndarray:
        """(origins, kinds): the hour `ahead` less the mean of the same hour of the seven days before the origin."""
        at = hours.astype(int) - self.first_h
        usual = np.mean([self.columns[at + ahead % 24 - 24 * day] for day in range(1, 8)], axis=0)
        return self.columns[np.minimum(at + ahead, len(self.columns) - 1)] - usual


class PlainRidge:
    """Stands in for the product's model: the same rows, with or without weather."""

    def __init__(self, own: ridge.Ridge, weather: Weather | None, coefficients: list[np.ndarray]) -> None:
        self.own = own
        kept = own.centre.size
        self.lags = np.stack([of[:kept] for of in coefficients], axis=1)
        self.first_h, self.added = 0, np.zeros((1, ridge.HORIZON_H))
        if weather is not None:
            self.first_h = weather.first_h
            hours = np.arange(ridge.WARM_H, len(weather.columns)) + self.first_h
            added = [weather.departures(hours, h) @ of[kept:] for h, of in enumerate(coefficients)]
            self.added = np.vstack([np.zeros((ridge.WARM_H, ridge.HORIZON_H)), np.stack(added, axis=1)])

    def __getattr__(self, name: str):
        return getattr(self.own, name)

    def rows(self, values: np.ndarray, clean: np.ndarray, first_h: float, origins: np.ndarray) -> np.ndarray:
        values, clean = logs(values, self.own.shift), logs(clean, self.own.shift)
        rows, base = ridge.features(values, clean, first_h, origins)
        at = (first_h + origins).astype(int) - self.first_h if self.first_h else 0 * origins
        departure = ((rows - self.own.centre) / self.own.scale) @ self.lags + self.added[at]
        out = np.tile(base, (1, ridge.HORIZON_H // 24)) + np.clip(departure, -self.own.reach, self.own.reach)
        return np.maximum(np.exp(out) - self.own.shift, self.own.floor)


def logs(values: np.ndarray, shift: float) -> np.ndarray:
    return np.log(np.maximum(values + shift, 0.05 * shift))


def fitted(hourly: np.ndarray, first_h: float, weather: Weather | None) -> PlainRidge:
    """The last fifth of the origins chooses the penalty of each span; then all of them are fitted."""
    own = ridge.Ridge.fit(hourly, first_h)
    raw = ridge.fill(hourly)
    values, clean = logs(raw, own.shift), logs(ridge.despike(raw), own.shift)
    origins = np.arange(ridge.WARM_H, len(hourly) - ridge.HORIZON_H + 1)
    rows, base = ridge.features(values, clean, first_h, origins)
    rows = (rows - own.centre) / own.scale
    part = len(origins) * 4 // 5

    def solve(h: int, upto: int, penalties: tuple[float, ...]) -> tuple[list[np.ndarray], np.ndarray, np.ndarray]:
        more = [] if weather is None else [weather.departures(first_h + origins, h) / np.sqrt(OF_WEATHER)]
        x, y = np.hstack([rows, *more]), values[origins + h] - base[:, h % 24]
        gram, moment = x[:upto].T @ x[:upto], x[:upto].T @ y[:upto]
        return [np.linalg.solve(gram + p * np.eye(len(gram)), moment) for p in penalties], x, y

    found = []
    for begin, end in pairwise(ridge.SPANS):
        missed = np.zeros(len(PENALTIES))
        for h in range(begin, end, max(1, (end - begin) // 4)):
            guesses, x, y = solve(h, part, PENALTIES)
            late = slice(part + ridge.HORIZON_H, None)
            missed += [np.abs(y[late] - x[late] @ guess).mean() for guess in guesses]
        best = PENALTIES[int(missed.argmin())]
        found += [solve(h, len(origins), (best,))[0][0] for h in range(begin, end)]
    if weather is not None:
        for coefficients in found:
            coefficients[rows.shape[1] :] /= np.sqrt(OF_WEATHER)
    return PlainRidge(own, weather, found)


def load_weather(folder: Path, zone: str, bench) -> Weather:
    lines = bench.lines(f"{zone}_weather-forecast_2020-2021.csv.gz")
    first_h = round(bench.moment(lines[0][0]) / 3600)
    stamps = np.array([round(bench.moment(line[0]) / 3600) for line in lines]) - first_h
    kinds = np.full((stamps[-1] + 1, 4), np.nan)
    kinds[stamps] = [[float(cell or "nan") for cell in line[1:5]] for line in lines]
    for column in kinds.T:
        column[:] = ridge.fill(column)
    wind, warm, dew, sun = kinds.T
    columns = np.stack([wind, wind**2, sun, warm, dew], axis=1)
    return Weather(first_h, (columns - columns.mean(axis=0)) / columns.std(axis=0))


def errors(forecaster: Forecaster, times, values, issues, blended: bool) -> list[float]:
    """MAPE of days 1 to 3, in %."""
    first, each = times.index(START), []
    for k in range(first + 24, len(times) - 97, 17):
        now = times[k]
        known = [i for i in issues if now - 28 * 86400.0 < i["issued_at_s"] <= now] if blended else ()
        made = forecaster.predict(now, times[k - 672 : k], values[k - 672 : k], 72, known)
        missed = np.abs(made.mean - values[k : k + 72]) / values[k : k + 72]
        each.append(missed.reshape(3, 24).mean(axis=1))
    return (100 * np.mean(each, axis=0)).tolist()


def main() -> None:
    global START
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--starts", type=int, default=30, help="of the plans, per zone")
    options = parser.parse_args()
    os.environ["CARBONTUI_DATA"] = str(options.data)
    if not (options.data / "DE_weather-forecast_2020-2021.csv.gz").exists():
        sys.exit(f"no weather in {options.data}")
    import bench_forecast as bench  # reads the folder when it is loaded
    import bench_forecast_capture as plans

    START = bench.START
    print(f"# Weather in the forecast\n\n{time.strftime('%Y-%m-%d')}, {platform.machine()}, 2 shared vCPU, Linux, "
          f"Python {platform.python_version()}, numpy {np.__version__}; bench_weather.py\n")  # fmt: skip
    print("| zone | forecast | own, day 1, 2, 3 % | blended, day 1, 2, 3 % | plans save % |\n|---|---|---|---|---|")
    rows = []
    for zone in ZONES:
        times, values, issues = bench.load(zone, "direct")
        first = times.index(START)
        weather = load_weather(options.data, zone, bench)
        begun = next(k for k, at in enumerate(times) if at / 3600 >= weather.first_h)
        for name, used in (("plain ridge", None), ("with weather", weather)):
            model = fitted(np.asarray(values[begun:first]), times[begun] / 3600, used)
            of: list[list[float]] = []
            for blended in (False, True):
                forecaster = Forecaster.fit(times[:first], values[:first])
                forecaster.model = model
                of.append(errors(forecaster, times, values, issues, blended))
            forecaster = Forecaster.fit(times[:first], values[:first])
            forecaster.model = model
            saved = plans.zone_result(zone, "direct", options.starts, forecaster)["saving_percent"]
            rows.append([*of[0], *of[1], saved["forecast"]])
            cells = [", ".join(f"{value:.2f}" for value in part) for part in of]
            print(f"| {zone} | {name} | {cells[0]} | {cells[1]} | {saved['forecast']:.2f} of {saved['perfect']:.2f} |",
                  flush=True)  # fmt: skip
    without, with_it = np.array(rows[::2]).mean(axis=0), np.array(rows[1::2]).mean(axis=0)
    less = 100 * (1 - with_it / without)
    print("| all | less error | " + " | ".join(", ".join(f"{value:.1f}" for value in part) for part in
          (less[:3], less[3:6])) + f" | {with_it[6] - without[6]:+.2f} points |")  # fmt: skip


if __name__ == "__main__":
    main()
