"""A budget of energy that acts on a real job, under the real command line."""

import json
import sys

SCRIPT = """\
import sys, time
import carbontui
saved = []
carbontui.on_checkpoint(lambda: open(sys.argv[1], "w").write("saved"))
carbontui.report(total=100000)
for i in range(100000):
    time.sleep(0.02)
    carbontui.step()
"""


def test_a_budget_that_is_used_up_ends_the_job_at_a_checkpoint_with_exit_code_5(house):
    house.env |= {"CARBONTUI_HOST_W": "5", "CARBONTUI_BOUNDARY": "given-back"}  # it sleeps: nothing above idle
    script, mark = house.root / "t.py", house.root / "checkpoint"
    script.write_text(SCRIPT)
    run = house.cli(
        "run", "--name", "bounded", "--energy-budget", "0.004Wh", "--on-budget", "warn,stop", "--", sys.executable,
        str(script), str(mark),
    )  # fmt: skip
    assert run.returncode == 5, run.stderr
    assert mark.read_text() == "saved"
    assert "is used up" in run.stderr and "stopped at its checkpoint" in run.stderr
    status = json.loads(house.cli("status", "bounded", "--json").stdout)
    assert status["state"] == "stopped" and status["reason"]["code"] == "budget_stop"
    (told,) = status["allowances"]
    assert told["kind"] == "energy" and told["used"] >= 0.95 * told["most"] and told["act"] == "stop"
    assert house.cli("restart", "bounded").returncode != 0


def test_stop_at_once_interrupts_a_script_that_cannot_write_a_checkpoint(house):
    house.env |= {"CARBONTUI_HOST_W": "5", "CARBONTUI_BOUNDARY": "given-back"}  # it sleeps: nothing above idle
    script = house.root / "t.py"
    script.write_text("\n".join(line for line in SCRIPT.splitlines() if "checkpoint" not in line))
    run = house.cli(
        "run", "--name", "bounded", "--energy-budget", "0.004Wh", "--on-budget", "stop!", "--", sys.executable,
        str(script),
    )  # fmt: skip
    assert run.returncode == 5, run.stderr
    assert "is used up" in run.stderr and "at its checkpoint" not in run.stderr
    status = json.loads(house.cli("status", "bounded", "--json").stdout)
    assert status["reason"]["code"] == "budget_stop" and status["allowances"][0]["act"] == "stop!"


def test_what_cannot_be_a_budget_is_refused_before_anything_runs(house):
    for options, words in (
        (("--carbon-budget", "2"), "not a carbon budget; write it like 2kg"),
        (("--cost-budget", "12"), "needs --currency"),
        (("--on-budget", "panic"), "'panic' is not one of"),
        (("--objective", "time"), "needs a budget to use"),
    ):
        run = house.cli("run", *options, "--", "true")
        assert run.returncode == 2 and words in run.stderr
