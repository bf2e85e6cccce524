"""Base classes of every provider (now, history, forecast; prices), and the decoders and helpers they share.

Answers are untrusted: anything unreadable is a BadAnswer that names its source.
"""

import csv
import io
import itertools
import json
import zipfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timezone
from itertools import pairwise
from operator import itemgetter
from typing import Any, ClassVar
from xml.etree import ElementTree

from carbontui.grid import clean, typical
from carbontui.grid.fuels import intensity_g_per_kwh
from carbontui.grid.http import BUSY_S, BadAnswer, GridError, Http, HttpReply, NoData, Question
from carbontui.grid.settings import GridSettings
from carbontui.grid.types import DAY_S, HOUR_S, Answer, Kind, Mix, Series, Signal

# raised when an answer of an unexpected shape is parsed; anything else would be our bug
SHAPE_FAULTS = (KeyError, IndexError, TypeError, ValueError, AttributeError, ArithmeticError, csv.Error)
ROWS_MAX = 200_000
"""Rows of one answer at most: over a year of five-minute values; an answer with more is faulty."""


class Provider:
    """One source of one signal. Units: gCO2/kWh or currency/kWh, UTC; stamps begin their interval."""

    name: ClassVar[str]
    title: ClassVar[str]
    base: ClassVar[str]
    signal: ClassVar[Signal]
    zones: ClassVar[Collection[str]] = ()
    keys: ClassVar[tuple[str, ...]] = ()
    """Environment variables of its keys; all are needed."""
    window_s: ClassVar[float] = 1800.0
    """At most one request per question in this time, however many jobs run."""
    forecast_window_s: ClassVar[float | None] = None
    """The same for the forecast, where it changes less often."""
    reach_s: ClassVar[float] = 7 * DAY_S
    """The longest stretch of history per request."""
    lateness_s: ClassVar[float] = 900.0  # most operators' live tables hold the last five or fifteen minutes
    """How old its newest value usually is, by recorded answers or its documents: how late evaluations are."""
    late_s: ClassVar[float] = 3 * HOUR_S
    """Usual maximum age of its newest value; a source with only older ones is stale."""
    patience: ClassVar[float] = 1.0
    """Factor on the usual deadline of an answer."""
    busy_s: ClassVar[float] = BUSY_S
    """How long to wait after a 429 without Retry-After."""
    spacing_s: ClassVar[float] = 0.0
    """Least time between two requests of this machine to one data set, whatever the question or zone."""
    overlap_s: ClassVar[float] = DAY_S
    """How much known history each request fetches again, because the provider revises its values."""
    seen_s: ClassVar[float] = 0.0
    """How far back the forecast query starts."""
    zeros: ClassVar[bool] = False
    """Whether 0 g is a valid value; in most averages it is an error."""
    recorded: ClassVar[bool] = True
    """Whether it was written against an answer of the real service; else from its documentation alone."""
    foresees: ClassVar[bool] = True
    limits: ClassVar[str] = ""
    """Its limits, for `carbontui grid`."""
    currency: str | None = None

    def __init__(self, http: Http, settings: GridSettings) -> None:
        self.http = http
        self.settings = settings
        self.url = settings.base_urls.get(self.name, self.base).rstrip("/")

    @classmethod
    def covers(cls, zone: str) -> bool:
        """Whether it has data for the zone."""
        return zone in cls.zones

    async def get(
        self,
        path: str,
        params: Mapping[str, str] | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        auth: tuple[str, str] | None = None,
    ) -> HttpReply:
        """One answer of the provider; `path` is relative to its base URL, or a whole URL. Raises GridError."""
        url = path if path.startswith(("http://", "https://")) else f"{self.url}/{path}"
        # with a least spacing there is no retry: a request that timed out may still have been counted
        again, keyed = self.spacing_s == 0, bool(self.keys)
        how = (keyed, self.patience, self.busy_s, again)
        return await self.http.get(Question(url, params or {}, headers or {}, auth, *how))

    async def json(self, path: str, params: Mapping[str, str] | None = None, **how: Any) -> Any:
        """The decoded JSON body of one answer. Raises GridError."""
        return from_json((await self.get(path, params, **how)).body, self.title)

    async def ask(self, zone: str, start_s: float, end_s: float, now_s: float, kind: Kind) -> Iterable[clean.Raw]:
        """The values of the stretch, `actual` or `forecast`, read as they are iterated over. Raises GridError."""
        raise NotImplementedError

    async def history(self, zone: str, start_s: float, end_s: float, now_s: float) -> Answer:
        """Realised values, and notes on repairs. Raises GridError."""
        return self.series(zone, await self.ask(zone, start_s, end_s, now_s, "actual"), now_s)

    async def forecast(self, zone: str, end_s: float, now_s: float) -> Answer:
        """Forecast values from now on; may end before `end_s`. Raises GridError."""
        return self.series(zone, await self.ask(zone, now_s - self.seen_s, end_s, now_s, "forecast"), now_s, now_s)

    def series_of_mix(self, zone: str, read: Iterable[Mix], now_s: float) -> Answer:
        """`series` from a fuel mix: an intensity by the factors of `fuels.FACTORS`, with the mix of the last day."""
        mixes: list[Mix] = []

        def raw() -> Iterator[clean.Raw]:
            mixes.extend(itertools.islice(read, ROWS_MAX + 1))
            for start_s, dur_s, megawatts in mixes:
                yield start_s, dur_s, intensity_g_per_kwh(megawatts, self.signal), "estimated"

        series, notes = self.series(zone, raw(), now_s)
        kept = {row.start_s for row in series.rows if row.start_s > now_s - DAY_S}
        return replace(series, mix=tuple(mix for mix in mixes if mix.start_s in kept)), notes

    def series(self, zone: str, read: Iterable[clean.Raw], now_s: float, generated_at_s: float | None = None) -> Answer:
        """Rows read and cleaned; an unexpected shape becomes BadAnswer. Raises GridError."""
        # a country's mean does not hold for one of its islands: Tasmania is far below Australia's 550 g
        usual = typical.profile(zone) if typical.is_own(zone) else None
        usual_g = usual.at(now_s)[0] if usual and self.signal != "price" else None
        try:
            raw = list(itertools.islice(read, ROWS_MAX + 1))
        except GridError:
            raise
        except SHAPE_FAULTS as error:
            raise BadAnswer(f"{self.title} sent an answer in an unexpected format ({type(error).__name__})") from None
        if len(raw) > ROWS_MAX:
            raise BadAnswer(f"{self.title} sent more than {ROWS_MAX} values")
        try:
            cleaned = clean.clean(raw, signal=self.signal, now_s=now_s, usual_g=usual_g, zeros=self.zeros)
        except (NoData, BadAnswer) as error:
            raise type(error)(f"{self.title}: {error}") from None
        rows, notes, ahead_s = cleaned
        made = Series(zone, self.signal, rows, self.title, self.currency, generated_at_s, ahead_s=ahead_s)
        return made, notes


class PriceProvider(Provider):
    """A market's prices in currency per kWh: final once published, possibly negative."""

    signal: ClassVar[Signal] = "price"
    seen_s: ClassVar[float] = 12 * HOUR_S  # accounts need the prices of the last hours
    currency: str | None = "EUR"


def utc(text: str) -> float:
    """Epoch seconds of an ISO time; UTC where it has no offset."""
    moment = datetime.fromisoformat(text.strip().replace("Z", "+00:00"))
    return (moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)).timestamp()


def stamp(epoch_s: float, form: str = "%Y-%m-%dT%H:%MZ") -> str:
    return datetime.fromtimestamp(epoch_s, tz=timezone.utc).strftime(form)


def number(value: Any, factor: float = 1.0) -> float | None:
    """A number, also from text, times `factor`; None and empty text are None. Raises ValueError for anything else."""
    if value is None or value == "":
        return None
    if isinstance(value, bool):
        raise ValueError("a boolean where a number is expected")
    return float(value) * factor


def rows_of(data: Any, *path: str) -> list[Any]:
    """The list at `path`. Raises NoData where it is missing, BadAnswer for another shape."""
    for name in path:
        if not isinstance(data, dict):
            raise BadAnswer("an answer in an unexpected format")
        if name not in data:
            raise NoData("the answer is empty" if not data else f"the answer has no {name!r}")
        data = data[name]
    if not isinstance(data, list):
        raise BadAnswer("an answer in an unexpected format")
    return data


def stepped(records: Iterable[Any], when: str, otherwise_s: float) -> Iterator[tuple[float, float, Any]]:
    """Start, length and record, sorted by the stamps in the column `when`."""
    found = sorted(((utc(record[when]), record) for record in records), key=itemgetter(0))
    starts = [start_s for start_s, _ in found]
    for (start_s, record), length in zip(found, steps(starts, otherwise_s), strict=True):
        yield start_s, length, record


def steps(starts: list[float], otherwise_s: float) -> list[float]:
    """Length of each interval from the stamps alone: the gap to the next one where that is a step, else the usual step.

    A gap is a step if it is the usual one, or equals a neighbouring gap (the step may change within a series).
    """
    gaps = [after - before for before, after in pairwise(starts)]
    if not gaps:
        return [otherwise_s] * len(starts)
    usual = min([gap for gap in gaps if gap > 0], default=otherwise_s)
    around = [gaps[0], *gaps, gaps[-1]]
    return [
        gap if gap == usual or (0 < gap <= HOUR_S and gap in (around[k], around[min(k + 2, len(gaps))])) else usual
        for k, gap in enumerate([*gaps, gaps[-1] if gaps[-1] <= HOUR_S else usual])
    ]


def from_json(body: bytes, title: str) -> Any:
    """The decoded body. Raises BadAnswer."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        start = body[:200].lstrip().lower()
        page = start.startswith((b"<!doctype html", b"<html"))
        what = "a web page" if page else "XML" if start.startswith(b"<") else "a broken or cut-off body"
        raise BadAnswer(f"{title} sent {what} instead of JSON") from None


def whole_lines(body: bytes) -> str:
    """The text of a table without an unterminated last line: a table that was cut off ends in half a number."""
    text = body.decode("utf-8-sig", "replace")
    return text[: text.rfind("\n") + 1]


def unzipped(body: bytes, title: str, size_max: int) -> Iterator[bytes]:
    """The files of an archive. Raises BadAnswer where it is none, or a file is larger than `size_max` bytes."""
    try:
        with zipfile.ZipFile(io.BytesIO(body)) as archive:
            for entry in archive.infolist():
                if entry.file_size > size_max:
                    raise BadAnswer(f"{title} sent an archive that is too large")
                yield archive.read(entry)
    except (zipfile.BadZipFile, EOFError, OSError):
        raise BadAnswer(f"{title} sent no ZIP archive") from None


class _Plain(ElementTree.TreeBuilder):
    """Refuses a document type in any encoding: none of our sources sends one, and XML attacks need it."""

    def doctype(self, *_: object) -> None:
        raise BadAnswer("a document type")


def from_xml(body: bytes, title: str) -> ElementTree.Element:
    """The root, with tags stripped of namespaces, which change with every schema version. Raises BadAnswer."""
    try:
        root: ElementTree.Element = ElementTree.fromstring(body, ElementTree.XMLParser(target=_Plain()))
    except BadAnswer:
        raise BadAnswer(f"{title} sent a document type, which is refused") from None
    except ElementTree.ParseError:
        raise BadAnswer(f"{title} sent a broken or cut-off document") from None
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
    return root


def text_of(element: ElementTree.Element, path: str, title: str) -> str:
    """The text at `path`. Raises BadAnswer where it is missing."""
    found = element.findtext(path)
    if found is None:
        raise BadAnswer(f"{title} sent a document without {path}")
    return found.strip()
