"""A recording as a picture: a row for each thread, a box for each kernel, coloured by layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from ...atomic_file import write_atomic
from ...show import frame
from .layers import Part, parse_name
from .operations import Operation

_COLOURS = ("#4c8eda", "#e07b54", "#57a773", "#b07cc6", "#c9a227", "#5fb3b3", "#d16d9e", "#8d8d5a", "#7a86c9", "#a0725a")
_OTHERS = "#999999"  # layers beyond the first ten, by time
_WIDTH, _ROW, _LEFT, _TOP = 1000, 26, 150, 24
_MOST = 4000  # boxes; shorter ones are left out of a larger picture, and counted
_LETTER = 6.2  # the width of a letter of a box's name


@dataclass(frozen=True)
class Box:
    """A kernel or an operation on a thread, in nanoseconds of perf_counter."""

    thread: int
    start: int
    end: int
    layer: str
    name: str


@dataclass(frozen=True)
class Timeline:
    """The boxes of a recording, in a window of time. A notebook shows it; `save(path)` writes an SVG file.

    start, end:  the window. names: of the threads. left_out: the shortest boxes, which are not drawn.
    """

    boxes: tuple[Box, ...]
    start: int
    end: int
    names: Mapping[int, str]
    left_out: int = 0

    def __str__(self) -> str:
        threads = len({b.thread for b in self.boxes})
        return f"Timeline({len(self.boxes):,} kernels on {threads} threads, {(self.end - self.start) / 1e6:.3f} ms)"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return frame(f'<div class="wide">{self.svg()}</div>')

    def save(self, path: str) -> None:
        """Write the picture to an SVG file, atomically."""
        write_atomic(path, self.svg('xmlns="http://www.w3.org/2000/svg" color="#333" style="background:#fff"'))

    def svg(self, attributes: str = 'style="background:none"') -> str:
        """Return the picture as SVG text. Its own text has the colour of the text around it."""
        threads = list(dict.fromkeys(sorted(b.thread for b in self.boxes if b.thread > 0))) + sorted(
            {b.thread for b in self.boxes if b.thread < 0}, reverse=True)
        busy: dict[str, int] = {}
        for b in self.boxes:
            busy[b.layer] = busy.get(b.layer, 0) + b.end - b.start
        first = sorted(busy, key=lambda layer: -busy[layer])[:len(_COLOURS)]
        colour = dict(zip(first, _COLOURS))
        span = max(self.end - self.start, 1)
        scale = (_WIDTH - _LEFT - 10) / span
        bottom = _TOP + _ROW * max(len(threads), 1)
        height = bottom + 24 + 18 * ((len(first) + 2) // 3)
        parts = [f'<svg viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}" font-family="sans-serif" '
                 f'font-size="11" {attributes}>', f"<title>{escape(str(self))}</title>"]
        for tick, anchor in enumerate(("start", *["middle"] * 9, "end")):
            x = _LEFT + (_WIDTH - _LEFT - 10) * tick / 10
            parts.append(f'<path d="M{x:.1f},{_TOP - 4} V{bottom}" stroke="currentColor" stroke-opacity="0.15"/>'
                         f'<text x="{x:.1f}" y="{_TOP - 9}" text-anchor="{anchor}" '
                         f'fill="currentColor" fill-opacity="0.7">{span * tick / 1e7:.3g}{" ms" if tick == 10 else ""}</text>')
        for row, thread in enumerate(threads):
            y = _TOP + row * _ROW
            parts.append(f'<text x="{_LEFT - 8}" y="{y + 16}" text-anchor="end" fill="currentColor">'
                         f"{escape(self.names.get(thread, f'thread {thread}'))}</text>")
            for b in (b for b in self.boxes if b.thread == thread):
                x, width = _LEFT + (b.start - self.start) * scale, max((b.end - b.start) * scale, 0.3)
                parts.append(f'<rect x="{x:.2f}" y="{y + 2}" width="{width:.2f}" height="{_ROW - 5}" rx="1" '
                             f'fill="{colour.get(b.layer, _OTHERS)}"><title>{escape(b.name)}: {(b.end - b.start) / 1000:,.1f} us'
                             f"</title></rect>")
                letters = int((width - 6) / _LETTER)
                if letters >= 4:
                    text = b.layer if len(b.layer) <= letters else f"{b.layer[:letters - 1]}…"
                    parts.append(f'<text x="{x + 3:.1f}" y="{y + 16}" fill="#fff" pointer-events="none">{escape(text)}</text>')
        for i, layer in enumerate(first):
            x, y = _LEFT + i % 3 * 280, bottom + 22 + i // 3 * 18
            parts.append(f'<rect x="{x}" y="{y - 9}" width="10" height="10" fill="{colour[layer]}"/><text x="{x + 15}" y="{y}" '
                         f'fill="currentColor">{escape(layer[:36])}, {busy[layer] / 1e6:.3f} ms</text>')
        if self.left_out:
            parts.append(f'<text x="8" y="{height - 6}" fill="currentColor">{self.left_out:,} shorter ones are not drawn</text>')
        return "\n".join([*parts, "</svg>"])


def draw(operations: Sequence[Operation], parts: Sequence[Part], milliseconds: float | None, names: Mapping[int, str]
         ) -> Timeline:
    """Return the picture of the last milliseconds of a recording, or of all of it.

    An operation that consists of kernels is drawn as those.
    """
    inside = {(thread, start) for *_, (thread, start) in parts}
    boxes = [Box(thread, start, end, parse_name(name)[0], name) for name, thread, start, end, _, _ in parts]
    for o in operations:
        if not any(o.thread == thread and o.start <= start <= o.end for thread, start in inside):
            boxes.append(Box(o.thread, o.start, o.end, o.layer or parse_name(o.name)[0], o.name))
    end = max((b.end for b in boxes), default=0)
    start = min((b.start for b in boxes), default=0)
    if milliseconds is not None:
        start = max(start, end - int(milliseconds * 1e6))
    seen = [Box(b.thread, max(b.start, start), b.end, b.layer, b.name) for b in boxes if b.end > start]
    seen.sort(key=lambda b: b.start - b.end)
    return Timeline(tuple(sorted(seen[:_MOST], key=lambda b: b.start)), start, end, names, max(0, len(seen) - _MOST))
