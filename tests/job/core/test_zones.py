"""One job, readers in four time zones and three widths: every clock time of every output is in the reader's zone, and
equal to the datum."""

from __future__ import annotations

import io
import itertools
import re
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import msgspec
import pytest
from msgspec import structs
from states import NOW_S, settled, shown
from test_one_truth import AT_S, the_job, the_world

from carbontui import protocol, units
from carbontui.commands import status as verbs
from carbontui.commands.support import talk
from carbontui.job.supervisor.core.state.forbidden import ForbiddenHours
from carbontui.job.supervisor.core.view import shown_plan
from carbontui.job.supervisor.shell.requests import Requests
from carbontui.protocol import statement
from carbontui.text import account, figures
from carbontui.text.statements import event_line, kept, recorded
from carbontui.tui.model import lists, notify, state_text
from carbontui.tui.model.feed import Connection, Target
from carbontui.tui.model.view_state import ViewState
from carbontui.tui.plain import PlainNarrator
from carbontui.tui.screens import page_rows
from carbontui.tui.widgets import plan_text
from carbontui.tui.widgets.state_bar import StateBar

THEIRS = "Asia/Kathmandu"
ZONES = ("UTC", "Europe/Berlin", "America/Los_Angeles", THEIRS)
WIDTHS = (200, 100, 48)
CLOCK = re.compile(r"(?<![\d:.])(\d\d:\d\d)(?![\d:.])")
HOURS = ForbiddenHours(NOW_S + 5400.0, NOW_S + 7260.0, by="bob@pts/1")


def in_zone(monkeypatch: pytest.MonkeyPatch, zone: str) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()


@pytest.fixture
def theirs(monkeypatch: pytest.MonkeyPatch):
    """A supervisor in a zone of its own, 45 minutes off every other."""
    in_zone(monkeypatch, THEIRS)
    yield monkeypatch
    monkeypatch.undo()
    time.tzset()


def recorded_job(override: str, plan: str) -> protocol.Snap:
    """What a supervisor has sent, as it is on the wire."""
    state = replace(the_job(override, "later", "none", plan, 6600.0), forbidden=(HOURS,))
    for _ in range(3):
        state = settled(state, the_world(False, "running", state))
    seen = the_world(False, "running", state)
    status = shown(state, seen)
    question = statement("question", example="3kg", until_s=NOW_S + 4440.0)
    events = [
        ("override", {"verb": "pause", "by": "ada@pts/3", "until": units.iso(NOW_S + 3000.0)}),
        ("hours", {"by": "bob@pts/1", "text": HOURS.said}),
        ("state", {"state": "throttled", "text": state.decision.why.said, "level": "x", "level_kind": "cap"}),
        ("plan", {"why": statement("cause_slot"), "finish": units.iso(NOW_S + 6660.0), "gco2_g": 9.0}),
    ]
    told = [event_line(NOW_S + 60.0, kind, recorded(facts, NOW_S)) for kind, facts in events]
    status = structs.replace(
        status,
        events=tuple(filter(None, told)),
        notices=(kept(question, AT_S),),
        notices_said=(question,),
        notice_keys=("q",),
    )
    made = Requests.drawn_plan(shown_plan.view(state, seen), seen.now_s)
    line = protocol.encode(protocol.Snap(1, status, protocol.ChartSeries(now=units.iso(AT_S)), made, None))
    return protocol.decode_to_viewer(line)


def known(value) -> Iterator[float]:
    """Every instant of the wire: times, and seconds of our epoch among the parts of statements."""
    for one in value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ():
        if isinstance(one, str) and re.match(r"2027-\d\d-\d\dT", one):
            yield units.from_iso(one)
        elif isinstance(one, float) and one > 1e9:
            yield one
        yield from known(one)


def bar(view_state: ViewState, width: int) -> str:
    widget = StateBar()
    widget.view_state, widget.connection = view_state, Connection("live")
    return text_of(widget.draw(width, 5))


def text_of(rows) -> str:
    return "\n".join("".join(text for text, _ in row) for row in rows)


def outputs(snap: protocol.Snap, width: int) -> dict[str, str]:
    """What each output of ours says of it."""
    status, plan = snap.status, snap.plan
    view_state = ViewState(1, status, snap.series, plan, None)
    stream = io.StringIO()
    PlainNarrator(stream).tell(view_state)
    row = lists.ListedJob(Target("t", "t", None), status)
    with figures.zone_named():
        listed, report = verbs.listed(status, AT_S), "\n".join(verbs.report(status))
    before = structs.replace(view_state, status=structs.replace(status, state="starting"))
    answer = protocol.Result(1, True, "x", said=statement("paused", step=7, until_s=NOW_S + 3000.0, silent=()))
    return {
        "ls": listed,
        "status": report,
        "plan": "\n".join(verbs.plan_rows(plan, status, AT_S)),
        "answer": talk.answer_text(answer),
        "plain": stream.getvalue(),
        "state bar": bar(view_state, width),
        "course": text_of(plan_text.course_rows(view_state, width)),
        "hours": text_of(plan_text.hours_rows(view_state)),
        "events": text_of(plan_text.event_rows(status.events, view_state)),
        "sources": text_of(page_rows.source_rows(view_state, 0.0)),
        "grid": text_of(page_rows.grid_rows(view_state.status, None, "", AT_S)),
        "last event": state_text.last_event(view_state),
        "table": row.headline,
        "notification": (notify.news(before, view_state) or notify.Notification("", False)).text,
        "narration": "\n".join(account.narrate(None, status, account.NoticesShown())),
        "ending": account.ending(status),
    }


@pytest.mark.parametrize(("override", "plan"), [("pause until", "cap"), ("cap until", "full"), ("none", "pause")])
def test_every_clock_time_is_the_readers_and_equal_to_the_datum(theirs, override, plan):
    snap = recorded_job(override, plan)
    assert ("NPT" in snap.status.reason.text or "+0545" in snap.status.reason.text) and snap.plan is not None
    read: dict[str, dict[str, list[str]]] = {}
    for zone, width in itertools.product(ZONES, WIDTHS):
        in_zone(theirs, zone)
        for name, said in outputs(snap, width).items():
            ahead = timedelta(seconds=units.local_offset_s(NOW_S))
            found = [datetime.strptime(at, "%H:%M") - ahead for at in CLOCK.findall(said)]
            read.setdefault(f"{name} {width}", {})[zone] = [f"{at:%H:%M}" for at in found]
    assert {name: by_zone for name, by_zone in read.items() if len(set(map(tuple, by_zone.values()))) > 1} == {}
    # what UTC shows are the instants of the wire, and the edges of its slots
    every = {*known(msgspec.to_builtins(snap)), *(NOW_S + slot * snap.plan.slot_s for slot in range(9))}
    instants = {f"{datetime.fromtimestamp(at, timezone.utc):%H:%M}" for at in every}
    assert {at for by_zone in read.values() for at in by_zone["UTC"]} <= instants
    assert sum(len(times) for by_zone in read.values() for times in by_zone.values()) >= 40
