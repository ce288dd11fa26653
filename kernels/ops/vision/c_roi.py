"""ROIPooling in C, forward: the largest element of each bin and its place, with NumPy's bits."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....integers import cdiv
from ...cpu.c_team import Phases, int64s
from ...cpu.c_template import Call, Template, doubles

LEAST = 1 << 4  # results from which on C is worth compiling: NumPy needs 100 microseconds for few
PIECE = 1 << 14  # elements of data that a piece reads at most, if it has several channels

_TEXT = """
typedef struct { int64_t n, c, h, w, regions, bins_high, bins_wide, channels; } roi_sizes;

/* Halves are rounded away from zero. */
static int64_t roi_round(float x)
{
    if (x != x) return -1;
    x = x < -0x1p30f ? -0x1p30f : x > 0x1p30f ? 0x1p30f : x;
    return (int64_t)(x < 0 ? -floorf(-x + 0.5f) : floorf(x + 0.5f));
}

static int64_t roi_within(int64_t at, int64_t size) { return at < 0 ? 0 : at > size ? size : at; }

/* Where bin i of a region from first to last begins and ends. */
static void roi_edges(int64_t first, int64_t last, int64_t bins, int64_t i, int64_t size, int64_t *begin, int64_t *end)
{
    const float step = (float)(last - first + 1 > 1 ? last - first + 1 : 1) / (float)bins;
    *begin = roi_within((int64_t)floorf((float)i * step) + first, size);
    *end = roi_within((int64_t)ceilf((float)(i + 1) * step) + first, size);
}

/* arrays: data [n][c][h][w], regions [regions][5], results and places [regions][c][bins high][bins wide], or null, sizes, scale.
   A piece is some channels of a region. The first of the largest elements counts, and NaN is larger than all. */
void roi_pool(void *const *arrays, int64_t begin, int64_t end)
{
    const roi_sizes *g = arrays[4];
    const float scale = (float)*(const double *)arrays[5];
    const int64_t parts = (g->c + g->channels - 1) / g->channels, bins = g->bins_high * g->bins_wide;
    for (int64_t piece = begin; piece < end; piece++) {
        const int64_t r = piece / parts, c0 = piece % parts * g->channels;
        const int64_t c1 = c0 + g->channels < g->c ? c0 + g->channels : g->c;
        const float *roi = (const float *)arrays[1] + 5 * r;
        const int64_t valid = roi[0] > -1 && roi[0] < (float)g->n, image = valid ? (int64_t)roi[0] : 0;
        const int64_t left = roi_round(roi[1] * scale), top = roi_round(roi[2] * scale);
        const int64_t right = roi_round(roi[3] * scale), bottom = roi_round(roi[4] * scale);
        for (int64_t i = 0; i < bins; i++) {
            int64_t y0, y1, x0, x1;
            roi_edges(top, bottom, g->bins_high, i / g->bins_wide, g->h, &y0, &y1);
            roi_edges(left, right, g->bins_wide, i % g->bins_wide, g->w, &x0, &x1);
            for (int64_t c = c0; c < c1; c++) {
                const float *x = (const float *)arrays[0] + (image * g->c + c) * g->h * g->w;
                float best = 0;
                int64_t place = -1;
                if (valid && y0 < y1 && x0 < x1) {
                    best = x[place = y0 * g->w + x0];
                    for (int64_t y = y0; y < y1; y++)
                        for (int64_t k = y * g->w + x0; k < y * g->w + x1; k++)
                            if (x[k] > best || (x[k] != x[k] && best == best)) best = x[place = k];
                }
                const int64_t at = (r * g->c + c) * bins + i;
                if (arrays[2]) ((float *)arrays[2])[at] = best;
                if (arrays[3]) ((int32_t *)arrays[3])[at] = (int32_t)place;
            }
        }
    }
}
"""

_TEMPLATE = Template(lambda: _TEXT, ("roi_pool",))


def in_c(dtype: np.dtype, results: int) -> bool:
    """Return whether C pools: that depends on the dtype, the number of results and the machine alone."""
    return dtype == np.float32 and _TEMPLATE.serves(results, LEAST)


def pool(run: Any, data: np.ndarray, rois: np.ndarray, scale: float, bins: tuple[int, int], best: np.ndarray | None,
         place: np.ndarray | None) -> None:
    """Write the largest element of each bin, and its place."""
    c, regions = data.shape[1], len(rois)
    channels = max(1, min(c, PIECE // (data.shape[2] * data.shape[3])))
    call = Call(_TEMPLATE, "roi_pool", regions * cdiv(c, channels), int64s(*data.shape, regions, *bins, channels), doubles(scale))
    Phases([[call.prepare(np.ascontiguousarray(data), np.ascontiguousarray(rois, np.float32), best, place)]])(run)
