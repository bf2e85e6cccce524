"""Every field is checked before any is applied, and the two ends of the wire agree."""

from __future__ import annotations

import contextlib
import json
import math

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import carbontui
from carbontui import protocol
from carbontui.client import api
from carbontui.client.pausing import wire

GOOD = {"t": "want", "mode": "pause", "want_gen": 3, "lease_s": 15.0}
FIELDS = (
    '"lease_s":NaN',
    '"lease_s":Infinity',
    '"lease_s":1e999',
    '"lease_s":0',
    '"lease_s":-1',
    '"lease_s":61',
    '"lease_s":true',
    '"lease_s":"15"',
    '"lease_s":null',
    '"lease_s":' + "9" * 400,
    '"want_gen":-1',
    '"want_gen":1.5',
    '"want_gen":true',
    '"want_gen":' + str(2**60),
    '"mode":"sleep"',
    '"mode":[]',
    '"duty":0',
    '"duty":1.01',
    '"duty":NaN',
    '"checkpoint":1',
    '"not_before":17',
    '"not_before":"tomorrow"',
)
"""Each refuses the whole want."""
REFUSED = (
    *((json.dumps(GOOD)[:-1] + "," + field + "}").encode() for field in FIELDS),  # the last of two equal keys counts
    *(
        json.dumps({k: v for k, v in GOOD.items() if k != missing}).encode()
        for missing in ("mode", "want_gen", "lease_s")
    ),
    *(b"", b"\xff\xfe", b"[]", b"3", b"{}", b'{"t":4}', b"[" * 60_000, b"[" * 60, b'{"a":' * 60),
)


@pytest.mark.parametrize("line", REFUSED)
def test_a_line_with_a_bad_or_a_missing_field_is_refused_whole(line):
    with pytest.raises(wire.BadLine):
        wire.decode(line)


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
@settings(max_examples=200, deadline=None)
def test_any_bytes_give_a_message_or_bad_message(line):
    with contextlib.suppress(wire.BadLine):
        wire.decode(line)


def test_unknown_types_and_fields_are_for_newer_peers():
    assert wire.decode(b'{"t":"news","x":1}') is None
    assert wire.decode(json.dumps({**GOOD, "colour": "red"}).encode()) == wire.DesiredLine("pause", 3, 15.0)


times = st.datetimes().map(lambda t: t.strftime("%Y-%m-%dT%H:%M:%S.000Z").rjust(24, "0"))
wants = st.builds(
    protocol.DesiredState,
    mode=st.sampled_from(["run", "pause", "unload"]),
    want_gen=st.integers(0, 2**53),
    lease_s=st.floats(0, 60, exclude_min=True),
    duty=st.none() | st.floats(0, 1, exclude_min=True, exclude_max=True),
    checkpoint=st.none() | st.booleans(),
    not_before=st.none() | times,
)


@given(wants)
@settings(max_examples=100, deadline=None)
def test_what_the_supervisor_sends_is_understood(want):
    got = wire.decode(protocol.encode(want).rstrip())
    assert (got.mode, got.want_gen, got.lease_s, got.duty) == (want.mode, want.want_gen, want.lease_s, want.duty)
    assert got.checkpoint == bool(want.checkpoint) and got.not_before == want.not_before


numbers = st.floats(allow_nan=False, allow_infinity=False)


@given(
    st.integers(0, 2**53),
    st.none() | st.floats(0, 1e18),
    st.none() | numbers,
    st.dictionaries(st.text(max_size=5), numbers),
)
@settings(max_examples=100, deadline=None)
def test_what_the_client_sends_is_understood(step, rate, loss, metrics):
    fields = {
        "step": step,
        "state": "asked",
        "want_gen": 1,
        "rate": rate,
        "loss": loss,
        "devices": (),
        "metrics": metrics,
    }
    message = protocol.decode_from_peer(wire.encode("obs", fields).rstrip())
    assert isinstance(message, protocol.RankReport)
    assert (message.step, message.rate, message.loss, message.metrics) == (step, rate, loss, metrics)


class Odd:
    def __float__(self):
        raise AttributeError("no number")

    def __str__(self):
        raise KeyError("no name")


@pytest.mark.parametrize(
    "told",
    [
        {"loss": Odd(), "epoch": Odd(), "total": Odd()},
        {"metrics": {"x": Odd()}},
        {"metrics": {Odd(): 1.0}},
        {"metrics": [("x", 1.0)]},
        {"metrics": {"\ud800": 1.0}},
        {"loss": "x", "epoch": -1e308, "total": 10**400},
    ],
)
def test_whatever_a_script_reports_raises_nothing_and_costs_no_message(monkeypatch, told):
    facts = {}
    monkeypatch.setattr(api.gate, "facts", facts)
    carbontui.report(**told)
    line = wire.encode("obs", {**facts, "step": 1, "state": "running", "want_gen": 0})
    assert protocol.decode_from_peer(line.rstrip()).step == 1


def test_versions_and_bounds_are_the_protocols():
    assert wire.VERSION == protocol.VERSION
    assert wire.LINE_MAX <= protocol.LINE_MAX
    longest = protocol.DesiredState("unload", 2**53, 60.0, 0.1234567890123, True, "2030-01-01T00:00:00.000Z")
    assert len(msgspec.json.encode(longest)) < wire.LINE_MAX
    assert math.isclose(wire.LEASE_MAX_S, 60)
