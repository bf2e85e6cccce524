"""Client of zeusd, which sets limits and clocks for users without root, over HTTP on a Unix socket.

Written from its documentation (https://ml.energy/zeus/zeusd/, zeusd 0.5), compared with its routes at ml-energy/zeus
75a8b93 and tested against a stand-in. It reads nothing for us: what it can read every user may. zeusd restores nothing
and does not check whose board it is: our lease keeps the original limit, and our agent restores it and leaves boards
alone that others use.
"""

from __future__ import annotations

import http.client
import json
import os
from pathlib import Path
from urllib.parse import urlencode

from carbontui.power.backends import codes
from carbontui.power.backends.base import DeviceError, DeviceInfo
from carbontui.system.local_socket import connect

SOCKETS = (Path("/run/zeusd/zeusd.sock"), Path("/var/run/zeusd.sock"))
"""Where it listens unless ZEUSD_SOCK_PATH says otherwise."""
ANSWER_MAX_B = 65536
CODES = {400: codes.INVALID, 401: codes.NO_PERMISSION, 403: codes.NO_PERMISSION, 404: codes.NO_PERMISSION}


class _Connection(http.client.HTTPConnection):
    """HTTP to a Unix socket whose server runs as root or as us."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost")
        self._path = path

    def connect(self) -> None:
        self.sock = connect(self._path)


class Zeusd:
    """One zeusd. A board is told by its PCI address, or in older ones by the driver's number and name."""

    def __init__(self, path: Path, names: dict[int, str], addresses: dict[int, str]) -> None:
        self._path = path
        self._names = names
        self._addresses = {place: _pci(text) for place, text in addresses.items()}

    def set_limit_mw(self, info: DeviceInfo, milliwatts: int) -> None:
        """Raises DeviceError."""
        self._post("set_power_limit", info, power_limit_mw=milliwatts)

    def lock_clocks(self, info: DeviceInfo, mhz: int | None) -> None:
        """Raises DeviceError."""
        if mhz is None:  # AMD has no reset of one clock alone
            self._post("reset_locked_clocks" if info.maker == "amd" else "reset_gpu_locked_clocks", info)
        else:
            self._post("set_gpu_locked_clocks", info, min_clock_mhz=0, max_clock_mhz=mhz)

    def _number(self, info: DeviceInfo) -> int:
        """Raises DeviceError."""
        wanted = _pci(info.pci)
        at = [place for place, address in self._addresses.items() if wanted and address == wanted]
        if len(at) == 1:
            return at[0]
        if (any(self._addresses.values()) and wanted) or self._names.get(info.index) not in (info.name, ""):
            raise DeviceError(codes.NO_PERMISSION, f"zeusd knows GPU {info.index} as another board")
        return info.index

    def _post(self, what: str, info: DeviceInfo, **values: int) -> None:
        query = urlencode({"gpu_ids": self._number(info), **values, "block": "true"})
        try:
            status, body = _ask(self._path, "POST", f"/gpu/{what}?{query}")
        except (OSError, http.client.HTTPException) as error:
            raise DeviceError(codes.UNKNOWN, f"zeusd does not answer ({error})") from None
        if status != 200:
            text = "".join(letter for letter in body.decode(errors="replace")[:200] if letter.isprintable())
            raise DeviceError(CODES.get(status, codes.UNKNOWN), f"zeusd refuses ({status}): {text}")


def _pci(address: str) -> tuple[int, ...]:
    """Domain, bus and device, however many digits they are written with; () for none."""
    try:
        return tuple(int(part, 16) for part in address.partition(".")[0].split(":"))
    except ValueError:
        return ()


def find() -> Zeusd | None:
    """The zeusd of this machine that lets us control boards; None if there is none."""
    named = os.environ.get("ZEUSD_SOCK_PATH")
    for path in (Path(named),) if named else SOCKETS:
        try:
            status, body = _ask(path, "GET", "/discover")
            told = json.loads(body) if status == 200 else {}
            groups = told.get("enabled_api_groups")
            # older ones number their boards and have no groups
            names = {int(gpu["id"]): str(gpu["name"]) for gpu in told.get("gpus", ())}
            addresses = {int(gpu["id"]): str(gpu.get("pci_address", "")) for gpu in told.get("gpus", ())}
            names = names or dict.fromkeys(map(int, told.get("gpu_ids", ())), "")
        except (OSError, ValueError, KeyError, TypeError, AttributeError, http.client.HTTPException):
            continue
        barred = bool(told.get("auth_required")) and not os.environ.get("ZEUSD_TOKEN")
        if names and not barred and (groups is None or "gpu-control" in groups):
            return Zeusd(path, names, addresses)
    return None


def _ask(path: Path, method: str, target: str) -> tuple[int, bytes]:
    token = os.environ.get("ZEUSD_TOKEN")
    connection = _Connection(path)
    try:
        connection.request(method, target, headers={"Authorization": f"Bearer {token}"} if token else {})
        answer = connection.getresponse()
        return answer.status, answer.read(ANSWER_MAX_B)
    finally:
        connection.close()
