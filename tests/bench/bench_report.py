"""How long the report of a month takes, and how large the page is: a 30-day run of two boards, as its journal holds it.

python tests/bench/bench_report.py [DAYS] [BOARDS]
"""

import json
import os
import platform
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "report"))

import runs

from carbontui.reports import formats, story

BARS = {"seconds": 2.0, "bytes": 1_000_000}


def month(days):
    """Days of six states each."""
    whole = sum(phase[1] for phase in runs.DAY)
    return tuple(runs.DAY) * round(days * 86400 / whole)


def main(days=30.0, boards=2):
    with tempfile.TemporaryDirectory() as folder:
        job = runs.make(Path(folder), phases=month(days), gpus=boards)
        begun, cpu = time.perf_counter(), time.process_time()
        told = story.build(job, version="bench")
        read_s = time.perf_counter() - begun
        text = formats.html(told)
        whole_s, cpu_s = time.perf_counter() - begun, time.process_time() - cpu
        formats.table(told)
        size = (job.dir / "journal.db").stat().st_size
    found = {
        "days": days, "boards": boards, "journal_bytes": size, "read_s": round(read_s, 3),
        "seconds": round(whole_s, 3), "cpu_s": round(cpu_s, 3), "bytes": len(text.encode()), "bars": BARS,
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}",
        "load": round(os.getloadavg()[0], 1), "date": time.strftime("%Y-%m-%d"),
    }  # fmt: skip
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main(*(float(word) for word in sys.argv[1:2]), *(int(word) for word in sys.argv[2:3]))
