"""Makes results.md: CARBONTUI_TABLE=DIR pytest tests/frameworks; python tests/frameworks/table.py DIR

The row of tensorflow, which is not in the extra `frameworks` (1.6 GB): in an environment with `.[test]`, keras and
tensorflow-cpu, CARBONTUI_TABLE=DIR pytest tests/frameworks/test_frameworks.py -k tensorflow
"""

from __future__ import annotations

import json
import platform
import sys
from datetime import datetime, timezone
from pathlib import Path

from cases import CASES, COLUMNS, GUESSED

HEADS = (
    "steps exact",
    "total known",
    "pause held at one step",
    "bit-identical",
    "unload",
    "resume exact",
    "exit code",
)


def aided(name: str, column: str) -> str:
    """What the script has to say for it; empty where it is as it would be without carbontui."""
    case = next(case for case in CASES if case.name == name)
    own = bool(case.unload_args) or (case.script.name != "loops.py" and "import carbontui" in case.script.read_text())
    if own and column == "total":
        return "the script says it: carbontui.report(total=)"
    return "with the lines of docs/frameworks.md in the script" if own and column in ("unload", "resume") else ""


def main(folder: Path) -> None:
    rows = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    notes: list[str] = []
    lines = ["| training | " + " | ".join(HEADS) + " |", "|---" * (len(HEADS) + 1) + "|"]
    for row in rows:
        cells = []
        for column in COLUMNS:
            value = row[column]
            if isinstance(value, str):
                notes += [value] if value not in notes else []
                value = f"{'yes' if value == GUESSED else 'no'} ({notes.index(value) + 1})"
            elif value and (why := aided(row["case"], column)):
                notes += [why] if why not in notes else []
                value = f"yes ({notes.index(why) + 1})"
            cells.append({True: "yes", False: "**no**"}.get(value, value))
        lines.append(f"| {row['case']} | " + " | ".join(cells) + " |")
    versions = {name: version for row in rows for name, version in row["versions"].items()}
    made = ", ".join(f"{name} {version}" for name, version in versions.items())
    day = f"{datetime.now(timezone.utc):%Y-%m-%d}"
    text = [
        "# Trainings that others wrote, under carbontui",
        "",
        f"Made by the tests beside it on {day}: Python {platform.python_version()}, {made}.",
        "On CPU with gloo; no GPU was at hand.",
        "",
        *lines,
        "",
        *(f"{i + 1}. {note}" for i, note in enumerate(notes)),
    ]
    Path(__file__).with_name("results.md").write_text("\n".join(text) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
