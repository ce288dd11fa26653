"""Running sums along an axis in C: each line one after the other, as NumPy adds them, and several lines at a time."""

from __future__ import annotations

import functools

import numpy as np

from ...integers import cdiv
from .c_move import ADDED
from .c_team import int64s
from .c_template import Call, Template

PIECE = 1 << 15  # elements of a piece
TOGETHER, COLUMNS = 4, 256  # lines whose sums run together: dense ones, and those beside each other

_TEXT = """
typedef struct { int64_t outer, n, inner, back, lines; } sums_sizes;

/* arrays: data and sums [outer][n][inner], sizes. A piece is some lines, or some groups of lines beside each other. */
void sums_%(name)s(void *const *arrays, int64_t begin, int64_t end)
{
    const sums_sizes *g = arrays[2];
    const int64_t n = g->n, inner = g->inner, step = g->back ? -inner : inner, first = g->back ? (n - 1) * inner : 0;
    if (inner == 1) {
        const int64_t last = end * g->lines < g->outer ? end * g->lines : g->outer;
        for (int64_t line = begin * g->lines; line < last;) {
            const %(type)s *x = (const %(type)s *)arrays[0] + line * n + first;
            %(type)s *y = (%(type)s *)arrays[1] + line * n + first;
            if (line + %(together)d > last) {
                %(type)s s = x[0];
                y[0] = s;
                for (int64_t i = 1; i < n; i++) y[i * step] = s += x[i * step];
                line++;
                continue;
            }
            %(type)s s[%(together)d];
            for (int l = 0; l < %(together)d; l++) y[l * n] = s[l] = x[l * n];
            for (int64_t i = 1; i < n; i++)
                for (int l = 0; l < %(together)d; l++) y[l * n + i * step] = s[l] += x[l * n + i * step];
            line += %(together)d;
        }
        return;
    }
    const int64_t cuts = (inner + %(columns)d - 1) / %(columns)d;
    for (int64_t part = begin * g->lines; part < end * g->lines && part < g->outer * cuts; part++) {
        const int64_t c = part %% cuts * %(columns)d, m = inner - c < %(columns)d ? inner - c : %(columns)d;
        const %(type)s *x = (const %(type)s *)arrays[0] + part / cuts * n * inner + first + c;
        %(type)s *y = (%(type)s *)arrays[1] + part / cuts * n * inner + first + c;
        %(type)s s[%(columns)d];
        for (int64_t j = 0; j < m; j++) y[j] = s[j] = x[j];
        for (int64_t i = 1; i < n; i++) {
            x += step, y += step;
            for (int64_t j = 0; j < m; j++) s[j] += x[j];
            memcpy(y, s, m * sizeof *y);
        }
    }
}
"""


@functools.cache
def _template(name: str) -> Template:
    kind = ADDED[name]
    return Template(lambda: _TEXT % {"name": name, "type": kind, "together": TOGETHER, "columns": COLUMNS}, (f"sums_{name}",))


def sums(dtype: np.dtype, lines: tuple[int, int, int]) -> bool:
    """Return whether C computes running sums of lines [outer, n, inner] along n: by dtype, sizes and the machine alone."""
    outer, n, inner = lines
    return dtype.name in ADDED and _template(dtype.name).serves(outer * n * inner)


def running_sums(dtype: np.dtype, lines: tuple[int, int, int], back: bool) -> Call:
    """Return the C function of (x, y) that writes the running sums of lines [outer, n, inner] along n. back: from the end."""
    outer, n, inner = lines
    parts, size = (outer, n) if inner == 1 else (outer * cdiv(inner, COLUMNS), n * min(inner, COLUMNS))
    each = max(1, PIECE // size)
    each = each if inner > 1 else cdiv(each, TOGETHER) * TOGETHER
    return Call(_template(dtype.name), f"sums_{dtype.name}", cdiv(parts, each), int64s(*lines, int(back), each))
