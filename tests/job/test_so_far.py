"""What a job has used so far: nothing is claimed to be saved before there is work that run-now would have done."""

import pytest
from states import board, inputs, job_state

from carbontui.job.clock import Clock
from carbontui.job.journal import Journal
from carbontui.job.supervisor.core.measured import Mean, Measured
from carbontui.job.supervisor.core.progress import Progress
from carbontui.job.supervisor.record.accounting import Accounting
from carbontui.job.supervisor.record.so_far import totals_so_far


@pytest.mark.parametrize(
    ("work", "claimed"),
    [
        (Progress(plain_done_s=7200.0, steps_total=195, given_rate=0.1), False),  # it is still being loaded
        (Progress(plain_done_s=7200.0, steps_total=195, given_rate=0.1, step=40), True),
        (Progress(plain_done_s=7200.0, work_s=9000.0), True),  # a program that tells no steps: by the clock
        (Progress(plain_done_s=30.0, work_s=9000.0), False),
    ],
)
def test_nothing_is_claimed_before_work_is_done(tmp_path, work, claimed):
    job = job_state(progress=work, measured=Measured(full_w={"GPU-a": Mean(600.0, 50)}))
    account = Accounting(job.spec, Clock(), Journal(tmp_path / "j.db"), "boot")
    account.ledger.add("GPU-a", job.start_s, job.start_s + 100.0, 5000.0, "counter", "running", 0.0, gpu=True)
    account.intensity.update_all([(job.start_s - 3600.0, 90_000.0, 300.0)])
    seen = inputs(boards=(board(),))
    assert (totals_so_far(account, job, seen).avoided_g is not None) is claimed
