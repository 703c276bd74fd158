"""Pictures by matplotlib, from plain arrays; matplotlib is loaded with the first one.

Every function returns a :class:`Picture`: a matplotlib figure independent of window systems, displayed by notebooks.
"""

from __future__ import annotations

import io
from collections.abc import Collection, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from oocbe.errors import UsageError, install_hint

try:
    from matplotlib.axes import Axes
    from matplotlib.collections import LineCollection
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle
    from matplotlib.ticker import MaxNLocator
except ImportError as missing:
    raise UsageError(f"matplotlib is needed to draw ({missing}); {install_hint('plot')}") from None

BLUE, ORANGE, GREY, GREEN = "#2b6cb0", "#dd6b20", "#a0aec0", "#2f855a"
"""Colours of bounds and messages; of assignments; of omitted parts; of selected parts."""

BARS = (BLUE, ORANGE, GREEN, "#805ad5", "#b83280", "#2c7a7b", "#975a16", "#4a5568")
"""Colours of stacked bars, in turn."""

MOST_NODES = 250
"""Maximum variables for drawing a graph; more are drawn as the adjacency matrix."""

MOST_NAMES = 60
"""Maximum number of nodes with names, and of variables with marginals."""

MARGIN = 0.02
"""Margin of a time axis at each end, as a fraction of the total time."""

NAMES_APART = 0.05
"""Minimum distance of named nodes, as a fraction of the picture's width or height, if not all are named."""

LARGEST_NAMED = 6
"""Number of buckets with names, the largest ones, if there are more than :data:`MOST_NAMES`."""


class Picture(Figure):
    """A figure displayed by notebooks; ``savefig`` writes it as PNG, SVG or PDF."""

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        self.savefig(buffer, format="png", dpi=100)
        return buffer.getvalue()

    def svg(self) -> str:
        """The picture as an ``svg`` element."""
        buffer = io.StringIO()
        self.savefig(buffer, format="svg")
        return buffer.getvalue()[buffer.getvalue().index("<svg") :]


def _figure(width: float, height: float) -> Picture:
    return Picture(figsize=(width, height), layout="constrained")


def _plain(text: str) -> str:
    """A name or title without formulas: matplotlib interprets text between dollar signs as one."""
    return text.replace("$", r"\$")


def network(title: str, names: Sequence[str], sizes: Sequence[int], edges: NDArray[np.int64]) -> Picture:
    """The primal graph, and the domain sizes; ``edges`` : int64 (pairs, 2) of variables that share a function."""
    figure = _figure(9, 4.8)
    graph, domains = figure.subplots(1, 2, width_ratios=(3, 1))
    count = len(names)
    if count <= MOST_NODES:
        places = spring(count, edges)
        graph.add_collection(LineCollection([places[edge] for edge in edges], colors=GREY, linewidths=0.6, zorder=1))
        dots = graph.scatter(*places.T, c=list(sizes), s=max(12, 200 - count), cmap="viridis", zorder=2)
        if len(set(sizes)) > 1:
            figure.colorbar(dots, ax=graph, label="values", shrink=0.6)
        if count <= MOST_NAMES:
            for name, place in zip(names, places, strict=True):
                graph.annotate(_plain(name), place, fontsize=7, xytext=(3, 3), textcoords="offset points")
        graph.set_axis_off()
        graph.autoscale()
    else:
        both = np.concatenate([edges, edges[:, ::-1]])
        graph.plot(*both.T, ",", color=BLUE)
        graph.set(xlabel="variable", ylabel="variable", xlim=(0, count), ylim=(count, 0), aspect="equal")
    graph.set_title(f"{_plain(title)}: {count:,} variables, {len(edges):,} pairs share a function", fontsize=10)
    found, counts = np.unique(np.asarray(sizes), return_counts=True)
    domains.bar(found, counts, color=BLUE)
    domains.set_xlim(found.min(initial=1) - 1, found.max(initial=1) + 1)
    domains.set(xlabel="values of a variable", ylabel="variables")
    domains.xaxis.set_major_locator(MaxNLocator(integer=True))
    return figure


def bucket_tree(
    title: str, names: Sequence[str], parents: Sequence[int | None], sizes: Sequence[int], widths: Sequence[int]
) -> Picture:
    """Buckets in elimination order as a tree by bytes, and the profile of the order: separators and bytes.

    parents : target bucket of each message; None: the result. sizes : bytes of messages.
    widths : variables of each separator.
    """
    figure = _figure(9, 5)
    tree, profile = figure.subplots(1, 2)
    places = tree_places(parents)
    lines = [(places[child], places[parent]) for child, parent in enumerate(parents) if parent is not None]
    tree.add_collection(LineCollection(lines, colors=GREY, linewidths=0.7, zorder=1))
    weights = np.log10(np.maximum([float(size) for size in sizes], 1.0))
    scale = 240 / max(1.0, len(names) / 40)
    dots = tree.scatter(*places.T, s=4 + scale * weights / max(1.0, weights.max(initial=1.0)), c=weights, zorder=2)
    figure.colorbar(dots, ax=tree, label="bytes of the message, power of ten", shrink=0.6, location="bottom")
    for bucket in range(len(names)) if len(names) <= MOST_NAMES else _largest_apart(places, weights):
        tree.annotate(_plain(names[bucket]), places[bucket], fontsize=8, xytext=(4, 4), textcoords="offset points")
    tree.set_title(f"{_plain(title)}: {len(names):,} buckets, the last ones at the top", fontsize=10)
    tree.set_axis_off()
    order = np.arange(1, len(names) + 1)
    profile.step(order, widths, where="mid", color=ORANGE, label="variables of the separator")
    profile.set(xlabel="bucket, in elimination order", ylabel="variables")
    profile.yaxis.set_major_locator(MaxNLocator(integer=True))
    bytes_axes = profile.twinx()
    bytes_axes.bar(order, np.maximum([float(size) for size in sizes], 1.0), width=1.0, color=BLUE, alpha=0.35)
    bytes_axes.set(yscale="log", ylabel="bytes of the message (bars)")
    profile.set_title(f"width {max(widths, default=0)}", fontsize=10)
    return figure


def _largest_apart(places: NDArray[np.float64], weights: NDArray[np.float64]) -> list[int]:
    """The largest nodes at sufficient distance for their names, at most :data:`LARGEST_NAMED`."""
    extent = np.maximum(np.ptp(places, axis=0), 1e-9)
    named: list[int] = []
    for node in np.argsort(-weights, kind="stable").tolist():
        if all(np.abs((places[node] - places[other]) / extent).max() > NAMES_APART for other in named):
            named.append(node)
        if len(named) == LARGEST_NAMED:
            break
    return named


def course(
    title: str,
    curve: Sequence[tuple[float, int | float | None, int | float | None]],
    buckets: Sequence[tuple[str, int, int]],
) -> Picture:
    """Bound and value over time, and rows of each bucket's message; the title says what is not drawn.

    curve : seconds, bound, value. buckets : variable, rows, bytes, in elimination order.
    """
    drawn = ((1, "bound", BLUE), (2, "value", ORANGE))
    end = max((seconds for seconds, _, _ in curve), default=0.0)
    last = [f"{name} {number:,}" for place, name, _ in drawn if curve and (number := curve[-1][place]) is not None]
    has_curve, titles = bool(last) and curve[0][0] < (1 - MARGIN) * end, [_plain(title)]
    figure = _figure(9, 3.8)
    panes = figure.subplots(1, max(1, has_curve + bool(buckets)), squeeze=False)[0]
    if has_curve:
        known = panes[0]
        for place, name, colour in drawn:
            points = [(point[0], point[place]) for point in curve if point[place] is not None]
            if points:
                times, numbers = zip(*[*points, (end, points[-1][1])], strict=True)
                known.step(times, numbers, where="post", color=colour, label=name, marker=".", markersize=5)
        known.set(xlabel="seconds since the problem was read", title="what was known")
        known.legend()
        known.set_xlim(-MARGIN * end, (1 + MARGIN) * end)  # the first and the last mark are seen whole
    else:
        titles.append(f"after {end:.2g} s, all at once: {', '.join(last)}" if last else "no bound and no assignment")
    if buckets:
        rows = panes[-1]
        _bars(rows, range(1, 1 + len(buckets)), [done[1] for done in buckets], width=1.0)
        rows.set(xlabel="bucket, in elimination order", ylabel="rows of its message")
        rows.xaxis.set_major_locator(MaxNLocator(integer=True))
        rows.set_title("messages of the last elimination")
    else:
        titles.append("no elimination took place")
    if not has_curve and not buckets:
        panes[0].set_axis_off()
    figure.suptitle("; ".join(titles), fontsize=11)
    return figure


def _bars(axes: Axes, places: Sequence[int] | Sequence[str], numbers: Sequence[int], width: float = 0.8) -> None:
    """Non-negative numbers as bars; on a logarithmic axis if they span a factor of at least 100."""
    heights = [max(1, number) for number in numbers]
    axes.bar(places, heights, width=width, color=BLUE)
    if max(heights, default=1) >= 100 * min(heights, default=1):
        axes.set_yscale("log")
    else:
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))


def bounds(title: str, entries: Sequence[tuple[int, int | float | None, int | float | None, int]]) -> Picture:
    """Bound and value by z, and rows of the largest message; entries : z, bound, value, rows."""
    figure = _figure(9, 3.8)
    known, rows = figure.subplots(1, 2)
    ordered = sorted(entries)
    for place, name, colour in ((1, "bound", BLUE), (2, "value", ORANGE)):
        points = [(entry[0], entry[place]) for entry in ordered if entry[place] is not None]
        if points:
            known.plot(*zip(*points, strict=True), "o-", color=colour, label=name)
    known.set(xlabel="z: most variables of a mini-bucket", title=_plain(title))
    known.xaxis.set_major_locator(MaxNLocator(integer=True))
    if known.lines:
        known.legend()
    _bars(rows, [str(entry[0]) for entry in ordered], [entry[3] for entry in ordered])
    rows.set(xlabel="z", ylabel="rows of the largest message")
    return figure


def shares(title: str, marginals: Mapping[str, Mapping[str, float]], what: str, stacked: bool) -> Picture:
    """One bar per variable: stacked probabilities, or values as points if ``stacked`` is false."""
    chosen = dict(list(marginals.items())[:MOST_NAMES])
    figure = _figure(8, 1.3 + 0.32 * max(1, len(chosen)))
    axes = figure.add_subplot()
    for place, own in enumerate(chosen.values()):
        left = 0.0
        for number, (label, x) in enumerate(own.items()):
            if stacked:
                colour, text = BARS[number % len(BARS)], f"{_plain(label)} {x:.2g}"
                axes.barh(place, x, left=left, color=colour, edgecolor="white", linewidth=0.6)
                if x > 0.012 * len(text) + 0.01:  # it fits
                    axes.text(left + x / 2, place, text, ha="center", va="center", fontsize=8, color="white")
                left += x
            elif np.isfinite(x):
                axes.plot(x, place, "o", color=BLUE, markersize=4)
                above, points = (0, 4), "offset points"
                axes.annotate(_plain(label), (x, place), fontsize=7, xytext=above, textcoords=points, ha="center")
    axes.set_yticks(range(len(chosen)), [_plain(name) for name in chosen])
    axes.set_ylim(len(chosen) - 0.4, -0.6)
    more = len(marginals) - len(chosen)
    axes.set(xlabel=what, title=_plain(title) + (f" (the first {len(chosen)}; {more:,} more)" if more else ""))
    if stacked:
        axes.set_xlim(0, 1)
    return figure


def belief_network(
    title: str, marginals: Mapping[str, Mapping[str, float]], arcs: Sequence[tuple[str, str]], observed: Collection[str]
) -> Picture:
    """Boxes of variables with their most probable values, observed ones orange, and arrows from the parents above."""
    depth, across = dict.fromkeys(marginals, 0), dict.fromkeys(marginals, 0.0)
    for parent, child in list(arcs) * len(marginals):
        depth[child] = max(depth[child], depth[parent] + 1)
    layers = [[name for name in marginals if depth[name] == d] for d in range(1 + max(depth.values(), default=0))]
    near = {name: [a if b == name else b for a, b in arcs if name in (a, b)] or [name] for name in marginals}
    for layer in layers * 8:  # by the mean of their neighbours (Sugiyama, Tagawa and Toda 1981)
        layer.sort(key=lambda name: np.mean([across[other] for other in near[name]]))
        across |= {name: 2.8 * (place - (len(layer) - 1) / 2) for place, name in enumerate(layer)}
    bars = {name: sorted(own.items(), key=lambda pair: -pair[1])[:8] for name, own in marginals.items()}
    tops = -np.cumsum([0.0, *(0.25 * max(len(bars[name]) for name in layer) + 1.2 for layer in layers)])
    figure = _figure(1.2 + 1.4 * max(map(len, layers)), 0.8 - tops[-1] / 2)
    axes = figure.add_subplot()
    for name, own in bars.items():
        x, y, colour = across[name], tops[depth[name]], ORANGE if name in observed else BLUE
        low = y - 0.25 * len(own) - 0.5
        axes.add_patch(Rectangle((x - 1.2, low), 2.4, y - low, facecolor="white", edgecolor=colour, zorder=2))
        axes.text(x, y - 0.2, _plain(name), ha="center", va="center", fontsize=8, weight="bold", zorder=3)
        for row, (label, share) in enumerate(own):
            middle = y - 0.5 - 0.25 * row
            axes.barh(middle, 0.6 * share, 0.2, left=x, color=colour, alpha=0.6, zorder=3)
            axes.text(x - 0.05, middle, _plain(label[:12]), ha="right", va="center", fontsize=7, zorder=4)
            axes.text(x + 1.15, middle, f"{share:.3g}", ha="right", va="center", fontsize=7, zorder=4)
        for child in (child for parent, child in arcs if parent == name):
            ends, arrow = (across[child], tops[depth[child]]), {"arrowstyle": "-|>", "color": GREY, "shrinkB": 0}
            axes.annotate("", ends, (x, low), arrowprops=arrow, zorder=1)
    axes.set(aspect="equal", title=_plain(title))
    axes.set_axis_off()
    return figure


def ranking(title: str, values: Sequence[int | float], labels: Sequence[Mapping[str, str]]) -> Picture:
    """Values of the best assignments by rank, and the variables that differ from the best one."""
    figure = _figure(9, 3.8)
    by_rank, differing = figure.subplots(1, 2, width_ratios=(1, 2))
    by_rank.plot(range(1, 1 + len(values)), list(values), "o-", color=ORANGE)
    by_rank.set(xlabel="rank", ylabel="value", title=_plain(title))
    by_rank.xaxis.set_major_locator(MaxNLocator(integer=True))
    names = [name for name in (labels[0] if labels else {}) if len({own[name] for own in labels}) > 1]
    if names:
        same = np.array([[own[name] != labels[0][name] for name in names] for own in labels], dtype=float)
        differing.imshow(same, aspect="auto", cmap="Blues", vmin=0, vmax=2.5)
        differing.set_yticks(range(len(labels)), [str(rank + 1) for rank in range(len(labels))])
        if len(names) <= MOST_NAMES:
            differing.set_xticks(range(len(names)), [_plain(name) for name in names], rotation=90, fontsize=7)
        if len(names) * len(labels) <= 300:
            for (rank, place), _ in np.ndenumerate(same):
                differing.text(place, rank, _plain(labels[rank][names[place]]), ha="center", va="center", fontsize=7)
        differing.set(ylabel="rank", title=f"variables that differ ({len(names):,})")
    else:
        differing.set_axis_off()
    return figure


def histogram(title: str, values: NDArray[np.generic]) -> Picture:
    """Histogram of the values of a table."""
    figure = _figure(6, 3.2)
    axes = figure.add_subplot()
    finite = np.asarray(values, dtype=np.float64)
    axes.hist(finite[np.isfinite(finite)], bins=50, color=BLUE)
    axes.set(xlabel="value", ylabel="rows", title=_plain(title))
    return figure


LANES: Mapping[str, tuple[int, ...]] = {"1": (0,), "2": (1,), "3": (2,), "13": (0, 2)}
"""Cameras of each value: front, middle, rear."""


def schedule(
    title: str,
    photographs: Sequence[tuple[str, int, str | None]],
    taken: Mapping[str, tuple[str, int]],
    capacity: int | None,
) -> Picture:
    """Photographs by camera, in the file's order or by group if it has groups, and the cumulative use of the recorder.

    photographs : name, weight and group of each. taken : camera and units of memory by name.
    """
    figure = _figure(9, 4.8 if capacity is not None else 3.6)
    count = 1 if capacity is None else 2
    rows = figure.subplots(count, 1, sharex=True, squeeze=False, height_ratios=(3, 1)[:count])[:, 0]
    cameras = rows[0]
    first_of: dict[str | None, int] = {}
    for place, (_, _, group) in enumerate(photographs):
        first_of.setdefault(group, place)
    ordered = sorted(range(len(photographs)), key=lambda p: (first_of[photographs[p][2]], p))
    used, filled = 0, [0]
    heaviest = max((weight for _, weight, _ in photographs), default=1) or 1
    for x, place in enumerate(ordered):
        name, weight, _ = photographs[place]
        size = 12 + 60 * weight / heaviest
        if name not in taken:
            cameras.scatter(x, 3, s=size, color=GREY, marker="x", linewidths=0.8)
        else:
            camera, memory = taken[name]
            lanes = LANES.get(camera, (1,))
            cameras.plot([x] * len(lanes), lanes, "-", color=GREEN, linewidth=0.8, zorder=1)
            colour = ORANGE if len(lanes) > 1 else GREEN
            cameras.scatter([x] * len(lanes), lanes, s=size, color=colour, zorder=2)
            used += memory
        filled.append(used)
    for begin, end in _spans(ordered, photographs):
        cameras.axvspan(begin - 0.5, end - 0.5, color="#edf2f7", zorder=0)
    cameras.set_yticks(range(4), ["front camera", "middle camera", "rear camera", "left out"])
    cameras.invert_yaxis()
    cameras.set_title(_plain(title), fontsize=10)
    what = "in the file's order" if set(first_of) == {None} else "by group (bands), in the file's order"
    rows[-1].set_xlabel(f"photographs {what}; larger: of more weight; orange: stereoscopic, two cameras")
    if capacity is not None:
        rows[1].fill_between(np.arange(len(filled)) - 0.5, filled, step="pre", color=BLUE, alpha=0.5)
        rows[1].axhline(capacity, color=ORANGE)
        rows[1].set_ylabel(f"recorder: units\nused, of {capacity:,}")
    return figure


def _spans(ordered: Sequence[int], photographs: Sequence[tuple[str, int, str | None]]) -> list[tuple[int, int]]:
    """Every second group as begin and end of its positions; none for a single group."""
    changes = [x for x in range(1, len(ordered)) if photographs[ordered[x]][2] != photographs[ordered[x - 1]][2]]
    edges = [0, *changes, len(ordered)]
    return [(edges[i], edges[i + 1]) for i in range(1, len(edges) - 1, 2)]


ROUNDS = 120
"""Steps of the spring layout."""


def spring(count: int, edges: NDArray[np.int64]) -> NDArray[np.float64]:
    """Positions (count, 2) of a graph's nodes: neighbours attract, all others repel (Fruchterman and Reingold 1991).

    Deterministic: starts from eigenvectors of the graph's Laplacian (Hall 1970), plus a small circle that separates
    nodes with equal entries.
    """
    angle = 2 * np.pi * np.arange(count) / max(1, count)
    places: NDArray[np.float64] = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    if count < 4:
        return places
    laplacian = np.zeros((count, count))
    np.add.at(laplacian, (edges[:, 0], edges[:, 1]), -1.0)
    np.add.at(laplacian, (edges[:, 1], edges[:, 0]), -1.0)
    np.fill_diagonal(laplacian, -laplacian.sum(axis=1))
    _, vectors = np.linalg.eigh(laplacian)
    places = 0.1 * places + vectors[:, 1:3] / np.abs(vectors[:, 1:3]).max(axis=0)
    ideal = 1.5 / np.sqrt(count)
    for step in range(ROUNDS):
        apart = places[:, None] - places[None]
        distance = np.maximum(np.hypot(apart[..., 0], apart[..., 1]), 1e-6)
        moves = (apart * (ideal**2 / distance**2)[..., None]).sum(axis=1) - 0.4 * ideal * places
        if len(edges):
            along = places[edges[:, 0]] - places[edges[:, 1]]
            pull = along * (np.hypot(*along.T) / ideal)[:, None]
            np.subtract.at(moves, edges[:, 0], pull)
            np.add.at(moves, edges[:, 1], pull)
        length = np.maximum(np.hypot(*moves.T), 1e-9)
        places = places + moves / length[:, None] * np.minimum(length, 0.2 * (1 - step / ROUNDS))[:, None]
    return places


def tree_places(parents: Sequence[int | None]) -> NDArray[np.float64]:
    """Positions (nodes, 2) of a forest whose parents have higher numbers: roots at the top, leaves side by side."""
    children: dict[int | None, list[int]] = {None: [], **{node: [] for node in range(len(parents))}}
    for node, parent in enumerate(parents):
        children[parent].append(node)
    depth = [0] * len(parents)
    for node in reversed(range(len(parents))):
        parent = parents[node]
        depth[node] = 0 if parent is None else depth[parent] + 1
    across = np.zeros(len(parents))
    leaves = 0
    stack = children[None][::-1]
    while stack:
        node = stack.pop()
        stack.extend(reversed(children[node]))
        if not children[node]:
            across[node] = leaves
            leaves += 1
    for node in range(len(parents)):
        if children[node]:
            across[node] = np.mean([across[child] for child in children[node]])
    return np.stack([across, -np.array(depth, dtype=np.float64)], axis=1)
