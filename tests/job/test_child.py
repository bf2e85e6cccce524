"""A job's end has one name, whoever tells it: the supervisor that saw it, or a reader of what it left on disk."""

import json

import pytest
from states import inputs, job_state

from carbontui.job.files import store
from carbontui.job.supervisor.core.rules.control import decide
from carbontui.job.terms import child
from carbontui.system import life
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
    _, decision = decide(job_state(), inputs(child=child.exited(record)))
    told = store.ended(record)
    assert (told["state"], told["reason"]) == (decision.state, reason(decision.why, 0.0))
    assert told["state"] == state


BROKEN_VALUES = ['"zero"', "-1", "1e999", "9" * 400, "NaN", "1e300", "[[]]", "{}", "true", "null", f'"{"x" * 9999}"']
RIGHT_TO_TRAIN = '"token": 1, "holder": false, "leased": true'


def test_damaged_small_files_of_a_job_break_no_list(house):
    files = [("exit.json", f'{{"{key}": {value}}}') for value in BROKEN_VALUES for key in ("code", "signal", "at")]
    files += [("exit.json", f'{{"moved": {value}, "stopped": {value}, "budget": {value}}}') for value in BROKEN_VALUES]
    files += [("places.json", f'{{{RIGHT_TO_TRAIN}, "peer": {value}, "ends": {value}}}') for value in BROKEN_VALUES]
    for number, (name, text) in enumerate(files):
        folder = house.home / "jobs" / f"j{number}"
        folder.mkdir(parents=True)
        record = {"job": f"j{number}", "name": "x", "socket": "/s", "log": "/l", "started": 1, "argv": [], "pids": {}}
        (folder / "job.json").write_text(json.dumps(record | life.here()._asdict()))
        status = {"job": f"j{number}", "name": "x", "host": "h", "measured_at": "2026-01-01T00:00:00Z"}
        status |= {"state": "running", "reason": {"code": "plan", "text": "as planned"}}
        (folder / "snapshot.json").write_text(json.dumps(status))
        (folder / name).write_text(text)
    done = house.cli("ls", "--all", "--json")
    assert done.returncode == 0 and len(json.loads(done.stdout)) == len(files), done.stderr
    for words in (["ls", "--all"], ["line"], ["status", "j0"], ["status", f"j{len(files) - 1}"]):
        done = house.cli(*words)
        assert done.returncode == 0, done.stderr
