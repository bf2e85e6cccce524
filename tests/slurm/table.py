"""Makes results.md: CARBONTUI_TABLE=DIR pytest tests/slurm -k "outcomes or life"; python tests/slurm/table.py DIR"""

from __future__ import annotations

import importlib.metadata
import json
import platform
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path

KINDS = {
    "handler": "with handlers that save",
    "none": "without, and a checkpoint function known",
    "lightning": "Lightning, its auto-requeue on USR1",
}


def cell(found: dict[str, object]) -> str:
    lives = "" if found["lives"] == 1 else f", {found['lives']} starts"
    end = ", right weights" if found["weights"] else ""
    return f"{found['state']}{lives}; handler {found['handler']}; lost {found['lost']}{end}"


LIFE = "## The life of a job in the queue"
RESULTS = Path(__file__).with_name("results.md")


def version() -> str:
    return subprocess.run(["/usr/sbin/slurmd", "-V"], capture_output=True, text=True, check=True).stdout.strip()


def life(folder: Path) -> str:
    """The rows of test_slurm_life.py; without any those that were there stay."""
    rows = [json.loads(path.read_text()) for path in sorted(folder.glob("life-*.json"))]
    alone = [json.loads(path.read_text()) for path in folder.glob("plain-*.json")]
    run = {row["pattern"]: row["plain"] for row in alone}
    if not rows:
        before = RESULTS.read_text().partition(LIFE)
        return before[1] + before[2]
    text = [
        LIFE,
        "",
        f"Made by test_slurm_life.py and test_slurm_matrix.py on {datetime.now(timezone.utc):%Y-%m-%d}: {version()},",
        "one node, linuxproc; with `run --resubmit` but where the row says otherwise. Both columns were run.",
        "",
        "| | alone | under carbontui |",
        "|---|---|---|",
        *(f"| {row['pattern']} | {run.get(row['pattern'], row['plain'])} | {row['carbontui']} |" for row in rows),
    ]
    return "\n".join(text) + "\n"


def main(folder: Path) -> None:
    rows = [json.loads(path.read_text()) for path in sorted(folder.glob("[0-9]*.json"))]
    end = life(folder)
    if not rows:
        RESULTS.write_text(RESULTS.read_text().partition(LIFE)[0].rstrip() + "\n\n" + end)
        return
    text = [
        "# What Slurm does to a training, alone and under carbontui",
        "",
        f"Made by the tests beside it on {datetime.now(timezone.utc):%Y-%m-%d}: {version()},",
        f"one node, linuxproc, `srun`; Python {platform.python_version()},",
        f"Lightning {importlib.metadata.version('lightning')}.",
        "Each cell: what Slurm says of the job; how often the script's handler ran; steps that were done and are in no",
        "checkpoint, or were done twice.",
        "",
        "| | training | alone | under carbontui |",
        "|---|---|---|---|",
    ]
    for row in rows:
        text.append(f"| {row['event']} | {KINDS[row['kind']]} | {cell(row['plain'])} | {cell(row['carbontui'])} |")
    text += [
        "",
        "Lightning answers TERM with a handler that saves nothing, which is left to it: it loses what it loses alone.",
        "A preempted job that ends within its grace time is over for Slurm, which then does not start it again.",
    ]
    RESULTS.write_text("\n".join(text) + "\n\n" + end)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
