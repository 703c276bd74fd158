"""Put the fragments of ``changes/`` into ``CHANGELOG.md``, under its unreleased section, and remove them.

python tools/make_changelog.py           # writes
python tools/make_changelog.py --check   # ends with 1 where a fragment's name is not NAME.KIND.md
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CHANGES, CHANGELOG = ROOT / "changes", ROOT / "CHANGELOG.md"
KINDS = ("added", "changed", "fixed", "removed")
UNRELEASED = "## [Unreleased]\n"


def fragments() -> dict[str, list[Path]]:
    """Fragments of each kind; ValueError for a name of another form."""
    found: dict[str, list[Path]] = {kind: [] for kind in KINDS}
    for path in sorted(CHANGES.glob("*.md")):
        if path.name != "README.md":
            name, _, kind = path.stem.rpartition(".")
            if not name or kind not in found:
                raise ValueError(
                    f"changes/{path.name}: a fragment is called NAME.KIND.md, KIND one of {', '.join(KINDS)}"
                )
            found[kind].append(path)
    return found


def with_fragments(text: str, found: dict[str, list[Path]]) -> str:
    """The changelog with the fragments at the top of the sections of the unreleased part."""
    head, _, rest = text.partition(UNRELEASED)
    part, mark, older = rest.partition("\n## ")
    for kind in reversed(KINDS):
        lines = "".join(f"- {path.read_text().strip().removeprefix('- ')}\n" for path in found[kind])
        title = f"### {kind.capitalize()}\n\n"
        if lines and title in part:
            part = part.replace(title, title + lines, 1)
        elif lines:
            part = f"\n{title}{lines}{part}"
    return f"{head}{UNRELEASED}{part}{mark}{older}"


def main() -> int:
    """Write the changelog, or check the names of fragments; the exit code."""
    try:
        found = fragments()
    except ValueError as error:
        print(error)
        return 1
    if "--check" not in sys.argv[1:]:
        CHANGELOG.write_text(with_fragments(CHANGELOG.read_text(), found))
        for paths in found.values():
            for path in paths:
                path.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
