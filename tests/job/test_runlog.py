"""The end of a log, however long it is, and whatever ends its lines."""

import io
import itertools
import random
import subprocess
import sys

import pytest

from carbontui.job.files import runlog

PIECES = [b"one\n", b"two\r\n", b"bar 10%\rbar 20%\r", b"\n", b"", b"no end", b"x" * 50 + b"\n"]


@pytest.mark.parametrize("block_b", [1, 2, 3, 7, 4096])
def test_the_last_lines_are_those_of_reading_it_whole(monkeypatch, block_b):
    monkeypatch.setattr(runlog, "BLOCK_B", block_b)
    dice = random.Random(7)
    for _, lines in itertools.product(range(60), (0, 1, 2, 5, 1000)):
        text = b"".join(dice.choices(PIECES, k=dice.randrange(8)))
        begins = runlog.last_lines(io.BytesIO(text), lines)
        assert text[begins:] == b"".join(text.splitlines(keepends=True)[-lines:] if lines else [])


READ = """\
import sys
from carbontui.job.files import runlog
with open(sys.argv[1], "rb") as file:
    file.seek(runlog.last_lines(file, 5))
    assert len(file.read().splitlines()) == 5
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(int(peak.split()[1]) // 1024)
"""


def test_the_end_of_a_gigabyte_costs_no_memory(tmp_path):
    path = tmp_path / "run.log"
    with path.open("wb") as file:
        file.truncate(1 << 30)  # sparse: a line of zeros, a gigabyte long
        file.seek(0, 2)
        file.write(b"\nend\n" * 5)
    done = subprocess.run([sys.executable, "-c", READ, str(path)], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 60
