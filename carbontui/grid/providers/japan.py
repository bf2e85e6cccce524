"""Japan's ten grid operators: no key; generation by fuel every 30 min, a monthly table each, in one format."""

import csv
import io
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import ClassVar

from carbontui.grid.http import BadAnswer
from carbontui.grid.providers.frame import MixProvider, Power, amount
from carbontui.grid.types import DAY_S

OF_THE_DAY = frozenset({"JP-TH"})
"""Operators whose monthly table is weeks late, but whose daily one is prompt."""
STAMPED_AT_END = frozenset({"JP-KY"})
WIDE = str.maketrans("（）ＬＮＧ", "()LNG")


class Japan(MixProvider):
    """`eria_jukyu`: two header lines, the second names the fuels; stamps begin their half hour, on Kyushu they end it.
    Curtailed solar and wind, pumps, batteries and ties to other areas have their own columns.
    """

    name: ClassVar[str] = "japan"
    title: ClassVar[str] = "Japan's area supply and demand"
    base: ClassVar[str] = ""
    window_s: ClassVar[float] = 1800.0
    # most tables are written once a day, some a day late (the operators' pages)
    lateness_s: ClassVar[float] = DAY_S
    late_s: ClassVar[float] = 1.5 * DAY_S
    reach_s: ClassVar[float] = 7 * DAY_S
    limits: ClassVar[str] = "up to a day late by operator, no forecast, imports not counted"
    time_zone = "Asia/Tokyo"
    step_s = 1800.0
    zones = {
        "JP-HKD": "https://www.hepco.co.jp/network/con_service/public_document/supply_demand_results/csv/01",
        "JP-TH": "https://setsuden.nw.tohoku-epco.co.jp/common/demand/realtime_jukyu/02",
        "JP-TK": "https://www.tepco.co.jp/forecast/html/images/03",
        "JP-CB": "https://powergrid.chuden.co.jp/denki_yoho_content_data/04",
        "JP-HR": "https://www.rikuden.co.jp/nw/denki-yoho/csv/05",
        "JP-KN": "https://www.kansai-td.co.jp/interchange/denkiyoho/area-performance/06",
        "JP-CG": "https://www.energia.co.jp/nw/jukyuu/sys/07",
        "JP-SK": "https://www.yonden.co.jp/nw/supply_demand/csv/08",
        "JP-KY": "https://www.kyuden.co.jp/td_area_jukyu/csv/09",
        "JP-ON": "https://www.okiden.co.jp/business-support/service/supply-and-demand/csv/10",
    }
    fuels = {
        "原子力": "nuclear", "火力(LNG)": "gas", "火力(石炭)": "coal", "火力(石油)": "oil", "火力(その他)": "other",
        "水力": "hydro", "地熱": "geothermal", "バイオマス": "biomass", "太陽光発電実績": "solar",
        "風力発電実績": "wind", "その他": "other",
        **dict.fromkeys((
            "エリア需要", "火力出力制御量", "バイオマス出力制御量", "太陽光出力制御量", "風力出力制御量", "揚水",
            "蓄電池", "連系線", "合計",
        )),
    }  # fmt: skip

    def path_of(self, zone: str) -> str:
        place, _, number = self.zones[zone].rpartition("/")
        name = f"realtime_jukyu_%Y%m%d_{number}.csv" if zone in OF_THE_DAY else f"eria_jukyu_%Y%m_{number}.csv"
        return f"{self.url or place}/{name}"

    def read(self, body: bytes, zone: str) -> Iterator[Power]:
        lines = _text(body).splitlines(keepends=True)
        # an unterminated line is incomplete
        rows = csv.DictReader(io.StringIO("".join(line for line in lines[1:] if line.endswith("\n")).translate(WIDE)))
        if "合計" not in (rows.fieldnames or ()):
            raise BadAnswer(f"{self.title} sent no table")
        clock = self.clock()
        for row in rows:
            day, (hour, minute) = row.pop("DATE").replace("/", "-"), row.pop("TIME").split(":")
            form = "%Y-%m-%d" if "-" in day else "%Y%m%d"
            at = datetime.strptime(day, form) + timedelta(hours=int(hour), minutes=int(minute))
            start_s = clock(at) - (self.step_s if zone in STAMPED_AT_END else 0.0)
            # future rows are present without values
            for word, value in row.items() if row["合計"] else ():
                # Shikoku leaves columns that do not apply empty
                yield Power(start_s, word, amount(value or "0"))


def _text(body: bytes) -> str:
    """The text as UTF-8 (Tokyo), else CP932 (eight operators). Raises UnicodeDecodeError (a ValueError)."""
    try:
        return body.decode("utf-8-sig")
    except UnicodeDecodeError:
        return body.decode("cp932")
