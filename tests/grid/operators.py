"""Answers of grid operators in their real form, with invented numbers: a mix of two fuels that comes to a given level.

`shapes` gives a responder per provider. A level is reached by one burnt fuel beside one clean one, as the factors of
`mix.FACTORS` say; the level is halved (`SCALE`) where only gas is burnt, and in France, which is never that dirty.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from zoneinfo import ZoneInfo

TOTAL_MW = 10_000.0
SCALE = {"ieso": 0.5, "eco2mix": 0.5}
ZONE_OF = {
    "nyiso": "US-NY-NYIS", "ercot": "US-TEX-ERCO", "miso": "US-MIDW-MISO", "spp": "US-CENT-SWPP", "ieso": "CA-ON",
    "hydro-quebec": "CA-QC", "eco2mix": "FR", "ree": "ES", "eirgrid": "GB-NIR", "ons": "BR-CS", "transpower": "NZ",
    "taipower": "TW", "japan": "JP-TK",
}  # fmt: skip
NOW_ONLY = frozenset({"ons", "transpower", "taipower", "spp"})
"""Their answer holds no more than the last moments."""
MARKS = {
    "nyiso": "rtfuelmix", "ercot": "fuel-mix.json", "miso": "day", "spp": "gen-mix", "ieso": "PUB_Gen",
    "hydro-quebec": "production.json", "eco2mix": "exports", "ree": "WSvision", "eirgrid": "chart",
    "ons": "GetBalanco", "transpower": "consolidated", "taipower": "genary", "japan": "_jukyu_",
}  # fmt: skip
"""What a path of theirs holds, so that a test can tell them apart."""

Value = Callable[[float], "float | None"]


def shares(level: float | None, burnt_g: float, clean_g: float = 0.0) -> tuple[float | None, float | None]:
    """Megawatts of the burnt and of the clean fuel that come to `level`; None where nothing has come in."""
    if level is None:
        return None, None
    share = (level - clean_g) / (burnt_g - clean_g)
    return round(TOTAL_MW * share, 3), round(TOTAL_MW * (1 - share), 3)


def slots(start_s: float, end_s: float, step_s: float) -> list[float]:
    return [k * step_s for k in range(math.ceil(start_s / step_s), math.ceil(end_s / step_s))]


def day_of(text: str, zone: str) -> tuple[float, float]:
    """First and last second of a local day written YYYYMMDD or YYYY-MM-DD."""
    start = datetime.strptime(text.replace("-", ""), "%Y%m%d").replace(tzinfo=ZoneInfo(zone))
    return start.timestamp(), (start + timedelta(days=1)).timestamp()


def local(at_s: float, zone: str, form: str) -> str:
    return datetime.fromtimestamp(at_s, tz=ZoneInfo(zone)).strftime(form)


def shapes(now_s: float, value: Value) -> dict[str, Callable[[object], bytes | None]]:
    """Provider -> the body that answers a request; None: 404."""
    recent = slots(now_s - 3600, now_s, 300)

    def text(number: float | None, form: str = "{}") -> str:
        return "" if number is None else form.format(number)

    def nyiso(request) -> bytes | None:
        found = re.search(r"/(\d{8})rtfuelmix\.csv", request.path)
        if not found:
            return None
        first_s, last_s = day_of(found[1], "America/New_York")
        lines = ["Time Stamp,Time Zone,Fuel Category,Gen MW"]
        for start_s in slots(first_s, min(last_s, now_s), 300):
            oil, wind = shares(value(start_s), 733.0)
            when = local(start_s + 300, "America/New_York", "%m/%d/%Y %H:%M:00,%Z")
            lines += [f"{when},Other Fossil Fuels,{text(oil)}", f"{when},Wind,{text(wind)}", f"{when},Hydro,0"]
        return "\n".join([*lines, ""]).encode()

    def ercot(request) -> bytes:
        days: dict[str, dict[str, object]] = {}
        here = timezone(timedelta(hours=-6))
        for start_s in slots(now_s - 86400, now_s, 300):
            coal, wind = shares(value(start_s), 760.0)
            taken = datetime.fromtimestamp(start_s + 296, tz=here)
            mix = {"Coal and Lignite": coal, "Wind": wind, "Power Storage": -120.5, "Nuclear": 0}
            days.setdefault(f"{taken:%Y-%m-%d}", {})[f"{taken:%Y-%m-%d %H:%M:%S}-0600"] = {
                word: {"gen": megawatts} for word, megawatts in mix.items()
            }
        return json.dumps({"lastUpdated": "x", "monthlyCapacity": {}, "types": [], "data": days}).encode()

    def miso(request) -> bytes | None:
        first_s, last_s = day_of(local(now_s, "Etc/GMT+5", "%Y%m%d"), "Etc/GMT+5")
        rows = []
        for start_s in slots(first_s, min(last_s, now_s), 300):
            coal, wind = shares(value(start_s), 760.0)
            when = local(start_s, "Etc/GMT+5", "%Y-%m-%d %I:%M:%S %p")
            rows += [
                {"INTERVALEST": when, "CATEGORY": word, "ACT": text(megawatts, "{:,.3f}"), "FUEL_CATEGORY": word}
                for word, megawatts in (("Coal", coal), ("Wind", wind), ("Imports", 5000.0))
            ]
        return json.dumps({"RefId": "x", "TotalMW": "1", "Fuel": {"Type": rows}}).encode()

    def spp(request) -> bytes:
        lines = ["GMT MKT Interval,BAA,Coal,Wind,Energy Storage,Load"]
        for start_s in recent:
            coal, wind = shares(value(start_s), 760.0)
            if coal is not None and wind is not None:
                when = local(start_s + 300, "UTC", "%Y-%m-%dT%H:%M:00Z")
                lines += [f"{when},SPP,{coal},{wind},-18.10,12000", f"{when},SPPW,900.00,10.00,0.00,910"]
        return "\n".join([*lines, ""]).encode()

    def ieso(request) -> bytes | None:
        found = re.search(r"_(\d{8})\.xml", request.path)
        if not found:
            return None
        first_s, last_s = day_of(found[1], "Etc/GMT+5")
        begins = [at for at in slots(first_s, last_s, 3600) if at + 3600 <= now_s]
        hours = [(hour, shares(_scaled(value(at), 0.5), 370.0)) for hour, at in enumerate(begins, start=1)]
        plants = [("NUKE-G1", "NUCLEAR", 1), ("GAS-G1", "GAS", 0), ("A BESS", "OTHER", None)]
        outputs = [
            "".join(
                f"<Output><Hour>{hour}</Hour><EnergyMW>{text(500.0 if k is None else mix[k])}</EnergyMW></Output>"
                for hour, mix in hours
                if k is None or mix[k] is not None
            )
            for _, _, k in plants
        ]
        generators = "".join(
            f"<Generator><GeneratorName>{name}</GeneratorName><FuelType>{fuel}</FuelType><Outputs>{out}</Outputs>"
            "</Generator>"
            for (name, fuel, _), out in zip(plants, outputs, strict=True)
        )
        day = f"{found[1][:4]}-{found[1][4:6]}-{found[1][6:]}"
        body = f"<IMODocBody><Date>{day}</Date><Generators>{generators}</Generators></IMODocBody>"
        return f'<?xml version="1.0"?><IMODocument xmlns="http://www.theIMO.com/schema">{body}</IMODocument>'.encode()

    def hydro_quebec(request) -> bytes:
        details = []
        for start_s in slots(now_s - 36 * 3600, now_s + 6 * 3600, 3600):
            gas, water = shares(value(start_s), 490.0, 24.0) if start_s + 3600 <= now_s else (0.0, 0.0)
            date = local(start_s, "America/Toronto", "%Y-%m-%dT%H:%M:00")
            values = {"total": 0.0 if gas == water == 0 else TOTAL_MW, "hydraulique": water, "thermique": gas}
            details.append({"date": date, "valeurs": values})
        recent_hour = local(now_s - 3600, "America/Toronto", "%Y-%m-%dT%H:%M:00")
        return json.dumps({"recentHour": recent_hour, "details": details}).encode()

    def eco2mix(request) -> bytes:
        first_s, last_s = (
            datetime.strptime(found, "%Y-%m-%dT%H:%MZ").replace(tzinfo=timezone.utc).timestamp()
            for found in re.findall(r"date'([^']*)'", request.query["where"][0])
        )
        rows = [
            {
                "date_heure": local(at, "Europe/Paris", "%Y-%m-%dT%H:%M:00%z"),
                "taux_co2": _scaled(value(at), 0.5) if at < now_s - 900 else None,
            }
            for at in slots(first_s, last_s, 900)
        ]
        for row in rows:
            row["date_heure"] = f"{row['date_heure'][:-2]}:{row['date_heure'][-2:]}"
        return json.dumps(rows).encode()

    def ree(request) -> bytes:
        first_s, last_s = day_of(request.query["fecha"][0], "Europe/Madrid")
        rows = []
        for start_s in slots(first_s - 3 * 3600, min(last_s, now_s), 300):
            coal, wind = shares(value(start_s), 760.0)
            when = local(start_s, "Europe/Madrid", "%Y-%m-%d %H:%M")
            rows.append({"ts": when, "dem": 11000, "car": coal, "eol": wind, "nuc": 0, "hid": 900, "inter": 999})
        return f"null({json.dumps({'valoresHorariosGeneracion': rows})});".encode()

    def eirgrid(request) -> bytes:
        ahead = "forecast" in request.query["areas"][0]
        times = slots(now_s, now_s + 86400, 900) if ahead else slots(now_s - 86400, now_s + 86400, 900)
        rows = [
            {
                "EffectiveTime": local(at, "Europe/Dublin", "%d-%b-%Y %H:%M:%S"),
                "FieldName": "CO2_INTENSITY_FORECAST" if ahead else "CO2_INTENSITY",
                "Region": request.query["region"][0],
                "Value": value(at) if ahead or at < now_s - 900 else None,
            }
            for at in times
        ]
        return json.dumps({"ErrorMessage": None, "LastUpdated": "x", "Rows": rows}).encode()

    def ons(request) -> bytes:
        at = now_s - 300
        burnt, water = shares(value(at), 660.0)
        mix = {"total": TOTAL_MW, "hidraulica": water, "termica": burnt, "eolica": 0.0, "solar": -0.075}
        region = {"geracao": mix, "cargaVerificada": 1.0, "importacao": 1.0}
        when = local(at, "America/Sao_Paulo", "%Y-%m-%dT%H:%M:%S-03:00")
        names = ("sudesteECentroOeste", "sul", "nordeste", "norte")
        return json.dumps({"Data": when, **dict.fromkeys(names, region)}).encode()

    def transpower(request) -> bytes:
        at = now_s - 300
        coal, wind = shares(value(at), 760.0)
        mix = {"Coal": coal, "Wind": wind, "Battery": 30.0}
        graph = {"New Zealand": {word: {"generation": mw, "capacity": 1} for word, mw in mix.items()} | {"total": 1}}
        data = {"path": {}, "soPgenGraph": {"data": graph, "date": "x", "timestamp": int(at), "update": True}}
        script = f'<script type="application/json" data-drupal-selector="x">{json.dumps(data)}</script>'
        return f"<!DOCTYPE html><html><body>{script}</body></html>".encode()

    def taipower(request) -> bytes:
        at = now_s // 600 * 600 - 600
        coal, wind = shares(value(at), 760.0)
        units = [("coal", "Linkou#1", coal), ("coal", "Linkou#2", 0.0), ("wind", "Wind", wind),
                 ("energystoragesystem", "Battery", 55.0), ("coal", "Subtotal", coal)]  # fmt: skip
        rows = [
            [f"<A NAME='{kind}'></A><b>{kind.upper()}</b>", "", name, "9999.0", text(mw) or "N/A", "", "", ""]
            for kind, name, mw in units
        ]
        return json.dumps({"": local(at, "Asia/Taipei", "%Y-%m-%d %H:%M"), "dataset": rows}).encode()

    def japan(request) -> bytes | None:
        found = re.search(r"/(?:eria|realtime)_jukyu_(\d{6})(\d{2})?_(\d{2})\.csv", request.path)
        if not found:
            return None
        first_s, last_s = day_of(found[1] + (found[2] or "01"), "Asia/Tokyo")
        if not found[2]:
            last_s = day_of(local(first_s + 32 * 86400, "Asia/Tokyo", "%Y%m01"), "Asia/Tokyo")[0]
        kyushu = found[3] == "09"
        head = "DATE,TIME,エリア需要,原子力,火力(石炭),太陽光発電実績,太陽光出力制御量,風力発電実績"
        head += ",揚水,連系線,その他,合計"
        lines = ["単位[MW平均],,,供給力", head.translate(str.maketrans("()", "（）")) if kyushu else head]
        for start_s in slots(first_s, last_s, 1800):
            coal, wind = shares(value(start_s), 760.0) if start_s + 1800 <= now_s else (None, None)
            when = local(start_s, "Asia/Tokyo", "%Y/%-m/%-d,%-H:%M")
            if kyushu:  # end of interval; the last one of a day is 24:00
                minute = round(start_s - day_of(local(start_s, "Asia/Tokyo", "%Y%m%d"), "Asia/Tokyo")[0]) // 60 + 30
                when = f"{local(start_s, 'Asia/Tokyo', '%Y%m%d')},{minute // 60}:{minute % 60:02}"
            known = coal is not None
            lines.append(f"{when},{f'9000,0,{coal},0,50,{wind},-300,2000,,11000' if known else ',,,,,,,,,'}")
        return "\n".join([*lines, ""]).encode("cp932")

    return {
        "nyiso": nyiso, "ercot": ercot, "miso": miso, "spp": spp, "ieso": ieso, "hydro-quebec": hydro_quebec,
        "eco2mix": eco2mix, "ree": ree, "eirgrid": eirgrid, "ons": ons, "transpower": transpower,
        "taipower": taipower, "japan": japan,
    }  # fmt: skip


def _scaled(number: float | None, factor: float) -> float | None:
    return None if number is None else number * factor
