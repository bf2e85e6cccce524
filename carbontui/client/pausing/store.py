"""torch.distributed's own key-value store, on a separate connection: the medium for agreement among ranks."""

import math
import os
import resource
from datetime import timedelta
from typing import Any, Callable, Dict, List, Optional

from carbontui.client import device

SPARE_SHARE, SPARE_LEAST = 0.15, 40
"""Of the descriptors that a process may have, what the training may still open: files, its loaders, its own sockets."""

WAKE_S, WAKES = 0.5, 10
"""How long to try to reach the store when the process ends, and how often: rank 0 may have ended with it."""
RANKS_HERE = ("LOCAL_WORLD_SIZE", "SLURM_NTASKS_PER_NODE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS")
"""Variables in which launchers say how many ranks a node has."""


class Lost(Exception):
    """The store no longer answers; a process without it never holds."""


class Store:
    """Our own connection to the job's store. Values are text; waiting releases the interpreter lock."""

    def __init__(self, store: Any, prefix: str) -> None:
        self.store, self.prefix = store, prefix

    def take(self, key: str) -> str:
        """Wait indefinitely for a value. Raises Lost.

        Only for the long wait: a wait that times out writes a warning into the training's log.
        """
        self._try(lambda: self.store.wait([self.prefix + key], timedelta(days=3650)))
        return self._try(lambda: self.store.get(self.prefix + key)).decode()  # type: ignore[no-any-return]

    def get(self, key: str) -> Optional[str]:
        """The value, or None while there is none. Raises Lost."""
        if not self.has(key):
            return None
        return self._try(lambda: self.store.get(self.prefix + key)).decode()  # type: ignore[no-any-return]

    def set(self, key: str, value: str) -> None:
        self._try(lambda: self.store.set(self.prefix + key, value))

    def has(self, *keys: str) -> bool:
        return bool(self._try(lambda: self.store.check([self.prefix + key for key in keys])))

    def first(self, key: str, value: str) -> str:
        """Write unless already written; returns the stored value."""
        return self._try(lambda: self.store.compare_set(self.prefix + key, "", value)).decode()  # type: ignore[no-any-return]

    def forget(self, *keys: str) -> None:
        for key in keys:
            self._try(lambda key=key: self.store.delete_key(self.prefix + key))  # type: ignore[misc]

    def put(self, values: Dict[str, str]) -> None:
        """Set all of these, in one request where this torch can."""
        if self._many():
            self._try(lambda: self.store.multi_set([self.prefix + key for key in values], list(values.values())))
            return
        for key, value in values.items():
            self.set(key, value)

    def values(self, keys: List[str]) -> List[Optional[str]]:
        """Of each of these; None for those that are not there."""
        if self._many() and self.has(*keys):
            return [one.decode() for one in self._try(lambda: self.store.multi_get([self.prefix + k for k in keys]))]
        return [self.get(key) for key in keys]

    def wake(self, opener: Callable[..., Any], awaited: str, waits: Callable[[], bool]) -> None:
        """End another thread's wait for a key. While it waits: one whose store is gone ends by itself."""
        for _ in range(WAKES if awaited else 0):
            if not waits():
                return
            try:
                opener(WAKE_S).set(awaited, "{}")
                return
            except Lost:
                continue

    def _many(self) -> bool:
        can = getattr(self.store, "has_extended_api", None)
        return can is not None and bool(can())

    def _try(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except RuntimeError as error:
            raise Lost(str(error)) from None


def descriptors_suffice(rank: int, world: int) -> bool:
    """Whether our connections, one for each node and for each rank of the node with the store, fit beside torch's into
    the process with the store, which is rank 0's or one like it: there torch's are open already, elsewhere they are
    added to what this process has open."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    try:
        used = len(os.listdir("/proc/self/fd"))
    except OSError:
        used = 0
    told = next((os.environ[name] for name in RANKS_HERE if os.environ.get(name, "").isdigit()), "")
    here = min(world, int(told or 0) or world)
    mine = here + math.ceil(world / here)
    wanted = used + mine + (0 if rank == 0 else world) + max(SPARE_LEAST, SPARE_SHARE * most)
    return most == resource.RLIM_INFINITY or wanted <= most


def prefix() -> str:
    """Of our keys, for this start of the training."""
    run, restart = os.environ.get("TORCHELASTIC_RUN_ID", "run"), os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    return f"carbontui/{run}/{restart}/"


def open_store(timeout_s: float = 30.0) -> Store:
    """A private connection to the store of this job. Raises Lost when there is none (yet)."""
    try:
        dist = device.distributed()
        address, port = os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT", "")
        torch = device.loaded("torch", "distributed")
        if torch is None:
            raise Lost("no torch")
        if address and port.isdigit():
            tcp = torch.TCPStore
            return Store(
                tcp(address, int(port), is_master=False, timeout=timedelta(seconds=timeout_s), wait_for_workers=False),
                prefix(),
            )
        if dist is not None:
            return Store(dist.distributed_c10d._get_default_store().clone(), prefix())
    except (RuntimeError, AttributeError, ValueError, TypeError) as error:
        raise Lost(str(error)) from None
    raise Lost("no store")
