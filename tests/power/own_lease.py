"""A lease as this process would write it, to be left by another."""

import msgspec

from carbontui.power.limit.leases import BoardLease, LeaseRecord


def new_record(
    uuid: str, epoch: int, before_mw: int, ours_mw: tuple[int, ...], job: str, clocks_mhz: int | None = None
) -> LeaseRecord:
    ours = BoardLease(None, uuid, job, print)
    ours.write(before_mw, ours_mw, clocks_mhz)
    assert ours.record is not None
    return msgspec.structs.replace(ours.record, epoch=epoch)
