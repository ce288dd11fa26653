"""A convolution with a filter for each channel and the 1 × 1 convolution that reads it, in one pass: some rows of the first one's
result stay in cache until the second has read them.

The bits are those of the two one after the other.
"""

from __future__ import annotations

import ctypes
from typing import Any

from ...cpu.c_team import Step, int64s

BUFFER, REUSE = 1 << 15, 2  # elements of the first result that are kept, in whole rows; or positions for each filter, if more

TEXT = """
/* arrays: data, packed weights and bias of the first convolution, sizes, taps; packed weights, bias, output, sizes and runs of
   the second, and the rows of the first result that are kept. A piece is one of the second's. */
void conv_pair(void *const *arrays, int64_t begin, int64_t end)
{
    const conv_sizes *g = arrays[3], *h = arrays[8];
    const each_taps *taps = arrays[4];
    const int64_t C = g->channels, line = g->out_width * C, most = *(const int64_t *)arrays[10];
    float *kept = conv_memory(0, most * line);
    for (int64_t piece = begin; piece < end; piece++) {
        const int64_t r0 = piece % h->row_blocks * h->block_rows, n0 = piece / h->row_blocks * h->block_images;
        const int64_t r1 = conv_least(r0 + h->block_rows, h->out_height), n1 = conv_least(n0 + h->block_images, h->images);
        for (int64_t n = n0; n < n1; n++)
            for (int64_t first = r0; first < r1; first += most) {
                const int64_t rows = conv_least(most, r1 - first);
                for (int64_t r = 0; r < rows;) {
                    const each_view v = {(const float *)arrays[0] + n * g->x_image, g->x_row, g->x_column, g->height, g->width,
                                         (first + r) * g->step_y + g->first_y, g->first_x};
                    r += conv_each_rows_of(g, &v, taps, v.top, rows - r, arrays[1], arrays[2], kept + r * line, line, C, 0);
                }
                const conv_block b = {n, 1, first, rows, kept, 0, line, C};
                conv_tiles(h, &b, arrays[5], arrays[6], (float *)arrays[7] + n * h->y_image + first * h->y_row, arrays[9], 0, 0,
                           h->filters);
            }
    }
}
"""


def pairs(first: Any, second: Any) -> bool:
    """Return whether these two `Forward` (c_conv.py), the second of the first's result, are computed in one pass."""
    a, b = first.geometry, second.geometry
    apart = (a.n, *a.out, a.f) != (b.n, *b.spatial, b.c) or b.groups != 1
    if apart or not (a.channels_last and b.channels_last) or a.data_first or b.data_first:
        return False
    plain = set(b.kernel) == set(b.stride) == {1} and not any(b.pad) and b.c < 1 << 15
    return plain and first.product.each and second.product.ranges is not None


def step(first: Any, second: Any, own: Step, then: Step) -> Step:
    """Return the step of both convolutions, whose own steps are given."""
    g = first.geometry
    positions = max(BUFFER // g.f, REUSE * second.geometry.f)
    most = int64s(max(1, min(g.out[0], positions // g.out[1])))
    addresses = (ctypes.c_void_p * 11)(*own.addresses[:3], *own.addresses[6:8], *then.addresses[1:6], ctypes.addressof(most))
    functions = first.product.rows.template.functions()
    assert functions is not None
    return Step(functions["conv_pair"], addresses, then.pieces, held=(own, then, most), images=then.images)
