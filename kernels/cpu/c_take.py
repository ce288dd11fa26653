"""Rows of an array selected by index, in C, and their derivative: rows added where they came from.

Each piece of a derivative is a range of the rows that are added to, and reads all indices. So rows with equal indices add up in
their order, whatever the number of threads.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from functools import partial

import numpy as np

from ...integers import cdiv
from .c_move import ADDED
from .c_team import Phases, Scratch, int64s
from .c_template import Call, Template

LEAST = 1 << 14  # elements of selected rows for which C is compiled at once
PIECE = 1 << 15  # elements of a piece
PARTS = 16  # ranges of rows that are added to
#: Dtypes of indices that C reads, by their C types.
INDICES = {"float32": "cut64", "float64": "cut64", "int32": "", "int64": "", "uint8": "", "int8": ""}

Bind3 = Callable[[np.ndarray, np.ndarray, np.ndarray], Phases]

_TEXT = """
typedef struct { int64_t k, n, wrap, kind, piece; } rows_numbers_sizes;
typedef struct { int64_t outer, n, k, width, rows; } rows_sizes;  /* width: bytes of a row; rows of a piece */

/* arrays: indices, indices below n as int64, sizes. */
void rows_numbers(void *const *arrays, int64_t begin, int64_t end)
{
    const rows_numbers_sizes *g = arrays[2];
    int64_t *const to = arrays[1];
    const int64_t n = g->n, first = begin * g->piece, last = end * g->piece < g->k ? end * g->piece : g->k;
    switch (g->kind) {
%(reads)s
    }
    if (g->wrap) for (int64_t i = first; i < last; i++) { const int64_t r = to[i] %% n; to[i] = r < 0 ? r + n : r; }
    else for (int64_t i = first; i < last; i++) { const int64_t v = to[i]; to[i] = v < 0 ? 0 : v >= n ? n - 1 : v; }
}

#define ROWS(T) for (int64_t r = first; r < last; r++) { \\
        const int64_t o = r / g->k; \\
        ((T *)arrays[2])[r] = ((const T *)arrays[0])[o * g->n + at[r - o * g->k]]; }

/* arrays: data [outer][n], indices [k], result [outer][k], sizes. */
void rows_selected(void *const *arrays, int64_t begin, int64_t end)
{
    const rows_sizes *g = arrays[3];
    const int64_t *const at = arrays[1], w = g->width, all = g->outer * g->k;
    const int64_t first = begin * g->rows, last = end * g->rows < all ? end * g->rows : all;
    if (w == 1) ROWS(uint8_t)
    else if (w == 2) ROWS(uint16_t)
    else if (w == 4) ROWS(uint32_t)
    else if (w == 8) ROWS(uint64_t)
    else for (int64_t r = first; r < last; r++) {
        const int64_t o = r / g->k;
        memcpy((char *)arrays[2] + r * w, (const char *)arrays[0] + (o * g->n + at[r - o * g->k]) * w, w);
    }
}
"""

_ADDED_TEXT = """
typedef struct { int64_t outer, n, k, inner, parts, add; } rows_added_sizes;

/* arrays: rows [outer][k][inner], indices [k], result [outer][n][inner], sizes. A piece is a range of rows of one matrix. */
void rows_added_%(name)s(void *const *arrays, int64_t begin, int64_t end)
{
    const rows_added_sizes *g = arrays[3];
    const int64_t *const at = arrays[1], n = g->n, k = g->k, inner = g->inner;
    for (int64_t piece = begin; piece < end; piece++) {
        const int64_t o = piece / g->parts, part = piece %% g->parts;
        const int64_t first = n * part / g->parts, last = n * (part + 1) / g->parts;
        const %(type)s *const x = (const %(type)s *)arrays[0] + o * k * inner;
        %(type)s *const y = (%(type)s *)arrays[2] + o * n * inner;
        if (!g->add) memset(y + first * inner, 0, (last - first) * inner * sizeof *y);
        for (int64_t i = 0; i < k; i++) {
            if (at[i] < first || at[i] >= last) continue;
            const %(type)s *restrict const from = x + i * inner;
            %(type)s *restrict const to = y + at[i] * inner;
            for (int64_t j = 0; j < inner; j++) to[j] += from[j];
        }
    }
}
"""


def _reads() -> str:
    types = {"float32": "float", "float64": "double"}
    return "\n".join(f"    case {kind}: for (int64_t i = first; i < last; i++) "
                     f"to[i] = {cut}(((const {types.get(name, name + '_t')} *)arrays[0])[i]); break;"
                     for kind, (name, cut) in enumerate(INDICES.items()))


_SELECTED = Template(lambda: _TEXT % {"reads": _reads()}, ("rows_selected", "rows_numbers"))


@functools.cache
def _added(name: str) -> Template:
    kind = ADDED[name]
    return Template(lambda: _ADDED_TEXT % {"name": name, "type": kind}, (f"rows_added_{name}",))


def _numbers(n: int, k: int, indices: np.dtype, wrap: bool) -> Call:
    """Return the function (indices, int64 [k]) that makes indices below n: they are clipped, or wrap around."""
    piece = min(k, PIECE)
    return Call(_SELECTED, "rows_numbers", cdiv(k, piece), int64s(k, n, int(wrap), list(INDICES).index(indices.name), piece))


def selected(outer: int, n: int, k: int, inner: int, dtype: np.dtype, indices: np.dtype, wrap: bool) -> Bind3:
    """Return bind(x, indices, y), whose run writes the rows of x [outer, n, inner] at k indices to y [outer, k, inner]."""
    return partial(_bind, _numbers(n, k, indices, wrap), selected_rows(outer, n, k, inner, dtype), k)


def selected_rows(outer: int, n: int, k: int, inner: int, dtype: np.dtype) -> Call:
    """Return the function (x, indices, y) that does that for indices below n, int64 [k]."""
    rows = max(1, PIECE // inner)
    return Call(_SELECTED, "rows_selected", cdiv(outer * k, rows), int64s(outer, n, k, inner * dtype.itemsize, rows))


def added(outer: int, n: int, k: int, inner: int, dtype: np.dtype, indices: np.dtype, wrap: bool, add: bool) -> Bind3:
    """Return bind(x, indices, y), whose run adds the rows of x [outer, k, inner] to those of y [outer, n, inner] at k indices.

    add: to what y holds, else to zeros.
    """
    parts = max(1, min(PARTS, n, inner // 8, outer * max(n, k) * inner // PIECE))
    call = Call(_added(dtype.name), f"rows_added_{dtype.name}", outer * parts, int64s(outer, n, k, inner, parts, int(add)))
    return partial(_bind, _numbers(n, k, indices, wrap), call, k)


def _bind(numbers: Call, rows: Call, k: int, x: np.ndarray, indices: np.ndarray, y: np.ndarray) -> Phases:
    first, then = numbers.prepare(indices, None), rows.prepare(x, None, y)
    return Phases([[first], [then]], scratch=[Scratch(2 * k, [(first.addresses, 1), (then.addresses, 1)])])


def selects(outer: int, n: int, k: int, inner: int, dtype: np.dtype, indices: np.dtype) -> bool:
    """Return whether C selects such rows: by the sizes, the dtypes and what is compiled. The bits are NumPy's."""
    possible = n and dtype.itemsize in (1, 2, 4, 8) and indices.name in INDICES
    return bool(possible) and _SELECTED.serves(outer * k * inner, LEAST, exact=True)


def adds(outer: int, n: int, k: int, inner: int, dtype: np.dtype, indices: np.dtype) -> bool:
    """Return whether C adds rows where they belong."""
    possible = dtype.name in ADDED and indices.name in INDICES and outer * k * inner
    return bool(possible) and _added(dtype.name).serves(outer * max(n, k) * inner) and _SELECTED.serves(k, 0)
