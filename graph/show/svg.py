"""Pictures of a graph and of a memory plan as SVG text, in pure Python."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

from ..symbol.node import Node

if TYPE_CHECKING:
    from ..memory.plan import MemoryPlan

MOST_NODES = 2000  # of a drawn graph; the picture of a larger one says how many are missing

_COLOURS = {
    "variable": "#e8eef4", "Convolution": "#fb8072", "Deconvolution": "#fb8072", "FullyConnected": "#fb8072",
    "BatchNorm": "#bebada", "Activation": "#ffffb3", "LeakyReLU": "#ffffb3", "Pooling": "#80b1d3", "Concat": "#fdb462",
    "Flatten": "#fdb462", "Reshape": "#fdb462", "SoftmaxOutput": "#fccde5", "softmax": "#fccde5",
}  # fmt: skip
_PALETTE = ("#80b1d3", "#fb8072", "#b3de69", "#fdb462", "#bebada", "#8dd3c7", "#fccde5", "#d9c6a5")


def layers(order: Sequence[Node]) -> list[int]:
    """Return the row of each node: below its inputs; a variable is directly above its first reader."""
    place = {id(n): i for i, n in enumerate(order)}
    row = [0] * len(order)
    for i, node in enumerate(order):
        row[i] = max((row[place[id(b)]] + 1 for b, _ in node.inputs if id(b) in place), default=0)
    first: dict[int, int] = {}
    for i, node in enumerate(order):
        for below, _ in node.inputs:
            first[id(below)] = min(first.get(id(below), row[i]), row[i])
    return [max(0, first.get(id(n), 1) - 1) if n.op is None else row[i] for i, n in enumerate(order)]


def is_weight(node: Node) -> bool:
    """Return whether a variable is a parameter or a state of a layer, by the end of its name."""
    return node.op is None and node.name.endswith(("_weight", "_bias", "_beta", "_gamma", "_moving_var", "_moving_mean",
                                                   "_running_var", "_running_mean", "_parameters"))


def describe(node: Node) -> str:
    """Return the operator of a node and its main parameters; "" for a variable."""
    if node.op is None:
        return ""
    shown = [node.attrs[k] for k in ("kernel", "stride", "num_filter", "num_hidden", "act_type", "pool_type") if k in node.attrs]
    return " ".join([node.op.name, *(s.replace(", ", "x").strip("()") for s in shown)])


def draw_graph(order: Sequence[Node], label: dict[int, str] | None = None, edge: dict[tuple[int, int], str] | None = None,
               title: str = "") -> str:
    """Draw a graph as SVG, inputs above.

    order:  nodes, inputs before users. label: second lines by node id. edge: texts by (node id, output).
    """
    left_out = max(0, len(order) - MOST_NODES)
    order = order[:MOST_NODES]
    row = layers(order)
    columns: dict[int, list[int]] = {}
    place = {id(n): i for i, n in enumerate(order)}
    column = [0.0] * len(order)
    for i in sorted(range(len(order)), key=lambda i: (row[i], i)):  # below the mean of its inputs, or right of it
        wish = [column[place[id(b)]] for b, _ in order[i].inputs if id(b) in place and row[place[id(b)]] < row[i]]
        taken = columns.setdefault(row[i], [])
        column[i] = max(sum(wish) / len(wish) if wish else 0.0, column[taken[-1]] + 1 if taken else 0.0)
        taken.append(i)
    width, height, box, line = 190, 66, 170, 40
    total = (int((max(column, default=0) + 1) * width) + 20, (max(row, default=0) + 1) * height + 30)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {total[0]} {total[1]}" width="{total[0]}" '
             f'height="{total[1]}" font-family="sans-serif" font-size="11">']
    if title:
        parts.append(f"<title>{escape(title)}</title>")
    at = [(10 + column[i] * width, 10 + row[i] * height) for i in range(len(order))]
    for i, node in enumerate(order):
        x, y = at[i]
        for below, k in node.inputs:
            j = place.get(id(below))
            if j is None:
                continue
            a, b = (at[j][0] + box / 2, at[j][1] + line), (x + box / 2, y)
            bend = (a[1] + b[1]) / 2
            if row[i] - row[j] > 1 and abs(a[0] - b[0]) < 1:  # a straight line would run behind the boxes in between
                right = x + box
                parts.append(f'<path d="M{at[j][0] + box},{a[1] - line / 2:.0f} C{right + 24:.0f},{a[1]:.0f} {right + 24:.0f},'
                             f'{b[1]:.0f} {x + box},{b[1] + line / 2:.0f}" fill="none" stroke="#667"/>')
                continue
            parts.append(f'<path d="M{a[0]:.0f},{a[1]:.0f} C{a[0]:.0f},{bend:.0f} {b[0]:.0f},{bend:.0f} {b[0]:.0f},{b[1]:.0f}" '
                         f'fill="none" stroke="#667"/>')
            if edge and (id(below), k) in edge:
                parts.append(f'<text x="{(a[0] + b[0]) / 2 + 3:.0f}" y="{bend:.0f}" fill="#556">'
                             f"{escape(edge[id(below), k])}</text>")
    for i, node in enumerate(order):
        x, y = at[i]
        kind = "variable" if node.op is None else node.op.name
        parts.append(f'<rect x="{x:.0f}" y="{y:.0f}" width="{box}" height="{line}" rx="{line // 2 if node.op is None else 4}" '
                     f'fill="{_COLOURS.get(kind, "#d5e8d4")}" stroke="#445"/>')
        second = (label or {}).get(id(node), "" if node.op is None else kind)
        parts.append(f'<text x="{x + box / 2:.0f}" y="{y + (16 if second else 24):.0f}" text-anchor="middle">'
                     f"{escape(_short(node.name))}</text>")
        if second:
            parts.append(f'<text x="{x + box / 2:.0f}" y="{y + 31:.0f}" text-anchor="middle" fill="#334">'
                         f"{escape(_short(second))}</text>")
    if left_out:
        parts.append(f'<text x="10" y="{total[1] - 6}">{left_out} more nodes are not drawn</text>')
    return "\n".join([*parts, "</svg>"])


def draw_plan(plan: MemoryPlan, width: int = 900, height: int = 420) -> str:
    """Draw bytes against time as SVG: one rectangle per value in the arena, from its first step to its last."""
    rows = plan.table()
    steps = 1 + max((int(r["last"]) for r in rows), default=0)
    across, up = (width - 90) / steps, (height - 60) / max(plan.arena_bytes, 1)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
             f'font-family="sans-serif" font-size="11">',
             f"<title>{plan.arena_bytes:,} bytes over {steps} steps</title>"]
    for n, r in enumerate(rows):
        first, last, at, size = int(r["first"]), int(r["last"]), int(r["offset"]), int(r["nbytes"])
        y = height - 35 - (at + size) * up
        parts.append(f'<rect x="{75 + first * across:.1f}" y="{y:.1f}" width="{(last - first + 1) * across:.1f}" '
                     f'height="{max(size * up, 0.2):.1f}" fill="{_PALETTE[n % len(_PALETTE)]}" stroke="#fff" stroke-width="0.3">'
                     f"<title>{escape(str(r['name']))}: {size:,} bytes at {at:,}, steps {first} to {last}</title></rect>")
    base = height - 35
    bound = max(0, plan.lower_bound_bytes - plan.output_bytes)
    parts += [
        f'<path d="M75,20 V{base} H{width - 10}" fill="none" stroke="#333"/>',
        f'<path d="M75,{base - bound * up:.1f} H{width - 10}" stroke="#c00" stroke-dasharray="4 3"/>',
        f'<text x="{width - 12}" y="{base - bound * up - 4:.1f}" text-anchor="end" fill="#c00">lower bound {bound:,}</text>',
        f'<text x="70" y="{base}" text-anchor="end">0</text>',
        f'<text x="70" y="{base - plan.arena_bytes * up + 4:.1f}" text-anchor="end">{_bytes(plan.arena_bytes)}</text>',
        f'<text x="75" y="{base + 15}">step 0</text>',
        f'<text x="{width - 12}" y="{base + 15}" text-anchor="end">step {steps - 1}</text>',
        f'<text x="75" y="13">arena {plan.arena_bytes:,} bytes, outputs {plan.output_bytes:,}, without sharing '
        f"{plan.naive_bytes:,}</text>",
    ]
    return "\n".join([*parts, "</svg>"])


def _short(text: str, most: int = 26) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _bytes(n: int) -> str:
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if n >= size:
            return f"{n / size:.1f} {unit}"
    return f"{n} B"
