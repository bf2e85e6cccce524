"""Any boards with capd as a fallback: calls that a driver allows to root alone go to it, if it runs."""

import select
import socket
import time

from carbontui.power.backends import base
from carbontui.power.backends.base import DeviceError
from carbontui.power.backends.several import Several
from carbontui.power.capd import wire

SOON_S = 1.5
"""How long to retry a write that comes too soon after the last one."""
AGAIN_S = 0.05
SEEK_S = 10.0
"""How often capd is looked for while nothing has been set."""


class CapdBackend(Several):
    """Reads from the drivers; writes to them, or through capd once they have refused."""

    through_capd = False
    """The driver refuses our writes and capd accepts them."""
    _away = False
    _link: socket.socket | None = None
    _beat_at = _sought_at = 0.0
    _service: str | None = None

    @property
    def through(self) -> str:
        return "capd" if self.through_capd else ""

    def setter(self, uuid: str) -> str | None:
        if self.through:
            return self.through
        if (direct := super().setter(uuid)) is not None:
            return direct
        if time.monotonic() >= self._sought_at:
            self._sought_at = time.monotonic() + SEEK_S
            self._service = "capd" if self._ask(wire.CapdBeat()) else None
            self._hang_up()  # nothing is held there yet: it need not hear from us
        return self._service

    def set_limit_mw(self, uuid: str, milliwatts: int) -> None:
        if not self.through_capd:
            try:
                super().set_limit_mw(uuid, milliwatts)
                return
            except DeviceError as error:
                if error.code != base.NO_PERMISSION or self._ask(wire.CapdBeat()) is None:
                    raise
            self.through_capd = True
        request, until = wire.Limit(uuid, milliwatts), time.monotonic() + SOON_S
        while (answer := self._ask(request)) is not None and answer.code == wire.SOON and time.monotonic() < until:
            time.sleep(AGAIN_S)
        if answer is None:
            raise DeviceError(base.REFUSED, "it does not answer now")
        if not answer.ok:
            raise DeviceError(answer.code, answer.why)

    @property
    def away(self) -> bool:
        if self._link is not None and select.select([self._link], [], [], 0)[0]:
            self._hang_up()  # every answer has been read completely, so readable now means EOF
            self._away = True
        return self._away

    def beat(self) -> bool:
        if not self.through_capd or (not self.away and time.monotonic() < self._beat_at):
            return False
        self._beat_at = time.monotonic() + wire.BEAT_S
        was_away = self._away
        self._away = self._ask(wire.CapdBeat(), again=False) is None
        return was_away and not self._away

    def close(self) -> None:
        self._hang_up()
        super().close()

    def _ask(self, request: wire.CapdRequest, *, again: bool = True) -> wire.CapdAnswer | None:
        """The answer, with `again` over a new connection if the old one is gone; None if no capd answers."""
        for _ in range(1 + again):
            try:
                if self._link is None:
                    self._link = wire.connect(wire.socket_path())
                return wire.ask(self._link, request)
            except (OSError, ValueError):
                self._hang_up()
        return None

    def _hang_up(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None
