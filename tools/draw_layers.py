"""Draw the layers of the package from its imports, into ``docs/pictures/layers.svg``.

    python tools/draw_layers.py           # renew the picture
    python tools/draw_layers.py --check   # ends with 1 where it is not what the imports say

The picture has a line for each subpackage, the highest layer first, on a band for each layer. An arc means that a
module of a subpackage imports a module of a lower one; transitive arcs are omitted. It needs no program to be shown.
"""

from __future__ import annotations

import sys

from check_structure import LAYERS, subpackage_of
from imports import ROOT, imports, modules

PICTURE = ROOT / "docs" / "pictures" / "layers.svg"

LINE, WIDTH, LEFT = 28, 500, 150
"""Height of a subpackage's line, width of the picture, and place of the dots, in pixels."""

HEAD = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" \
font-family="sans-serif" font-size="14">
<title>Subpackages of the package and their imports</title>
<rect width="{width}" height="{height}" fill="#fff"/>
<marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">\
<path d="M0 0L8 4L0 8z" fill="#2b6cb0"/></marker>"""


def arrows() -> set[tuple[str, str]]:
    """Pairs of subpackages, the first of which imports the second, without those that follow from others."""
    found: dict[str, set[str]] = {subpackage: set() for subpackages in LAYERS for subpackage in subpackages}
    for name, imported in imports(modules()).items():
        if subpackage_of(name):
            found[subpackage_of(name)] |= {subpackage_of(other) for other in imported} - {subpackage_of(name), ""}

    def reaches(start: str, goal: str) -> bool:
        return any(step == goal or reaches(step, goal) for step in found[start])

    return {
        (subpackage, other)
        for subpackage, others in found.items()
        for other in others
        if not any(reaches(step, other) for step in others if step != other)
    }


def picture() -> str:
    """The drawing as SVG: bands of layers, names of subpackages, and an arc for each import."""
    subpackages = [subpackage for layer in LAYERS for subpackage in layer]
    middle = {subpackage: LINE * number + LINE // 2 for number, subpackage in enumerate(subpackages)}
    lines = [HEAD.format(width=WIDTH, height=LINE * len(subpackages))]
    lines += [
        f'<rect y="{middle[layer[0]] - LINE // 2}" width="{WIDTH}" height="{LINE * len(layer)}" fill="#eef2f7"/>'
        for layer in LAYERS[1::2]
    ]
    for subpackage in subpackages:
        lines.append(f'<text x="16" y="{middle[subpackage] + 5}">{subpackage}</text>')
        lines.append(f'<circle cx="{LEFT}" cy="{middle[subpackage]}" r="4" fill="#2b6cb0"/>')
    for subpackage, other in sorted(arrows()):
        top, end = middle[subpackage], middle[other]
        out = LEFT + 12 + (end - top) * (WIDTH - LEFT - 30) // (LINE * len(subpackages)) * 2
        curve = f"M{LEFT + 4} {top}C{out} {top} {out} {end} {LEFT + 5} {end}"
        lines.append(f'<path d="{curve}" fill="none" stroke="#2b6cb0" stroke-opacity=".7" marker-end="url(#tip)"/>')
    return "\n".join([*lines, "</svg>\n"])


def main() -> int:
    """Write the picture, or compare it with the one that is there; returns the exit code."""
    if "--check" not in sys.argv[1:]:
        PICTURE.write_text(picture())
        return 0
    if not PICTURE.is_file() or PICTURE.read_text() != picture():
        print(f"{PICTURE.relative_to(ROOT)}: not what the imports say; run python tools/draw_layers.py")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
