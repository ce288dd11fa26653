"""Products with few rows or columns in C, as of a network at batch 1, and sums over rows.

Each element is the sum of a row of one matrix times a row of the other: neither is packed, and the large one is read once. The
order of a sum depends on its length and on the machine alone, so results have the same bits for any number of threads.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ....integers import cdiv
from ...cpu.c_team import Step, int64s
from ...cpu.c_template import Call, Template, pays
from ...cpu.c_tile import vectors_text

LEAST = 1 << 12  # multiplications from which on C computes, in a bound graph
SHORTEST = 16  # elements of a sum: below, a vector is not full
FEW, DEEP = 12, 128  # rows or columns up to which it does for sums of so many elements, where tiles could compute as well
PIECE = 1 << 14  # elements of the large matrix that are a piece
LEAST_SUMMED = 64  # elements of a sum over rows from which on C computes, in a bound graph
SUMMED = 1 << 16  # elements that are a piece of a sum over rows

_TEXT = """
#define LEAST(a, b) ((a) < (b) ? (a) : (b))

/* The sum of a vector's numbers, halves first: a store and loads of its parts would take as long as a hundred of its products. */
static inline float narrow_total(lanes a)
{
#if defined(__AVX512F__)
    return _mm512_reduce_add_ps(a);
#elif defined(__AVX2__) && defined(__FMA__)
    __m128 half = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    half = _mm_add_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_add_ss(half, _mm_shuffle_ps(half, half, 1)));
#else
    return (a[0] + a[2]) + (a[1] + a[3]);
#endif
}

/* out[i][r] = sum of b[r * step + k] * x[i * x_step + k], for R and F rows. The order of a sum does not depend on R and F. */
static inline __attribute__((always_inline)) void narrow_dots(const int R, const int F, const float *b, int64_t step,
                                                              const float *x, int64_t x_step, int64_t K, float out[][4])
{
    lanes sums[4][4];
    int64_t k = 0;
    for (int i = 0; i < F; i++) for (int r = 0; r < R; r++) sums[i][r] = tile_all(0);
    for (; k + LANES <= K; k += LANES) {
        lanes some[4];
        for (int i = 0; i < F; i++) some[i] = tile_load(x + i * x_step + k);
        for (int r = 0; r < R; r++) {
            const lanes row = tile_load(b + r * step + k);
            for (int i = 0; i < F; i++) sums[i][r] = tile_fma(row, some[i], sums[i][r]);
        }
    }
    for (int i = 0; i < F; i++) for (int r = 0; r < R; r++) {
        float rest = 0;
        for (int64_t j = k; j < K; j++) rest += b[r * step + j] * x[i * x_step + j];
        out[i][r] = narrow_total(sums[i][r]) + rest;
    }
}

/* arrays: the large matrix, the few rows, a number for each row of the large one or null, one for each of the few or null, the
   result, then rows, few, depth, the steps of both, those of the result, the rows of a piece, whether the result is added. */
void product_narrow(void *const *arrays, int64_t begin, int64_t end)
{
    const int64_t *s = arrays[5], rows = s[0], few = s[1], K = s[2], y_row = s[5], y_few = s[6], each = s[7], add = s[8];
    const float *bias = arrays[2], *few_bias = arrays[3];
    for (int64_t r = begin * each, stop = LEAST(end * each, rows); r < stop; r += 4) {
        const int64_t n = LEAST(4, stop - r);
        for (int64_t i = 0, f; i < few; i += f) {
            const float *b = (const float *)arrays[0] + r * s[3], *x = (const float *)arrays[1] + i * s[4];
            float made[4][4];
            f = LEAST(4, few - i);
            if (n == 4 && f == 4) narrow_dots(4, 4, b, s[3], x, s[4], K, made);
            else for (int64_t q = 0; q < f; q++) {
                /* where the large matrix is read only once, a row at a time, as it lies in memory, is fastest */
                if (n == 4 && few > 1) narrow_dots(4, 1, b, s[3], x + q * s[4], 0, K, made + q);
                else for (int64_t j = 0; j < n; j++) {
                    float one[1][4];
                    narrow_dots(1, 1, b + j * s[3], 0, x + q * s[4], 0, K, one);
                    made[q][j] = one[0][0];
                }
            }
            for (int64_t q = 0; q < f; q++) for (int64_t j = 0; j < n; j++) {
                float *to = (float *)arrays[4] + (r + j) * y_row + (i + q) * y_few;
                *to = (add ? *to : 0) + made[q][j] + (bias ? bias[r + j] : 0) + (few_bias ? few_bias[i + q] : 0);
            }
        }
    }
}

/* arrays: a matrix, the sums of its columns, then rows, columns, the columns of a piece, whether the result is added. */
void sum_of_rows(void *const *arrays, int64_t begin, int64_t end)
{
    const int64_t *s = arrays[2], rows = s[0], columns = s[1];
    float *out = arrays[1];
    double total[64];
    for (int64_t c = begin * s[2], stop = LEAST(end * s[2], columns); c < stop; c += 64) {
        const int64_t n = LEAST(64, stop - c);
        memset(total, 0, sizeof total);
        for (int64_t r = 0; r < rows; r++) {
            const float *x = (const float *)arrays[0] + r * columns + c;
            if (n == 64) for (int l = 0; l < 64; l++) total[l] += x[l];
            else for (int64_t l = 0; l < n; l++) total[l] += x[l];
        }
        for (int64_t l = 0; l < n; l++) out[c + l] = (float)(s[3] ? out[c + l] + total[l] : total[l]);
    }
}
"""

TEMPLATE = Template(lambda: vectors_text() + _TEXT, ("product_narrow", "sum_of_rows"))


def in_c(m: int, n: int, k: int) -> bool:
    """Return whether C computes a narrow product in float32, in a bound graph."""
    return k >= SHORTEST and TEMPLATE.serves(m * n * k, LEAST)


def better(m: int, n: int, k: int, least: int) -> bool:
    """Return whether this takes less time than tiles, which compute matrices of at least so many rows and columns.

    Columns that are no whole vector take as long as one; here lanes are elements of the sum.
    """
    return min(m, n) < least or (min(m, n) <= FEW and k >= DEEP)


def c_files(m: int, n: int) -> list[Template]:
    """Return the C files of a sum over the rows of a matrix in a graph; none where NumPy computes it."""
    return [TEMPLATE] if pays(m * n, LEAST_SUMMED) else []


def prepare(a: Any, b: Any, out: Any, add: bool, bias: Any) -> Step | None:
    """Return the step of out [m, n] = (or +=) a [m, k] @ b [k, n] + bias [n]; None where C cannot compute it.

    out may be a view that only gives the steps of the result, whose address is then written to place 4.
    """
    if not a.dtype == b.dtype == out.dtype == np.float32 or not a.ndim == b.ndim == out.ndim == 2:
        return None
    (m, n), k = out.shape, a.shape[1]
    if not in_c(m, n, k) or a.strides[1] != 4 or b.strides[0] != 4:
        return None
    (large, rows), (few, count) = (((b, n), (a, m)) if n >= m else ((a, m), (b, n)))
    turned = large is a
    steps = [s // 4 for s in (a.strides[0], b.strides[1])]
    y_steps = [s // 4 for s in out.strides]
    each = max(4, PIECE // k // 4 * 4)
    order = 1 if turned else -1
    sizes = int64s(rows, count, k, *steps[::order], *y_steps[::order], each, add)
    sides = (None, bias) if turned else (bias, None)
    return Call(TEMPLATE, "product_narrow", cdiv(rows, each), sizes).prepare(large, few, *sides, out)


def sum_rows(a: np.ndarray, out: np.ndarray, add: bool, in_graph: bool) -> Step | None:
    """Return the step of out [n] = (or +=) the sum over the rows of a [m, n]; None where NumPy computes it."""
    m, n = a.shape
    dense = a.flags.c_contiguous and out.flags.c_contiguous
    if not a.dtype == out.dtype == np.float32 or not dense or not TEMPLATE.serves(
            m * n, LEAST_SUMMED if in_graph else LEAST):
        return None
    each = max(64, SUMMED // m // 64 * 64)
    return Call(TEMPLATE, "sum_of_rows", cdiv(n, each), int64s(m, n, each, add)).prepare(a, out)
