"""Pooling over one or two axes in C: maximum, mean and sum, channels first or last.

With channels last neighbouring lanes are channels. With channels first a row of windows is computed at once: rows of data are
combined, then taken apart by the step, so that neighbouring lanes are columns of the result. Rows of windows follow one another,
so the sums of overlapping derivatives have one order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ....integers import cdiv
from ...cpu.c_moving import ReboundKernel
from ...cpu.c_team import Phases, int64s
from ...cpu.c_template import Call, Template, pays
from ...cpu.c_tile import vectors_text
from ...kernel import BoundKernel, Kernel
from ...op import Shape
from .pooling_geometry import PoolingGeometry

LEAST = 1 << 10  # elements of windows from which on C is worth compiling
PIECE = 1 << 15  # elements of windows in a piece
LANES = 64  # channels that are computed together

_TEXT = """
#include <float.h>
#include <stdlib.h>

typedef struct {
    int64_t largest, planes, together, height, width, out_height, out_width, tall, wide, step_y, step_x, pad_y, pad_x, channels,
        cut, add;
} pool_sizes;

#ifdef __clang__
#define EACH _Pragma("clang loop vectorize(assume_safety)") for
#else
#define EACH _Pragma("GCC ivdep") for
#endif
#define LEAST(a, b) ((a) < (b) ? (a) : (b))
#define MOST(a, b) ((a) > (b) ? (a) : (b))
#define LARGER(x, m) ((x) > (m) || (x) != (x) ? (x) : (m))  /* NaN stays */

/* Vectors: the larger one, x where x == y and elsewhere 0, the opposite; the first n of a vector; two vectors taken apart into
   their numbers at even and at odd places, and joined again. */
#if defined(__AVX512F__)
static inline lanes pool_larger(lanes x, lanes m)
{
    return _mm512_mask_mov_ps(_mm512_max_ps(x, m), _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), x);
}
static inline lanes pool_hit(lanes x, lanes y, lanes d) { return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, y, _CMP_EQ_OQ), d); }
static inline lanes pool_missed(lanes x, lanes y, lanes d)
{
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, y, _CMP_NEQ_UQ), d);
}
static inline lanes pool_load(const float *p, int64_t n)
{
    return n >= LANES ? tile_load(p) : _mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), p);
}
static inline void pool_store(float *p, lanes v, int64_t n)
{
    if (n >= LANES) tile_store(p, v);
    else _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), v);
}
static inline void pool_apart_by_two(lanes *a, lanes *b)
{
    const __m512i even = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
    const lanes x = *a;
    *a = _mm512_permutex2var_ps(x, even, *b);
    *b = _mm512_permutex2var_ps(x, _mm512_add_epi32(even, _mm512_set1_epi32(1)), *b);
}
static inline void pool_join_by_two(lanes *a, lanes *b)
{
    const __m512i low = _mm512_set_epi32(23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    const lanes x = *a;
    *a = _mm512_permutex2var_ps(x, low, *b);
    *b = _mm512_permutex2var_ps(x, _mm512_add_epi32(low, _mm512_set1_epi32(8)), *b);
}
#else
#define LANEWISE(result) float a[LANES], b[LANES], c[LANES]; lanes v; tile_store(a, x); tile_store(b, y); tile_store(c, d); \
    for (int l = 0; l < LANES; l++) c[l] = result; \
    memcpy(&v, c, sizeof v); return v
static inline lanes pool_larger(lanes x, lanes y) { const lanes d = y; LANEWISE(LARGER(a[l], b[l])); }
static inline lanes pool_hit(lanes x, lanes y, lanes d) { LANEWISE(a[l] == b[l] ? c[l] : 0); }
static inline lanes pool_missed(lanes x, lanes y, lanes d) { LANEWISE(a[l] == b[l] ? 0 : c[l]); }
static inline lanes pool_load(const float *p, int64_t n)
{
    float some[LANES] = {0};
    if (n >= LANES) return tile_load(p);
    memcpy(some, p, sizeof(float) * n);
    return tile_load(some);
}
static inline void pool_store(float *p, lanes v, int64_t n)
{
    float some[LANES];
    if (n >= LANES) { tile_store(p, v); return; }
    tile_store(some, v);
    memcpy(p, some, sizeof(float) * n);
}
static inline void pool_apart_by_two(lanes *a, lanes *b)
{
    float from[2 * LANES], to[2 * LANES];
    tile_store(from, *a), tile_store(from + LANES, *b);
    for (int l = 0; l < LANES; l++) to[l] = from[2 * l], to[l + LANES] = from[2 * l + 1];
    *a = tile_load(to), *b = tile_load(to + LANES);
}
static inline void pool_join_by_two(lanes *a, lanes *b)
{
    float from[2 * LANES], to[2 * LANES];
    tile_store(from, *a), tile_store(from + LANES, *b);
    for (int l = 0; l < LANES; l++) to[2 * l] = from[l], to[2 * l + 1] = from[l + LANES];
    *a = tile_load(to), *b = tile_load(to + LANES);
}
#endif

/* A window along one axis: where it begins, and the taps of it that are inside of the data. */
static inline int64_t pool_taps(int64_t at, int64_t step, int64_t pad, int64_t taps, int64_t size, int64_t *first, int64_t *end)
{
    const int64_t start = at * step - pad;
    *first = MOST(0, -start);
    *end = LEAST(taps, size - start);
    return start;
}

/* Windows that do not overlap: each element of the data gets its derivative once. */
static inline int pool_apart(const pool_sizes *g) { return g->step_y >= g->tall && g->step_x >= g->wide; }

static inline int pool_is_whole(const pool_sizes *g)
{
    return g->out_height == 1 && g->out_width == 1 && g->tall == g->height && g->wide == g->width && !g->pad_y && !g->pad_x;
}

/* The window is the plane of n elements. */
static float pool_whole(const float *x, int64_t n, int largest)
{
    float v[LANES];
    lanes a = tile_all(largest ? -INFINITY : 0);
    int64_t i = 0;
    if (largest) for (; i + LANES <= n; i += LANES) a = pool_larger(tile_load(x + i), a);
    else {
        for (; i + LANES <= n; i += LANES) a = a + tile_load(x + i);
        a = a + pool_load(x + i, n - i);
    }
    tile_store(v, a);
    if (largest) for (int64_t l = 0; i + l < n; l++) v[l] = LARGER(x[i + l], v[l]);
    for (int step = LANES / 2; step; step /= 2)
        for (int l = 0; l < step; l++) v[l] = largest ? LARGER(v[l + step], v[l]) : v[l] + v[l + step];
    return v[0];
}

/* Rows of one plane. A row with its padding is kept by phases of the step, so that windows side by side lie side by side:
   phase p has the columns p, p + step, ... of the padded row, `pool_each` of them. Loops compute whole vectors: what is beyond
   the end has no effect. */
static inline int64_t pool_up(int64_t n) { return (n + LANES - 1) / LANES * LANES; }
static inline int64_t pool_each(const pool_sizes *g) { return pool_up(pool_up(g->out_width) + (g->wide - 1) / g->step_x); }

#define BLOCKS(k, n) for (int64_t k##0 = 0; k##0 < (n); k##0 += LANES) EACH (int64_t k = k##0; k < k##0 + LANES; k++)

/* Put a row between padding: what is beyond the data is `none`. padded: [each * step]. */
static void pool_pad(const pool_sizes *g, const float *row, float *padded, float none)
{
    const int64_t all = pool_each(g) * g->step_x, from = LEAST(g->pad_x, all), n = LEAST(g->width, all - from);
    for (int64_t k = 0; k < from; k++) padded[k] = none;
    memcpy(padded + from, row, sizeof(float) * n);
    for (int64_t k = from + n; k < all; k++) padded[k] = none;
}

/* Take a padded row apart; with a step of two, both phases at once, which compilers do by permuting vectors. */
static void pool_part(const pool_sizes *g, const float *padded, float *phases)
{
    const int64_t each = pool_each(g), step = g->step_x;
    float *odd = phases + each;
    if (step == 1) memcpy(phases, padded, sizeof(float) * each);
    else if (step == 2) BLOCKS(k, each) { phases[k] = padded[2 * k]; odd[k] = padded[2 * k + 1]; }
    else for (int64_t p = 0; p < step; p++, phases += each)
        for (int64_t k = 0; k < each; k++) phases[k] = padded[k * step + p];
}

/* Add the phases to a row, or, where `fresh`, put them there. */
static void pool_join(const pool_sizes *g, const float *phases, float *padded, float *row, int fresh)
{
    const int64_t each = pool_each(g), step = g->step_x, n = LEAST(g->width, each * step - g->pad_x);
    const float *odd = phases + each;
    if (step == 1) padded = (float *)phases;
    else if (step == 2) BLOCKS(k, each) { padded[2 * k] = phases[k]; padded[2 * k + 1] = odd[k]; }
    else for (int64_t p = 0; p < step; p++, phases += each)
        for (int64_t k = 0; k < each; k++) padded[k * step + p] = phases[k];
    if (n <= 0) return;
    if (fresh) memcpy(row, padded + g->pad_x, sizeof(float) * n);
    else EACH (int64_t k = 0; k < n; k++) row[k] += padded[k + g->pad_x];
}

/* Windows of two columns side by side, without padding: a row of them is read, and its derivative written, as it lies. */
static inline int pool_is_pairs(const pool_sizes *g)
{
    return g->wide == 2 && g->step_x == 2 && !g->pad_x && !g->pad_y && 2 * g->out_width <= g->width
        && (g->out_height - 1) * g->step_y < g->height;
}

static inline void pool_load_pairs(const float *p, int64_t n, lanes *even, lanes *odd)
{
    *even = pool_load(p, 2 * n);
    *odd = 2 * n > LANES ? pool_load(p + LANES, 2 * n - LANES) : tile_all(0);
    pool_apart_by_two(even, odd);
}

static void pool_pairs(const pool_sizes *g, const float *x, float *y, const float *count)
{
    const int64_t n = g->out_width, W = g->width;
    for (int64_t r = 0; r < g->out_height; r++) {
        const int64_t top = r * g->step_y, taps = LEAST(g->tall, g->height - top);
        for (int64_t l = 0; l < n; l += LANES) {
            const float *from = x + top * W + 2 * l;
            float *to = y + r * n + l;
            lanes even, odd, a, b;
            pool_load_pairs(from, n - l, &even, &odd);
            for (int64_t i = 1; i < taps; i++) {
                pool_load_pairs(from + i * W, n - l, &a, &b);
                if (g->largest) even = pool_larger(a, even), odd = pool_larger(b, odd);
                else even = even + a, odd = odd + b;
            }
            if (g->largest) even = pool_larger(odd, even);
            else even = (even + odd) / pool_load(count + r * n + l, n - l);
            if (g->add) even = even + pool_load(to, n - l);
            pool_store(to, even, n - l);
        }
    }
}

static void pool_pairs_back(const pool_sizes *g, const float *dy, const float *x, const float *y, float *dx, int fresh,
                            int64_t row, int64_t l)
{
    const int64_t n = g->out_width, W = g->width, top = row * g->step_y, taps = LEAST(g->tall, g->height - top), some = n - l;
    const lanes m = pool_load(y + row * n + l, some);
    lanes d = pool_load(dy + row * n + l, some), a, b;
    for (int64_t i = 0; i < taps; i++) {
        float *to = dx + (top + i) * W + 2 * l;
        pool_load_pairs(x + (top + i) * W + 2 * l, some, &a, &b);
        const lanes even = pool_hit(a, m, d);
        d = pool_missed(a, m, d);
        a = even;
        const lanes odd = pool_hit(b, m, d);
        d = pool_missed(b, m, d);
        b = odd;
        pool_join_by_two(&a, &b);
        if (!fresh) a = a + pool_load(to, 2 * some);
        pool_store(to, a, 2 * some);
        if (2 * some <= LANES) continue;
        if (!fresh) b = b + pool_load(to + LANES, 2 * some - LANES);
        pool_store(to + LANES, b, 2 * some - LANES);
    }
}

/* Results of one plane, row by row. memory: three rows of pool_memory. */
static void pool_plane(const pool_sizes *g, const float *x, float *y, const float *count, float *memory)
{
    const int64_t each = pool_each(g), n = g->out_width, W = g->width, all = each * g->step_x;
    float *row = memory, *padded = row + pool_up(MOST(W, n)), *phases = padded + all;
    if (pool_is_whole(g)) {
        const float v = pool_whole(x, g->height * W, g->largest) / count[0];
        *y = g->add ? *y + v : v;
        return;
    }
    if (pool_is_pairs(g)) { pool_pairs(g, x, y, count); return; }
    for (int64_t r = 0; r < g->out_height; r++) {
        int64_t i0, i1;
        const int64_t top = pool_taps(r, g->step_y, g->pad_y, g->tall, g->height, &i0, &i1);
        const float none = g->largest ? -INFINITY : 0, *in = i0 < i1 ? x + (top + i0) * W : row;
        if (i0 >= i1) for (int64_t k = 0; k < W; k++) row[k] = none;
        for (int64_t i = i0 + 1; i < i1; i++, in = row) {
            const float *s = x + (top + i) * W;
            if (g->largest) EACH (int64_t k = 0; k < W; k++) row[k] = LARGER(s[k], in[k]);
            else EACH (int64_t k = 0; k < W; k++) row[k] = in[k] + s[k];
        }
        pool_pad(g, in, padded, none);
        pool_part(g, padded, phases);
        for (int64_t l = 0; l < n; l += LANES) {
            lanes m = tile_load(phases + l);
            for (int64_t j = 1, p = 1, at = 0; j < g->wide; j++, p++) {
                if (p == g->step_x) { p = 0; at++; }
                const lanes v = tile_load(phases + p * each + at + l);
                if (g->largest) m = pool_larger(v, m);
                else m = m + v;
            }
            tile_store(row + l, m);
        }
        float *to = y + r * n;
        const int64_t last = (n - 1) * g->step_x - g->pad_x;
        if (!g->largest) for (int64_t l = 0; l < n; l++) row[l] /= count[r * n + l];
        else if (i0 >= i1 || last >= g->width || g->wide <= g->pad_x)  /* some windows have padding alone */
            for (int64_t l = 0; l < n; l++) {
                const int64_t start = l * g->step_x - g->pad_x;
                if (i0 >= i1 || start >= g->width || start + g->wide <= 0) row[l] = -FLT_MAX;
            }
        if (g->add) for (int64_t l = 0; l < n; l++) to[l] += row[l];
        else memcpy(to, row, sizeof(float) * n);
    }
}

static void pool_last(const pool_sizes *g, const float *x, float *y, const float *count, int64_t n)
{
    const int64_t C = g->channels;
    for (int64_t r = 0; r < g->out_height; r++)
        for (int64_t c = 0; c < g->out_width; c++) {
            int64_t i0, i1, j0, j1;
            const int64_t top = pool_taps(r, g->step_y, g->pad_y, g->tall, g->height, &i0, &i1);
            const int64_t left = pool_taps(c, g->step_x, g->pad_x, g->wide, g->width, &j0, &j1);
            const lanes each = tile_all(count[r * g->out_width + c]);
            const lanes start = tile_all(!g->largest ? 0 : i0 < i1 && j0 < j1 ? -INFINITY : -FLT_MAX);
            const float *from = x + (top * g->width + left) * C;
            float *out = y + (r * g->out_width + c) * C;
            for (int64_t l = 0; l < n; l += LANES) {
                const int64_t some = n - l;
                lanes m = start;
                if (g->largest)
                    for (int64_t i = i0; i < i1; i++)
                        for (int64_t j = j0; j < j1; j++) m = pool_larger(pool_load(from + (i * g->width + j) * C + l, some), m);
                else {
                    for (int64_t i = i0; i < i1; i++)
                        for (int64_t j = j0; j < j1; j++) m = m + pool_load(from + (i * g->width + j) * C + l, some);
                    m = m / each;
                }
                if (g->add) m = m + pool_load(out + l, some);
                pool_store(out + l, m, some);
            }
        }
}

/* The first plane or image of a piece, the end of them, and the first of its channels. */
#define PIECES(g, begin, end) \
    for (int64_t cuts = ((g)->channels + (g)->cut - 1) / (g)->cut, piece = begin; piece < end; piece++) \
        for (int64_t f = piece % cuts * (g)->cut, first = piece / cuts * (g)->together, \
             plane = first; plane < first + (g)->together && plane < (g)->planes; plane++)

static float *pool_memory(const pool_sizes *g)
{
    const int64_t rows = 2 * pool_up(MOST(g->width, g->out_width)) + 3 * pool_each(g) * g->step_x;
    return malloc(sizeof(float) * (g->channels > 1 ? g->cut : rows));
}

/* arrays: data, result, the numbers by which sums are divided [out_height][out_width], sizes. */
void pool_forward(void *const *arrays, int64_t begin, int64_t end)
{
    const pool_sizes *g = arrays[3];
    const int64_t C = g->channels, in = g->height * g->width * C, out = g->out_height * g->out_width * C;
    float *memory = pool_memory(g);
    PIECES(g, begin, end) {
        const float *x = (const float *)arrays[0] + plane * in;
        float *y = (float *)arrays[1] + plane * out;
        if (C == 1) pool_plane(g, x, y, arrays[2], memory);
        else pool_last(g, x + f, y + f, arrays[2], LEAST(g->cut, C - f));
    }
    free(memory);
}

/* Clear n channels of the rows from *cleared on, before they are needed. */
static void pool_clear(const pool_sizes *g, float *dx, int64_t n, int64_t *cleared, int64_t end)
{
    const int64_t C = g->channels, W = g->width;
    for (; *cleared < LEAST(end, g->height); ++*cleared) {
        float *row = dx + *cleared * W * C;
        if (n == C) memset(row, 0, sizeof(float) * W * C);
        else for (int64_t k = 0; k < W; k++) memset(row + k * C, 0, sizeof(float) * n);
    }
}

static void pool_plane_back(const pool_sizes *g, const float *dy, const float *x, const float *y, float *dx, const float *count,
                            float *memory, int64_t cleared)
{
    const int64_t each = pool_each(g), n = g->out_width, W = g->width, all = each * g->step_x, up = pool_up(n);
    const int fresh = pool_apart(g) && !g->add;
    float *padded = memory, *values = padded + all, *sums = values + all, *d = sums + all, *out = d + up;
    if (pool_is_whole(g) && !g->largest) {
        const float v = dy[0] / count[0];
        for (int64_t k = 0; k < g->height * W; k++) dx[k] = g->add ? dx[k] + v : v;
        return;
    }
    if (g->largest && pool_is_pairs(g)) {
        for (int64_t r = 0; r < g->out_height; r++) {
            pool_clear(g, dx, 1, &cleared, r * g->step_y + g->tall);
            for (int64_t l = 0; l < n; l += LANES) pool_pairs_back(g, dy, x, y, dx, fresh, r, l);
        }
        pool_clear(g, dx, 1, &cleared, g->height);
        return;
    }
    memset(d, 0, sizeof(float) * 2 * up);
    for (int64_t r = 0; r < g->out_height; r++) {
        int64_t i0, i1;
        const int64_t top = pool_taps(r, g->step_y, g->pad_y, g->tall, g->height, &i0, &i1);
        pool_clear(g, dx, 1, &cleared, top + g->tall);
        memcpy(d, dy + r * n, sizeof(float) * n);
        if (g->largest) memcpy(out, y + r * n, sizeof(float) * n);
        else {
            memset(sums, 0, sizeof(float) * all);
            for (int64_t l = 0; l < n; l++) d[l] /= count[r * n + l];
            for (int64_t j = 0; j < g->wide; j++) {
                float *s = sums + j % g->step_x * each + j / g->step_x;
                BLOCKS(l, n) s[l] += d[l];
            }
        }
        for (int64_t i = i0; i < i1; i++) {
            if (g->largest) {
                memset(sums, 0, sizeof(float) * all);
                pool_pad(g, x + (top + i) * W, padded, NAN);
                pool_part(g, padded, values);
                for (int64_t j = 0; j < g->wide; j++) {
                    const int64_t at = j % g->step_x * each + j / g->step_x;
                    for (int64_t l = 0; l < n; l += LANES) {
                        const lanes v = tile_load(values + at + l), m = tile_load(out + l), given = tile_load(d + l);
                        tile_store(sums + at + l, tile_load(sums + at + l) + pool_hit(v, m, given));
                        tile_store(d + l, pool_missed(v, m, given));
                    }
                }
            }
            pool_join(g, sums, padded, dx + (top + i) * W, fresh);
        }
    }
    pool_clear(g, dx, 1, &cleared, g->height);
}

static void pool_last_back(const pool_sizes *g, const float *dy, const float *x, const float *y, float *dx, const float *count,
                           int64_t n, float *memory, int64_t cleared)
{
    const int64_t C = g->channels;
    const int fresh = pool_apart(g) && !g->add;
    for (int64_t r = 0; r < g->out_height; r++) {
        pool_clear(g, dx, n, &cleared, r * g->step_y - g->pad_y + g->tall);
        for (int64_t c = 0; c < g->out_width; c++) {
            int64_t i0, i1, j0, j1;
            const int64_t top = pool_taps(r, g->step_y, g->pad_y, g->tall, g->height, &i0, &i1);
            const int64_t left = pool_taps(c, g->step_x, g->pad_x, g->wide, g->width, &j0, &j1);
            const int64_t at = (r * g->out_width + c) * C, from = (top * g->width + left) * C;
            const float each = count[r * g->out_width + c];
            if (!g->largest) {
                for (int64_t l = 0; l < n; l++) memory[l] = dy[at + l] / each;
                for (int64_t i = i0; i < i1; i++)
                    for (int64_t j = j0; j < j1; j++) {
                        float *to = dx + from + (i * g->width + j) * C;
                        if (fresh) memcpy(to, memory, sizeof(float) * n);
                        else EACH (int64_t l = 0; l < n; l++) to[l] += memory[l];
                    }
                continue;
            }
            for (int64_t l = 0; l < n; l += LANES) {
                const int64_t some = n - l;
                lanes d = pool_load(dy + at + l, some);
                const lanes m = pool_load(y + at + l, some);
                for (int64_t i = i0; i < i1; i++)
                    for (int64_t j = j0; j < j1; j++) {
                        const int64_t place = from + (i * g->width + j) * C + l;
                        const lanes s = pool_load(x + place, some);
                        lanes v = pool_hit(s, m, d);
                        d = pool_missed(s, m, d);
                        if (!fresh) v = v + pool_load(dx + place, some);
                        pool_store(dx + place, v, some);
                    }
            }
        }
    }
    pool_clear(g, dx, n, &cleared, g->height);
}

/* arrays: dy, data and result (read for a maximum), derivative, the numbers by which sums are divided, sizes. */
void pool_backward(void *const *arrays, int64_t begin, int64_t end)
{
    const pool_sizes *g = arrays[5];
    const int64_t C = g->channels, in = g->height * g->width * C, out = g->out_height * g->out_width * C;
    const int covers = pool_apart(g) && g->tall == g->step_y && g->wide == g->step_x &&
        g->out_height * g->step_y - g->pad_y >= g->height && g->out_width * g->step_x - g->pad_x >= g->width;
    float *memory = pool_memory(g);
    PIECES(g, begin, end) {
        const int64_t none = !g->largest, last = LEAST(f + g->cut, C);
        const float *dy = (const float *)arrays[0] + plane * out, *x = none ? dy : (const float *)arrays[1] + plane * in;
        const float *y = none ? dy : (const float *)arrays[2] + plane * out;
        float *dx = (float *)arrays[3] + plane * in;
        const int64_t cleared = g->add || covers ? g->height : 0;
        if (C == 1) pool_plane_back(g, dy, x, y, dx, arrays[4], memory, cleared);
        else pool_last_back(g, dy + f, x + f, y + f, dx + f, arrays[4], last - f, memory, cleared);
    }
    free(memory);
}
"""

TEMPLATE = Template(lambda: vectors_text() + _TEXT, ("pool_forward", "pool_backward"))


def in_c(g: PoolingGeometry, kind: str, dtype: np.dtype) -> bool:
    """Return whether C computes: that depends on kind, sizes, dtype and the machine alone."""
    return _possible(g, kind, dtype) and TEMPLATE.serves(_work(g), LEAST)


def c_files(g: PoolingGeometry, kind: str, dtype: np.dtype) -> list[Template]:
    """Return the C files of a pooling; none where it is not computed in C."""
    return [TEMPLATE] if _possible(g, kind, dtype) and pays(_work(g), LEAST) else []


def _possible(g: PoolingGeometry, kind: str, dtype: np.dtype) -> bool:
    return dtype == np.float32 and kind in ("max", "avg", "sum") and len(g.kernel) <= 2


def _work(g: PoolingGeometry) -> int:
    return g.n * g.c * max(math.prod(g.out) * math.prod(g.kernel), math.prod(g.spatial))


def _call(name: str, g: PoolingGeometry, kind: str, add: bool) -> tuple[Call, int]:
    """Return a function, and the number of images if its pieces are of one image each, else 0."""

    def plane(sizes: Shape, first: int) -> Shape:
        return (first, *sizes) if len(sizes) == 1 else sizes

    planes, channels = (g.n, g.c) if g.channels_last and g.c > 1 else (g.n * g.c, 1)
    pieces = max(1, min(planes * channels, _work(g) // PIECE))
    together = max(1, planes // pieces)
    cut = channels if together > 1 else max(min(LANES, channels), cdiv(cdiv(channels * planes, pieces), LANES) * LANES)
    given = (g.spatial, 1), (g.out, 1), (g.kernel, 1), (g.stride, 1), (g.pad, 0)
    sizes = [s for each, first in given for s in plane(each, first)]
    return Call(TEMPLATE, name, cdiv(planes, together) * cdiv(channels, cut),
                int64s(kind == "max", planes, together, *sizes, channels, cut, add)), g.n if together == 1 else 0


def forward(g: PoolingGeometry, kind: str, counts: np.ndarray, add: bool) -> Kernel:
    """Return the kernel of a pooling. counts: the divisors of a mean, [*out]."""
    return _kernel(*_call("pool_forward", g, kind, add), lambda ins, outs: (ins[0], outs[0]), counts, kind)


def backward(g: PoolingGeometry, kind: str, counts: np.ndarray, add: bool) -> Kernel:
    """Return the kernel of its derivative, from dy and, for a maximum, data and result."""
    call = _call("pool_backward", g, kind, add)
    return _kernel(*call, lambda ins, outs: (*ins, *[None] * (3 - len(ins)), outs[0]), counts, kind)


def _kernel(call: Call, images: int, arrays: Callable[..., Sequence[Any]], counts: np.ndarray, kind: str) -> Kernel:
    divisors = np.ascontiguousarray(counts if kind == "avg" else np.ones_like(counts), dtype=np.float32)

    def bind(inputs: Sequence[Any], outputs: Sequence[Any]) -> BoundKernel:
        step = call.prepare(*arrays(inputs, outputs), divisors)
        step.images = images
        return Phases([[step]])

    return ReboundKernel(bind)
