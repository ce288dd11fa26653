"""Convolutions of one channel, with the positions of the output as columns of a product.

What lies together in the data is a row of a window, so c_conv.py's runs would be short, and its filters often fill a part of a
vector only. Here what the positions of some rows sum over is copied to lines, one for each tap, and filters are the rows of a
product with them. Channels first, the result is written as it lies; channels last, it is turned while it is in cache. The
derivative by the weight is the product of dy with the lines, turned.

A piece of work is some rows of an image, or a slot of images. Sizes alone decide the order of sums.
"""

from __future__ import annotations

import math

from ....integers import cdiv
from ...cpu.c_tile import MOST_COLUMNS
from .c_conv_windows import Windows
from .conv_geometry import ConvolutionGeometry

LINES = 1 << 13  # elements of the lines of a block: they stay in the first and second cache

TEXT = """
/* Copy what the positions of some rows sum over to lines [taps][width]. taps: their rows, then their columns. */
static void conv_to_lines(const conv_sizes *g, const float *x, float *lines, int64_t width, int64_t r0, int64_t rows,
                          const int64_t *taps)
{
    const int64_t step = g->step_x, n = g->out_width;
    for (int64_t t = 0; t < g->depth; t++, lines += width) {
        const int64_t left = taps[g->depth + t], inside = g->width - left;
        const int64_t from = conv_least(n, left < 0 ? (step - 1 - left) / step : 0);
        const int64_t to = inside > 0 ? conv_least(n, (inside + step - 1) / step) : 0;
        for (int64_t r = 0; r < rows; r++) {
            const int64_t y = (r0 + r) * g->step_y + taps[t];
            float *d = lines + r * n;
            if (y < 0 || y >= g->height || from >= to) { memset(d, 0, sizeof(float) * n); continue; }
            const float *s = x + y * g->width + left;
            for (int64_t k = 0; k < from; k++) d[k] = 0;
            if (step == 1) memcpy(d + from, s + from, sizeof(float) * (to - from));
            else for (int64_t k = from; k < to; k++) d[k] = s[k * step];
            for (int64_t k = to; k < n; k++) d[k] = 0;
        }
        for (int64_t k = rows * n; k < width; k++) lines[k] = 0;
    }
}

/* arrays: data, weights [filters][depth], bias or null, output, sizes, taps. A piece is some rows of an image. */
void conv_lines_rows(void *const *arrays, int64_t begin, int64_t end)
{
    const conv_sizes *g = arrays[4];
    const int64_t depth = g->depth, F = g->filters, none = 0, most = PANELS(g->block_rows * g->out_width) * COLUMNS;
    const float *bias = arrays[2], no_bias[COLUMNS] = {0};
    const lanes floor = tile_all(g->rectified ? 0 : NO_FLOOR);
    const int turned = g->y_filter == 1;
    float *lines = conv_memory(0, depth * most), tile[TILE_ROWS * COLUMNS], *all = conv_memory(1, turned ? F * COLUMNS : 0);
    for (int64_t piece = begin; piece < end; piece++) {
        const int64_t image = piece / g->row_blocks, r0 = piece %% g->row_blocks * g->block_rows;
        const int64_t rows = conv_least(g->block_rows, g->out_height - r0), positions = rows * g->out_width;
        const int64_t width = PANELS(positions) * COLUMNS;
        conv_to_lines(g, (const float *)arrays[0] + image * g->x_image, lines, width, r0, rows, arrays[5]);
        for (int64_t p = 0; p < positions; p += COLUMNS) {
            const int64_t columns = conv_least(COLUMNS, positions - p);
            const int narrow = columns <= LANES, whole = !turned && columns == (narrow ? LANES : COLUMNS);
            for (int64_t f = 0; f < F; f += TILE_ROWS) {
                const int64_t m = conv_least(TILE_ROWS, F - f);
                float *y = (float *)arrays[3] + image * g->y_image + f * g->y_filter + r0 * g->y_row + p, *ys[TILE_ROWS];
                const float *xs[TILE_ROWS];
                for (int64_t j = 0; j < m; j++) {
                    xs[j] = (const float *)arrays[1] + (f + j) * depth;
                    ys[j] = whole ? y + j * g->y_filter : turned ? all + (f + j) * COLUMNS : tile + j * COLUMNS;
                    if (!whole && g->add) conv_some(ys[j], y + j * g->y_filter, columns);
                }
                tile_rows(m, xs, depth, ys, &none, &depth, 1, lines + p, width, no_bias, NO_FLOOR, g->add, narrow,
                          (const char *)lines, 0);
                for (int64_t j = 0; j < m; j++) {
                    if (bias || g->rectified)
                        for (int64_t l = 0; l < columns; l += LANES)
                            tile_store(ys[j] + l, tile_most(floor, tile_load(ys[j] + l) + tile_all(bias ? bias[f + j] : 0)));
                    if (!whole && !turned) conv_some(y + j * g->y_filter, ys[j], columns);
                }
            }
            if (turned) conv_turn(all, COLUMNS, (float *)arrays[3] + image * g->y_image + r0 * g->y_row + p * g->y_column,
                                  g->y_column, columns, F);
        }
    }
}

/* Add the sums of n numbers that lie one after the other, in lanes. */
static inline double conv_sum(const float *x, int64_t n)
{
    lanes a = tile_all(0), b = tile_all(0);
    float v[LANES];
    double total = 0;
    int64_t i = 0;
    for (; i + 2 * LANES <= n; i += 2 * LANES) a = a + tile_load(x + i), b = b + tile_load(x + i + LANES);
    for (; i < n; i++) total += x[i];
    tile_store(v, a + b);
    for (int l = 0; l < LANES; l++) total += v[l];
    return total;
}

/* arrays: data, dy, partial sums [slots][filters][panels * COLUMNS], those of the bias as doubles [slots][filters] or null,
   sizes, taps, the first image of each slot. */
void conv_lines_outer(void *const *arrays, int64_t begin, int64_t end)
{
    const conv_sizes *g = arrays[4];
    const int64_t depth = g->depth, F = g->filters, none = 0, deep = PANELS(depth) * COLUMNS, *slots = arrays[6];
    const int64_t most = g->block_rows * g->out_width;
    const float no_bias[COLUMNS] = {0};
    float *lines = conv_memory(0, depth * most), *turned = conv_memory(1, deep * most);
    memset(turned, 0, sizeof(float) * deep * most);  /* what fills the last panel is not read, but should be quick to multiply */
    for (int64_t slot = begin; slot < end; slot++) {
        float *partial = (float *)arrays[2] + slot * F * deep;
        double *sums = arrays[3] ? (double *)arrays[3] + slot * F : 0;
        memset(partial, 0, sizeof(float) * F * deep);
        if (sums) for (int64_t f = 0; f < F; f++) sums[f] = 0;
        for (int64_t image = slots[slot]; image < slots[slot + 1]; image++)
            for (int64_t r0 = 0; r0 < g->out_height; r0 += g->block_rows) {
                const int64_t rows = conv_least(g->block_rows, g->out_height - r0), positions = rows * g->out_width;
                const float *dy = (const float *)arrays[1] + image * g->y_image + r0 * g->y_row;
                conv_to_lines(g, (const float *)arrays[0] + image * g->x_image, lines, positions, r0, rows, arrays[5]);
                conv_turn(lines, positions, turned, deep, positions, depth);
                for (int64_t f = 0; sums && f < F; f++) sums[f] += conv_sum(dy + f * g->y_filter, positions);
                for (int64_t d = 0; d < depth; d += COLUMNS)
                    for (int64_t f = 0; f < F; f += TILE_ROWS) {
                        const int64_t m = conv_least(TILE_ROWS, F - f);
                        const int narrow = depth - d <= LANES;
                        const float *xs[TILE_ROWS];
                        float *ys[TILE_ROWS];
                        for (int64_t j = 0; j < m; j++) xs[j] = dy + (f + j) * g->y_filter, ys[j] = partial + (f + j) * deep + d;
                        tile_rows(m, xs, g->y_filter, ys, &none, &positions, 1, turned + d, deep, no_bias, NO_FLOOR, 1,
                                  narrow, (const char *)turned, 0);
                    }
            }
    }
}

/* arrays: a weight [filters][taps], itself again, sizes. */
void conv_lines_pack(void *const *arrays, int64_t begin, int64_t end)
{
    const int64_t *s = arrays[2];
    memcpy(arrays[1], arrays[0], sizeof(float) * s[0] * s[1]);
}

/* arrays: the derivative by a weight, partial sums, then filters, taps, slots, add. */
void conv_lines_unpack(void *const *arrays, int64_t begin, int64_t end)
{
    const int64_t *s = arrays[2], T = s[1], deep = PANELS(T) * COLUMNS;
    for (int64_t f = 0; f < s[0]; f++)
        for (int64_t t = 0; t < T; t++) {
            float *w = (float *)arrays[0] + f * T + t, total = 0;
            for (int64_t k = 0; k < s[2]; k++) total += ((float *)arrays[1])[(k * s[0] + f) * deep + t];
            *w = s[3] ? *w + total : total;
        }
}
"""

NAMES = [f"conv_lines_{name}" for name in ("rows", "outer", "pack", "unpack")]


def forward_in_lines(g: ConvolutionGeometry, add: bool) -> bool:
    """Return whether the forward convolution takes positions as columns.

    With channels last it is so where filters would fill a part of a vector.
    """
    partly = g.f % MOST_COLUMNS and g.f != MOST_COLUMNS // 2
    return g.c == 1 < math.prod(g.kernel) and (not g.channels_last or (bool(partly) and not add))


def weight_gradient_in_lines(g: ConvolutionGeometry) -> bool:
    """Return whether the derivative by the weight takes positions as columns."""
    return g.c == 1 < math.prod(g.kernel) and not g.channels_last


def rows_at_once(windows: Windows) -> int:
    """Return the rows of the output whose lines are copied at a time."""
    return max(1, min(windows.out[0], LINES // (windows.depth * windows.out[1])))


def places(windows: Windows) -> list[int]:
    """Return the rows of the taps, then their columns."""
    return [t[axis] for axis in (0, 1) for t in windows.taps]


def partial_sums(windows: Windows) -> int:
    """Return the elements of the sums of a slot, on any machine."""
    return windows.filters * cdiv(windows.depth, MOST_COLUMNS) * MOST_COLUMNS
