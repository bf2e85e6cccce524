"""A local provider: answers in each provider's documented shapes (invented numbers) and in its failures."""

from __future__ import annotations

import asyncio
import contextlib
import csv
import functools
import http.server
import io
import json
import math
import threading
import zipfile
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timezone
from urllib.parse import parse_qs, urlsplit
from zoneinfo import ZoneInfo

import operators
import pytest

from carbontui.grid.choose import EVERY
from carbontui.grid.http import Http
from carbontui.grid.settings import KEY_NAMES, GridSettings

SECRETS = {name: f"s3cret-{name.lower()}" for name in KEY_NAMES}
ZONE_OF = {
    "neso": "GB", "energi-data-service": "DK-DK1", "energy-charts": "DE", "electricity-maps": "FR", "entsoe": "NL",
    "eia": "US-NY-NYIS", "caiso": "US-CAL-CISO", "watttime": "US-CAL-CISO", "energi-data-price": "DK-DK2",
    "energy-charts-price": "DE", "octopus-agile": "GB", "caiso-price": "US-CAL-CISO",
    "entsoe-price": "NL", **operators.ZONE_OF,
}  # fmt: skip
assert set(ZONE_OF) == {kind.name for kind in EVERY}


@dataclass(frozen=True)
class Request:
    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]


@dataclass
class Answer:
    body: bytes = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    hang: bool = False
    cut: bool = False


Responder = Callable[[Request], Answer]


@dataclass
class Site:
    """The server's door: `respond` decides each answer, `seen` keeps the requests."""

    port: int = 0
    respond: Responder = lambda request: Answer(b"{}")
    seen: list[Request] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://localhost:{self.port}"

    def settings(self, **more: object) -> GridSettings:
        return GridSettings(keys=SECRETS, base_urls={kind.name: self.url for kind in EVERY}, **more)  # type: ignore[arg-type]

    def http(self, **more: object) -> Http:
        return Http(**{"answer_s": 5.0, **more})  # type: ignore[arg-type]


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    door = Site()
    hanging = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            parts = urlsplit(head[0].split(" ")[1])
            headers = {k.lower(): v for k, _, v in (line.partition(": ") for line in head[1:] if line)}
            request = Request(parts.path, parse_qs(parts.query), headers)
            door.seen.append(request)
            answer = door.respond(request)
            if answer.hang:
                await hanging.wait()
            length = len(answer.body) * (2 if answer.cut else 1)
            lines = [f"HTTP/1.1 {answer.status} X", f"Content-Length: {length}", "Connection: close"]
            lines += [f"{name}: {value}" for name, value in answer.headers.items()]
            writer.write("\r\n".join([*lines, "", ""]).encode() + answer.body)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    door.port = server.sockets[0].getsockname()[1]
    yield door
    hanging.set()
    server.close()


@contextlib.contextmanager
def served(respond: Responder) -> Iterator[str]:
    """The same for a command that runs a loop of its own: a server in a thread, and its URL."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            headers = {name.lower(): value for name, value in self.headers.items()}
            answer = respond(Request(parts.path, parse_qs(parts.query), headers))
            self.send_response(answer.status)
            self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            self.wfile.write(answer.body)

        def log_message(self, *_: object) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@functools.cache
def level(epoch_s: float) -> float:
    """The invented grid: a day's wave around 300."""
    return round(300 + 100 * math.sin(2 * math.pi * epoch_s / 86400), 1)


def iso(epoch_s: float, form: str = "%Y-%m-%dT%H:%MZ") -> str:
    return datetime.fromtimestamp(epoch_s, tz=timezone.utc).strftime(form)


def good(name: str, now_s: float, value: Callable[[float], float | None] = level) -> Responder:
    """What the provider answers when all is well, in its own units, stamps and shape."""

    def grid(start_s: float, end_s: float, step_s: float) -> list[float]:
        first = math.floor(start_s / step_s)
        return [k * step_s for k in range(first, math.ceil(end_s / step_s))]

    def scaled(at_s: float, factor: float) -> float | None:
        known = value(at_s)
        return None if known is None else round(known * factor, 6)

    def neso(request: Request) -> Answer:
        begin, end = now_s - 86400, now_s + 172800
        first, until = request.path.split("/intensity/")[1].split("/")[:2]
        if until != "fw48h" and first != iso(now_s):
            begin, end = now_s - 13 * 86400, now_s
        records = [
            {
                "from": iso(t),
                "to": iso(t + 1800),
                "intensity": {
                    "forecast": value(t),
                    "actual": value(t) if t < now_s - 1800 else None,
                    "index": "moderate",
                },
            }
            for t in grid(begin, end, 1800)
        ]
        if "regional" in request.path:
            for record in records:
                del record["intensity"]["actual"]  # type: ignore[attr-defined]
            return told({"data": {"regionid": int(request.path.split("/")[-1]), "data": records}})
        return told({"data": records})

    def eds(request: Request) -> Answer:
        price = "DayAheadPrices" in request.path
        ahead = "Prog" in request.path or price
        area = json.loads(request.query["filter"][0])["PriceArea"][0]
        times = grid(now_s, now_s + 86400, 900 if price else 300) if ahead else grid(now_s - 3 * 86400, now_s, 300)
        form = "%Y-%m-%dT%H:%M:%S"
        if price:
            return told(
                {
                    "records": [
                        {"TimeUTC": iso(t, form), "PriceArea": area, "DayAheadPriceEUR": scaled(t, 0.2)} for t in times
                    ]
                }
            )
        return told(
            {"records": [{"Minutes5UTC": iso(t, form), "PriceArea": area, "CO2Emission": value(t)} for t in times]}
        )

    def charts(request: Request) -> Answer:
        times = grid(now_s - 2 * 86400, now_s + 43200, 900)
        if request.path.endswith("price"):
            return told({"unix_seconds": times, "price": [scaled(t, 0.2) for t in times], "unit": "EUR / MWh"})
        return told(
            {
                "unix_seconds": [*times, times[-1] + 900],
                "co2eq": [value(t) if t < now_s - 900 else None for t in times] + [None],
                "co2eq_forecast": [None if t < now_s - 900 else value(t) for t in times] + [None],
                "deprecated": False,
            }
        )

    def maps(request: Request) -> Answer:
        zone = request.query["zone"][0]
        part = {"past-range": "data", "history": "history", "forecast": "forecast"}[request.path.rpartition("/")[2]]
        times = grid(now_s, now_s + 86400, 3600) if part == "forecast" else grid(now_s - 86400, now_s, 3600)
        rows = [
            {"carbonIntensity": value(t), "datetime": iso(t, "%Y-%m-%dT%H:%M:00.000Z"), "zone": zone} for t in times
        ]
        return told({"zone": zone, part: rows, "updatedAt": iso(now_s, "%Y-%m-%dT%H:%M:00.000Z")})

    def watttime(request: Request) -> Answer:
        if request.path.endswith("login"):
            return told({"token": "a-token"})
        times = grid(now_s, now_s + 86400, 300) if "forecast" in request.path else grid(now_s - 86400, now_s, 300)
        meta = {"region": "CAISO_NORTH", "units": "lbs_co2_per_mwh", "data_point_period_seconds": 300}
        points = [{"point_time": iso(t, "%Y-%m-%dT%H:%M:00+00:00"), "value": scaled(t, 1 / 0.45359237)} for t in times]
        return told({"data": points, "meta": meta})

    def eia(request: Request) -> Answer:
        rows = []
        for t in grid(now_s - 3 * 86400, now_s - 3 * 3600, 3600):
            for fuel, power in (("NG", scaled(t, 10)), ("NUC", None if value(t) is None else 3000)):
                row = {"period": iso(t + 3600, "%Y-%m-%dT%H"), "respondent": "NYIS", "fueltype": fuel}
                rows.append({**row, "value": None if power is None else str(power), "value-units": "megawatthours"})
        return told({"response": {"total": len(rows), "frequency": "hourly", "data": rows}})

    def caiso(request: Request) -> Answer:
        if request.path.endswith("SingleZip"):
            return ahead(request)
        here = ZoneInfo("America/Los_Angeles")
        today = datetime.fromtimestamp(now_s, tz=here)
        if "/history/" in request.path:
            today = datetime.strptime(request.path.split("/")[-2], "%Y%m%d").replace(tzinfo=here)
        begin = today.replace(hour=0, minute=0, second=0, microsecond=0).timestamp()
        out = io.StringIO()
        table = csv.writer(out)
        co2 = request.path.endswith("co2.csv")
        table.writerow(["Time", "Natural Gas CO2", "Imports CO2"] if co2 else ["Time", "Solar", "Natural gas"])
        for t in grid(begin, begin + 86400, 300):
            row = f"{datetime.fromtimestamp(t, tz=here):%H:%M}"
            known = value(t)
            if t > now_s - 300 or known is None:
                table.writerow([f"  {row}", "", ""])
            else:
                # 20,000 MW, half a tonne for each MWh that is neither sun nor wind
                net = round(known * 40, 3)
                table.writerow([f"  {row}", round(known * 20 + 35, 3), -35] if co2 else [f"  {row}", 20000 - net, net])
        return Answer(out.getvalue().encode())

    def ahead(request: Request) -> Answer:
        load = request.query["queryname"][0] == "SLD_FCST"
        head = "INTERVALSTARTTIME_GMT,INTERVALENDTIME_GMT,"
        lines = [head + ("TAC_AREA_NAME,MW" if load else "TRADING_HUB,RENEWABLE_TYPE,MW")]
        for t in grid(now_s - 3600, now_s + 86400, 3600):
            stamps = f"{iso(t, '%Y-%m-%dT%H:%M:00-00:00')},{iso(t + 3600, '%Y-%m-%dT%H:%M:00-00:00')}"
            known = value(t)
            if load:
                lines += [f"{stamps},CA ISO-TAC,20000", f"{stamps},PGE-TAC,9000"]
            elif known is not None:
                lines += [
                    f"{stamps},{hub},{kind},{10000 - 20 * known}" for hub, kind in (("NP15", "Wind"), ("SP15", "Solar"))
                ]
        return Answer(zipped("forecast.csv", "\n".join(lines)))

    def oasis(request: Request) -> Answer:
        lines = ["INTERVALSTARTTIME_GMT,INTERVALENDTIME_GMT,LMP_TYPE,MW"]
        for t in grid(now_s - 43200, now_s + 86400, 3600):
            stamps = f"{iso(t, '%Y-%m-%dT%H:%M:00-00:00')},{iso(t + 3600, '%Y-%m-%dT%H:%M:00-00:00')}"
            known = scaled(t, 0.2)
            lines += [f"{stamps},LMP,{'' if known is None else known}", f"{stamps},MCC,-1.5"]
        return Answer(zipped("prices.csv", "\n".join(lines)))

    def entsoe(request: Request) -> Answer:
        begin, end = math.floor(now_s / 3600) * 3600 - 24 * 3600, math.floor(now_s / 3600) * 3600
        price = request.query["documentType"][0] == "A44"
        if price:
            end += 24 * 3600

        def series(extra: str, tag: str, of: Callable[[float], float | None]) -> str:
            points = "".join(
                f"<Point><position>{k}</position><{tag}>{of(t)}</{tag}></Point>"
                for k, t in enumerate(grid(begin, end, 3600), start=1)
                if of(t) is not None
            )
            frame = f"<Period><timeInterval><start>{iso(begin)}</start><end>{iso(end)}</end></timeInterval>"
            frame += "<resolution>PT60M</resolution>"
            return f"<TimeSeries>{extra}<curveType>A01</curveType>{frame}{points}</Period></TimeSeries>"

        if price:
            inside = series("<currency_Unit.name>EUR</currency_Unit.name>", "price.amount", lambda t: scaled(t, 0.2))
            return Answer(f'<Publication_MarketDocument xmlns="urn:x">{inside}</Publication_MarketDocument>'.encode())
        area = request.query["in_Domain"][0]
        where = f"<inBiddingZone_Domain.mRID>{area}</inBiddingZone_Domain.mRID>"
        inside = "".join(
            series(f"{where}<MktPSRType><psrType>{kind}</psrType></MktPSRType>", "quantity", of)
            for kind, of in (("B04", lambda t: scaled(t, 10)), ("B14", lambda t: None if value(t) is None else 3000.0))
        )
        return Answer(f'<GL_MarketDocument xmlns="urn:x">{inside}</GL_MarketDocument>'.encode())

    def agile(request: Request) -> Answer:
        times = grid(now_s - 43200, now_s + 86400, 1800)[::-1]
        page = int(request.query["page"][0])
        chosen = times[100 * (page - 1) : 100 * page]
        rows = [
            {"value_exc_vat": 1.0, "value_inc_vat": scaled(t, 0.1), "valid_from": iso(t), "valid_to": iso(t + 1800)}
            for t in chosen
        ]
        return told({"count": len(times), "next": "more" if 100 * page < len(times) else None, "results": rows})

    shapes: dict[str, Responder] = {
        "neso": neso, "energi-data-service": eds, "energi-data-price": eds, "energy-charts": charts,
        "energy-charts-price": charts, "electricity-maps": maps, "watttime": watttime, "eia": eia, "caiso": caiso,
        "caiso-price": oasis, "entsoe": entsoe, "entsoe-price": entsoe, "octopus-agile": agile,
    }  # fmt: skip
    if name in operators.ZONE_OF:
        body_of = operators.shapes(now_s, value)[name]

        def operator(request: Request) -> Answer:
            body = body_of(request)
            return Answer(b"", 404) if body is None else Answer(body)

        return operator
    return shapes[name]


def told(data: object) -> Answer:
    return Answer(json.dumps(data).encode(), headers={"Content-Type": "application/json"})


def zipped(name: str, text: str) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr(name, text)
    return out.getvalue()
