"""Suppression of boxes in C: each box that is kept is compared with all later ones, many at a time."""

from __future__ import annotations

import functools

import numpy as np

from ...cpu.c_team import int64s
from ...cpu.c_template import Call, Template, doubles

LEAST = 1 << 4  # comparisons from which on C is worth compiling: NumPy needs 150 microseconds for few
TYPES = {"float32": "float", "float64": "double"}

_TEXT = """
/* arrays: left, top, right, bottom [4][n], areas [n], kinds [n] or null, gone [n], then sizes and numbers. */
void suppress_%(type)s(void *const *arrays, int64_t begin, int64_t end)
{
    const int64_t *const sizes = arrays[4], n = sizes[0], enough = sizes[1], inclusive = sizes[2];
    const double *const numbers = arrays[5];
    const %(type)s most = numbers[0], pixel = numbers[1];
    const %(type)s *restrict const left = arrays[0], *restrict const top = left + n, *restrict const right = top + n;
    const %(type)s *restrict const bottom = right + n, *restrict const areas = arrays[1];
    const int64_t *restrict const kinds = arrays[2];
    uint8_t *restrict const gone = arrays[3];
    for (int64_t i = 0, kept = 0; i < n; i++) {
        if (gone[i]) continue;
        if (++kept == enough) { memset(gone + i + 1, 1, n - i - 1); return; }
        const %(type)s l = left[i], t = top[i], r = right[i], b = bottom[i], area = areas[i];
        for (int64_t j = i + 1; j < n; j++) {
            const %(type)s wide = (right[j] < r ? right[j] : r) - (left[j] > l ? left[j] : l) + pixel;
            const %(type)s high = (bottom[j] < b ? bottom[j] : b) - (top[j] > t ? top[j] : t) + pixel;
            const %(type)s common = (wide > 0 ? wide : 0) * (high > 0 ? high : 0), all = areas[j] + area - common;
            const %(type)s share = all > 0 ? common / all : 0;
            const int hit = (share > most) | ((share == most) & (int)inclusive);
            gone[j] |= kinds ? hit & (kinds[j] == kinds[i]) : hit;
        }
    }
}
"""


@functools.cache
def _template(kind: str) -> Template:
    return Template(lambda: _TEXT % {"type": kind}, (f"suppress_{kind}",))


def suppresses(n: int, dtype: np.dtype) -> bool:
    """Return whether C compares n boxes: that depends on n, the dtype and the machine alone."""
    return dtype.name in TYPES and _template(TYPES[dtype.name]).serves(n * n // 2, LEAST)


def suppress(ends: np.ndarray, areas: np.ndarray, kinds: np.ndarray | None, threshold: float, inclusive: bool, pixel: float,
             enough: int | None) -> np.ndarray:
    """Return what `boxes.suppressed` does. ends: left, top, right and bottom [4, n] of the boxes, whose areas [n] are given."""
    kind, n = TYPES[ends.dtype.name], len(areas)
    gone = np.zeros(n, bool)
    numbers = int64s(n, enough or 0, int(inclusive)), doubles(threshold, pixel)
    classes = None if kinds is None else np.ascontiguousarray(kinds, np.int64)
    Call(_template(kind), f"suppress_{kind}", 1, *numbers).prepare(ends, areas, classes, gone).run(0)
    return gone
