"""Convolutions of 3 × 3 windows with fewer multiplications (Winograd's minimal filtering).

A tile of 2 × 2 outputs is computed from 4 × 4 data. Data and weight are transformed by small matrices and multiplied element by
element, which for all channels and filters is one product of matrices for each of the 16 places; the result is transformed back.
That takes 16 multiplications in place of 36, and its rounding errors are no larger, since its sums are shorter. The transformed
weight is packed into panels, place by place.

Source: Lavin and Gray 2016, arXiv:1509.09308.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

from ....integers import cdiv
from ...cpu.c_tile import MOST_COLUMNS
from .conv_geometry import ConvolutionGeometry
from .conv_pieces import Block, cheapest, parts, product_time

VECTOR = 16  # channels and filters are multiples of this: of whole vectors on any machine
LEAST = 32  # channels and filters from which on fewer multiplications pay for the transforms
DATA = 1 << 18  # elements of transformed data that stay in cache
TRANSFORM = 128  # the time of transforming the data of a channel of a tile, in multiplications

FIELDS = ("images", "height", "width", "channels", "filters", "out_height", "out_width", "pad_y", "pad_x", "tile_rows",
          "tile_columns", "block_images", "block_rows", "row_blocks", "filter_block", "filter_blocks", "rectified")

_TEXT = """
typedef struct { int64_t %(fields)s; } winograd_sizes;

/* Four lines of four places, each transformed: the data. */
static inline __attribute__((always_inline)) void winograd_data(lanes *d, const int line, const int step)
{
    for (int i = 0; i < 4; i++, d += line) {
        const lanes d0 = d[0], d1 = d[step], d2 = d[2 * step], d3 = d[3 * step];
        d[0] = d0 - d2; d[step] = d1 + d2; d[2 * step] = d2 - d1; d[3 * step] = d1 - d3;
    }
}

/* One line of a weight: three places become four. */
static inline void winograd_weight(const lanes *g, const int step, lanes *out, const int out_step)
{
    const lanes half = tile_all(0.5f), a = g[0], b = g[step] * half, c = g[2 * step], s = (a + c) * half;
    out[0] = a;
    out[out_step] = s + b;
    out[2 * out_step] = s - b;
    out[3 * out_step] = c;
}

/* at: the places of a tile; out: where the first place's channels go, each next place `next` elements further. */
static void winograd_take(const float *const *at, float *out, int64_t next, int64_t channels)
{
    for (int64_t c = 0; c < channels; c += LANES) {
        lanes d[16];
        for (int i = 0; i < 16; i++) d[i] = tile_load(at[i] + c);
        winograd_data(d, 1, 4);
        winograd_data(d, 4, 1);
        for (int i = 0; i < 16; i++) tile_store(out + i * next + c, d[i]);
    }
}

/* The outputs of a tile for one vector of filters; a second row and column only where there are. */
static inline __attribute__((always_inline)) void winograd_give(
    const float *in, int64_t next, lanes bias, lanes least, float *y, int64_t row, int64_t column, int second_row,
    int second_column)
{
    lanes t[4], b[4];
    for (int j = 0; j < 4; j++) {
        const lanes d0 = tile_load(in + j * next), d1 = tile_load(in + (4 + j) * next), d2 = tile_load(in + (8 + j) * next);
        t[j] = d0 + d1 + d2;
        b[j] = d1 - d2 - tile_load(in + (12 + j) * next);
    }
    tile_store(y, tile_most(least, t[0] + t[1] + t[2] + bias));
    if (second_column) tile_store(y + column, tile_most(least, t[1] - t[2] - t[3] + bias));
    if (!second_row) return;
    tile_store(y + row, tile_most(least, b[0] + b[1] + b[2] + bias));
    if (second_column) tile_store(y + row + column, tile_most(least, b[1] - b[2] - b[3] + bias));
}

/* arrays: data, packed weights [panel][place][channels][COLUMNS], bias or null, output, sizes. A piece is a block of images, of
   rows of tiles, and of filters. */
void winograd_rows(void *const *arrays, int64_t begin, int64_t end)
{
    const winograd_sizes *g = arrays[4];
    const int64_t C = g->channels, most = g->block_images * g->block_rows * g->tile_columns;
    const int64_t next = most * C + LANES, made = most * COLUMNS + LANES;  /* not of a size that falls on the same cache lines */
    float *data = conv_memory(0, 16 * (next + made) + C), *products = data + 16 * next, *zeros = products + 16 * made;
    memset(zeros, 0, sizeof(float) * C);
    for (int64_t piece = begin; piece < end; piece++) {
        const int64_t first = piece %% g->filter_blocks * g->filter_block, last = conv_least(first + g->filter_block, g->filters);
        const int64_t block = piece / g->filter_blocks, r0 = block %% g->row_blocks * g->block_rows;
        const int64_t n0 = block / g->row_blocks * g->block_images, r1 = conv_least(r0 + g->block_rows, g->tile_rows);
        const int64_t n1 = conv_least(n0 + g->block_images, g->images);
        float *out = data;
        for (int64_t n = n0; n < n1; n++)
            for (int64_t r = r0; r < r1; r++)
                for (int64_t k = 0; k < g->tile_columns; k++, out += C) {
                    const float *x = (const float *)arrays[0] + n * g->height * g->width * C, *at[16];
                    for (int i = 0; i < 16; i++) {
                        const int64_t y = r * 2 - g->pad_y + i / 4, z = k * 2 - g->pad_x + i %% 4;
                        const int inside = y >= 0 && y < g->height && z >= 0 && z < g->width;
                        at[i] = inside ? x + (y * g->width + z) * C : zeros;
                    }
                    winograd_take(at, out, next, C);
                }
        const int64_t tiles = (out - data) / C, height = tile_height(tiles), calls = (tiles + height - 1) / height;
        const int64_t step = (sizeof(float) * COLUMNS + calls - 1) / calls, none = 0;
        for (int64_t f = first; f < last; f += COLUMNS) {
            const int64_t columns = conv_least(last - f, COLUMNS);
            const float *w = (const float *)arrays[1] + f * 16 * C, *bias = arrays[2], zero[COLUMNS] = {0};
            for (int q = 0; q < 16; q++, w += C * COLUMNS) {
                const char *ahead = (const char *)(w + C * COLUMNS);
                for (int64_t p = 0, rows; p < tiles; p += rows, ahead += step * C) {
                    const float *xs[TILE_ROWS];
                    float *ys[TILE_ROWS];
                    rows = tile_next(height, tiles - p);
                    for (int64_t j = 0; j < rows; j++) {
                        xs[j] = data + q * next + (p + j) * C;
                        ys[j] = products + q * made + (p + j) * COLUMNS;
                    }
                    tile_rows(rows, xs, C, ys, &none, &C, 1, w, COLUMNS, zero, NO_FLOOR, 0, columns <= LANES, ahead, step);
                }
            }
            const float *in = products;
            for (int64_t n = n0; n < n1; n++)
                for (int64_t r = r0; r < r1; r++)
                    for (int64_t k = 0; k < g->tile_columns; k++, in += COLUMNS) {
                        const int64_t row = g->out_width * g->filters;
                        float *y = (float *)arrays[3] + ((n * g->out_height + r * 2) * g->out_width + k * 2) * g->filters + f;
                        for (int64_t l = 0; l < columns; l += LANES)
                            winograd_give(in + l, made, bias ? tile_load(bias + f + l) : tile_all(0),
                                          tile_all(g->rectified ? 0 : NO_FLOOR), y + l, row, g->filters,
                                          r * 2 + 1 < g->out_height, k * 2 + 1 < g->out_width);
                    }
        }
    }
}

/* arrays: a weight, its panels, sizes, then the steps of its filters, channels and taps, and its first element. A piece is
   MOST_COLUMNS filters. */
void winograd_pack(void *const *arrays, int64_t begin, int64_t end)
{
    const winograd_sizes *g = arrays[2];
    const int64_t *s = arrays[3], C = g->channels;
    for (int64_t first = begin * MOST_COLUMNS; first < end * MOST_COLUMNS && first < g->filters; first += LANES) {
        const float *w = (const float *)arrays[0] + s[3] + first * s[0];
        float *out = (float *)arrays[1] + first / COLUMNS * 16 * C * COLUMNS + first %% COLUMNS;
        for (int64_t c = 0; c < C; c++) {
            float taps[9 * LANES];
            lanes d[9], half[12], whole[16];
            if (s[1] == 1)
                for (int t = 0; t < 9; t++)
                    for (int l = 0; l < LANES; l++) taps[t * LANES + l] = w[l * s[0] + c + t * s[2]];
            else
                for (int l = 0; l < LANES; l++)
                    for (int t = 0; t < 9; t++) taps[t * LANES + l] = w[l * s[0] + c * s[1] + t * s[2]];
            for (int t = 0; t < 9; t++) d[t] = tile_load(taps + t * LANES);
            for (int j = 0; j < 3; j++) winograd_weight(d + j, 3, half + j, 3);
            for (int i = 0; i < 4; i++) winograd_weight(half + 3 * i, 1, whole + 4 * i, 1);
            for (int i = 0; i < 16; i++) tile_store(out + (i * C + c) * COLUMNS, whole[i]);
        }
    }
}
"""

TEXT = _TEXT % {"fields": ", ".join(FIELDS)}


@dataclass(frozen=True)
class Winograd:
    """The sizes of such a convolution, and its pieces of work."""

    g: ConvolutionGeometry

    @property
    def packed(self) -> int:
        """Return the elements of the packed weight, on any machine."""
        return 16 * self.g.c * cdiv(self.g.f, MOST_COLUMNS) * MOST_COLUMNS

    def blocks(self) -> tuple[int, int, int]:
        """Return how many images, rows of tiles and filters are one piece."""
        g, (whole, columns) = self.g, (cdiv(s, 2) for s in self.g.out)
        most, panels = max(1, DATA // (16 * g.c * columns)), cdiv(g.f, MOST_COLUMNS)
        each = [(n, whole) for n in parts(g.n) if n * whole <= most] + [(1, r) for r in parts(whole) if r <= most]

        def time(block: Block) -> int:
            images, rows, filters = block
            tiles = images * rows * columns
            return product_time(tiles, 16 * g.c, filters) + TRANSFORM * g.c * tiles

        return cheapest((g.n, whole, g.f), [(*one, f * MOST_COLUMNS) for one in each for f in parts(panels)], time)

    def sizes(self, rectified: bool) -> tuple[list[int], int]:
        """Return the numbers that the C functions take, and how many pieces there are."""
        g, (images, rows, filters) = self.g, self.blocks()
        tile_rows, tile_columns = (cdiv(s, 2) for s in g.out)
        row_blocks, filter_blocks = cdiv(tile_rows, rows), cdiv(g.f, filters)
        numbers = [g.n, *g.spatial, g.c, g.f, *g.out, *g.pad, tile_rows, tile_columns, images, rows, row_blocks, filters,
                   filter_blocks, rectified]
        return numbers, cdiv(g.n, images) * row_blocks * filter_blocks


@functools.lru_cache(maxsize=512)
def winograd(g: ConvolutionGeometry) -> Winograd | None:
    """Return how a convolution of two axes is computed in tiles, or None if it is not: that depends on its sizes alone."""
    plain = g.kernel == (3, 3) and g.stride == g.dilate == (1, 1) and g.groups == 1 and g.channels_last
    if not plain or g.data_first or g.c % VECTOR or g.f % VECTOR or min(g.c, g.f) < LEAST or min(g.out) < 4:
        return None
    return Winograd(g)


def winograd_of_gradient(g: ConvolutionGeometry) -> Winograd | None:
    """Return how the derivative by data is computed in tiles: a convolution of dy, with the padding that is left over."""
    if g.kernel != (3, 3) or max(g.pad) > 2:
        return None
    return winograd(replace(g, c=g.f, f=g.c, spatial=g.out, out=g.spatial, pad=(2 - g.pad[0], 2 - g.pad[1])))
