"""Pooling over one or two axes in C: maximum, mean and sum, channels first or last.

With channels last neighbouring lanes are channels, else columns of the result. The windows of an image are computed one after the
other, so the sums of overlapping derivatives have one order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ....integers import cdiv
from ...cpu.c_team import Phases, int64s
from ...cpu.c_template import Call, Template
from ...cpu.c_tile import vectors_text
from ...kernel import BoundKernel, Kernel
from ...op import Shape
from .pooling_geometry import PoolingGeometry

LEAST = 1 << 12  # elements of windows from which on C is worth compiling
PIECE = 1 << 15  # elements of windows in a piece
LANES = 64  # channels that are computed together

_TEXT = """
#include <float.h>

typedef struct {
    int64_t largest, planes, together, height, width, out_height, out_width, tall, wide, step_y, step_x, pad_y, pad_x, channels,
        cut, add;
} pool_sizes;

#ifdef __clang__
#define EACH _Pragma("clang loop vectorize(assume_safety)") for
#else
#define EACH _Pragma("GCC ivdep") for
#endif
#define CHUNK %(lanes)d
#define LEAST(a, b) ((a) < (b) ? (a) : (b))
#define MOST(a, b) ((a) > (b) ? (a) : (b))
#define LARGER(x, m) ((x) > (m) || (x) != (x) ? (x) : (m))  /* NaN stays */

/* The first column of the result whose window has column j inside of the data, and the end of those. */
static inline int64_t pool_from(const pool_sizes *g, int64_t j)
{
    return MOST(0, (g->pad_x - j + g->step_x - 1) / g->step_x);
}

static inline int64_t pool_to(const pool_sizes *g, int64_t j)
{
    const int64_t last = g->width - 1 + g->pad_x - j;
    return last < 0 ? 0 : LEAST(g->out_width, last / g->step_x + 1);
}

/* A window along one axis: where it begins, and the taps of it that are inside of the data. */
static inline int64_t pool_taps(int64_t at, int64_t step, int64_t pad, int64_t taps, int64_t size, int64_t *first, int64_t *end)
{
    const int64_t start = at * step - pad;
    *first = MOST(0, -start);
    *end = LEAST(taps, size - start);
    return start;
}

/* One plane with whole rows as windows' sums: the window is the plane. */
static float pool_whole(const float *x, int64_t n, int largest)
{
    float v[LANES];
    lanes a = tile_all(largest ? -INFINITY : 0);
    int64_t i = 0;
    tile_store(v, a);
    if (largest)
        for (; i + LANES <= n; i += LANES) EACH (int l = 0; l < LANES; l++) v[l] = LARGER(x[i + l], v[l]);
    else {
        for (; i + LANES <= n; i += LANES) a += tile_load(x + i);
        tile_store(v, a);
    }
    for (int64_t l = 0; i + l < n; l++) v[l] = largest ? LARGER(x[i + l], v[l]) : v[l] + x[i + l];
    for (int step = LANES / 2; step; step /= 2)
        for (int l = 0; l < step; l++) v[l] = largest ? LARGER(v[l + step], v[l]) : v[l] + v[l + step];
    return v[0];
}

static void pool_plane(const pool_sizes *g, const float *x, float *y, const float *count)
{
    float row[CHUNK];
    if (g->out_height == 1 && g->out_width == 1 && g->tall == g->height && g->wide == g->width && !g->pad_y && !g->pad_x) {
        const float v = pool_whole(x, g->height * g->width, g->largest) / count[0];
        *y = g->add ? *y + v : v;
        return;
    }
    for (int64_t r = 0; r < g->out_height; r++)
        for (int64_t c0 = 0; c0 < g->out_width; c0 += CHUNK) {
            const int64_t n = LEAST(CHUNK, g->out_width - c0);
            int64_t i0, i1;
            const int64_t top = pool_taps(r, g->step_y, g->pad_y, g->tall, g->height, &i0, &i1);
            for (int64_t l = 0; l < n; l++) row[l] = g->largest ? -INFINITY : 0;
            for (int64_t i = i0; i < i1; i++)
                for (int64_t j = 0; j < g->wide; j++) {
                    const int64_t from = MOST(pool_from(g, j) - c0, 0), to = LEAST(pool_to(g, j) - c0, n);
                    const float *s = x + (top + i) * g->width + c0 * g->step_x + j - g->pad_x;
#define LINE(step, DO) for (int64_t l = from; l < to; l++) { const float v = s[l * (step)]; DO; }
                    if (g->largest) {
                        if (g->step_x == 1) LINE(1, row[l] = LARGER(v, row[l]))
                        else if (g->step_x == 2) LINE(2, row[l] = LARGER(v, row[l]))
                        else LINE(g->step_x, row[l] = LARGER(v, row[l]))
                    } else {
                        if (g->step_x == 1) LINE(1, row[l] += v)
                        else if (g->step_x == 2) LINE(2, row[l] += v)
                        else LINE(g->step_x, row[l] += v)
                    }
#undef LINE
                }
            float *out = y + r * g->out_width + c0;
            for (int64_t l = 0; l < n; l++) {
                const int64_t start = (c0 + l) * g->step_x - g->pad_x;
                const int empty = i0 >= i1 || start >= g->width || start + g->wide <= 0;
                const float v = g->largest ? (empty ? -FLT_MAX : row[l]) : row[l] / count[r * g->out_width + c0 + l];
                out[l] = g->add ? out[l] + v : v;
            }
        }
}

static void pool_last(const pool_sizes *g, const float *x, float *y, const float *count, int64_t n)
{
    const int64_t C = g->channels;
    float m[CHUNK];
    for (int64_t r = 0; r < g->out_height; r++)
        for (int64_t c = 0; c < g->out_width; c++) {
            int64_t i0, i1, j0, j1;
            const int64_t top = pool_taps(r, g->step_y, g->pad_y, g->tall, g->height, &i0, &i1);
            const int64_t left = pool_taps(c, g->step_x, g->pad_x, g->wide, g->width, &j0, &j1);
            const float each = count[r * g->out_width + c], start = !g->largest ? 0 : i0 < i1 && j0 < j1 ? -INFINITY : -FLT_MAX;
            float *out = y + (r * g->out_width + c) * C;
            for (int64_t l = 0; l < n; l++) m[l] = start;
            for (int64_t i = i0; i < i1; i++)
                for (int64_t j = j0; j < j1; j++) {
                    const float *s = x + ((top + i) * g->width + left + j) * C;
                    if (g->largest) EACH (int64_t l = 0; l < n; l++) m[l] = LARGER(s[l], m[l]);
                    else EACH (int64_t l = 0; l < n; l++) m[l] += s[l];
                }
            if (!g->largest) for (int64_t l = 0; l < n; l++) m[l] /= each;
            if (g->add) for (int64_t l = 0; l < n; l++) m[l] += out[l];
            memcpy(out, m, sizeof(float) * n);
        }
}

/* The first plane or image of a piece, the end of them, and the first of its channels. */
#define PIECES(g, begin, end) \
    for (int64_t cuts = ((g)->channels + (g)->cut - 1) / (g)->cut, piece = begin; piece < end; piece++) \
        for (int64_t f = piece %% cuts * (g)->cut, first = piece / cuts * (g)->together, \
             plane = first; plane < first + (g)->together && plane < (g)->planes; plane++)

/* arrays: data, result, the numbers by which sums are divided [out_height][out_width], sizes. */
void pool_forward(void *const *arrays, int64_t begin, int64_t end)
{
    const pool_sizes *g = arrays[3];
    const int64_t C = g->channels, in = g->height * g->width * C, out = g->out_height * g->out_width * C;
    PIECES(g, begin, end) {
        const float *x = (const float *)arrays[0] + plane * in;
        float *y = (float *)arrays[1] + plane * out;
        if (C == 1) pool_plane(g, x, y, arrays[2]);
        else for (int64_t c = f; c < LEAST(f + g->cut, C); c += CHUNK)
            pool_last(g, x + c, y + c, arrays[2], LEAST(CHUNK, LEAST(f + g->cut, C) - c));
    }
}

static void pool_plane_back(const pool_sizes *g, const float *dy, const float *x, const float *y, float *dx, const float *count)
{
    float d[CHUNK];
    for (int64_t r = 0; r < g->out_height; r++)
        for (int64_t c0 = 0; c0 < g->out_width; c0 += CHUNK) {
            const int64_t n = LEAST(CHUNK, g->out_width - c0), at = r * g->out_width + c0;
            int64_t i0, i1;
            const int64_t top = pool_taps(r, g->step_y, g->pad_y, g->tall, g->height, &i0, &i1);
            if (g->largest) memcpy(d, dy + at, sizeof(float) * n);
            else for (int64_t l = 0; l < n; l++) d[l] = dy[at + l] / count[at + l];
            for (int64_t i = i0; i < i1; i++)
                for (int64_t j = 0; j < g->wide; j++) {
                    const int64_t from = MOST(pool_from(g, j) - c0, 0), to = LEAST(pool_to(g, j) - c0, n);
                    const int64_t place = (top + i) * g->width + c0 * g->step_x + j - g->pad_x;
#define HIT(step) EACH (int64_t l = from; l < to; l++) { \\
                        const float v = x[place + l * (step)] == y[at + l] ? d[l] : 0; \\
                        dx[place + l * (step)] += v; \\
                        d[l] = x[place + l * (step)] == y[at + l] ? 0 : d[l]; }
#define ALL(step) EACH (int64_t l = from; l < to; l++) dx[place + l * (step)] += d[l];
                    if (g->largest) { if (g->step_x == 1) HIT(1) else if (g->step_x == 2) HIT(2) else HIT(g->step_x) }
                    else { if (g->step_x == 1) ALL(1) else if (g->step_x == 2) ALL(2) else ALL(g->step_x) }
                }
        }
}

static void pool_last_back(const pool_sizes *g, const float *dy, const float *x, const float *y, float *dx, const float *count,
                           int64_t n)
{
    const int64_t C = g->channels;
    float d[CHUNK];
    for (int64_t r = 0; r < g->out_height; r++)
        for (int64_t c = 0; c < g->out_width; c++) {
            int64_t i0, i1, j0, j1;
            const int64_t top = pool_taps(r, g->step_y, g->pad_y, g->tall, g->height, &i0, &i1);
            const int64_t left = pool_taps(c, g->step_x, g->pad_x, g->wide, g->width, &j0, &j1);
            const int64_t at = (r * g->out_width + c) * C;
            const float each = count[r * g->out_width + c];
            if (g->largest) memcpy(d, dy + at, sizeof(float) * n);
            else for (int64_t l = 0; l < n; l++) d[l] = dy[at + l] / each;
            for (int64_t i = i0; i < i1; i++)
                for (int64_t j = j0; j < j1; j++) {
                    const int64_t place = ((top + i) * g->width + left + j) * C;
                    if (g->largest) EACH (int64_t l = 0; l < n; l++) {
                        const int hit = x[place + l] == y[at + l];
                        dx[place + l] += hit ? d[l] : 0;
                        d[l] = hit ? 0 : d[l];
                    }
                    else EACH (int64_t l = 0; l < n; l++) dx[place + l] += d[l];
                }
        }
}

/* arrays: dy, data and result (read for a maximum), derivative, the numbers by which sums are divided, sizes. */
void pool_backward(void *const *arrays, int64_t begin, int64_t end)
{
    const pool_sizes *g = arrays[5];
    const int64_t C = g->channels, positions = g->height * g->width, in = positions * C, out = g->out_height * g->out_width * C;
    PIECES(g, begin, end) {
        const int64_t none = !g->largest, last = LEAST(f + g->cut, C);
        const float *dy = (const float *)arrays[0] + plane * out, *x = none ? dy : (const float *)arrays[1] + plane * in;
        const float *y = none ? dy : (const float *)arrays[2] + plane * out;
        float *dx = (float *)arrays[3] + plane * in;
        if (!g->add) {
            if (g->cut >= C) memset(dx, 0, sizeof(float) * in);
            else for (int64_t k = 0; k < positions; k++) memset(dx + k * C + f, 0, sizeof(float) * (last - f));
        }
        if (C == 1) pool_plane_back(g, dy, x, y, dx, arrays[4]);
        else for (int64_t c = f; c < last; c += CHUNK)
            pool_last_back(g, dy + c, x + c, y + c, dx + c, arrays[4], LEAST(CHUNK, last - c));
    }
}
"""

TEMPLATE = Template(lambda: vectors_text() + _TEXT % {"lanes": LANES}, ("pool_forward", "pool_backward"))


def in_c(g: PoolingGeometry, kind: str, dtype: np.dtype) -> bool:
    """Return whether C computes: that depends on kind, sizes, dtype and the machine alone."""
    possible = dtype == np.float32 and kind in ("max", "avg", "sum") and len(g.kernel) <= 2
    return possible and TEMPLATE.serves(_work(g), LEAST)


def _work(g: PoolingGeometry) -> int:
    return g.n * g.c * max(math.prod(g.out) * math.prod(g.kernel), math.prod(g.spatial))


def _call(name: str, g: PoolingGeometry, kind: str, add: bool) -> Call:
    def plane(sizes: Shape, first: int) -> Shape:
        return (first, *sizes) if len(sizes) == 1 else sizes

    planes, channels = (g.n, g.c) if g.channels_last and g.c > 1 else (g.n * g.c, 1)
    pieces = max(1, min(planes * channels, _work(g) // PIECE))
    together = max(1, planes // pieces)
    cut = channels if together > 1 else max(min(LANES, channels), cdiv(cdiv(channels * planes, pieces), LANES) * LANES)
    given = (g.spatial, 1), (g.out, 1), (g.kernel, 1), (g.stride, 1), (g.pad, 0)
    sizes = [s for each, first in given for s in plane(each, first)]
    return Call(TEMPLATE, name, cdiv(planes, together) * cdiv(channels, cut),
                int64s(kind == "max", planes, together, *sizes, channels, cut, add))


def forward(g: PoolingGeometry, kind: str, counts: np.ndarray, add: bool) -> Kernel:
    """Return the kernel of a pooling. counts: the divisors of a mean, [*out]."""
    return _kernel(_call("pool_forward", g, kind, add), lambda ins, outs: (ins[0], outs[0]), counts, kind)


def backward(g: PoolingGeometry, kind: str, counts: np.ndarray, add: bool) -> Kernel:
    """Return the kernel of its derivative, from dy and, for a maximum, data and result."""
    call = _call("pool_backward", g, kind, add)
    return _kernel(call, lambda ins, outs: (*ins, *[None] * (3 - len(ins)), outs[0]), counts, kind)


def _kernel(call: Call, arrays: Callable[..., Sequence[Any]], counts: np.ndarray, kind: str) -> Kernel:
    divisors = np.ascontiguousarray(counts if kind == "avg" else np.ones_like(counts), dtype=np.float32)

    def bind(inputs: Sequence[Any], outputs: Sequence[Any]) -> BoundKernel:
        return Phases([[call.prepare(*arrays(inputs, outputs), divisors)]])

    return Kernel(bind=bind)
