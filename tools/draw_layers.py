"""Draw the layers of the package from its imports, into ``docs/architecture.md``.

    python tools/draw_layers.py           # renew the picture
    python tools/draw_layers.py --check   # ends with 1 where it is not what the imports say

The picture is text in the Mermaid language, which code hosts show as a drawing. An arrow says that something in a room
imports something in another one; arrows that follow from others are left out.
"""

from __future__ import annotations

import sys
from collections import Counter

from check_structure import LAYERS, room_of
from imports import ROOT, imports, modules

PAGE = ROOT / "docs" / "architecture.md"

BEGIN, END = "<!-- layers: drawn by tools/draw_layers.py -->", "<!-- end of layers -->"


def arrows() -> set[tuple[str, str]]:
    """Pairs of rooms, the first of which imports the second, without those that follow from others."""
    found: dict[str, set[str]] = {room: set() for rooms in LAYERS for room in rooms}
    for name, imported in imports(modules()).items():
        if room_of(name):
            found[room_of(name)] |= {room_of(other) for other in imported} - {room_of(name), ""}

    def reaches(start: str, goal: str) -> bool:
        return any(step == goal or reaches(step, goal) for step in found[start])

    return {
        (room, other)
        for room, others in found.items()
        for other in others
        if not any(reaches(step, other) for step in others if step != other)
    }


def picture() -> str:
    """The drawing, a line a layer and a line an arrow."""
    sizes = Counter(room_of(name) for name in modules())
    lines = ["```mermaid", "flowchart TD"]
    for rooms in LAYERS:
        for room in rooms:
            count = f"{sizes[room]} modules" if sizes[room] > 1 else "1 module"
            lines.append(f'    {room}["{room}<br/>{count}"]')
    lines += [f"    {room} --> {other}" for room, other in sorted(arrows())]
    return "\n".join([*lines, "```"])


def main() -> int:
    """Write the picture into the page, or compare it with that; returns the exit code."""
    page = PAGE.read_text()
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    renewed = f"{before}{BEGIN}\n{picture()}\n{END}{after}"
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(renewed)
        return 0
    if renewed != page:
        print(f"{PAGE.relative_to(ROOT)}: the picture is not what the imports say; run python tools/draw_layers.py")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
