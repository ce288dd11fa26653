"""Copies of strided views in C: any axes, elements of 1, 2, 4 or 8 bytes, to write or to add.

Axes are ordered by the target's strides and merged. Where source and target run along different axes, square blocks are turned in
registers, so that every cache line is read and written once. The sizes are arguments: a machine compiles each element size once.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np

from ...integers import cdiv
from ..ir.strided import Strided, merge
from .c_team import int64s
from .c_template import Call, Template
from .c_turn import turn_text

LEAST = 1 << 8  # elements of a copy for which C is compiled at once: a machine does so once for each size of elements
PIECE = 1 << 17  # bytes of a piece
SHORT = 8  # elements of an axis that is neither an inner loop nor turned
BLOCK = 64  # elements along each side of a block that is turned
MOST_AXES = 8
ADDED = {"float32": "float", "float64": "double", "int32": "int32_t", "int64": "int64_t"}

_TEXT = """
typedef struct {
    int64_t rank, units, width, columns;  /* units of a piece; columns of a piece, and how many of those make a row */
    int64_t add, from, to;                /* offsets of the first elements */
    int64_t dims[%(axes)d], to_step[%(axes)d], from_step[%(axes)d];
} %(name)s_sizes;

#define MOVE_LEAST(a, b) ((a) < (b) ? (a) : (b))

static inline void %(name)s_line(const T *x, int64_t s, T *y, int64_t d, int64_t n)
{
    if (d == 1 && s == 1 && n > 16) memcpy(y, x, n * sizeof(T));
    else if (d == 1 && s == 0) { const T v = *x; for (int64_t i = 0; i < n; i++) y[i] = v; }
    else if (d == 1 && s == -1) { x -= n - 1; for (int64_t i = 0; i < n; i++) y[i] = x[n - 1 - i]; }
    else if (d == 1) for (int64_t i = 0; i < n; i++) y[i] = x[i * s];
    else if (d == 2 && s == 1) for (int64_t i = 0; i < n; i++) y[2 * i] = x[i];
    else for (int64_t i = 0; i < n; i++) y[i * d] = x[i * s];
}

static inline void %(name)s_added(const A *x, int64_t s, A *y, int64_t d, int64_t n)
{
    if (d == 1 && s == 1) for (int64_t i = 0; i < n; i++) y[i] += x[i];
    else if (d == 1 && s == 0) { const A v = *x; for (int64_t i = 0; i < n; i++) y[i] += v; }
    else for (int64_t i = 0; i < n; i++) y[i * d] += x[i * s];
}

/* Move x and y from one unit of the outer axes to the next. */
#define NEXT(g, outer, at, x, y) \\
    for (int64_t a = (outer) - 1; a >= 0; a--) { \\
        x += (g)->from_step[a], y += (g)->to_step[a]; \\
        if (++at[a] < (g)->dims[a]) break; \\
        x -= (g)->from_step[a] * (g)->dims[a], y -= (g)->to_step[a] * (g)->dims[a], at[a] = 0; \\
    }
#define FIRST(g, outer, unit, at, x, y) \\
    for (int64_t a = (outer) - 1, rest = (unit); a >= 0; rest /= (g)->dims[a], a--) \\
        at[a] = rest %% (g)->dims[a], x += at[a] * (g)->from_step[a], y += at[a] * (g)->to_step[a];
#define ALL_UNITS(g, outer) ({ int64_t n = 1; for (int64_t a = 0; a < (outer); a++) n *= (g)->dims[a]; n; })

/* arrays: source, target, sizes. A unit is a row along the last axis. */
void %(name)s(void *const *arrays, int64_t begin, int64_t end)
{
    const %(name)s_sizes *g = arrays[2];
    const int64_t outer = g->rank - 1, all = ALL_UNITS(g, outer), n = g->dims[outer];
    const int64_t s = g->from_step[outer], d = g->to_step[outer];
    for (int64_t piece = begin; piece < end; piece++) {
        const int64_t first = piece / g->columns * g->units, c = piece %% g->columns * g->width;
        const int64_t last = MOVE_LEAST(first + g->units, all), m = MOVE_LEAST(g->width, n - c);
        int64_t at[%(axes)d];
        const T *x = (const T *)arrays[0] + g->from + c * s;
        T *y = (T *)arrays[1] + g->to + c * d;
        FIRST(g, outer, first, at, x, y)
        for (int64_t u = first; u < last; u++) {
            if (g->add) %(name)s_added((const A *)x, s, (A *)y, d, m);
            else %(name)s_line(x, s, y, d, m);
            NEXT(g, outer, at, x, y)
        }
    }
}

%(turn)s
/* arrays as above. The source is dense along the last axis but one, the target along the last. A unit is a strip of blocks. */
void %(name)s_turned(void *const *arrays, int64_t begin, int64_t end)
{
    const %(name)s_sizes *g = arrays[2];
    const int64_t outer = g->rank - 2, high = g->dims[outer], wide = g->dims[outer + 1];
    const int64_t s = g->from_step[outer + 1], d = g->to_step[outer];
    const int64_t strips = (high + %(block)d - 1) / %(block)d, all = ALL_UNITS(g, outer) * strips;
    for (int64_t piece = begin; piece < end; piece++) {
        const int64_t first = piece / g->columns * g->units, c = piece %% g->columns * g->width;
        for (int64_t u = first; u < MOVE_LEAST(first + g->units, all); u++) {
            int64_t at[%(axes)d];
            const T *x = (const T *)arrays[0] + g->from;
            T *y = (T *)arrays[1] + g->to;
            FIRST(g, outer, u / strips, at, x, y)
            const int64_t i0 = u %% strips * %(block)d, i1 = MOVE_LEAST(i0 + %(block)d, high);
            for (int64_t j0 = c; j0 < MOVE_LEAST(c + g->width, wide); j0 += %(block)d) {
                const int64_t j1 = MOVE_LEAST(j0 + %(block)d, MOVE_LEAST(c + g->width, wide));
                %(name)s_turn(x + i0 + j0 * s, s, y + i0 * d + j0, d, i1 - i0, j1 - j0);
            }
        }
    }
}
"""


@functools.cache
def template(size: int, added: str) -> Template:
    """Return the functions for elements of so many bytes. added: the C type in which they are added, or "" where they are not."""
    name = f"move_{added.removesuffix('_t') or size}"

    def text() -> str:
        head = f"#define T uint{8 * size}_t\n#define A {added or 'T'}\n"
        turn = turn_text(name, f"uint{8 * size}_t", size, min(16, 64 // size))
        return head + _TEXT % {"name": name, "axes": MOST_AXES, "block": BLOCK, "turn": turn}

    return Template(text, (name, f"{name}_turned"))


def copies(moves: Sequence[tuple[Strided, Strided]], have: np.dtype, want: np.dtype, add: bool, alike: bool = False
           ) -> list[Call] | None:
    """Return each copy as a C function of (source, target), the contiguous arrays below the views; None where NumPy copies.

    That depends on the views, the dtypes and what the machine has compiled; the bits do not.
    alike: all are cut into as many pieces, so that those of one number lie about where the others do.
    """
    size = have.itemsize
    if have != want or size not in (1, 2, 4, 8) or (add and have.name not in ADDED) or not moves:
        return None
    made = template(size, ADDED[have.name] if add else "")
    plans = [_Plan(source, target, add) for source, target in moves]
    if any(len(p.axes) > MOST_AXES for p in plans) or not made.serves(sum(p.elements for p in plans), LEAST, exact=True):
        return None
    calls = [p.call(made, size, add) for p in plans]
    if alike and not any(p.turned for p in plans):
        pieces = max(call.pieces for call in calls)
        calls = [p.call(made, size, add, pieces) for p in plans]
    return calls


def fills(dtype: np.dtype, nbytes: int) -> bool:
    """Return whether C fills arrays of this size."""
    return dtype.itemsize in (1, 2, 4, 8) and template(dtype.itemsize, "").serves(nbytes // dtype.itemsize, LEAST, exact=True)


def filling(size: int, dtype: np.dtype, each: bool = False) -> Call:
    """Return a C function of (source, target) that fills so many elements with the first of the source, or with each of its
    elements, for a dtype of copies."""
    whole = _Plan(Strided(0, (size,), (int(each),)), Strided(0, (size,), (1,)), False)
    return whole.call(template(dtype.itemsize, ""), dtype.itemsize, False)


class _Plan:
    """The axes (size, step of the target, step of the source) of a copy in the order in which they are walked, outermost first.

    turned: whether the source is dense along the last axis but one, and the target along the last.
    """

    def __init__(self, source: Strided, target: Strided, add: bool):
        self.start, self.end = source.offset, target.offset
        axes = []
        for n, s, d in zip(source.shape, source.strides, target.strides):
            if d < 0:
                self.start, self.end, s, d = self.start + (n - 1) * s, self.end + (n - 1) * d, -s, -d
            axes.append((n, d, s))
        axes.sort(key=lambda axis: (-axis[1], -abs(axis[2])))
        axes = merge(tuple(a[0] for a in axes), tuple(a[1] for a in axes), tuple(a[2] for a in axes)) or [(1, 1, 1)]
        if axes[-1][0] < SHORT:  # a short loop is no inner loop
            axes.append(axes.pop(next((i for i in reversed(range(len(axes))) if axes[i][0] >= SHORT), -1)))
        dense = None if add else _dense(axes)
        if dense is not None:
            axes = [*axes[:dense], *axes[dense + 1:-1], axes[dense], axes[-1]]
        self.axes, self.turned, self.elements = axes, dense is not None, math.prod(source.shape)

    def call(self, made: Template, size: int, add: bool, pieces: int = 0) -> Call:
        """Return the copy as a call. pieces: so many, of which the last may be empty; 0: of a size that suits a cache."""
        lines = BLOCK if self.turned else 1  # of a unit
        outer, width = self.axes[:-2] if self.turned else self.axes[:-1], self.axes[-1][0]
        units = math.prod(a[0] for a in outer) * (cdiv(self.axes[-2][0], BLOCK) if self.turned else 1)
        most = PIECE // size  # elements
        wide = width if lines * width <= most else max(BLOCK, most // lines // BLOCK * BLOCK)
        each, columns, room = max(1, most // (lines * width)), cdiv(width, wide), [0] * (MOST_AXES - len(self.axes))
        if pieces:
            each, wide, columns = (cdiv(units, pieces), width, 1) if units > 1 else (1, cdiv(width, pieces), pieces)
        lists = [n for i in range(3) for n in (*(a[i] for a in self.axes), *room)]
        numbers = int64s(len(self.axes), each, wide, columns, int(add), self.start, self.end, *lists)
        return Call(made, made.names[self.turned], pieces or cdiv(units, each) * columns, numbers)


def _dense(axes: list[tuple[int, ...]]) -> int | None:
    """Return the axis along which the source is dense, if it is not the last, along which the target is; else None."""
    n, d, s = axes[-1]
    if d != 1 or abs(s) <= 1 or n < SHORT:
        return None
    return next((i for i, (m, _, step) in enumerate(axes[:-1]) if step == 1 and m >= SHORT), None)
