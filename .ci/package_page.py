"""`package_page.py ADDRESS TREE`: make a copy of the repository what the package index shows of it.

README installs by the package's name, its links and pictures lead to ADDRESS at the version's tag, and pyproject.toml
gains `[project.urls]`. Raises SystemExit for a link to what is not in TREE.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

CLONE = {
    'pip install ".[demo]"': 'pip install "carbontui[demo]"',
    "in a clone, on Linux": "on Linux",
    "`pip install .`": "`pip install carbontui`",
    '`pip install -e ".[test]" && pytest`': '`pip install -e ".[test]" && pytest` in a clone',
}
"""What README says to who has a clone -> to who has none."""


def page(readme: str, address: str, tag: str, there: Path) -> str:
    """README as a package index shows it: every relative link and picture absolute."""

    def absolute(match: re.Match[str]) -> str:
        picture, label, target = match.groups()
        if re.match(r"https?://|#", target):
            return match[0]
        if not (there / target.partition("#")[0]).exists():
            raise SystemExit(f"README.md links to {target}, which is not there")
        return f"{picture}[{label}]({address}/{'raw' if picture else 'blob'}/{tag}/{target})"

    for in_a_clone, by_name in CLONE.items():
        if in_a_clone not in readme:
            raise SystemExit(f"README.md no longer says {in_a_clone!r}: see .ci/package_page.py")
        readme = readme.replace(in_a_clone, by_name)
    return re.sub(r"(!?)\[([^]]*)\]\(([^)]+)\)", absolute, readme)


def main(address: str, tree: Path) -> None:
    version = re.search(r'^__version__ = "([^"]+)"', (tree / "carbontui/client/version.py").read_text(), re.M)
    assert version, "carbontui/client/version.py names no version"
    readme, project = tree / "README.md", tree / "pyproject.toml"
    readme.write_text(page(readme.read_text(), address, f"v{version[1]}", tree))
    paths = {
        "Homepage": "",
        "Documentation": "#documentation",
        "Issues": "/issues",
        "Changelog": f"/blob/v{version[1]}/CHANGELOG.md",
    }
    urls = "".join(f'{name} = "{address}{path}"\n' for name, path in paths.items())
    project.write_text(project.read_text().replace("[project.scripts]", f"[project.urls]\n{urls}\n[project.scripts]"))


if __name__ == "__main__":
    main(sys.argv[1].rstrip("/"), Path(sys.argv[2]))
