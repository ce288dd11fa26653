"""LRN in C: a block of neighbouring positions at a time, all channels of it, with NumPy's bits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ....integers import cdiv
from ...cpu.c_moving import ReboundKernel
from ...cpu.c_team import Phases, int64s
from ...cpu.c_template import Call, Template, doubles
from ...kernel import BoundKernel, Kernel

LEAST = 1 << 12  # elements from which on C is worth compiling
FEWEST, MOST = 64, 1024  # positions that are computed together: memory is read fast where many follow one another
PIECE = 1 << 14  # elements of a piece, and of a block of positions, unless that has the fewest
MOST_CHANNELS = 1 << 12  # whose squares, powers and parts for the fewest positions stay in cache

_TEXT = f"""
#include <stdlib.h>

#define MOST {MOST}
""" + """
typedef struct { int64_t samples, channels, positions, lanes, blocks, together, reach, add; } lrn_sizes;

/* total[l] = x[c][l] and those of the channels up to `reach` from it, the nearest first. */
static inline void lrn_window(const float *x, int64_t step, int64_t c, int64_t C, int64_t reach, int64_t n, float *total)
{
    memcpy(total, x + c * step, sizeof(float) * n);
    for (int64_t d = 1; d <= reach; d++) {
        const float *below = x + (c - d) * step, *above = x + (c + d) * step;
        if (c >= d) for (int64_t l = 0; l < n; l++) total[l] += below[l];
        if (c + d < C) for (int64_t l = 0; l < n; l++) total[l] += above[l];
    }
}

/* arrays: data, result, sizes, then knorm and alpha / nsize as doubles: forward. dy, data, derivative, sizes, then those two and
   2 alpha beta / nsize: backward. A piece is some blocks of positions; blocks of one sample follow one another. */
#define LRN_BLOCKS \\
    const int64_t C = g->channels, P = g->positions, L = g->lanes; \\
    for (int64_t i = begin * g->together; i < (end * g->together) && i < g->samples * g->blocks; i++) { \\
        const int64_t first = i % g->blocks * L, n = P - first < L ? P - first : L; \\
        const int64_t at = i / g->blocks * C * P + first;

#define LRN_SCALE(x) \\
        for (int64_t c = 0; c < C; c++) \\
            for (int64_t l = 0; l < n; l++) squares[c * L + l] = (x)[c * P + l] * (x)[c * P + l];

static inline float lrn_power(float scale)
{
    const float root = sqrtf(scale);
    return 1 / (root * sqrtf(root));
}

void lrn_forward(void *const *arrays, int64_t begin, int64_t end)
{
    const lrn_sizes *g = arrays[2];
    const double *given = arrays[3];
    const float knorm = given[0], alpha = given[1];
    float *squares = malloc(sizeof(float) * g->channels * g->lanes), total[MOST];
    LRN_BLOCKS
        const float *x = (const float *)arrays[0] + at;
        float *y = (float *)arrays[1] + at;
        LRN_SCALE(x)
        for (int64_t c = 0; c < C; c++, x += P, y += P) {
            lrn_window(squares, L, c, C, g->reach, n, total);
            for (int64_t l = 0; l < n; l++) total[l] = x[l] * lrn_power(knorm + alpha * total[l]);
            if (g->add) for (int64_t l = 0; l < n; l++) y[l] += total[l];
            else memcpy(y, total, sizeof(float) * n);
        }
    }
    free(squares);
}

void lrn_backward(void *const *arrays, int64_t begin, int64_t end)
{
    const lrn_sizes *g = arrays[3];
    const double *given = arrays[4];
    const float knorm = given[0], alpha = given[1], factor = given[2];
    float *squares = malloc(3 * sizeof(float) * g->channels * g->lanes), total[MOST];
    LRN_BLOCKS
        const float *dy = (const float *)arrays[0] + at, *x = (const float *)arrays[1] + at;
        float *dx = (float *)arrays[2] + at, *power = squares + C * L, *parts = power + C * L;
        LRN_SCALE(x)
        for (int64_t c = 0; c < C; c++) {
            lrn_window(squares, L, c, C, g->reach, n, total);
            for (int64_t l = 0; l < n; l++) {
                const float scale = knorm + alpha * total[l], by = lrn_power(scale);
                power[c * L + l] = by;
                parts[c * L + l] = dy[c * P + l] * x[c * P + l] * by / scale;
            }
        }
        for (int64_t c = 0; c < C; c++, dy += P, x += P, dx += P) {
            lrn_window(parts, L, c, C, g->reach, n, total);
            for (int64_t l = 0; l < n; l++) total[l] = dy[l] * power[c * L + l] - factor * x[l] * total[l];
            if (g->add) for (int64_t l = 0; l < n; l++) dx[l] += total[l];
            else memcpy(dx, total, sizeof(float) * n);
        }
    }
    free(squares);
}
"""

TEMPLATE = Template(lambda: _TEXT, ("lrn_forward", "lrn_backward"))


def in_c(rows: tuple[int, int, int], dtype: np.dtype, beta: float) -> bool:
    """Return whether C computes: that depends on the sizes, the dtype, the power and the machine alone."""
    plain = dtype == np.float32 and beta == 0.75 and rows[1] <= MOST_CHANNELS
    return plain and TEMPLATE.serves(rows[0] * rows[1] * rows[2], LEAST)


def kernel(name: str, rows: tuple[int, int, int], nsize: int, add: bool, *numbers: float) -> Kernel:
    """Return the kernel "forward" or "backward" of data [samples, channels, positions]; numbers: as the C function takes them."""
    samples, channels, positions = rows
    lanes = min(MOST, max(FEWEST, PIECE // channels // 16 * 16))
    blocks = cdiv(positions, lanes)
    together = max(1, PIECE // (channels * min(positions, lanes)))
    sizes = int64s(samples, channels, positions, lanes, blocks, together, min(nsize // 2, channels - 1), add)
    call = Call(TEMPLATE, f"lrn_{name}", cdiv(samples * blocks, together), sizes, doubles(*numbers))

    def bind(inputs: Sequence[Any], outputs: Sequence[Any]) -> BoundKernel:
        return Phases([[call.prepare(*inputs, outputs[0])]])

    return ReboundKernel(bind)
