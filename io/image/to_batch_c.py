"""One C function that writes an image into its row of a batch: resized, mirrored, normalised, the channels separated.

Each call that releases the GIL must take it again, in competition with the threads that decode or train. So one call is
better than the seven that OpenCV needs, and no intermediate result goes to memory. The pixels are OpenCV's bit for bit, which
`row_writer` checks once.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable

import numpy as np

from ...kernels.cpu import c_compile
from ...kernels.cpu.c_printer import CFunction
from ...kernels.ir.coalesce import merge
from .codec import opencv

#: write(pixels uint8[y, x, 3], row float32 or uint8 [3, height, width], mirrored, factors float32[9]) computes
#: (pixel - factors[c]) * factors[3 + c] + factors[6 + c]; a uint8 row gets the pixels. Returns False for unsupported arrays.
CRowWriter = Callable[[np.ndarray, np.ndarray, bool, np.ndarray], bool]

# OpenCV's bilinear resize of bytes: weights of 11 bits; along x a sum of two products without its last 4 bits; along y the
# upper 16 bits of two products; then rounded by 2 bits. A row that was resized along x is used for two rows of the result.
_TEXT = """
#ifdef __SSSE3__
#include <tmmintrin.h>
#endif

/* Interpolate n pixels of a row, 4 numbers each, between s + at[k] and the next pixel; 8 bytes are readable if from <= k < to */
static void image_across(const uint8_t *s, int16_t *d, const int32_t *at, const int32_t *weight, int64_t n, int64_t from,
                         int64_t to)
{
    for (int64_t k = 0; k < n; k++) {
#ifdef __SSSE3__
        if (k == from) {
            const __m128i pairs = _mm_setr_epi8(0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1);
            for (; k + 1 < to; k += 2) {
                __m128i a = _mm_loadl_epi64((const __m128i *)(s + at[k])), b = _mm_loadl_epi64((const __m128i *)(s + at[k + 1]));
                a = _mm_madd_epi16(_mm_shuffle_epi8(a, pairs), _mm_set1_epi32(weight[k]));
                b = _mm_madd_epi16(_mm_shuffle_epi8(b, pairs), _mm_set1_epi32(weight[k + 1]));
                _mm_storeu_si128((__m128i *)(d + 4 * k), _mm_packs_epi32(_mm_srai_epi32(a, 4), _mm_srai_epi32(b, 4)));
            }
            if (k >= n) return;
        }
#endif
        const int32_t left = (int16_t)weight[k], right = weight[k] >> 16;
        const uint8_t *p = s + at[k], *q = right ? p + 3 : p;
        for (int c = 0; c < 3; c++) d[4 * k + c] = (int16_t)((p[c] * left + q[c] * right) >> 4);
        d[4 * k + 3] = 0;
    }
}

void image_row(void *const *arrays, int64_t begin, int64_t end)
{
    const uint8_t *pixels = arrays[0];
    const int64_t *size = arrays[2];
    const float *factors = arrays[3];
    const int64_t old_h = size[0], old_w = size[1], stride = size[2], h = size[3], w = size[4], mirrored = size[5];
    const int64_t floats = size[6];
    int32_t *at = arrays[4], *weight = at + w;
    uint32_t *mixed = (uint32_t *)(weight + w);
    int16_t *rows[2] = {(int16_t *)(mixed + w), (int16_t *)(mixed + w) + 4 * w};
    int64_t held[2] = {-1, -1}, from = w, to = 0;
    const double step_x = 1. / ((double)w / old_w), step_y = 1. / ((double)h / old_h);
    for (int64_t x = 0; x < w; x++) {
        const int64_t k = mirrored ? w - 1 - x : x;
        float part = (float)((x + 0.5) * step_x - 0.5);
        int64_t left = (int64_t)floorf(part);
        part -= left;
        if (left < 0) left = 0, part = 0;
        if (left >= old_w - 1) left = old_w - 1, part = 0;
        at[k] = (int32_t)(3 * left);
        weight[k] = (int32_t)((uint32_t)lrintf((1 - part) * 2048) | (uint32_t)lrintf(part * 2048) << 16);
        if (3 * left + 8 <= 3 * old_w) {
            if (k < from) from = k;
            if (k >= to) to = k + 1;
        }
    }
    for (int64_t y = begin; y < end; y++) {
        float part = (float)((y + 0.5) * step_y - 0.5);
        const int64_t top = (int64_t)floorf(part);
        part -= top;
        int64_t pair[2];
        for (int i = 0; i < 2; i++) {
            const int64_t r = top + i < 0 ? 0 : top + i >= old_h ? old_h - 1 : top + i;
            pair[i] = r & 1;
            if (held[r & 1] != r) image_across(pixels + r * stride, rows[r & 1], at, weight, w, from, to);
            held[r & 1] = r;
        }
        const int16_t upper = (int16_t)lrintf((1 - part) * 2048), lower = (int16_t)lrintf(part * 2048);
        const int16_t *restrict a = rows[pair[0]], *restrict b = rows[pair[1]];
        uint8_t *restrict m = (uint8_t *)mixed;
        for (int64_t i = 0; i < 4 * w; i++)
            m[i] = (uint8_t)((int16_t)((int16_t)((upper * a[i]) >> 16) + (int16_t)((lower * b[i]) >> 16) + 2) >> 2);
        for (int c = 0; c < 3; c++) {
            const uint8_t *restrict one = m + c;
            if (floats) {
                float *restrict o = (float *)arrays[1] + (c * h + y) * w;
                const float mean = factors[c], factor = factors[3 + c], bias = factors[6 + c];
                for (int64_t x = 0; x < w; x++) o[x] = ((float)one[4 * x] - mean) * factor + bias;
            } else {
                uint8_t *restrict o = (uint8_t *)arrays[1] + (c * h + y) * w;
                for (int64_t x = 0; x < w; x++) o[x] = one[4 * x];
            }
        }
    }
}
"""
_FUNCTION = CFunction("image_row", _TEXT, frozenset(), merge([(1,)]), targets=(0,), states={}, scalars=0, nodes=1, cost=1)
_SCRATCH = 28  # bytes of workspace for each pixel of a row


def row_writer() -> CRowWriter | None:
    """Return the function; None without a compiler, with TRITIUM_CPU_CODE=numpy, or if OpenCV computes other pixels here."""
    return _checked_writer() if c_compile.mode() != "numpy" and c_compile.compiler() is not None else None


@functools.cache
def _checked_writer() -> CRowWriter | None:
    loaded = c_compile.function(_FUNCTION)
    if loaded is None:
        return None
    call = loaded.free

    def write(pixels: np.ndarray, row: np.ndarray, mirrored: bool, factors: np.ndarray) -> bool:
        old_h, old_w, channels = pixels.shape
        stride, pixel, byte = pixels.strides
        _, h, w = row.shape
        if channels != 3 or pixel != 3 or byte != 1 or stride < 0 or not row.flags.c_contiguous:
            return False
        assert len(row) == 3 and row.dtype in (np.float32, np.uint8) and len(factors) == 9, (row.shape, row.dtype, factors)
        size = (ctypes.c_int64 * 7)(old_h, old_w, stride, h, w, mirrored, row.dtype == np.float32)
        scratch = np.empty(_SCRATCH * w, np.uint8)
        call((ctypes.c_void_p * 5)(pixels.ctypes.data, row.ctypes.data, ctypes.addressof(size), factors.ctypes.data,
                                   scratch.ctypes.data), 0, h)
        return True

    return write if _equals_opencv(write) else None


def _equals_opencv(write: CRowWriter) -> bool:
    """Return True if OpenCV resizes random pixels equally. On other processors it may round differently."""
    cv2 = opencv("ImageRecordIter")
    noise = np.random.default_rng(0).integers(0, 256, (37, 53, 3), np.uint8)
    for h, w in ((24, 31), (37, 53), (61, 40), (18, 90)):
        row = np.empty((3, h, w), np.uint8)
        write(noise, row, False, np.zeros(9, np.float32))
        if not np.array_equal(row.transpose(1, 2, 0), cv2.resize(noise, (w, h), interpolation=cv2.INTER_LINEAR)):
            return False
    return True
