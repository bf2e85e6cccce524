"""zeusd, where it runs, sets limits for users without root. Its stand-in here is made from its documentation alone."""

from __future__ import annotations

import http.server
import json
import os
import socketserver
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from nvml_machine import machine_with  # noqa: F401
from nvmlsim import Sim
from test_limits_live import agent
from test_limits_live import until as until_async

from carbontui.power.backends import zeusd as zeusd_client
from carbontui.power.limit.leases import LeaseStore


class StandIn(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """GET /discover, POST /gpu/set_power_limit, set_gpu_locked_clocks and reset_gpu_locked_clocks, as documented."""

    daemon_threads = True

    def __init__(self, path: Path, sim: Sim, **discover: object) -> None:
        super().__init__(str(path), _Handler)
        self.sim = sim
        self.discover = {
            "gpus": [{"id": 0, "name": "NVIDIA H100 80GB HBM3"}],
            "cpus": [],
            "enabled_api_groups": ["gpu-control", "gpu-read"],
            "auth_required": False,
            **discover,
        }
        self.asked: list[str] = []
        self.token: str | None = None
        threading.Thread(target=self.serve_forever, daemon=True).start()


class _Handler(http.server.BaseHTTPRequestHandler):
    server: StandIn

    def address_string(self) -> str:
        return "unix"

    def log_message(self, *_: object) -> None:
        pass

    def _answer(self, status: int, body: object = None) -> None:
        data = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self) -> None:
        self._answer(200 if self.path == "/discover" else 404, self.server.discover)

    def do_POST(self) -> None:
        url, sim = urlsplit(self.path), self.server.sim
        query = {key: values[0] for key, values in parse_qs(url.query).items()}
        self.server.asked.append(self.path)
        if self.server.token and self.headers.get("Authorization") != f"Bearer {self.server.token}":
            return self._answer(401, {"error": "missing token"})
        device = int(query["gpu_ids"])
        if query["block"] != "true":
            return self._answer(400)
        if url.path == "/gpu/set_power_limit":
            if not 200_000 <= int(query["power_limit_mw"]) <= 700_000:
                return self._answer(400, {"errors": {str(device): "Invalid argument"}})
            sim.set("limit_mw", int(query["power_limit_mw"]), device)
        elif url.path not in ("/gpu/set_gpu_locked_clocks", "/gpu/reset_gpu_locked_clocks"):
            return self._answer(404)
        return self._answer(200)


@pytest.fixture
def zeusd(machine_with: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., StandIn]]:
    made: list[StandIn] = []

    def make(**discover: object) -> StandIn:
        sim = machine_with()
        sim.load(1.0)
        sim.set("permission", 2)
        monkeypatch.setenv("ZEUSD_SOCK_PATH", str(tmp_path / "zeusd.sock"))
        monkeypatch.setenv("CARBONTUI_CAPD", str(tmp_path / "no-capd.sock"))
        made.append(StandIn(tmp_path / "zeusd.sock", sim, **discover))
        return made[0]

    yield make
    for server in made:
        server.shutdown()
        server.server_close()


async def test_limits_are_set_through_zeusd_under_our_lease_and_restored(
    zeusd: Callable[..., StandIn], tmp_path: Path
) -> None:
    server = zeusd()
    sim = server.sim
    async with agent(tmp_path) as handle:
        handle.watch(None, own_pids=(os.getpid(),))
        await until_async(lambda: handle.readings.devices[0].caps["limit"].support == "yes")
        assert handle.readings.devices[0].caps["limit"].why == "200-700 W; through zeusd"
        (outcome,) = await handle.set_limit(400)
        assert (outcome.ok, sim.get("limit_mw")) == (True, 400_000)
        assert LeaseStore().all()[0].before_mw == 700_000, "zeusd keeps no old value: our lease does"
        first = handle.pid
        assert first is not None
        os.kill(first, 9)
        await until_async(lambda: handle.pid not in (None, first))
        await until_async(lambda: LeaseStore().all()[0].agent_pid == handle.pid)
    assert sim.get("limit_mw") == 700_000 and LeaseStore().all() == []
    assert server.asked[-1] == "/gpu/set_power_limit?gpu_ids=0&power_limit_mw=700000&block=true"


@pytest.mark.parametrize(
    "discover",
    [
        {"enabled_api_groups": ["gpu-read"]},
        {"auth_required": True},
        {"gpus": []},
        {"gpus": "none"},
        {"gpus": [{"id": "x"}]},
    ],
)
def test_a_zeusd_that_does_not_let_us_is_none(zeusd: Callable[..., StandIn], discover: dict[str, object]) -> None:
    zeusd(**discover)
    assert zeusd_client.find() is None


def test_a_token_is_sent_where_one_is_asked_for_and_another_board_is_not_touched(
    zeusd: Callable[..., StandIn], monkeypatch: pytest.MonkeyPatch
) -> None:
    from carbontui.power.backends.base import DeviceError, DeviceInfo

    server = zeusd(auth_required=True)
    server.token = "t0ken"
    board = DeviceInfo(uuid="GPU-a", name="NVIDIA H100 80GB HBM3", index=0)
    monkeypatch.setenv("ZEUSD_TOKEN", "wrong")
    found = zeusd_client.find()
    assert found is not None
    with pytest.raises(DeviceError, match="401"):
        found.set_limit_mw(board, 400_000)
    monkeypatch.setenv("ZEUSD_TOKEN", "t0ken")
    found.set_limit_mw(board, 400_000)
    found.lock_clocks(board, 1200)
    found.lock_clocks(board, None)
    assert server.sim.get("limit_mw") == 400_000
    assert [path.partition("?")[0] for path in server.asked[-2:]] == [
        "/gpu/set_gpu_locked_clocks",
        "/gpu/reset_gpu_locked_clocks",
    ]
    with pytest.raises(DeviceError, match="400"):
        found.set_limit_mw(board, 100_000)
    asked = len(server.asked)
    with pytest.raises(DeviceError, match="another board"):
        found.set_limit_mw(DeviceInfo(uuid="GPU-b", name="NVIDIA A40", index=0), 300_000)
    assert len(server.asked) == asked
