"""What a person is told of boards whose watts are unknown or not this job's alone."""

from __future__ import annotations

from drawn import drawn
from msgspec.structs import replace

from carbontui.job.supervisor.core.view.notices import board_notices
from carbontui.power.messages import Capability, Reading

BOARD = Reading(
    uuid="GPU-a",
    name="H100",
    index=3,
    power_w=300.0,
    caps={"energy": Capability("yes"), "power": Capability("yes")},
    pids=(7,),
)


def test_boards_that_are_read_and_used_alone_need_no_words() -> None:
    assert board_notices((BOARD,), 1.0) == []
    assert board_notices((), float("inf")) == [], "a machine without boards is no fault"


def test_a_silent_driver_is_named_with_its_silence() -> None:
    (text,) = board_notices((BOARD,), 42.0)
    assert "has not answered for 42 s" in drawn(text)


def test_each_board_whose_watts_mislead_is_named() -> None:
    lost = replace(BOARD, lost=True, power_w=None, caps={"energy": Capability("lost"), "power": Capability("lost")})
    unreadable = replace(
        BOARD, power_w=None, caps={"energy": Capability("not_supported")}, why={"power_w": "not supported here"}
    )
    counted = replace(BOARD, power_w=None)
    texts = [[drawn(line) for line in board_notices((one,), 1.0)] for one in (lost, unreadable, counted)]
    assert "GPU 3 is lost" in texts[0][0] and len(texts[0]) == 1
    assert texts[1] == ["GPU 3: no watts can be read (not supported here); the energy counted is without them"]
    assert texts[2] == [], "the counter still counts"
    assert "shared by its MIG slices" in drawn(board_notices((replace(BOARD, mig=True),), 1.0)[0])
    assert "pid 99" in drawn(board_notices((replace(BOARD, foreign_pids=(99,)),), 1.0)[0])
