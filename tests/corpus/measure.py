"""Runs loops of the corpus under carbontui and writes down what total it showed, and when.

    python tests/corpus/measure.py                     # the forty for development; writes RESULTS.md
    python tests/corpus/measure.py mnist nanogpt       # some; prints the table only
    python tests/corpus/measure.py --held-out --write FILE

Every loop has a house of its own (tests/house.py) and is slowed to about --seconds, so that there is time to look.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import math
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import corpus
import house
import judge

EVERY_S = 0.2
LIMIT_S = 300.0
OPTIONS = ("--zone", "DE", "--intensity", "300", "--budget", "2x")


def watch(loop: corpus.Loop, seconds: float, pace_ms: float | None) -> tuple[judge.Verdict, list[judge.Moment]]:
    """Run one loop; the verdict on what was shown, and all of that."""
    root = Path(tempfile.mkdtemp(prefix="corpus-"))
    runtime = Path(tempfile.mkdtemp(prefix="ct-"))
    own = house.House(root, runtime)
    pace_s = pace_ms / 1000 if pace_ms is not None else seconds / max(1, loop.steps or 200)
    own.env |= {name: value for name, value in corpus.environment().items() if name not in own.env}
    own.env |= {"PYTHONPATH": str(corpus.HERE / "pace"), "PACE_S": f"{pace_s:.4f}", "TIME_BUDGET": str(seconds)}
    moments: list[judge.Moment] = []
    try:
        done = own.cli("run", "--detach", *OPTIONS, "--", sys.executable, loop.path, check=True)
        job = house.Job(own, done.stdout.strip(), root / "marks")
        due = time.monotonic() + LIMIT_S
        status: dict[str, object] = {}
        while time.monotonic() < due and not (job.dir / "exit.json").exists():
            with contextlib.suppress(OSError, ValueError, KeyError):  # not begun, or between two supervisors
                status = job.status()
                moments.append(judge.moment(status))
            time.sleep(EVERY_S)
        job.until_over()
        left = json.loads((job.dir / "exit.json").read_text())
        if left.get("code") != 0:
            raise RuntimeError(f"{loop.name} ended with {left}: {(job.dir / 'run.log').read_text()[-2000:]}")
        moments.append(judge.moment(job.status()))
    finally:
        own.end()
        shutil.rmtree(root, ignore_errors=True)
        shutil.rmtree(runtime, ignore_errors=True)
    return judged(loop, moments), moments


def judged(loop: corpus.Loop, moments: list[judge.Moment]) -> judge.Verdict:
    """Of a run of it. Where the machine decides how many steps it makes, those are the truth that it made."""
    truth = loop.steps or moments[-1].step
    return judge.verdict(moments, truth, loop.due or truth / 2)


def row(loop: corpus.Loop, found: judge.Verdict) -> str:
    """A line of the table."""
    totals = ", ".join(f"{total or '-'} from {step}" for step, total, _ in found.totals[:4])
    totals += f" ... ({len(found.totals)} in all)" if len(found.totals) > 4 else ""
    sources = ", ".join(dict.fromkeys(f"`{source}`" for _, _, source in found.totals if source))
    steps = f"{found.truth}" if found.counted == found.truth else f"{found.truth}, counted {found.counted}"
    right = ("yes" if found.right else "no") if loop.knowable else "open"
    covered = "-" if found.covered is None else f"{found.covered:.0%}"
    width = "-" if found.width is None else "no limit" if math.isinf(found.width) else f"{found.width:.0%}"
    first = "never" if found.first is None else str(found.first)
    cells = loop.name, loop.kind, steps, first, totals or "-", sources or "-", right, f"{found.right_share:.0%}"
    return "| " + " | ".join((*cells, "yes" if found.wrong else "no", covered, width)) + " |"


def summary(found: Sequence[tuple[corpus.Loop, judge.Verdict]]) -> list[str]:
    """The figures over all loops."""
    known = [one for loop, one in found if loop.knowable]
    unknowable = [one for loop, one in found if not loop.knowable]
    covered = [one.covered for _, one in found if one.covered is not None]
    lines = [
        f"- knowable: {len(known)}; a total is shown at some time in {sum(one.first is not None for one in known)}, "
        f"right when due in {sum(one.right for one in known)}, "
        f"wrong without notice in {sum(one.wrong for one in known)}, "
        f"never a total in {sum(one.first is None for one in known)}; "
        f"right over {statistics.fmean(one.right_share for one in known) if known else 0:.0%} of all steps",
        f"- not knowable: {len(unknowable)}; wrong without notice in {sum(one.wrong for one in unknowable)}",
        f"- intervals: given in {len(covered)}"
        + (f"; they had the truth at {statistics.fmean(covered):.0%} of the moments" if covered else ""),
    ]
    if miscounted := [loop.name for loop, one in found if one.counted != one.truth]:
        lines.append(f"- the tool's own count of steps differs from the truth in: {', '.join(miscounted)}")
    return lines


HEAD = (
    "| loop | kind | steps | first total at step | totals | source | right when due | right, of all steps "
    "| wrong without notice | interval has the truth | interval's width when due |"
)


def report(found: Sequence[tuple[corpus.Loop, judge.Verdict]], place: str) -> str:
    head = ["# Totals of plain trainings, as found", "", place, ""]
    rows = [row(loop, one) for loop, one in found]
    return "\n".join([*head, *summary(found), "", HEAD, "|" + "---|" * (HEAD.count("|") - 1), *rows, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--held-out", action="store_true", help="those that are held out")
    parser.add_argument("--seconds", type=float, default=20.0, help="about how long each run shall take")
    parser.add_argument("--pace", type=float, metavar="MS", help="sleep this long at each step instead")
    parser.add_argument("--jobs", type=int, default=2, help="how many at a time")
    parser.add_argument("--write", type=Path, metavar="FILE", help="where the table goes; without names RESULTS.md")
    parser.add_argument("--raw", type=Path, metavar="FILE", help="all moments, as JSON")
    parser.add_argument("--again", type=Path, metavar="FILE", help="judge the moments of such a file, run nothing")
    parser.add_argument("--machine", default="2 shared cores")
    parser.add_argument("--date", default=f"{datetime.date.today()}")
    args = parser.parse_args()
    loops = corpus.chosen(args.names, held_out=args.held_out)
    for loop in loops:
        if loop.missing:
            print(f"{loop.name} is left out: it needs {', '.join(loop.missing)}", file=sys.stderr)
    loops = [loop for loop in loops if not loop.missing]
    kept = json.loads(args.again.read_text()) if args.again else {}
    loops = [loop for loop in loops if loop.name in kept or not args.again]
    found: list[tuple[corpus.Loop, judge.Verdict]] = []
    raw: dict[str, list[judge.Moment]] = {}

    def one(loop: corpus.Loop) -> None:
        try:
            if args.again:
                moments = [judge.Moment(*fields) for fields in kept[loop.name]]
                mine = judged(loop, moments)
            else:
                mine, moments = watch(loop, args.seconds, args.pace)
            raw[loop.name] = moments
        except Exception as error:
            print(f"{loop.name}: {error}", file=sys.stderr, flush=True)
            return
        found.append((loop, mine))
        print(row(loop, mine), flush=True)

    with ThreadPoolExecutor(args.jobs) as pool:
        list(pool.map(one, loops))
    order = [loop.name for loop in loops]
    found.sort(key=lambda each: order.index(each[0].name))
    text = report(found, f"{args.machine}, {args.date}; each slowed to about {args.seconds:g} s.")
    target = args.write or (None if args.names or args.held_out else corpus.HERE / "RESULTS.md")
    if target:
        target.write_text(text)
    print("\n" + "\n".join(summary(found)))
    if args.raw:
        rows = {name: [[m.step, m.total, m.source, m.low, m.high] for m in raw[name]] for name in order if name in raw}
        args.raw.write_text(json.dumps(rows))
    raise SystemExit(len(found) != len(loops))


if __name__ == "__main__":
    main()
