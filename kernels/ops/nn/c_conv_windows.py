"""Windows of a convolution in C: the data that each output sums over, and the pieces of work.

A block of output rows is a piece of its own; what an output sums over is a list of runs in the data under it (c_conv.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ....integers import cdiv
from ...cpu.c_tile import MOST_COLUMNS
from .c_conv_text import FIELDS
from .c_depthwise_text import KINDS, kind_of
from .conv_pieces import Block, cheapest, parts, product_time

BLOCK = 1 << 15  # elements of a block of data
DEPTH = 1024  # rows of packed weights between which a tile is stored
CACHED = 1 << 18  # elements of data and results of a piece
COPY, LOAD = 16, 6  # the time of an element of data that is copied, or read in place, in multiplications
WORK = 1 << 20  # multiplications that are worth a piece of their own

Steps = tuple[int, int, int, int]  # elements between neighbouring images, channels, rows and columns
Tap = tuple[int, int, int]  # row and column of the data at which it begins, and its weight: elements from the first one


def image_steps(channels: int, spatial: Sequence[int], last: bool) -> Steps:
    """Return the steps of an array of images, whose channels come last or first. spatial: height and width."""
    height, width = spatial
    each = channels * height * width
    return (each, 1, width * channels, channels) if last else (each, height * width, width, 1)


@dataclass(frozen=True)
class Windows:
    """Sums over windows of an array: the forward convolution, or one phase of its derivative by data.

    channels, filters:  of a group. data, out: height and width. first: the offset of out's first position among its elements.
    each:  each channel has a window and a filter of its own; then they count as one group.
    """

    groups: int
    images: int
    channels: int
    filters: int
    data: tuple[int, int]
    out: tuple[int, int]
    step: tuple[int, int]
    taps: tuple[Tap, ...]
    x: Steps
    y: Steps
    first: int = 0
    each: bool = False

    @property
    def depth(self) -> int:
        return len(self.taps) if self.each else self.channels * len(self.taps)

    def reach(self, axis: int) -> tuple[int, int]:
        """Return the first row or column of the data that the first position reads, and how many more it spans."""
        at = [t[axis] for t in self.taps] or [0]
        return min(at), max(at) - min(at)

    @property
    def copied(self) -> bool:
        """Return whether data is copied: padding is added, or channels are put last."""
        inside = all(self.reach(a)[0] >= 0 and (self.out[a] - 1) * self.step[a] + sum(self.reach(a)) < self.data[a]
                     for a in (0, 1))
        return not (inside and self.x[1] == 1)

    def taps_by_row(self) -> list[int]:
        """Return the numbers that conv_each_rows takes: the taps that share what they load, by their first row and column."""
        rows, columns = (sorted({t[a] for t in self.taps}) or [0] for a in (0, 1))
        kind = kind_of(columns, self.step[1])
        together = KINDS[kind][0]
        first = [(t[0] - rows[0], t[1] - columns[0]) for t in self.taps[::together]]
        return [kind, together, len(first), *(i for i, _ in first), *(j for _, j in first)]

    def wide(self) -> int:
        """Return the columns of a block."""
        return (self.out[1] - 1) * self.step[1] + self.reach(1)[1] + 1

    def runs(self) -> list[tuple[int, int]]:
        """Return offset and length of what each position sums over, in a block."""
        row, column = (self.wide() * self.channels, self.channels) if self.copied else self.x[2:]
        y0, x0 = self.reach(0)[0], self.reach(1)[0]
        made: list[tuple[int, int]] = []
        for i, j, _ in self.taps:
            at = (i - y0) * row + (j - x0) * column
            if self.each:
                made.append((at, 1))
            elif made and sum(made[-1]) == at:
                made[-1] = made[-1][0], made[-1][1] + self.channels
            else:
                made.append((at, self.channels))
        return made

    def elements(self, rows: int) -> int:
        """Return the elements of the data under so many rows of positions that are copied, or read."""
        under = ((rows - 1) * self.step[0] + self.reach(0)[1] + 1) * self.wide() * self.channels
        return under if self.copied else min(under, rows * self.out[1] * self.depth)

    def blocks(self, positions: int) -> tuple[int, int]:
        """Return how many images and rows are one block, of at most so many positions, that stays in cache."""
        rows = max(1, min(self.out[0], positions // self.out[1]))
        while rows > 1 and self.elements(rows) > BLOCK:
            rows -= 1
        if rows < self.out[0]:
            return 1, cdiv(self.out[0], cdiv(self.out[0], rows))
        return max(1, min(self.images, BLOCK // max(1, self.elements(rows)), positions // (rows * self.out[1]))), rows

    def pieces(self) -> Block:
        """Return how many images, rows and filters are one piece of work."""
        if self.each:
            return self._pieces_of_all_channels()
        panels, width = cdiv(self.filters, MOST_COLUMNS), self.out[1]
        most = max(CACHED, self.elements(1) + width * MOST_COLUMNS)
        each = [(n, self.out[0]) for n in parts(self.images)] + [(1, r) for r in parts(self.out[0])]
        blocks = [(n, r, f * MOST_COLUMNS) for n, r in each for f in parts(panels)
                  if n * (self.elements(r) + r * width * min(f * MOST_COLUMNS, self.filters)) <= most]

        def time(block: Block) -> int:
            images, rows, filters = block
            moved = images * self.elements(rows) * (COPY if self.copied else LOAD)
            return product_time(images * rows * width, self.depth, filters) + moved

        return cheapest((self.images, self.out[0], self.filters), blocks, time)

    def _pieces_of_all_channels(self) -> Block:
        """Return the piece where each channel has a filter of its own: a few rows, so that there are some pieces for threads."""
        images, rows = self.blocks(1 << 20)
        row = self.out[1] * self.depth * self.filters
        while cdiv(self.images, images) * cdiv(self.out[0], rows) < 8 and images * rows * row > WORK // 8 and images * rows > 1:
            images, rows = (cdiv(images, 2), rows) if images > 1 else (1, cdiv(rows, 2))
        return images, rows, cdiv(self.filters, MOST_COLUMNS) * MOST_COLUMNS

    def sizes(self, images: int, rows: int, filters: int, add: bool, rectified: bool = False) -> tuple[Any, int]:
        """Return the numbers that the C function takes, and how many pieces there are."""
        runs, chunks = cut_runs(self.runs())
        (y0, tall), (x0, wide) = self.reach(0), self.reach(1)
        given: dict[str, int] = {
            "groups": self.groups, "channels": self.channels, "filters": self.filters, "height": self.data[0],
            "width": self.data[1], "out_height": self.out[0], "out_width": self.out[1], "step_y": self.step[0],
            "step_x": self.step[1], "first_y": y0, "first_x": x0, "span_y": tall, "span_x": wide, "y_offset":
            self.first, "copied": self.copied, "images": self.images, "block_images": images, "block_rows": rows,
            "row_blocks": cdiv(self.out[0], rows), "filter_blocks": cdiv(self.filters, filters), "filter_block":
            filters, "runs": len(runs), "chunks": len(chunks) - 1, "depth": self.depth, "add": add, "rectified": rectified}
        given |= zip(("x_image", "x_channel", "x_row", "x_column"), self.x)
        given |= zip(("y_image", "y_filter", "y_row", "y_column"), self.y)
        above = [sum(n for _, n in runs[:c]) for c in chunks]
        numbers = [given[name] for name in FIELDS]
        pieces = cdiv(self.images, images) * given["row_blocks"] * self.groups * given["filter_blocks"]
        return [numbers, [*(at for at, _ in runs), *(n for _, n in runs), *chunks, *above[:-1]]], pieces


def cut_runs(runs: Sequence[tuple[int, int]]) -> tuple[list[tuple[int, int]], list[int]]:
    """Cut runs into chunks of about DEPTH. Return the runs, and where each chunk begins among them; at last their number."""
    made: list[tuple[int, int]] = []
    starts, depth = [0], 0
    for at, n in runs:
        while n:
            part = min(n, DEPTH)
            if depth and depth + part > DEPTH:
                starts.append(len(made))
                depth = 0
            made.append((at, part))
            at, n, depth = at + part, n - part, depth + part
    return made, [*starts, len(made)]
