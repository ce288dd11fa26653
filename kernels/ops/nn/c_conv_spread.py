"""The derivative of a convolution by its data as a product and a sum: for convolutions of few channels.

The product of dy with the weight has, for each position of dy, the derivative by every element under its window. These are added
to the data's places, run by run, as a window reads them. That takes fewer multiplications than to gather for each element of the
data what reaches it, where the data has few channels (they would fill only a part of a vector) or the window is large beside dy
(many of what is gathered lies outside of dy).

A piece of work is one image. The places are added to in memory of the thread's own, channels last and with the padding, unless
the data's derivative lies so itself. Sizes alone decide the order of sums.
"""

from __future__ import annotations

import math
from typing import Any

from ....integers import cdiv
from ...cpu.c_team import int64s
from ...cpu.c_tile import MOST_COLUMNS
from .c_conv_windows import Windows
from .conv_geometry import ConvolutionGeometry
from .conv_pieces import product_time

COLUMNS_AT_ONCE = 1 << 16  # elements of the product that are computed before they are added
ADDED = 8  # the time in which an element of the product is stored and added, in multiplications

TEXT = """
/* Put the rows of a block [rows][columns][channels], which begins at row y0 = first_y of the data, in the data's places. */
static void conv_place(const conv_sizes *g, const float *block, float *x, int64_t columns, int64_t rows)
{
    const int64_t C = g->channels, from = g->first_x < 0 ? 0 : g->first_x;
    const int64_t to = conv_least(g->first_x + columns, g->width), n = to > from ? to - from : 0;
    for (int64_t r = 0; r < g->height; r++) {
        const int64_t at = r - g->first_y, inside = at >= 0 && at < rows && n;
        const float *s = block + (at * columns + from - g->first_x) * C;
        float *d = x + r * g->x_row;
        if (g->add) {
            if (inside)
                for (int64_t c = 0; c < C; c++)
                    for (int64_t k = 0; k < n; k++) d[c * g->x_channel + (from + k) * g->x_column] += s[k * C + c];
        } else if (g->x_channel == 1) {
            const int64_t before = inside ? from : g->width, after = inside ? g->width - from - n : 0;
            memset(d, 0, sizeof(float) * before * C);
            if (inside) memcpy(d + from * C, s, sizeof(float) * n * C);
            memset(d + (g->width - after) * C, 0, sizeof(float) * after * C);
        } else {
            if (!inside || n < g->width)
                for (int64_t c = 0; c < C; c++) memset(d + c * g->x_channel, 0, sizeof(float) * g->width);
            if (inside && n == g->width && columns == n && g->x_row == n) {  /* the rows lie one after the other: all at once */
                const int64_t all = conv_least(rows - at, g->height - r);
                conv_turn(s, C, d, g->x_channel, C, all * n);
                r += all - 1;
            } else if (inside) conv_turn(s, C, d + from, g->x_channel, C, n);
        }
    }
}

/* arrays: dy, packed weights [panels][filters][COLUMNS], null, the derivative by data, sizes, then offsets and lengths of runs.
   The sizes and runs are those of the forward convolution: x_* of the data, y_* of dy. A piece is an image. */
void conv_spread(void *const *arrays, int64_t begin, int64_t end)
{
    const conv_sizes *g = arrays[4];
    const int64_t *offset = arrays[5], *length = offset + g->runs, F = g->filters, C = g->channels, none = 0;
    const int64_t high = (g->out_height - 1) * g->step_y + g->span_y + 1, wide = (g->out_width - 1) * g->step_x + g->span_x + 1;
    const int64_t deep = PANELS(g->depth) * COLUMNS, most = g->block_rows * g->out_width;
    const int64_t row = g->copied ? wide * C : g->x_row, column = g->copied ? C : g->x_column;
    const int turned = g->y_filter != 1;
    float *own = conv_memory(0, g->copied ? high * wide * C : 0), *products = conv_memory(1, most * (deep + F));
    float *dy_last = products + most * deep;
    const float no_bias[COLUMNS] = {0};
    for (int64_t image = begin; image < end; image++) {
        float *x = (float *)arrays[3] + image * g->x_image, *block = g->copied ? own : x;
        const float *dy = (const float *)arrays[0] + image * g->y_image;
        if (g->copied) memset(own, 0, sizeof(float) * high * wide * C);
        else if (!g->add) memset(x, 0, sizeof(float) * g->height * g->width * C);
        for (int64_t r0 = 0; r0 < g->out_height; r0 += g->block_rows) {
            const int64_t rows = conv_least(g->block_rows, g->out_height - r0), positions = rows * g->out_width;
            const int64_t height = tile_height(positions);
            const float *from = dy + r0 * g->y_row;
            if (turned) conv_turn(from, g->y_filter, dy_last, F, positions, F), from = dy_last;
            for (int64_t f = 0; f < g->depth; f += COLUMNS) {
                const float *w = (const float *)arrays[1] + f * F;
                const int narrow = g->depth - f <= LANES;
                for (int64_t p = 0, m; p < positions; p += m) {
                    m = tile_next(height, positions - p);
                    const float *xs[TILE_ROWS];
                    float *ys[TILE_ROWS];
                    for (int64_t j = 0; j < m; j++) xs[j] = from + (p + j) * F, ys[j] = products + (p + j) * deep + f;
                    tile_rows(m, xs, F, ys, &none, &F, 1, w, COLUMNS, no_bias, NO_FLOOR, 0, narrow, (const char *)w, 0);
                }
            }
            for (int64_t p = 0; p < positions; p++) {
                float *to = block + (r0 + p / g->out_width) * g->step_y * row + p %% g->out_width * g->step_x * column;
                const float *added = products + p * deep;
                if (!g->copied) to += g->first_y * row + g->first_x * column;
                for (int64_t r = 0; r < g->runs; added += length[r++]) {
                    float *at = to + offset[r];
                    int64_t i = 0;
                    for (; i + LANES <= length[r]; i += LANES)
                        tile_store(at + i, tile_load(at + i) + tile_load(added + i));
                    for (; i < length[r]; i++) at[i] += added[i];
                }
            }
        }
        if (g->copied) conv_place(g, own, x, wide, high);
    }
}

/* arrays: the weight, panels [filters][COLUMNS] of its taps and channels, then depth, filters, channels, steps of filters and
   channels; then the taps. A piece is MOST_COLUMNS columns. */
void conv_spread_pack(void *const *arrays, int64_t begin, int64_t end)
{
    const int64_t *s = arrays[2], *taps = s + 5;
    for (int64_t f = begin * MOST_COLUMNS; f < s[0] && f < end * MOST_COLUMNS; f += COLUMNS) {
        float *out = (float *)arrays[1] + f * s[1];
        if (s[0] - f < COLUMNS) memset(out, 0, sizeof(float) * s[1] * COLUMNS);
        for (int64_t l = 0; l < COLUMNS && f + l < s[0]; l++) {
            const float *w = (const float *)arrays[0] + taps[(f + l) / s[2]] + (f + l) %% s[2] * s[4];
            for (int64_t k = 0; k < s[1]; k++) out[k * COLUMNS + l] = w[k * s[3]];
        }
    }
}
"""


def spreads(g: ConvolutionGeometry, windows: Windows) -> bool:
    """Return whether the derivative by data is computed here. g: a convolution of two axes. windows: of its forward pass."""
    if g.groups != 1 or g.n == 1:  # one image would be the work of one thread
        return False
    taps, positions, elements = math.prod(g.kernel), math.prod(g.out), math.prod(g.spatial)
    gathered = sum(product_time(cdiv(elements, n), cdiv(taps, n) * g.f, _vectors(g.c)) for n in [math.prod(g.stride)] * math.prod(
        g.stride))
    spread = product_time(positions, g.f, _vectors(taps * g.c)) + ADDED * positions * taps * g.c
    return 4 * spread < 3 * gathered and windows.depth * g.out[1] <= COLUMNS_AT_ONCE


def _vectors(columns: int) -> int:
    """Return columns with those that fill up the last half of a tile."""
    return cdiv(columns, MOST_COLUMNS // 2) * MOST_COLUMNS // 2


def rows_at_once(g: ConvolutionGeometry, depth: int) -> int:
    """Return the rows of dy whose products are computed before they are added."""
    return max(1, min(g.out[0], COLUMNS_AT_ONCE // (depth * g.out[1])))


def packing(depth: int, g: ConvolutionGeometry, filter_step: int, channel_step: int, taps: list[int]) -> tuple[Any, int, int]:
    """Return the numbers that conv_spread_pack takes, how many pieces there are, and the elements of what is packed."""
    panels = cdiv(depth, MOST_COLUMNS)
    return int64s(depth, g.f, g.c, filter_step, channel_step, *taps), panels, panels * MOST_COLUMNS * g.f
