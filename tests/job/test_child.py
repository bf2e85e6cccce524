"""A job's end has one name, whoever tells it: the supervisor that saw it, or a reader of what it left on disk."""

import pytest

from carbontui.job.files import store
from carbontui.job.supervisor.core.rules.control import Observation, decide
from carbontui.job.supervisor.core.state.decision import Desired
from carbontui.job.terms import child
from carbontui.text.statements import reason

RECORDS = [
    ({"code": 0}, "done"),
    ({"code": 7}, "failed"),
    ({"signal": 9}, "failed"),
    ({"code": 0, "stopped": True}, "stopped"),
    ({"code": 0, "unloaded": True}, "unloaded"),
]


@pytest.mark.parametrize(("record", "state"), RECORDS)
def test_supervisor_and_reader_of_the_exit_record_say_the_same(record, state):
    _, decision = decide(Desired(), Observation(now_s=0.0, mono_s=0.0, child=child.exited(record)))
    told = store.ended(record)
    assert (told["state"], told["reason"]) == (decision.state, reason(decision.why, 0.0))
    assert told["state"] == state
